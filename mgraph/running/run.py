"""``Run``: what ``forward()`` and ``backward()`` have done on one tape.

``forward()`` only captures which nodes it covers and the present values of their leaves. What runs depends on
the next call. ``backward()`` runs forward and backward as one program; a value that is read first runs
forward alone, and that program remembers whether a ``backward()`` followed, so that the next time both run at
once. A second ``forward()`` on a tape runs the new nodes alone, on the values of the old ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from ..errors import GradientError, GraphError
from ..node import Node
from ..places import place
from ..rules import without_rule
from ..scalars import number_vector
from ..settings import GraphSettings
from ..specs import as_jax, has_float
from ..structure import INPUT, Excerpt, is_leaf
from ..tape import Tape
from ..tops import candidates, one_top
from ..tracing.trace import Checkpoints
from .analysis import FusionReport, MemoryUse, fusion_report
from .finite import check_gradients_of, check_values
from .interpreter import Interpreter
from .leaf_values import LeafValues
from .memo import frontier
from .plans import ForwardPlan, JointPlan, Results
from .programs import Compiled, Program, compiled


@dataclass
class Segment:
    """The nodes ``start <= id < stop`` that one ``forward()`` covered."""

    start: int
    stop: int
    leaves: dict[int, Any]
    """Values of its input leaves at the time of ``forward()``."""
    program: Program | None = None
    """The forward program that has run it."""
    ran: bool = False
    interpreter: Interpreter | None = None
    """For values that no program returned."""


@dataclass
class Prepared:
    """What a program of a part of a tape computes, and where its arguments and results belong."""

    plan: ForwardPlan | JointPlan
    excerpt: Excerpt
    numbers: np.ndarray | None
    """The numbers of the operators."""
    outputs: tuple[int, ...]
    """The nodes whose values it returns."""
    nodes: tuple[int, ...]
    """The node of each row of the excerpt."""
    trained: tuple[int, ...]
    """The nodes whose gradients it returns, without those that are shown."""
    placed: dict[int | None, tuple[np.ndarray, Any]] = field(default_factory=dict)
    """NumPy arrays that the program took before, and their copies on the device."""

    @staticmethod
    def of(excerpt: Excerpt, outputs: Sequence[int], plan: Any, *args: Any, **named: Any) -> Prepared:
        """``plan(structure, rows of the outputs, ...)`` of an excerpt."""
        structure, numbers = excerpt.structure.generic()
        rows = tuple(excerpt.row_of[i] for i in outputs)
        vector = number_vector(numbers, structure.is_wide())
        made = plan(structure, rows, *args, **named)
        trained = made.trained if isinstance(made, JointPlan) else ()
        by = tuple(excerpt.inputs[k] for k in trained)
        return Prepared(made, excerpt, vector, tuple(outputs), tuple(excerpt.row_of), by)

    def on_device(self, place: int | None, array: Any, device: jax.Device | None) -> Any:
        """The array itself; its copy on the device from the second run on in which it is the same."""
        before, placed = self.placed.get(place, (None, None))
        if before is not array:
            placed = None
        elif placed is None:
            with jax.enable_x64(self.plan.structure.is_wide()):
                placed = jax.device_put(array, device)
        self.placed[place] = array, placed
        return array if placed is None else placed


class Run:
    """The state of a tape's computation; see the module's page. ``number`` selects the random draws."""

    def __init__(self, tape: Tape[Node], settings: GraphSettings, number: int) -> None:
        self._tape_ref, self._settings_ref = tape.ref, weakref.ref(settings)
        self._leaf_values = LeafValues(tape, settings.seed, number, settings.device)
        self._segments: list[Segment] = []
        self._values: dict[int, Any] = {}
        self._gradients: dict[int, Any] | None = None
        self._watched: tuple[tuple[int, ...], Any] | None = None
        """Nodes and whether their gradients are finite, if that is watched."""
        self._top: int | None = None
        self._clip_value = 0.0
        self._reverse: Interpreter | None = None
        """For gradients that no program returned."""
        self._claimed = False
        self._prepared: dict[Hashable, Prepared] = {}
        self._prepared_for: Any = None
        """The state of tape and settings that ``_prepared`` holds for."""

    def restarted(self, number: int) -> Run:
        """A run of the same tape from the start, which keeps what is prepared."""
        run = Run(self._tape, self._settings, number)
        run._prepared, run._prepared_for = self._prepared, self._prepared_for
        return run

    @property
    def _tape(self) -> Tape[Node]:
        tape = self._tape_ref()
        if tape is None or tape.closed:
            raise GraphError("the graph of this computation was cleared")
        return tape

    @property
    def _settings(self) -> GraphSettings:
        settings = self._settings_ref()
        if settings is None:
            raise GraphError("the graph of this computation is gone; keep a reference to the ExpressionGraph")
        return settings

    @property
    def covered(self) -> int:
        """Number of nodes that a ``forward()`` has covered."""
        return self._segments[-1].stop if self._segments else 0

    def close(self) -> None:
        """Release all values, also while the run is still referenced, say by the frames of an exception."""
        self._segments, self._values, self._gradients, self._reverse = [], {}, None, None
        self._prepared = {}

    # -- forward

    def forward(self) -> None:
        """Capture the nodes recorded since the last call, and the present values of their leaves."""
        tape = self._tape
        start, stop = self.covered, len(tape.nodes)
        tape.seen.clear()
        if start == stop:
            return
        segment = self._frozen(start, stop)
        self._settings.dynamic = self._settings.dynamic or start > 0
        self._segments.append(segment)
        self._gradients, self._claimed, self._reverse = None, False, None

    def _frozen(self, start: int, stop: int) -> Segment:
        """The nodes from ``start`` to before ``stop`` with the present values of their leaves."""
        tape = self._tape
        nodes, inputs = tape.nodes, tape.inputs
        if start:
            inputs = [i for i in tape.span(start, stop).inputs if tape.rows[i][0] is INPUT]
        return Segment(start, stop, {i: nodes[i].leaf_value() for i in inputs})

    @contextmanager
    def _all_covered(self) -> Iterator[None]:
        """The whole tape with its present values, as for ``backprop()``; for analyses."""
        before = self._segments
        self._segments = [self._frozen(0, len(self._tape.nodes))]
        try:
            yield
        finally:
            self._segments = before

    def forget_gradients(self) -> None:
        """Drop gradients computed ahead of ``backward()``: what is trainable has changed."""
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
            return as_jax(self._leaf_values.value(segment.leaves, row))
        if row not in self._values and not segment.ran:
            self._execute(segment)
        if row not in self._values:
            if segment.interpreter is None:
                segment.interpreter = self._interpreter(segment.leaves)
            return segment.interpreter.value(row)
        return self._values[row]

    def execute(self) -> None:
        """Run what ``forward()`` has captured."""
        for segment in self._segments:
            if not segment.ran:
                self._execute(segment)

    def _execute(self, segment: Segment) -> None:
        tape, settings = self._tape, self._settings
        whole = segment.start == 0 and segment.stop == len(tape.nodes)
        if settings.is_inference() and not segment.start and not settings.throw_nan:
            prepared = self._without_known(segment)
        elif whole:
            prepared = self._kept("forward", self._prepared_forward)
        else:
            excerpt, outputs = tape.span(segment.start, segment.stop), self._outputs(segment)
            prepared = Prepared.of(
                excerpt, outputs, ForwardPlan, settings.derivatives, watch=settings.throw_nan
            )
        found = self._compiled(prepared)
        program = segment.program = found.program
        follows = program.backward_follows and whole and not settings.is_inference()
        if follows and len(candidates(tape)) == 1:
            program.backward_follows = False
            self._run_joint(0.0)
            return
        results = found(*self._arguments(prepared, segment.leaves))
        self._values.update(zip(prepared.outputs, results.values, strict=True))
        segment.ran = True
        self._check_values(prepared, results)

    def _prepared_forward(self) -> Prepared:
        """The forward program of the whole tape."""
        settings, outputs = self._settings, self._outputs(self._segments[0])
        return Prepared.of(
            self._needed(outputs), outputs, ForwardPlan, settings.derivatives, watch=settings.throw_nan
        )

    def _without_known(self, segment: Segment) -> Prepared:
        """The first segment without what depends on parameters alone, which comes from the graph's memo."""
        tape, settings, outputs = self._tape, self._settings, self._outputs(segment)
        known, rest = frontier(tape, segment.stop, outputs)
        if known:
            part = Prepared.of(tape.below(known), known, ForwardPlan, settings.derivatives)
            names = tuple(tape.nodes[i].name for i in part.excerpt.inputs)
            numbers = None if part.numbers is None else part.numbers.tobytes()
            args = self._arguments(part, segment.leaves)
            values = settings.memo.values(
                (part.plan, names, numbers),
                args[0],
                lambda: self._compiled(part)(*args).values,
            )
            self._values.update(zip(known, values, strict=True))
        outputs = [i for i in outputs if i not in self._values]
        return Prepared.of(tape.part(rest), outputs, ForwardPlan, settings.derivatives)

    def _compiled(self, prepared: Prepared) -> Compiled:
        wide = prepared.plan.structure.is_wide()
        return compiled(prepared.plan, device=self._settings.device, wide=wide)

    def _kept(self, what: Hashable, prepare: Callable[[], Prepared]) -> Prepared:
        """What ``prepare`` returns, cached while tape and settings stay the same."""
        tape, settings = self._tape, self._settings
        state = (
            [s.stop for s in self._segments],
            len(tape.nodes),
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
        if self._prepared_for != state:
            self._prepared_for, self._prepared = state, {}
        if what not in self._prepared:
            self._prepared[what] = prepare()
        return self._prepared[what]

    def _check_values(self, prepared: Prepared, results: Results) -> None:
        """``NonFiniteError`` if a value was watched and is not finite."""
        if results.finite is not None:
            check_values([self._tape.nodes[i] for i in prepared.nodes], results.finite)

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
        settings = self._settings
        if segment.start or (settings.dynamic and settings.is_inference()):
            return operators
        consumed = {k for i in operators for k in tape.rows[i][1:]}
        shown = {node.id for node in tape.debugged} | {node.child(0).id for node, _ in tape.observers}
        tops = [i for i in operators if i not in consumed and i not in tape.not_roots]
        return sorted({*tops, *shown.intersection(operators)})

    def _arguments(self, prepared: Prepared, leaves: Mapping[int, Any]) -> tuple[Any, ...]:
        excerpt, device = prepared.excerpt, self._settings.device
        values = [leaves[i] if i in leaves else self.value(i) for i in excerpt.inputs]
        for k, value in enumerate(values):
            if type(value) is np.ndarray:
                values[k] = prepared.on_device(k, value, device)
        numbers = prepared.numbers
        if numbers is not None:
            numbers = prepared.on_device(None, numbers, device)
        return values, numbers, self._leaf_values.draws(excerpt.random)

    def _interpreter(self, leaves: Mapping[int, Any], clip_value: float = 0.0) -> Interpreter:
        settings = self._settings
        return Interpreter(
            self._tape.structure(),
            partial(self._leaf_values.value, leaves),
            settings.derivatives,
            settings.device,
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
        self._claimed, self._clip_value, self._reverse = True, clip_value, None
        assert self._gradients is not None
        return self._gradients

    def gradient(self, row: int) -> jax.Array:
        """The gradient of the top node by any trainable node."""
        node = self._tape.nodes[row]
        if not (self._claimed and row < self.covered) or self._top is None:
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
        if self._reverse is None:
            self._reverse = self._interpreter(self._all_leaves(), self._clip_value)
        return self._reverse.adjoint(row, self._top)

    def _run_joint(self, clip_value: float) -> None:
        """Forward and backward as one program."""
        prepared = self._joint(clip_value > 0)
        plan = prepared.plan
        assert isinstance(plan, JointPlan)
        bounds = number_vector((clip_value,), plan.structure.is_wide()) if plan.clip else None
        args = self._arguments(prepared, self._all_leaves())
        results = self._compiled(prepared)(*args, bounds)
        ids = prepared.nodes
        self._top = ids[plan.top]
        self._values.update(zip(prepared.outputs, results.values, strict=True))
        for s in self._segments:
            s.ran = True
        self._gradients = dict(zip(prepared.trained, results.gradients, strict=True))
        self._gradients.update((ids[i], probe) for i, probe in results.probes.items())
        self._watched = None if results.finite_gradients is None else (ids, results.finite_gradients)
        self._check_values(prepared, results)

    def _joint(self, clip: bool) -> Prepared:
        """Forward and backward as one prepared program, with or without clipping."""
        return self._kept(("joint", clip), lambda: self._prepared_joint(clip))

    def _prepared_joint(self, clip: bool) -> Prepared:
        tape, settings = self._tape, self._settings
        top = one_top(tape)
        self._check_rules(top)
        shown = [n for n in tape.debugged if n.trainable and n.children]
        ids = sorted({top, *(i for s in self._segments for i in self._outputs(s)), *(n.id for n in shown)})
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
        tape = self._tape
        if self._settings.derivatives == "jax" or not tape.without_rule:
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
        """The whole tape, or only what the outputs need where absorbed nodes must not be watched for NaN nor
        be kept by checkpoints."""
        settings, tape = self._settings, self._tape
        if not ((settings.throw_nan or settings.checkpointing) and tape.not_roots):
            return tape.whole()
        removed = (i for i in tape.not_roots if tape.nodes[i].absorbed_by is None)
        return tape.below([*outputs, *removed])

    def fusion(self, backward: bool) -> FusionReport:
        """The kernels of the compiled program of the whole tape, which is not run."""
        with self._all_covered():
            if backward:
                prepared = self._joint(False)
            else:
                outputs = sorted({i for s in self._segments for i in self._outputs(s)})
                prepared = Prepared.of(self._tape.whole(), outputs, ForwardPlan, self._settings.derivatives)
            prepared = replace(prepared, plan=replace(prepared.plan, labels=True))
            text = self._analysed(prepared).as_text()
        return fusion_report(text, [self._tape.nodes[i] for i in prepared.nodes])

    def memory(self) -> MemoryUse:
        """What forward and backward need, from XLA's analysis of the compiled program, which is not run."""
        with self._all_covered():
            analysed = self._analysed(self._joint(False))
        return MemoryUse.of(analysed, self._settings.reserved_bytes())

    def _analysed(self, prepared: Prepared) -> Any:
        args = self._arguments(prepared, self._all_leaves())
        return self._compiled(prepared).analysed(*args)

    def _all_leaves(self) -> dict[int, Any]:
        """The leaves' values over all segments; they must not have changed in between."""
        if len(self._segments) == 1:
            return self._segments[0].leaves
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
