"""``Function``: a recorded graph as a function of arrays (nGraph's ``Function``, in JAX's clothes)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from .leaves import ConstantNode, Parameters, ParamNode, as_array, check_value
from .node import Node
from .places import place
from .rules import check_rule_set
from .running.programs import PROGRAMS
from .running.trace import Checkpoints, run_draws, run_key, trace
from .shape import Shape
from .specs import Spec
from .tape import INPUT, Structure
from .types import as_type

if TYPE_CHECKING:
    from .graph import ExpressionGraph

Pure = Callable[..., Any]


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
    differentiation meets: with ``"jax"`` forward mode works too, except over checkpoints.

    The function keeps no node: the graph may be cleared or changed afterwards. Where the graph checkpoints
    gradients, those of ``pure`` are checkpointed too, at the same nodes.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        outputs: Node | Sequence[Node],
        inputs: Sequence[Node] | Mapping[str, Node],
        derivatives: str,
    ) -> None:
        self.derivatives = check_rule_set(derivatives)
        self._single = isinstance(outputs, Node)
        tops = _nodes("outputs", outputs)
        named = _named(inputs)
        tape = graph.tape
        tops = [_of_tape(graph, node, "output") for node in tops]
        leaves = {name: _of_tape(graph, node, "input") for name, node in named.items()}
        excerpt = tape.below({*(n.id for n in tops), *(n.id for n in leaves.values())})
        self._structure: Structure = excerpt.structure
        self._outputs = tuple(excerpt.row_of[n.id] for n in tops)
        self._inputs: dict[str, Spec] = {name: node.spec for name, node in leaves.items()}
        self._graph_parameters: Parameters = graph.params()
        self._device, self._seed, self._runs = graph.device, graph.seed, graph.runs
        self._plan(tape.nodes, excerpt.inputs, {n.id: name for name, n in leaves.items()})
        self._random = bool(len(excerpt.random))
        self._wide = self._structure.is_wide()
        self._checkpoints = Checkpoints.of(tape, excerpt, graph.checkpointing, self._outputs, graph.device)

    def _plan(self, nodes: Sequence[Node], rows: Sequence[int], names: dict[int, str]) -> None:
        """Say for each input row where its value comes from: an argument, a parameter, a constant."""
        self._sources: list[tuple[str, str | int]] = []
        self._constants: list[np.ndarray] = []
        self._parameter_shapes: dict[str, Shape] = {}
        trained = []
        for i in rows:
            node = nodes[i]
            if i in names:
                self._sources.append(("input", names[i]))
                trained.append(node.value_type.is_float)
            elif isinstance(node, ParamNode):
                self._sources.append(("parameter", node.name))
                self._parameter_shapes[node.name] = node.shape
                trained.append(node.trainable)
            else:
                self._sources.append(("constant", len(self._constants)))
                self._constants.append(node.leaf_value())
                trained.append(False)
        self._trained = tuple(trained)
        self.parameters = tuple(self._parameter_shapes)
        """Names of the parameters that the outputs depend on."""

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
        return self._compute(params, self._checked(inputs), self._constants, key)

    def _compute(
        self, params: Mapping[str, Any], inputs: Mapping[str, Any], constants: Sequence[Any], key: Any
    ) -> Any:
        missing = [name for name in self.parameters if name not in params]
        if missing:
            raise GraphError(f"missing parameters: {', '.join(missing)}")
        for name, shape in self._parameter_shapes.items():
            if np.shape(params[name]) != shape:
                raise ShapeError(f"parameter {name!r} has shape {shape}, got {np.shape(params[name])}")
        if self._random and key is None:
            raise GraphError("this function has random nodes; pass key=jax.random.key(seed)")
        tables: dict[str, Any] = {"input": inputs, "parameter": params, "constant": constants}
        leaves = [tables[kind][name] for kind, name in self._sources]
        values = trace(
            self._structure,
            leaves,
            rule_set=self.derivatives,
            trained=self._trained,
            key=key,
            checkpoints=self._checkpoints,
        )
        results = tuple(values[i] for i in self._outputs)
        return results[0] if self._single else results

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The outputs for these arguments, positional in the order of ``inputs`` or by name."""
        names = list(self._inputs)
        if len(args) > len(names):
            raise GraphError(f"expected the inputs {names}, got {len(args)} arguments")
        given = dict(zip(names, args, strict=False))
        twice = given.keys() & named.keys()
        if twice:
            raise GraphError(f"input {sorted(twice)[0]!r} is given twice")
        inputs = self._checked({**given, **named})
        if any(isinstance(value, jax.core.Tracer) for value in inputs.values()):
            raise GraphError(
                "this function is compiled already and cannot be transformed by JAX; "
                "inside jax.jit, jax.grad or jax.vmap call fn.pure(params, inputs, key)"
            )
        params = {name: self._graph_parameters[name].val() for name in self.parameters}
        draws = run_draws(self._seed, next(self._runs)) if self._random else None

        def function(params: Any, inputs: Any, constants: Any, draws: Any) -> Any:
            key = None if draws is None else run_key(draws)
            return self._compute(params, inputs, constants, key)

        program = PROGRAMS.get(
            (
                "function",
                self._structure,
                self._outputs,
                tuple(self._sources),
                self.derivatives,
                self._single,
            ),
            f"function of {len(self._structure.rows)} nodes",
            function,
            (params, inputs, self._constants, draws),
            device=self._device,
            wide=self._wide,
        )
        return program(params, inputs, self._constants, draws)

    def _checked(self, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name; each present, of the right shape and element type, and none besides."""
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(self._inputs):
                raise GraphError(f"expected the inputs {list(self._inputs)}, got {len(inputs)} values")
            inputs = dict(zip(self._inputs, inputs, strict=True))
        missing = [name for name in self._inputs if name not in inputs]
        unknown = [name for name in inputs if name not in self._inputs]
        if missing or unknown:
            raise GraphError(
                f"expected the inputs {list(self._inputs)}; missing: {missing}, unknown: {unknown}"
            )
        return {name: _fitting(name, inputs[name], spec) for name, spec in self._inputs.items()}


def _fitting(name: str, value: Any, spec: Spec) -> Any:
    if isinstance(value, Node):
        raise ArgumentError(f"input {name!r} takes an array, got a {value.type} node; pass node.val()")
    if not hasattr(value, "shape"):
        value = as_array(f"input {name!r}", value)
        weak = value.dtype.kind in "fiub" and (value.dtype.kind == "f") == spec.type.is_float
        if weak:
            check_value(f"input {name!r}", spec, value)
            value = value.astype(spec.type.dtype)
    if tuple(value.shape) != spec.shape:
        raise ShapeError(f"input {name!r} has shape {spec.shape}, got {tuple(value.shape)}")
    if as_type(value.dtype) is not spec.type:
        raise ElementTypeError(f"input {name!r} has element type {spec.type}, got {value.dtype}")
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


def _of_tape(graph: ExpressionGraph, node: Node, role: str) -> Node:
    node = node.current()
    if node.tape() is not graph.tape:
        raise GraphError(f"{role} {node.type} made at {place(node.where)} belongs to another graph")
    return node
