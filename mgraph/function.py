"""``Function``: a recorded graph as a function of arrays (nGraph's ``Function``, in JAX's style)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import jax
import jax.export
import numpy as np
from jax.typing import ArrayLike

from .arrays import is_series, text
from .device import platform_of
from .draws import Key, run_draws, run_key
from .errors import ArgumentError, GraphError
from .leaves import ConstantNode, ParamNode
from .names import with_article
from .node import Node
from .places import here, place
from .rules import check_rule_set
from .running.programs import Plan, compiled
from .saved_function import save_function
from .scalars import number_vector
from .settings import GraphSettings
from .signature import Signature, fitting
from .specs import Spec
from .structure import INPUT, Structure
from .tape import Tape
from .tracing.trace import Checkpoints, trace


@dataclass(frozen=True)
class FunctionPlan(Plan):
    """Some rows of a structure, computed from the values of its input rows."""

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
        """The outputs; ``key`` is the key of the random nodes."""
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


R = TypeVar("R")
"""What a function returns: an array, or a tuple of arrays."""


class Function(Generic[R]):
    """The part of a graph below ``outputs`` as a function of ``inputs``.

    ``inputs`` is a sequence of leaves (``graph.input``, constants or parameters) or ``{name: node}``; a leaf
    may appear only once. Calling the function checks names, shapes and element types, takes the parameters'
    present values from the graph and runs one compiled program, shared with every function of equal
    structure. It returns one array if ``outputs`` is one node, else a tuple in the order of ``outputs``.

    ``pure(params, inputs, key=None)`` computes the same without any state: ``params`` is a flat dictionary
    ``{name: array}`` with arrays of the parameters' shapes, ``inputs`` a sequence in the order of ``inputs``
    or a dictionary, and ``key`` a ``jax.random`` key for graphs with random nodes. It works under
    ``jax.jit``, ``jax.grad``, ``jax.vmap`` and any optax transformation. ``derivatives`` selects the rule
    set that differentiation uses: with ``"jax"`` forward mode (``jax.jvp``, ``jax.jacfwd``) works too.

    The parameters are the only nodes that the function keeps: the graph may be cleared or changed
    afterwards. ``debug``, ``callback`` and ``set_throw_nan`` watch a graph but not its functions. If the
    graph checkpoints gradients, ``pure`` checkpoints its gradients at the same nodes.

    ``clone`` and ``replace_parameter`` make functions of the same nodes; ``save`` writes a function to a
    file, and ``mgraph.load_function`` reads it without the graph or its operators' code.

    ``ArgumentError`` for outputs and inputs that are not nodes, and for an unknown rule set; ``GraphError``
    for an input that is not a leaf or appears twice, and for a node of another graph. A call raises
    ``GraphError`` for inputs that are missing or unknown, ``ShapeError`` or ``ElementTypeError`` for one that
    does not fit.
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
        tops = _nodes("outputs", outputs)
        named = _named(inputs)
        tops = [_of_tape(tape, node, "output") for node in tops]
        leaves = {name: _of_tape(tape, node, "input") for name, node in named.items()}
        excerpt = tape.below({*(n.id for n in tops), *(n.id for n in leaves.values())})
        self._results = tuple(node.spec for node in tops)
        self._device, self.seed, self._runs = settings.device, settings.seed, settings.runs
        self._constants: list[np.ndarray] = []
        self._parameters: dict[str, ParamNode | jax.Array] = {}
        """The parameters by name, or the values that have replaced them."""
        names = {n.id: name for name, n in leaves.items()}
        sources = [self._source(tape.nodes[i], names) for i in excerpt.inputs]
        rows = tuple(excerpt.row_of[n.id] for n in tops)
        self._sources = tuple(source for source, _ in sources)
        """For each input row its table (``input``, ``parameter`` or ``constant``) and its key there."""
        self._plan = FunctionPlan(
            excerpt.structure,
            rows,
            self.derivatives,
            tuple(trained for _, trained in sources),
            Checkpoints.of(tape, excerpt, settings.checkpointing, rows, settings.device),
        )
        """The plan with the operators' numbers in it, for JAX to differentiate and transform."""
        generic, numbers = excerpt.structure.generic()
        self.signature = Signature(
            {name: node.spec for name, node in leaves.items()},
            {name: node.spec for name, node in self._parameters.items() if isinstance(node, ParamNode)},
            isinstance(outputs, Node),
            bool(len(excerpt.random)),
            generic.is_wide(),
        )
        """Names, shapes and element types of inputs and parameters."""
        self._program_plan = replace(self._plan, structure=generic)
        self._numbers = number_vector(numbers, generic.is_wide())
        self._on_device: tuple[list[Any], Any] | None = None
        """Constants and numbers on the device, from the first call on."""
        self.parameters = tuple(self._parameters)
        """Names of the parameters that the outputs depend on."""

    def _source(self, node: Node, names: Mapping[int, str]) -> tuple[tuple[str, str | int], bool]:
        """Where the value of a leaf comes from, and whether gradients flow to it."""
        if node.id in names:
            return ("input", names[node.id]), node.value_type.is_float
        if isinstance(node, ParamNode):
            self._parameters[node.name] = node
            return ("parameter", node.name), node.trainable
        self._constants.append(node.leaf_value())
        return ("constant", len(self._constants) - 1), False

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {spec!r}" for name, spec in self.signature.inputs.items())
        results = ", ".join(map(repr, self._results))
        return f"Function(({inputs}) -> {results}; {len(self.parameters)} parameters)"

    @property
    def inputs(self) -> dict[str, Spec]:
        """Shape and element type of each input, in order."""
        return dict(self.signature.inputs)

    def values(self) -> dict[str, jax.Array]:
        """The parameters' present values by name."""
        return {name: p.val() if isinstance(p, ParamNode) else p for name, p in self._parameters.items()}

    def clone(self, *, derivatives: str | None = None) -> Function[R]:
        """Another function of the same nodes and parameters, with another rule set if one is given. Source:
        nGraph, ``clone_function``."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._parameters = dict(self._parameters)
        made.derivatives = self.derivatives if derivatives is None else check_rule_set(derivatives)
        made._plan = replace(self._plan, rule_set=made.derivatives)
        made._program_plan = replace(self._program_plan, rule_set=made.derivatives)
        return made

    @property
    def structure(self) -> Structure:
        """The nodes, including the operators' numbers."""
        return self._plan.structure

    def of_structure(self, structure: Structure) -> Function[R]:
        """This function, but ``pure`` uses the operators of ``structure``, in order to differentiate them."""
        made = self.clone()
        made._plan = replace(self._plan, structure=structure)
        return made

    def __copy__(self) -> Function[R]:
        return self.clone()

    def __reduce__(self) -> Any:
        # called by deepcopy and pickle
        raise GraphError(
            "a function cannot be copied deeply or pickled: its parameters are those of a graph. "
            "function.save(path) writes it, mgraph.load_function(path) reads it, and function.clone() makes "
            f"another of the same{here()}"
        )

    def replace_parameter(self, name: str, by: Any) -> Function[R]:
        """This function with an array, or a parameter of any graph, in place of the parameter ``name``.

        ``ArgumentError`` for an unknown name, ``ShapeError`` or ``ElementTypeError`` if it does not fit.
        Source: nGraph, ``Function::replace_parameter``.
        """
        if not isinstance(name, str) or name not in self._parameters:
            raise ArgumentError(f"the function has no parameter {name!r}; it has {list(self.parameters)}")
        spec = self.signature.parameters[name]
        with jax.enable_x64(self.signature.wide):
            value = fitting(f"parameter {name!r}", by.val() if isinstance(by, ParamNode) else by, spec)
            made = self.clone()
            made._parameters[name] = by if isinstance(by, ParamNode) else jax.numpy.array(value)
        return made

    def save(
        self, path: str | os.PathLike[str], *, order: int = 1, platforms: Sequence[str] | None = None
    ) -> None:
        """Write the function, with its constants and the parameters' present values, to ``path``.

        ``mgraph.load_function(path)`` runs it and differentiates it by this function's rule set, without its
        operators' code. order: how many times it can be differentiated, 0 for never; each time makes the file
        larger. platforms: ``cpu``, ``cuda``, ``rocm`` or ``tpu``; by default that of the function's device.
        The programs come from ``jax.export``; later versions of JAX read them for at least six months.
        ``ArgumentError`` for an order that is not from 0 to 4, and for an unknown platform.
        """
        kind = platform_of(self._device)
        default = jax.export.default_export_platform() if kind == "gpu" else kind
        chosen = [default] if platforms is None else platforms
        save_function(self, path, order=order, platforms=chosen)

    def pure(
        self,
        params: Mapping[str, Any],
        inputs: Sequence[Any] | Mapping[str, Any] = (),
        key: Key | None = None,
    ) -> R:
        """The outputs as a pure function of parameters, inputs and a random key.

        Errors as for a call, for parameters too; ``GraphError`` if random nodes lack a key,
        ``ElementTypeError`` for 64-bit types outside ``jax.enable_x64(True)``.
        """
        signature = self.signature
        signature.check_pure(key)
        given = signature.checked_parameters(params), signature.checked_inputs(inputs)
        leaves = self._leaves(*given, self._constants)
        return signature.formed(self._plan.values(leaves, None, key))

    def _leaves(self, params: Any, inputs: Any, constants: Any) -> list[Any]:
        """The values of the input rows, in order."""
        tables = {"input": inputs, "parameter": params, "constant": constants}
        return [tables[kind][name] for kind, name in self._sources]

    def __call__(self, *args: ArrayLike, **named: ArrayLike) -> R:
        """The outputs for these arguments, positional in the order of ``inputs`` or by name."""
        inputs = self.signature.of_call(args, named)
        plan, wide = self._program_plan, self.signature.wide
        program = compiled(plan, device=self._device, wide=wide)
        if self._on_device is None:
            with jax.enable_x64(wide):
                self._on_device = jax.device_put((self._constants, self._numbers), self._device)
        constants, numbers = self._on_device
        draws = run_draws(self.seed, next(self._runs)) if self.signature.random else None
        leaves = self._leaves(self.values(), inputs, constants)
        return self.signature.formed(program(leaves, numbers, draws))


def _nodes(role: str, nodes: Any) -> list[Node]:
    given = [nodes] if isinstance(nodes, Node) or not is_series(nodes) else list(nodes)
    if not all(isinstance(n, Node) for n in given):
        raise ArgumentError(f"the {role} of a function are nodes, got {nodes!r}")
    return given


def _named(inputs: Sequence[Node] | Mapping[str, Node]) -> dict[str, Node]:
    given = _nodes("inputs", inputs.values() if isinstance(inputs, Mapping) else inputs)
    if len(set(given)) != len(given):
        raise GraphError("an input may appear only once")
    if isinstance(inputs, Mapping):
        named = {text("the name of an input", name): node for name, node in inputs.items()}
    else:
        named = {}
        for i, node in enumerate(given):
            name = node.name if node.name != "none" else f"input{i}"
            if name in named:
                raise GraphError(f"two inputs are called {name!r}; name them by a dictionary")
            named[name] = node
    for name, node in named.items():
        if not isinstance(node, ConstantNode | ParamNode) or (
            isinstance(node, ConstantNode) and node.tape().rows[node.id][0] is not INPUT
        ):
            raise GraphError(
                f"input {name!r} must be a leaf (graph.input, a constant or a parameter), "
                f"got {with_article(node.type)} node made at {place(node.where)}"
            )
    return named


def _of_tape(tape: Tape[Node], node: Node, role: str) -> Node:
    node = node.current()
    if node.tape() is not tape:
        problem = "belongs to another graph"
        if node.graph is tape.graph:
            inside = node.tape().parent is not None
            problem = "is of a loop's body" if inside else "is not of this partial function"
        raise GraphError(f"{role} {node.type} made at {place(node.where)} {problem}")
    return node
