"""Loops over time: one node whose body is a recorded sub-graph.

The time to compile a loop does not grow with its length, as it would if every step were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..arrays import described, flag, whole
from ..cases import Case
from ..errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from ..names import with_article
from ..node import ArgumentNode, NaryNodeOp, Node
from ..operators import signature_of, takes
from ..places import here
from ..recording import capture, new, new_leaf
from ..specs import Spec, Specs, is_real, spec_of
from ..tape import Tape
from ..tracing.trace import trace
from ..varying import alike
from .elementwise import tanh
from .loop import Body, Loop, run
from .structure import TupleViewNodeOp

Nodes = Node | Sequence[Node]


def _decaying_sums(first: Node, xs: Node, rate: Node) -> Node:
    """A loop for checking gradients: a state, results, a node from outside."""

    def step(state: Node, x: Node) -> tuple[Node, Node]:
        state = tanh(state * rate, x)
        return state, state * x

    last, results = scan(step, first, xs)
    return results + last


class ScanNodeOp(NaryNodeOp):
    """``scan``'s node. Children: the first state, the sequences, the nodes that the body uses from outside.

    The value is a tuple: the last state, then the stacked results.
    """

    type = "scan"
    composite = True
    mixed_types = True
    stored_by_loops = True
    cases = (Case((2, 3), (4, 2, 3), (1, 3), through=_decaying_sums),)
    body: Body
    sequences: int
    length: int
    reverse: bool = False
    unroll: int = 1

    numbers = None
    """The vector of numbers that the body of a bound loop takes."""

    def new_spec(self, *specs: Any) -> Specs:
        spec = super().new_spec(*specs)
        return spec if isinstance(spec, tuple) else (spec,)

    def makes_wide(self) -> bool:
        return any(head.makes_wide() for head, *_ in self.body.structure.rows if isinstance(head, Node))

    def forward_ops(self, *values: Any) -> Any:
        return self.evaluate("jax", (False,) * len(values), values)

    @classmethod
    def opened(cls, fields: dict[str, Any]) -> tuple[dict[str, Any], tuple[float, ...]]:
        """The numbers of a loop are those of its body."""
        body, numbers = fields["body"].generic()
        return {**fields, "body": body}, numbers

    def bound(self, numbers: Any) -> Any:
        loop = new(type(self))
        loop.__dict__.update(self.__dict__, numbers=numbers)
        return loop

    def evaluate(self, rule_set: str, trained: tuple[bool, ...], values: tuple[Any, ...]) -> Any:
        """The loop with the given rule set in its body; with ``"jax"`` plain ``jax.lax.scan``."""
        states, values = len(self.body.states), alike(values)
        first, xs = values[:states], values[states : states + self.sequences]
        outer = values[states + self.sequences :]
        some = any(trained)
        flags = (*(some and is_real(v) for v in first), *trained[states:])
        if rule_set != "jax" and some and self.length:
            loop = Loop(self.body, self.sequences, self.length, self.reverse, self.unroll, rule_set, flags)
            return run(loop, self.numbers, *values)

        def step(state: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[Any, Any]:
            leaves = (*state, *x, *outer)
            rows = trace(self.body.structure, leaves, numbers=self.numbers, rule_set=rule_set, trained=flags)
            return tuple(rows[i] for i in self.body.states), tuple(rows[i] for i in self.body.results)

        last, stacked = jax.lax.scan(step, tuple(first), tuple(xs), self.length, self.reverse, self.unroll)
        return (*last, *stacked)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Nodes,
    xs: Nodes,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """Run ``state, result = f(state, x)`` over the first axis of ``xs``.

    ``init`` is the first state, a node or a tuple of nodes; ``xs`` a node or a tuple of nodes of shape
    ``(time, ...)``, of which ``f`` sees slices of shape ``(...)``. Returns the last state, shaped like
    ``init``, and the results stacked to ``(time, ...)``, shaped like what ``f`` returns (a node, a tuple of
    nodes, or an empty tuple). ``reverse`` runs from the last step to the first; results stay in place.
    ``unroll``, at least 1, is the number of steps that are compiled together: more are faster for small
    bodies, but slower to compile.

    ``f`` is called once, to be recorded. It may use nodes from outside: parameters, masks, constants.
    Operations on such nodes alone run once, outside the loop. A dropout mask made inside is one mask for all
    steps; for a mask per step, draw it outside and pass it in ``xs``.

    ``ShapeError`` unless the sequences have one common length, ``GraphError`` without a sequence, or if ``f``
    changes the number of states or keeps a node for use outside, ``ShapeError`` or ``ElementTypeError`` if it
    changes a state's shape or type, ``ArgumentError`` if ``f`` does not take a state and a slice.

    Shape: states keep theirs; results of shape (...) to (time, ...).
    Gradient: that of the operators in the body, back through all steps.
    Source: no counterpart in Marian, which records every step.
    """
    first, sequences = _tuple(init), _tuple(xs)
    graph = (*first, *sequences)[0].graph if first or sequences else None
    if graph is None or not sequences:
        raise GraphError("scan needs at least one sequence to run over")
    if not callable(f):
        raise ArgumentError(f"scan: expected a function of a state and a slice, got {described(f)}{here()}")
    if not takes(f, 2):
        name = getattr(f, "__name__", type(f).__name__)
        raise ArgumentError(
            f"scan: expected a function of a state and a slice, got {signature_of(name, f)}{here()}"
        )
    unroll = whole("scan", "unroll", unroll)
    if unroll < 1:
        raise ArgumentError(f"scan: expected unroll to be a number of steps of at least 1, got {unroll!r}")
    length = _length(sequences)
    tape = Tape(graph, parent=graph.recording[-1], argument=ArgumentNode)
    try:
        body, outer, returned = _recorded(tape, f, init, xs)
    finally:
        tape.close()
    node = ScanNodeOp(
        *first,
        *sequences,
        *outer,
        body=body,
        sequences=len(sequences),
        length=length,
        reverse=flag("scan", "reverse", reverse),
        unroll=unroll,
    )
    views = [TupleViewNodeOp(node, index=i) for i in range(len(body.states) + len(body.results))]
    return _like(init, views[: len(first)]), _like(returned, views[len(first) :])


def _recorded(
    tape: Tape[Node], f: Callable[[Any, Any], tuple[Any, Any]], init: Nodes, xs: Nodes
) -> tuple[Body, list[Node], Nodes]:
    """The body of a loop, the nodes that it uses from outside, and the structure of the user's results."""
    first, sequences, recording = _tuple(init), _tuple(xs), tape.graph.recording
    recording.append(tape)
    try:
        state = [new_leaf(ArgumentNode, tape, n.spec, True) for n in first]
        slices = [new_leaf(ArgumentNode, tape, _slice_spec(n), n.trainable) for n in sequences]
        returned = f(_like(init, state), _like(xs, slices))
    finally:
        recording.pop()
    next_state, results = _returned(returned)
    _check_state(first, next_state)
    inner = [n if n._tape is tape.ref else capture(tape, n.current()) for n in (*next_state, *results)]
    rows = tuple(n.id for n in inner)
    body = Body(tape.structure(), rows[: len(first)], rows[len(first) :])
    pattern = returned[1] if isinstance(returned[1], Node) else tuple(returned[1])
    return body, [outside for outside, _ in tape.captured.values()], pattern


def _tuple(nodes: Nodes) -> tuple[Node, ...]:
    given = (nodes,) if isinstance(nodes, Node) else nodes
    if not isinstance(given, tuple | list) or not all(isinstance(n, Node) for n in given):
        raise GraphError(f"scan: expected a node or a tuple of nodes, got {described(nodes)}{here()}")
    for n in given:
        if isinstance(n.spec, tuple):
            raise GraphError(
                f"scan: {with_article(n.type)} node has several outputs; pass a tuple of its parts"
            )
    return tuple(n.current() for n in given)


def _like(pattern: Nodes, nodes: Sequence[Node]) -> Any:
    return nodes[0] if isinstance(pattern, Node) else tuple(nodes)


def _length(sequences: tuple[Node, ...]) -> int:
    lengths = {n.shape[0] if n.shape else None for n in sequences}
    if len(lengths) != 1 or None in lengths:
        raise ShapeError(
            f"scan: the sequences must have one common first axis, got {[n.shape for n in sequences]}"
        )
    return sequences[0].shape[0]


def _slice_spec(node: Node) -> Spec:
    return spec_of(node.shape[1:], node.value_type)


def _returned(returned: Any) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise GraphError(f"scan: the body must return (state, result), got {returned!r}")
    parts = []
    for part in returned:
        nodes = (part,) if isinstance(part, Node) else part
        if not isinstance(nodes, tuple | list) or not all(isinstance(n, Node) for n in nodes):
            raise GraphError(
                f"scan: the body must return nodes, tuples of nodes, or () for nothing, got {described(part)}"
            )
        for n in nodes:
            if isinstance(n.spec, tuple):
                raise GraphError(
                    f"scan: the body returned {with_article(n.type)} node with several outputs; "
                    "return its parts"
                )
        parts.append(tuple(nodes))
    return parts[0], parts[1]


def _check_state(first: tuple[Node, ...], after: tuple[Node, ...]) -> None:
    if len(first) != len(after):
        raise GraphError(f"scan: the body got {len(first)} states and returned {len(after)}")
    for i, (before, now) in enumerate(zip(first, after, strict=True)):
        if before.shape != now.shape:
            raise ShapeError(f"scan: state {i} has shape {before.shape}, after a step {now.shape}")
        if before.value_type is not now.value_type:
            raise ElementTypeError(
                f"scan: state {i} has type {before.value_type}, after a step {now.value_type}"
            )
