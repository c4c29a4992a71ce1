"""``Planner``: which programs a tape needs, and the top whose gradients they compute."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import numpy as np

from ..errors import GradientError, GraphError
from ..node import Node
from ..places import place
from ..recording import describe
from ..rules import without_rule
from ..scalars import number_vector
from ..settings import GraphSettings
from ..specs import has_float
from ..structure import Excerpt
from ..tape import Tape
from ..tracing.trace import Checkpoints
from .memo import frontier
from .plans import ForwardPlan, JointPlan

T = TypeVar("T")
Span = range
"""The ids of the nodes that one ``forward()`` covers."""


@dataclass
class Prepared:
    """What a program for part of a tape computes, and where its arguments and results belong."""

    plan: ForwardPlan | JointPlan
    excerpt: Excerpt
    numbers: np.ndarray | None
    """The numbers of the operators."""
    outputs: tuple[int, ...]
    """The nodes whose values the program returns."""
    nodes: tuple[int, ...]
    """The node of each row of the excerpt."""
    trained: tuple[int, ...]
    """The nodes whose gradients the program returns, without the nodes that are shown."""
    placed: dict[int | None, tuple[np.ndarray, Any]] = field(default_factory=dict)
    """NumPy arrays that the program took in the last run, and their copies on the device."""

    @staticmethod
    def of(excerpt: Excerpt, outputs: Sequence[int], plan: Any, *args: Any, **named: Any) -> Prepared:
        """An excerpt with its plan, ``plan(structure, rows of the outputs, ...)``."""
        structure, numbers = excerpt.structure.generic()
        rows = tuple(excerpt.row_of[i] for i in outputs)
        vector = number_vector(numbers, structure.is_wide())
        made = plan(structure, rows, *args, **named)
        trained = made.trained if isinstance(made, JointPlan) else ()
        by = tuple(excerpt.inputs[k] for k in trained)
        return Prepared(made, excerpt, vector, tuple(outputs), tuple(excerpt.row_of), by)

    def on_device(self, place: int | None, array: Any, device: jax.Device | None) -> Any:
        """The array itself; if the last run took the same array, its copy on the device."""
        before, placed = self.placed.get(place, (None, None))
        if before is not array:
            placed = None
        elif placed is None:
            with jax.enable_x64(self.plan.structure.is_wide()), jax.ensure_compile_time_eval():
                placed = jax.device_put(array, device)
        self.placed[place] = array, placed
        return array if placed is None else placed


class Planner:
    """What the programs of a tape compute, cached between runs while tape and settings stay the same."""

    def __init__(self, tape: Tape[Node], settings: GraphSettings) -> None:
        self._tape_ref, self._settings_ref = tape.ref, weakref.ref(settings)
        self._cache: dict[Hashable, Any] = {}
        self._cached_for: Any = None
        """The state of tape, settings and spans that the cache is valid for."""

    @property
    def tape(self) -> Tape[Node]:
        tape = self._tape_ref()
        if tape is None or tape.closed:
            raise GraphError("the graph of this computation was cleared")
        return tape

    @property
    def settings(self) -> GraphSettings:
        settings = self._settings_ref()
        if settings is None:
            raise GraphError("the graph of this computation is gone; keep a reference to the ExpressionGraph")
        return settings

    def close(self) -> None:
        """Forget all programs, and the arrays that they keep on the device."""
        self._cache = {}

    def forward(self, spans: Sequence[Span], span: Span) -> Prepared:
        """The forward program of one of the spans that the run has covered."""
        tape = self.tape
        if len(span) == len(tape.nodes):
            return self._cached("forward", spans, lambda: self._forward(span, self._needed))
        return self._forward(span, lambda outputs: tape.span(span.start, span.stop))

    def _forward(self, span: Span, excerpt: Callable[[list[int]], Excerpt]) -> Prepared:
        rule_set, outputs, watch = self.settings.derivatives, self.outputs(span), self.settings.throw_nan
        return Prepared.of(excerpt(outputs), outputs, ForwardPlan, rule_set, watch=watch)

    def inference(self, spans: Sequence[Span], span: Span) -> tuple[Prepared | None, Prepared]:
        """The forward program of the first span in two parts: values that depend on parameters alone, if
        there are any, and the rest."""
        return self._cached(("inference", span), spans, lambda: self._inference(span))

    def _inference(self, span: Span) -> tuple[Prepared | None, Prepared]:
        tape, rule_set, outputs = self.tape, self.settings.derivatives, self.outputs(span)
        known, rest = frontier(tape, span.stop, outputs)
        part = Prepared.of(tape.below(known), known, ForwardPlan, rule_set) if known else None
        remaining = sorted({*outputs} - {*known})
        return part, Prepared.of(tape.part(rest), remaining, ForwardPlan, rule_set)

    def joint(self, spans: Sequence[Span], clip: bool) -> Prepared:
        """Forward and backward as one program, with or without clipping."""
        return self._cached(("joint", clip), spans, lambda: self._joint(spans, clip))

    def _joint(self, spans: Sequence[Span], clip: bool) -> Prepared:
        tape, settings = self.tape, self.settings
        top = one_top(tape)
        self._check_rules(top)
        shown = [n for n in tape.debugged if n.trainable and n.children]
        ids = sorted({top, *(i for span in spans for i in self.outputs(span)), *(n.id for n in shown)})
        excerpt = self._needed(ids)
        row_of = excerpt.row_of
        outputs = tuple(row_of[i] for i in ids)
        trained = tuple(k for k, i in enumerate(excerpt.inputs) if tape.nodes[i].trainable)
        # The gradient of a parameter is clipped after accumulation.
        own = tuple(k for k in trained if clip and tape.nodes[excerpt.inputs[k]].type != "param")
        checkpoints = Checkpoints.of(tape, excerpt, settings.checkpointing, outputs, settings.device)
        return Prepared.of(
            excerpt,
            ids,
            JointPlan,
            settings.derivatives,
            row_of[top],
            trained,
            tuple((row_of[n.id], n.spec) for n in shown),
            clip,
            own,
            checkpoints=None if settings.throw_nan else checkpoints,
            watch=settings.throw_nan,
        )

    def _check_rules(self, top: int) -> None:
        """``GradientError`` about the first node without a rule that a gradient flows into."""
        tape = self.tape
        if self.settings.derivatives == "jax" or not tape.without_rule:
            return
        pending, seen = [tape.nodes[top]], {top}
        while pending:
            node = pending.pop()
            if node.children and not type(node).has_rule:
                raise GradientError(f"{without_rule(type(node))}\n  the node was made at {place(node.where)}")
            below = [child for child in node.children if child.trainable and child.id not in seen]
            seen.update(child.id for child in below)
            pending += below

    def _needed(self, outputs: Sequence[int]) -> Excerpt:
        """The whole tape, or only the nodes that the outputs need, where absorbed nodes must be neither
        watched for NaN nor kept by checkpoints."""
        settings, tape = self.settings, self.tape
        if not ((settings.throw_nan or settings.checkpointing) and tape.not_roots):
            return tape.whole()
        removed = (i for i in tape.not_roots if tape.nodes[i].absorbed_by is None)
        return tape.below([*outputs, *removed])

    def _cached(self, what: Hashable, spans: Sequence[Span], prepare: Callable[[], T]) -> T:
        """What ``prepare`` returns, cached while tape and settings stay the same."""
        tape, settings = self.tape, self.settings
        state = (
            [*spans],
            len(tape.nodes),
            tape.rewritings,
            [*tape.overrides.items()],
            [*tape.not_roots],
            [n.id for n in tape.debugged],
            len(tape.observers),
            [n.id for n in tape.nodes if n.is_checkpoint] if settings.checkpointing else None,
            settings.checkpointing,
            settings.derivatives,
            settings.throw_nan,
            settings.dynamic,
            settings.is_inference(),
            settings.device,
        )
        if self._cached_for != state:
            self._cached_for, self._cache = state, {}
        if what not in self._cache:
            self._cache[what] = prepare()
        found: T = self._cache[what]
        return found

    def outputs(self, span: Span) -> list[int]:
        """The nodes whose values a program returns: tops and nodes that are shown to the user; all operators
        for a later span, and for a dynamic graph in inference."""
        tape = self.tape
        leaves = {*tape.inputs, *tape.random}
        operators = [i for i in span if i not in leaves]
        settings = self.settings
        if span.start or (settings.dynamic and settings.is_inference()):
            return operators
        consumed = {k for i in operators for k in tape.rows[i][1:]}
        shown = {node.id for node in tape.debugged} | {node.child(0).id for node, _ in tape.observers}
        tops = [i for i in operators if i not in consumed and i not in tape.not_roots]
        return sorted({*tops, *shown.intersection(operators)})


def candidates(tape: Tape[Node]) -> list[Node]:
    """The trainable nodes that no other trainable node uses.

    A node that is not trainable (a ``stop_gradient``, a comparison) neither hides what it uses nor is a top
    itself, and ``remove_as_root`` excludes a node.
    """
    trainable = [n for n in tape.nodes if n.trainable]
    hidden = {child.id for n in trainable for child in n.children} | tape.not_roots
    tops = [n for n in trainable if n.id not in hidden and n.children and has_float(n.spec)]
    if len(tops) > 1:
        tops = [n for n in tops if n.type != "tupleView"] or tops
    if len(tops) > 1:
        below = {top: tape.below([top.id]).row_of for top in tops}
        tops = [n for n in tops if not any(n.id in below[top] for top in tops if top is not n)]
    return tops


def one_top(tape: Tape[Node]) -> int:
    """The only candidate; ``GraphError`` if there is none, or several, which it names."""
    tops = candidates(tape)
    if not tops:
        raise GraphError(f"backward() needs a trainable top node, but {_why_none(tape)}")
    if len(tops) > 1:
        listed = "".join(f"\n  {_line(n)}" for n in tops)
        raise GraphError(
            f"backward() needs one top node, there are {len(tops)}; mgraph.remove_as_root(x) keeps x "
            f"from being one, and graph.clear() forgets all nodes, those of a call that failed, too:{listed}"
        )
    if isinstance(tops[0].spec, tuple):
        raise GraphError(
            "the top node has several outputs; take one of them by mgraph.get(node, i): " + _line(tops[0])
        )
    return tops[0].id


def _why_none(tape: Tape[Node]) -> str:
    """Why no node is a top."""
    if not tape.nodes:
        return "nothing is recorded"
    for node in tape.nodes:
        if any(child.trainable for child in node.children) and not has_float(node.spec):
            return f"this one is of no floating point type, so no gradient flows through it:\n  {_line(node)}"
    if len(tape.nodes) == 1 and tape.nodes[0].trainable:
        return f"nothing is computed from the only node, a parameter:\n  {_line(tape.nodes[0])}"
    return "no node depends on a trainable parameter"


def _line(node: Node) -> str:
    return f"{describe([node])} (id {node.id}) made at {place(node.where)}"
