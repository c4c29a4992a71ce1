"""``Function``: a recorded graph as a function of arrays (nGraph's ``Function``, in JAX's clothes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from .arrays import as_array
from .draws import run_draws, run_key
from .errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from .leaves import ConstantNode, ParamNode, check_value
from .node import Node
from .places import place
from .rules import check_rule_set
from .running.programs import Plan, compiled
from .scalars import number_vector
from .settings import GraphSettings
from .specs import Spec
from .structure import INPUT, Structure
from .tape import Tape
from .tracing.trace import Checkpoints, trace


@dataclass(frozen=True)
class FunctionPlan(Plan):
    """Some rows of a structure, by the values of its input rows."""

    structure: Structure
    outputs: tuple[int, ...]
    rule_set: str
    trained: tuple[bool, ...]
    checkpoints: Checkpoints | None

    def __str__(self) -> str:
        return f"function of {len(self.structure.rows)} nodes"

    def __call__(self, leaves: Sequence[Any], numbers: Any, draws: Any) -> tuple[Any, ...]:
        return self.values(leaves, numbers, None if draws is None else run_key(draws))

    def values(self, leaves: Sequence[Any], numbers: Any, key: Any) -> tuple[Any, ...]:
        """The outputs; ``key`` is that of the random nodes."""
        values = trace(
            self.structure,
            leaves,
            numbers=numbers,
            rule_set=self.rule_set,
            trained=self.trained,
            key=key,
            checkpoints=self.checkpoints,
        )
        return tuple(values[i] for i in self.outputs)


class Function:
    """The part of a graph below ``outputs`` as a function of ``inputs``.

    ``inputs`` are leaves (``graph.input``, constants or parameters), a sequence or ``{name: node}``; each
    appears once. Calling the function checks names, shapes and element types, takes the parameters' present
    values from the graph and runs one compiled program, shared with every function of equal structure. The
    result is one array for one output node, else a tuple in the order of ``outputs``.

    ``pure(params, inputs, key=None)`` is the same without any state: ``params`` a flat dictionary
    ``{name: array}`` of the parameters' shapes, ``inputs`` a sequence in the order of ``inputs`` or a
    dictionary, ``key`` a ``jax.random`` key for graphs with random nodes. It works under ``jax.jit``,
    ``jax.grad``, ``jax.vmap`` and any optax transformation. ``derivatives`` selects the rule set that
    differentiation meets: with ``"jax"`` forward mode (``jax.jvp``, ``jax.hessian``) works too.

    The function keeps no node but the parameters: the graph may be cleared or changed afterwards. Where the
    graph checkpoints gradients, those of ``pure`` are checkpointed too, at the same nodes.
    """

    def __init__(
        self,
        tape: Tape[Node],
        settings: GraphSettings,
        outputs: Node | Sequence[Node],
        inputs: Sequence[Node] | Mapping[str, Node],
        derivatives: str,
    ) -> None:
        self.derivatives = check_rule_set(derivatives)
        self._single = isinstance(outputs, Node)
        tops = _nodes("outputs", outputs)
        named = _named(inputs)
        tops = [_of_tape(tape, node, "output") for node in tops]
        leaves = {name: _of_tape(tape, node, "input") for name, node in named.items()}
        excerpt = tape.below({*(n.id for n in tops), *(n.id for n in leaves.values())})
        self._inputs: dict[str, Spec] = {name: node.spec for name, node in leaves.items()}
        self._device, self._seed, self._runs = settings.device, settings.seed, settings.runs
        self._constants: list[np.ndarray] = []
        self._parameters: dict[str, ParamNode] = {}
        names = {n.id: name for name, n in leaves.items()}
        sources = [self._source(tape.nodes[i], names) for i in excerpt.inputs]
        rows = tuple(excerpt.row_of[n.id] for n in tops)
        self._sources = tuple(source for source, _ in sources)
        """For each input row the table, ``input``, ``parameter`` or ``constant``, and the key in it."""
        self._plan = FunctionPlan(
            excerpt.structure,
            rows,
            self.derivatives,
            tuple(trained for _, trained in sources),
            Checkpoints.of(tape, excerpt, settings.checkpointing, rows, settings.device),
        )
        """With the numbers of the operators, for JAX to differentiate and transform."""
        generic, numbers = excerpt.structure.generic()
        self._wide, self._random = generic.is_wide(), bool(len(excerpt.random))
        self._program_plan = replace(self._plan, structure=generic)
        self._numbers = number_vector(numbers, self._wide)
        self._on_device: tuple[list[Any], Any] | None = None
        """Constants and numbers on the device, from the first call on."""
        self.parameters = tuple(self._parameters)
        """Names of the parameters that the outputs depend on."""

    def _source(self, node: Node, names: Mapping[int, str]) -> tuple[tuple[str, str | int], bool]:
        """Where the value of a leaf comes from, and whether gradients flow there."""
        if node.id in names:
            return ("input", names[node.id]), node.value_type.is_float
        if isinstance(node, ParamNode):
            self._parameters[node.name] = node
            return ("parameter", node.name), node.trainable
        self._constants.append(node.leaf_value())
        return ("constant", len(self._constants) - 1), False

    @property
    def inputs(self) -> dict[str, Spec]:
        """Shape and element type of each input, in order."""
        return dict(self._inputs)

    def pure(
        self,
        params: Mapping[str, Any],
        inputs: Sequence[Any] | Mapping[str, Any] = (),
        key: jax.Array | None = None,
    ) -> Any:
        """The outputs as a pure function of parameters, inputs and a random key."""
        if self._wide and jax.dtypes.canonicalize_dtype("float64") != "float64":
            raise ElementTypeError(
                "this function has 64-bit types, which JAX would cut to 32; "
                "call it within jax.enable_x64(True)"
            )
        if key is not None and not hasattr(key, "dtype"):
            raise ArgumentError(f"expected a random key such as jax.random.key(seed), got {key!r}")
        if self._random and key is None:
            raise GraphError("this function has random nodes; pass key=jax.random.key(seed)")
        tables = self._tables(self._checked_parameters(params), self._checked(inputs), self._constants)
        return self._formed(self._plan.values(self._leaves(tables), None, key))

    def _tables(self, params: Any, inputs: Any, constants: Any) -> dict[str, Any]:
        return {"input": inputs, "parameter": params, "constant": constants}

    def _leaves(self, tables: Mapping[str, Any]) -> list[Any]:
        return [tables[kind][name] for kind, name in self._sources]

    def _formed(self, results: tuple[Any, ...]) -> Any:
        return results[0] if self._single else results

    def _checked_parameters(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that are needed; each present, of the right shape and element type."""
        missing = [name for name in self._parameters if name not in params]
        if missing:
            raise GraphError(f"missing parameters: {', '.join(missing)}")
        return {
            name: _fitting(f"parameter {name!r}", params[name], node.spec)
            for name, node in self._parameters.items()
        }

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs for these arguments, positional in the order of ``inputs`` or by name."""
        inputs = self._checked(self._by_name(args, named) if args else named)
        for value in inputs.values():
            if isinstance(value, jax.core.Tracer):
                raise GraphError(
                    "this function is compiled already and cannot be transformed by JAX; "
                    "inside jax.jit, jax.grad or jax.vmap call fn.pure(params, inputs, key)"
                )
        if self._on_device is None:
            with jax.enable_x64(self._wide):
                self._on_device = jax.device_put((self._constants, self._numbers), self._device)
        constants, numbers = self._on_device
        params = {name: node.val() for name, node in self._parameters.items()}
        draws = run_draws(self._seed, next(self._runs)) if self._random else None
        plan = self._program_plan
        leaves = self._leaves(self._tables(params, inputs, constants))
        found = compiled(plan, device=self._device, wide=self._wide)(leaves, numbers, draws)
        return self._formed(found)

    def _by_name(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name; the first ones are those of the first inputs."""
        names = list(self._inputs)
        if len(args) > len(names):
            raise GraphError(f"expected the inputs {names}, got {len(args)} arguments")
        given = dict(zip(names, args, strict=False))
        twice = given.keys() & named.keys()
        if twice:
            raise GraphError(f"input {sorted(twice)[0]!r} is given twice")
        return {**given, **named}

    def _checked(self, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name; each present, of the right shape and element type, and none besides."""
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(self._inputs):
                raise GraphError(f"expected the inputs {list(self._inputs)}, got {len(inputs)} values")
            inputs = dict(zip(self._inputs, inputs, strict=True))
        if inputs.keys() != self._inputs.keys():
            missing = [name for name in self._inputs if name not in inputs]
            unknown = [name for name in inputs if name not in self._inputs]
            raise GraphError(
                f"expected the inputs {list(self._inputs)}; missing: {missing}, unknown: {unknown}"
            )
        return {name: _fitting(f"input {name!r}", inputs[name], spec) for name, spec in self._inputs.items()}


def _fitting(what: str, value: Any, spec: Spec) -> Any:
    """``value`` as an array of the right shape and element type, which a Python number becomes."""
    if isinstance(value, Node):
        raise ArgumentError(f"{what} takes an array, got a {value.type} node; pass node.val()")
    if not hasattr(value, "shape"):
        value = as_array(what, value)
        weak = value.dtype.kind in "fiub" and (value.dtype.kind == "f") == spec.type.is_float
        if weak:
            check_value(what, spec, value)
            value = value.astype(spec.type.dtype)
    if tuple(value.shape) != spec.shape:
        raise ShapeError(f"{what} has shape {spec.shape}, got {tuple(value.shape)}")
    if value.dtype != spec.type.dtype:
        raise ElementTypeError(f"{what} has element type {spec.type}, got {value.dtype}")
    return value


def _nodes(role: str, nodes: Any) -> list[Node]:
    given = [nodes] if isinstance(nodes, Node) or not isinstance(nodes, Iterable) else list(nodes)
    if not all(isinstance(n, Node) for n in given):
        raise ArgumentError(f"the {role} of a function are nodes, got {nodes!r}")
    return given


def _named(inputs: Sequence[Node] | Mapping[str, Node]) -> dict[str, Node]:
    if isinstance(inputs, Mapping):
        _nodes("inputs", inputs.values())
        named = dict(inputs)
    else:
        named = {}
        for i, node in enumerate(_nodes("inputs", inputs)):
            name = node.name if node.name != "none" else f"input{i}"
            if name in named:
                raise GraphError(f"two inputs are called {name!r}; name them by a dictionary")
            named[name] = node
    if len({id(node) for node in named.values()}) != len(named):
        raise GraphError("an input may appear only once")
    for name, node in named.items():
        if not isinstance(node, ConstantNode | ParamNode) or (
            isinstance(node, ConstantNode) and node.tape().rows[node.id][0] is not INPUT
        ):
            raise GraphError(
                f"input {name!r} must be a leaf (graph.input, a constant or a parameter), "
                f"got a {node.type} node made at {place(node.where)}"
            )
    return named


def _of_tape(tape: Tape[Node], node: Node, role: str) -> Node:
    node = node.current()
    if node.tape() is not tape:
        raise GraphError(f"{role} {node.type} made at {place(node.where)} belongs to another graph")
    return node
