"""``Run``: what ``forward()`` and ``backward()`` have done on one tape.

``forward()`` only captures which nodes it covers and the present values of their leaves. What runs depends on
the next call. ``backward()`` runs forward and backward as one program. Reading a value first runs forward
alone; that program remembers whether a ``backward()`` followed, so that both run together the next time. A
second ``forward()`` on a tape runs only the new nodes, on the values of the old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from ..arrays import real, refuse_traced
from ..errors import ArgumentError, GraphError
from ..node import Node
from ..ops.operands import is_number
from ..places import place
from ..recording import describe
from ..scalars import number_vector
from ..settings import GraphSettings
from ..specs import as_jax, has_float, is_wide, spec_like
from ..structure import INPUT, is_leaf
from ..tape import Tape
from .differentiability import naming_failures
from .finite import check_gradients_of, check_values
from .fusion import FusionReport, fusion_report
from .interpreter import Interpreter
from .leaf_values import LeafValues
from .memory import MemoryUse
from .planner import Planner, Prepared, Span, candidates
from .plans import AccumulationPlan, ForwardPlan, JointPlan, Results
from .profile import Profile, profiled
from .programs import Compiled, Program, compiled


@dataclass
class Segment:
    """The nodes that one ``forward()`` covered."""

    span: Span
    leaves: dict[int, Any]
    """Values of its input leaves at the time of ``forward()``."""
    program: Program | None = None
    """The forward program that has run it."""
    ran: bool = False
    interpreter: Interpreter | None = None
    """For values that no program returned."""


class Run:
    """The state of a tape's computation; see the module's docstring. ``number`` selects the random draws."""

    def __init__(self, planner: Planner, number: int) -> None:
        self._planner = planner
        tape, settings = planner.tape, planner.settings
        self._leaf_values = LeafValues(tape, settings.seed, number, settings.device)
        self._segments: list[Segment] = []
        self._values: dict[int, Any] = {}
        self._gradients: dict[int, Any] | None = None
        self._computed_by: tuple[str, bool] | None = None
        """The rule set that the gradients were computed by, and whether they were watched."""
        self._watched: tuple[tuple[int, ...], Any] | None = None
        """Nodes and whether their gradients are finite, if that is watched."""
        self._top: int | None = None
        self._clip_value = 0.0
        self._reverse: Interpreter | None = None
        """For gradients that no program returned."""
        self._claimed = False

    def restarted(self, number: int) -> Run:
        """A run of the same tape from the start."""
        return Run(self._planner, number)

    @property
    def _tape(self) -> Tape[Node]:
        return self._planner.tape

    @property
    def _settings(self) -> GraphSettings:
        return self._planner.settings

    @property
    def _spans(self) -> list[Span]:
        return [s.span for s in self._segments]

    @property
    def covered(self) -> int:
        """Number of nodes that a ``forward()`` has covered."""
        return self._segments[-1].span.stop if self._segments else 0

    def is_outdated(self) -> bool:
        """Whether all nodes are covered, and a leaf's value has changed since it was captured."""
        nodes = self._tape.nodes
        captured = ((nodes[i], value) for s in self._segments for i, value in s.leaves.items())
        return self.covered == len(nodes) and any(n.leaf_value() is not value for n, value in captured)

    def close(self) -> None:
        """Release all values, even if the run is still referenced, for instance by an exception's frames."""
        self._segments, self._values, self._gradients, self._reverse = [], {}, None, None
        self._planner.close()

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
        return Segment(range(start, stop), {i: nodes[i].leaf_value() for i in inputs})

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
        """Drop gradients computed ahead of ``backward()``, because a node's trainability has changed; those
        that ``backward()`` has returned stay."""
        self._reverse = None  # it knows which nodes were trainable
        if not self._claimed:
            self._gradients = None

    def value(self, row: int) -> Any:
        """The value of a covered node."""
        segment = next((s for s in self._segments if row in s.span), None)
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
        tape, settings, span = self._tape, self._settings, segment.span
        if settings.is_inference() and not span.start and not settings.throw_nan:
            prepared = self._without_known(segment)
        else:
            prepared = self._planner.forward(self._spans, span)
        found = self._compiled(prepared)
        program = segment.program = found.program
        follows = program.backward_follows and len(span) == len(tape.nodes) and not settings.is_inference()
        if follows and len(candidates(tape)) == 1:
            program.backward_follows = False
            self._run_joint(0.0)
            return
        results = found(*self._arguments(prepared, segment.leaves))
        self._values.update(zip(prepared.outputs, results.values, strict=True))
        segment.ran = True
        self._check_values(prepared, results)

    def _without_known(self, segment: Segment) -> Prepared:
        """The first segment without values that depend only on parameters: the graph's memo has these."""
        part, rest = self._planner.inference(self._spans, segment.span)
        if part is not None:
            names = tuple(self._tape.nodes[i].name for i in part.excerpt.inputs)
            numbers = None if part.numbers is None else part.numbers.tobytes()
            args = self._arguments(part, segment.leaves)
            values = self._settings.memo.values(
                (part.plan, names, numbers), args[0], lambda: self._compiled(part)(*args).values
            )
            self._values.update(zip(part.outputs, values, strict=True))
        return rest

    def _compiled(self, prepared: Prepared) -> Compiled:
        wide = prepared.plan.structure.is_wide()
        return compiled(prepared.plan, device=self._settings.device, wide=wide)

    def _check_values(self, prepared: Prepared, results: Results) -> None:
        """``NonFiniteError`` if a value was watched and is not finite."""
        if results.finite is not None:
            check_values([self._tape.nodes[i] for i in prepared.nodes], results.finite)

    def _check_gradients(self) -> None:
        """``NonFiniteError`` if a gradient was watched and is not finite."""
        if self._watched is not None:
            rows, finite = self._watched
            check_gradients_of([self._tape.nodes[i] for i in rows], finite)

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
            self._computed_by[0] if self._computed_by else settings.derivatives,
            settings.device,
            self._values,
            clip_value,
        )

    # -- backward

    def backward(self, clip_value: float) -> dict[int, Any]:
        """Gradients of the top node with respect to the trainable input leaves: ``{node id: gradient}``."""
        tape = self._tape
        if self.covered < len(tape.nodes) or not self._segments:
            new = len(tape.nodes) - self.covered
            if not tape.nodes:
                raise GraphError("the graph has no nodes to differentiate: record some first")
            raise GraphError(f"{new} nodes were recorded and not run; call graph.forward() before backward()")
        if self._claimed:
            raise GraphError(
                "backward() has already run on these nodes; graph.backprop() runs both passes again, "
                "graph.clear() starts a new graph"
            )
        first = self._segments[0]
        if self._gradients is None or clip_value or self._computed_by != self._present_rules():
            read_before = first.ran and len(self._segments) == 1
            self._run_joint(clip_value)
            if read_before and first.program is not None:  # not after an error: values must stay readable
                first.program.backward_follows = True
        elif first.program is not None:
            first.program.backward_follows = True
        self._check_gradients()
        self._claimed, self._clip_value, self._reverse = True, clip_value, None
        assert self._gradients is not None
        return self._gradients

    def gradient(self, row: int) -> jax.Array:
        """The gradient of the top node with respect to any trainable node."""
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
        prepared = self._planner.joint(self._spans, clip_value > 0)
        plan = prepared.plan
        assert isinstance(plan, JointPlan)
        bounds = number_vector((clip_value,), plan.structure.is_wide()) if plan.clip else None
        args = self._arguments(prepared, self._all_leaves())
        with naming_failures(self._tape.nodes, self._settings.derivatives):
            results = self._compiled(prepared)(*args, bounds)
        ids = prepared.nodes
        self._top = ids[plan.top]
        self._values.update(zip(prepared.outputs, results.values, strict=True))
        for s in self._segments:
            s.ran = True
        self._gradients = dict(zip(prepared.trained, results.gradients, strict=True))
        self._gradients.update((ids[i], probe) for i, probe in results.probes.items())
        self._computed_by = self._present_rules()
        self._watched = None if results.finite_gradients is None else (ids, results.finite_gradients)
        self._check_values(prepared, results)

    def _present_rules(self) -> tuple[str, bool]:
        """The settings that gradients depend on; they may change between a value and ``backward()``."""
        return self._settings.derivatives, self._settings.throw_nan

    def fusion(self, backward: bool) -> FusionReport:
        """The kernels of the compiled program of the whole tape, which is not run."""
        with self._all_covered():
            return self._fusion(self._labelled(backward))

    def profile(self, backward: bool, runs: int) -> Profile:
        """The seconds of each kernel of that program, which is run with the present values."""
        if type(runs) is not int or runs < 1:
            raise ArgumentError(f"expected a number of runs of at least 1, got {runs!r}")
        with self._all_covered():
            prepared = self._labelled(backward)
            args = self._arguments(prepared, self._all_leaves())
            program = self._compiled(prepared)
            return profiled(lambda: program(*args), self._fusion(prepared), runs)

    def _labelled(self, backward: bool) -> Prepared:
        """The program of the whole tape, with the code of each node labelled with its row number."""
        if backward:
            prepared = self._planner.joint(self._spans, False)
        else:
            outputs = sorted({i for span in self._spans for i in self._planner.outputs(span)})
            prepared = Prepared.of(self._tape.whole(), outputs, ForwardPlan, self._settings.derivatives)
        return replace(prepared, plan=replace(prepared.plan, labels=True))

    def _fusion(self, prepared: Prepared) -> FusionReport:
        text = self._analysed(prepared).as_text()
        return fusion_report(text, [self._tape.nodes[i] for i in prepared.nodes])

    def memory(self) -> MemoryUse:
        """What forward and backward need, from XLA's analysis of the compiled program, which is not run."""
        with self._all_covered():
            analysed = self._analysed(self._planner.joint(self._spans, False))
        return MemoryUse.of(analysed, self._settings.reserved_bytes())

    def _analysed(self, prepared: Prepared) -> Any:
        args = self._arguments(prepared, self._all_leaves())
        with naming_failures(self._tape.nodes, self._settings.derivatives):
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
                        f"{describe([node])} changed between two forward() calls on one graph; "
                        "call graph.backprop() to run everything with the new values"
                    )
        return merged


def accumulated(
    new: Mapping[str, jax.Array],
    before: Mapping[str, jax.Array],
    clip_value: float,
    device: jax.Device | None,
) -> dict[str, jax.Array]:
    """The sums of gradients by name, clipped elementwise to ``+-clip_value`` unless that is 0."""
    old = {name: gradient for name, gradient in before.items() if name in new}
    wide = any(is_wide(spec_like(gradient)) for gradient in new.values())
    plan = AccumulationPlan(clip=clip_value > 0)
    bounds = number_vector((clip_value,), wide) if plan.clip else None
    total: dict[str, jax.Array] = compiled(plan, device=device, wide=wide)(new, old, bounds)
    return total


def checked_bound(value: Any) -> float:
    """A user's ``clip_value``; ``ArgumentError`` for anything but a number of at least 0."""
    if type(value) is float and value >= 0:
        return value
    if not is_number(value):
        refuse_traced("clip_value", value)
    bound = real("backward", "clip_value", value)
    if not bound >= 0:
        raise ArgumentError(f"expected a clip_value of at least 0, got {value!r}")
    return bound
