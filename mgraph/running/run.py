"""``Run``: what ``forward()`` and ``backward()`` have done on one tape.

``forward()`` only freezes: which nodes it covers and the values that their leaves have now. What runs is
decided by what is asked next. ``backward()`` runs forward and backward as one program; a value that is
read first runs forward alone, and that program remembers whether a ``backward()`` followed, so that the
next time both run at once. A second ``forward()`` on a tape runs the new nodes alone, on the values of
the old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..errors import GraphError
from ..places import place
from ..specs import as_jax, has_float, is_wide
from ..tape import INPUT, Excerpt, Tape, is_leaf
from ..tops import candidates, one_top
from .finite import check_gradients_of, check_values
from .fusion import FusionReport, fusion_report
from .interpreter import Interpreter
from .memo import frontier
from .memory import MemoryUse
from .plans import ForwardPlan, JointPlan, Results
from .programs import PROGRAMS, Program
from .trace import Checkpoints, run_draws, run_key

if TYPE_CHECKING:
    from ..graph import ExpressionGraph


@dataclass
class Segment:
    """The nodes ``start <= id < stop`` that one ``forward()`` covered."""

    start: int
    stop: int
    leaves: dict[int, Any]
    """Values of the input leaves it uses, as they were at ``forward()``."""
    program: Program | None = None
    """The program that has run it, forward alone."""
    ran: bool = False
    interpreter: Interpreter | None = None
    """For values that no program returned."""


class Run:
    """The state of a tape's computation; see the module's page. ``number`` selects the random draws."""

    def __init__(self, tape: Tape, number: int) -> None:
        self._tape_ref = tape.ref
        self._number = number
        self._segments: list[Segment] = []
        self._values: dict[int, Any] = {}
        self._drawn: dict[int, Any] = {}
        self._gradients: dict[int, Any] | None = None
        self._watched: tuple[list[int], Any] | None = None
        """Nodes and whether their gradients are finite, if that is watched."""
        self._top: int | None = None
        self._reverse: Interpreter | None = None
        self._claimed = False

    @property
    def _tape(self) -> Tape:
        tape = self._tape_ref()
        if tape is None:
            raise GraphError("the graph of this computation was cleared")
        return tape

    @property
    def _graph(self) -> ExpressionGraph:
        return self._tape.graph

    @property
    def covered(self) -> int:
        """Number of nodes that a ``forward()`` has covered."""
        return self._segments[-1].stop if self._segments else 0

    # -- forward

    def forward(self) -> None:
        """Freeze the nodes recorded since the last call, and the present values of their leaves."""
        tape = self._tape
        start, stop = self.covered, len(tape.nodes)
        tape.seen.clear()
        if start == stop:
            return
        segment = self._frozen(start, stop)
        self._graph.dynamic = self._graph.dynamic or start > 0
        self._segments.append(segment)
        self._gradients, self._claimed, self._reverse = None, False, None

    def _frozen(self, start: int, stop: int) -> Segment:
        """The nodes from ``start`` to before ``stop`` with the present values of their leaves."""
        tape = self._tape
        inputs: Sequence[int] = tape.inputs if start == 0 else tape.span(start, stop).inputs
        return Segment(
            start, stop, {i: tape.nodes[i].leaf_value() for i in inputs if tape.rows[i][0] is INPUT}
        )

    @contextmanager
    def _all_covered(self) -> Iterator[None]:
        """As ``backprop()`` would find the tape, with the present values; for an analysis, which freezes
        nothing."""
        before = self._segments
        self._segments = [self._frozen(0, len(self._tape.nodes))]
        try:
            yield
        finally:
            self._segments = before

    def forget_gradients(self) -> None:
        """Drop gradients that ran ahead of ``backward()``: what is trainable has changed."""
        if not self._claimed:
            self._gradients = None

    def value(self, row: int) -> Any:
        """The value of a covered node."""
        segment = next((s for s in self._segments if s.start <= row < s.stop), None)
        if segment is None:
            node = self._tape.nodes[row]
            raise GraphError(
                f"the value of this {node.type} node, made at {place(node.where)}, is not computed yet; "
                "call graph.forward() first"
            )
        if is_leaf(self._tape.rows[row]):
            return as_jax(self._leaf(row, segment.leaves))
        if row not in self._values and not segment.ran:
            self._execute(segment)
        if row not in self._values:
            if segment.interpreter is None:
                segment.interpreter = self._interpreter(segment.leaves)
            return segment.interpreter.value(row)
        return self._values[row]

    def execute(self) -> None:
        """Run now what ``forward()`` has only frozen."""
        for segment in self._segments:
            if not segment.ran:
                self._execute(segment)

    def _execute(self, segment: Segment) -> None:
        tape, graph = self._tape, self._graph
        outputs = self._outputs(segment)
        whole = segment.start == 0 and segment.stop == len(tape.nodes)
        excerpt = self._needed(outputs) if whole else tape.span(segment.start, segment.stop)
        if graph.is_inference() and not segment.start and not graph.throw_nan:
            rest = self._remember(segment, outputs)
            outputs = [i for i in outputs if i not in self._values]
            excerpt = tape.part(rest)
        plan = ForwardPlan(
            excerpt.structure,
            tuple(excerpt.row_of[i] for i in outputs),
            graph.derivatives,
            watch=graph.throw_nan,
        )
        args = self._arguments(excerpt, segment.leaves)
        program = segment.program = self._program(plan, args)
        follows = program.backward_follows and whole and not graph.is_inference()
        if follows and len(candidates(tape)) == 1:
            program.backward_follows = False
            self._run_joint(0.0)
            return
        results = program(*args)
        self._values.update(zip(outputs, results.values, strict=True))
        segment.ran = True
        self._check_values(excerpt, results)

    def _remember(self, segment: Segment, outputs: Sequence[int]) -> list[int]:
        """Get what depends on parameters alone from the graph's memo; the rows that depend on more."""
        known, rest = frontier(self._tape, segment.stop, outputs)
        if known:
            excerpt = self._tape.below(known)
            rows = tuple(excerpt.row_of[i] for i in known)
            plan = ForwardPlan(excerpt.structure, rows, self._graph.derivatives)
            args = self._arguments(excerpt, segment.leaves)
            names = tuple(self._tape.nodes[i].name for i in excerpt.inputs)
            values = self._graph.memo.values(
                (plan, names), args[0], lambda: self._program(plan, args)(*args).values
            )
            self._values.update(zip(known, values, strict=True))
        return rest

    def _program(self, plan: ForwardPlan | JointPlan, args: tuple[Any, Any]) -> Program:
        wide = plan.structure.is_wide()
        return PROGRAMS.get(plan, str(plan), plan, args, device=self._graph.device, wide=wide)

    def _check_values(self, excerpt: Excerpt, results: Results) -> None:
        """``NonFiniteError`` if a value was watched and is not finite."""
        if results.finite is not None:
            check_values([self._tape.nodes[i] for i in excerpt.row_of], results.finite)

    def _check_gradients(self) -> None:
        """``NonFiniteError`` if a gradient was watched and is not finite."""
        if self._watched is not None:
            rows, finite = self._watched
            check_gradients_of([self._tape.nodes[i] for i in rows], finite)

    def _outputs(self, segment: Segment) -> list[int]:
        """The nodes whose values a program returns: tops and those that are shown to the user, in a dynamic
        graph all."""
        tape = self._tape
        leaves = {*tape.inputs, *tape.random}
        operators = [i for i in range(segment.start, segment.stop) if i not in leaves]
        graph = self._graph
        if segment.start or (graph.dynamic and graph.is_inference()):
            return operators
        consumed = {k for i in operators for k in tape.rows[i][1:]}
        shown = {node.id for node in tape.debugged} | {node.child(0).id for node, _ in tape.observers}
        tops = [i for i in operators if i not in consumed and i not in tape.not_roots]
        return sorted({*tops, *shown.intersection(operators)})

    def _arguments(self, excerpt: Excerpt, leaves: dict[int, Any]) -> tuple[Any, Any]:
        rows = self._tape.rows
        values = [leaves[i] if rows[i][0] is INPUT else self.value(i) for i in excerpt.inputs]
        return values, self._draws(excerpt.random)

    def _draws(self, ordinals: Sequence[int]) -> np.ndarray | None:
        if not len(ordinals):
            return None
        return run_draws(self._graph.seed, self._number, ordinals)

    def _leaf(self, row: int, leaves: dict[int, Any]) -> Any:
        tape = self._tape
        init, spec = tape.rows[row][0], tape.rows[row][1]
        if init is INPUT:
            return leaves[row]
        if row not in self._drawn:
            args = (self._draws([tape.random.index(row)]),)
            program = PROGRAMS.get(
                ("draw", init, spec),
                f"a draw of {init!r}",
                lambda draws: init.device_value(
                    jax.random.fold_in(run_key(draws), draws[3]), spec.shape, spec.type
                ),
                args,
                device=self._graph.device,
                wide=is_wide(spec),
            )
            self._drawn[row] = program(*args)
        return self._drawn[row]

    def _interpreter(self, leaves: dict[int, Any], clip_value: float = 0.0) -> Interpreter:
        graph = self._graph
        return Interpreter(
            self._tape.structure(),
            lambda row: self._leaf(row, leaves),
            graph.derivatives,
            graph.device,
            self._values,
            clip_value,
        )

    # -- backward

    def backward(self, clip_value: float) -> dict[int, Any]:
        """Gradients of the one top node by the trainable input leaves: ``{node id: gradient}``."""
        tape = self._tape
        if self.covered < len(tape.nodes) or not self._segments:
            new = len(tape.nodes) - self.covered
            raise GraphError(f"{new} nodes were recorded and not run; call graph.forward() before backward()")
        if self._claimed:
            raise GraphError(
                "backward() has already run on these nodes; graph.backprop() runs both passes again, "
                "graph.clear() starts a new graph"
            )
        first = self._segments[0]
        if self._gradients is None or clip_value:
            if first.ran and first.program is not None and len(self._segments) == 1:
                first.program.backward_follows = True
            self._run_joint(clip_value)
        elif first.program is not None:
            first.program.backward_follows = True
        self._check_gradients()
        self._claimed = True
        self._reverse = self._interpreter(self._all_leaves(), clip_value)
        assert self._gradients is not None
        return self._gradients

    def gradient(self, row: int) -> jax.Array:
        """The gradient of the top node by any trainable node."""
        node = self._tape.nodes[row]
        ran = self._claimed and row < self.covered
        if not ran or self._reverse is None or self._top is None:
            raise GraphError(
                f"the gradient of this {node.type} node, made at {place(node.where)}, is not computed "
                "yet; call graph.backward() first"
            )
        if not (node.trainable and has_float(node.spec)):
            problem = "is not trainable and" if has_float(node.spec) else f"is {node.spec!r} and"
            raise GraphError(f"this {node.type} node, made at {place(node.where)}, {problem} has no gradient")
        if self._gradients is not None and row in self._gradients:
            return self._gradients[row]
        if node.absorbed_by is not None:
            raise GraphError(
                f"the gradient of this {node.type} node, made at {place(node.where)}, is not computed apart: "
                f"the rewrite {node.absorbed_by!r} absorbed it; graph.optimize(keep=[node]) keeps it"
            )
        return self._reverse.adjoint(row, self._top)

    def _run_joint(self, clip_value: float) -> None:
        """Forward and backward as one program."""
        excerpt, plan, args = self._joint(clip_value)
        results = self._program(plan, args)(*args)
        ids = list(excerpt.row_of)
        self._top = ids[plan.top]
        self._values.update(zip((ids[i] for i in plan.outputs), results.values, strict=True))
        for s in self._segments:
            s.ran = True
        by_leaf = zip((excerpt.inputs[k] for k in plan.trained), results.gradients, strict=True)
        self._gradients = {**dict(by_leaf), **{ids[i]: probe for i, probe in results.probes.items()}}
        self._watched = None if results.finite_gradients is None else (ids, results.finite_gradients)
        self._check_values(excerpt, results)

    def _joint(self, clip_value: float) -> tuple[Excerpt, JointPlan, tuple[Any, Any]]:
        """What forward and backward as one program compute, and of what."""
        tape, graph = self._tape, self._graph
        top = one_top(tape)
        shown = [n for n in tape.debugged if n.trainable and n.children]
        ids = sorted({top, *(i for s in self._segments for i in self._outputs(s)), *(n.id for n in shown)})
        excerpt = self._needed(ids)
        row_of = excerpt.row_of
        outputs = tuple(row_of[i] for i in ids)
        trained = tuple(k for k, i in enumerate(excerpt.inputs) if tape.nodes[i].trainable)
        # A parameter's gradient is clipped once it is accumulated.
        own = tuple(k for k in trained if clip_value and tape.nodes[excerpt.inputs[k]].type != "param")
        plan = JointPlan(
            excerpt.structure,
            outputs,
            graph.derivatives,
            row_of[top],
            trained,
            tuple((row_of[n.id], n.spec) for n in shown),
            clip_value,
            own,
            checkpoints=None
            if graph.throw_nan
            else Checkpoints.of(tape, excerpt, graph.checkpointing, outputs, graph.device),
            watch=graph.throw_nan,
        )
        return excerpt, plan, self._arguments(excerpt, self._all_leaves())

    def _needed(self, outputs: Sequence[int]) -> Excerpt:
        """The whole tape, or what the outputs need of it where the rest is not for the user's eyes: what
        rewrites have absorbed must not be watched, nor count among what a checkpoint keeps."""
        graph, tape = self._graph, self._tape
        if not ((graph.throw_nan or graph.checkpointing) and tape.not_roots):
            return tape.whole()
        removed = (i for i in tape.not_roots if tape.nodes[i].absorbed_by is None)
        return tape.below([*outputs, *removed])

    def fusion(self, backward: bool) -> FusionReport:
        """The kernels of the compiled program of the whole tape, which is not run."""
        plan: ForwardPlan | JointPlan
        with self._all_covered():
            if backward:
                excerpt, plan, args = self._joint(0.0)
            else:
                excerpt = self._tape.whole()
                outputs = {i for s in self._segments for i in self._outputs(s)}
                plan = ForwardPlan(excerpt.structure, tuple(sorted(outputs)), self._graph.derivatives)
                args = self._arguments(excerpt, self._all_leaves())
        program = self._program(replace(plan, labels=True), args)
        return fusion_report(program.compiled.as_text(), [self._tape.nodes[i] for i in excerpt.row_of])

    def memory(self) -> MemoryUse:
        """What forward and backward need, from XLA's analysis of the compiled program, which is not run."""
        with self._all_covered():
            _, plan, args = self._joint(0.0)
        return MemoryUse.of(self._program(plan, args).compiled, self._graph.reserved_bytes())

    def _all_leaves(self) -> dict[int, Any]:
        """The leaves' values over all segments; they must not have changed in between."""
        merged: dict[int, Any] = {}
        for segment in self._segments:
            for row, value in segment.leaves.items():
                if merged.setdefault(row, value) is not value:
                    node = self._tape.nodes[row]
                    raise GraphError(
                        f"{node.type} {node.name!r} changed between two forward() calls on one graph; "
                        "call graph.backprop() to run everything with the new values"
                    )
        return merged
