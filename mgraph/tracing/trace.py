"""Tracing: a recorded structure as a JAX computation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..device import platform_of
from ..draws import folded
from ..node import Node
from ..platforms import check_jaxlib, kept_apart
from ..rules import evaluate
from ..scalars import taken_apart
from ..specs import is_real
from ..structure import INPUT, Excerpt, Structure, is_leaf
from ..tape import Tape
from .adjoints import clip_adjoint, watched
from .checkpointing import cuts, recomputed, spans, zero_after


@dataclass(frozen=True)
class Checkpoints:
    """Rows after which a structure is cut; all spans but the last keep only what is used later."""

    rows: tuple[int, ...]
    wanted: tuple[int, ...]
    """Rows whose values the caller needs."""
    platform: str
    """The platform that the program is for, as JAX names it."""

    @staticmethod
    def of(
        tape: Tape[Node], excerpt: Excerpt, parts: int, wanted: tuple[int, ...], device: jax.Device | None
    ) -> Checkpoints | None:
        """Where the cuts of a tape into ``parts`` (see ``cuts``) fall in an excerpt; ``None`` if nowhere."""
        rows = sorted(excerpt.row_of[i] for i in cuts(tape, parts) if i in excerpt.row_of)
        return Checkpoints(tuple(rows), wanted, platform_of(device)) if rows else None


def trace(
    structure: Structure,
    leaves: Sequence[Any],
    *,
    numbers: Any = None,
    rule_set: str = "rules",
    trained: tuple[bool, ...] | None = None,
    key: Any = None,
    ordinals: Any = None,
    probes: Mapping[int, Any] | None = None,
    taps: Any = None,
    clip_value: Any = None,
    checkpoints: Checkpoints | None = None,
    labels: bool = False,
) -> dict[int, Any]:
    """Values of all rows; with ``checkpoints`` only the values that are kept.

    ``leaves`` holds the values of the input rows, ``numbers`` the vector of numbers that a generic structure
    takes; ``trained`` replaces the leaves' trainability. Random rows draw from ``key`` folded with their
    entry of ``ordinals`` (their position among the random rows if ``ordinals`` is ``None``). No gradient
    flows into an untrained input, nor into a node frozen by hand, under any rule set. ``clip_value`` clips
    adjoints elementwise. A probe is a zero added to a row's value: its gradient is the gradient with respect
    to that value. The gradient of the i-th element of ``taps`` is 1 if row i's gradient is not finite.
    ``labels`` tells XLA which row each instruction comes from.
    """
    check_jaxlib()
    rows = _Rows(structure, structure.trainable(trained), labels)
    values = rows.inputs(leaves)
    if taps is not None:
        values = {i: watched(v, taps[i]) if rows.flags[i] else v for i, v in values.items()}
    numbers = None if numbers is None else taken_apart(numbers)
    sources = Sources(numbers, clip_value, key, ordinals, probes or {}, taps)
    if checkpoints is None or not checkpoints.rows:
        rows.run(range(len(structure.rows)), values, sources, rule_set)
        return values
    *early, last = spans(len(structure.rows), checkpoints.rows)
    for span in early:
        _run_again_backward(rows, span, values, sources, checkpoints, rule_set)
    rows.run(last, values, sources, rule_set)
    return values


class Sources(NamedTuple):
    """What rows take in addition to their children's values: numbers, a bound for adjoints, random draws, and
    probes and taps by row."""

    numbers: Any
    clip_value: Any
    key: Any
    ordinals: Any
    probes: Mapping[int, Any]
    taps: Any = None
    after: Any = 0
    """A zero that random draws wait for."""


class _Rows:
    """A structure being traced."""

    def __init__(self, structure: Structure, flags: Sequence[bool], labels: bool) -> None:
        self.rows, self.flags, self._places = structure.rows, flags, structure.places
        self._labels = labels
        self._frozen = {i for i, row in enumerate(self.rows) if row[0] is INPUT and not flags[i]}
        self._frozen.update(i for i, trainable in structure.overrides if not trainable)
        random = (i for i, row in enumerate(self.rows) if is_leaf(row) and row[0] is not INPUT)
        self._draws = {i: count for count, i in enumerate(random)}
        reads = Counter(k for row in self.rows if not is_leaf(row) for k in row[1:])
        self._kept_apart = {
            i for i, count in reads.items() if count > 1 and getattr(self.rows[i][0], "computed_once", False)
        }

    def inputs(self, leaves: Sequence[Any]) -> dict[int, Any]:
        """The values of the input rows."""
        places = (i for i, row in enumerate(self.rows) if row[0] is INPUT)
        # Rules work on JAX arrays: numpy arrays promote differently and have no ``at``.
        return {
            i: self._held(i, jnp.asarray(v) if isinstance(v, np.ndarray) else v)
            for i, v in zip(places, leaves, strict=True)
        }

    def run(self, span: range, values: dict[int, Any], sources: Sources, rule_set: str) -> None:
        """Compute the rows of ``span`` from the values of earlier rows, and add them to ``values``."""
        for i in span:
            row = self.rows[i]
            head = row[0]
            if head is INPUT:
                continue
            if is_leaf(row):
                value = self._draw(i, sources)
            else:
                trained = tuple(self.flags[k] for k in row[1:])
                with jax.named_scope(row_label(i) if self._labels else operator_label(head)):
                    children = tuple(values[k] for k in row[1:])
                    value = evaluate(head, rule_set, trained, children, self._numbers(i, sources))
                    value = kept_apart(value) if i in self._kept_apart else value
            value = self._held(i, value)
            if i in sources.probes:
                value = jax.tree.map(lambda v, p: v + p if is_real(v) else v, value, sources.probes[i])
            if sources.clip_value is not None and self.flags[i] and not is_leaf(row):
                value = clip_adjoint(sources.clip_value, value)
            if sources.taps is not None and self.flags[i]:
                value = watched(value, sources.taps[i])
            values[i] = value

    def _held(self, i: int, value: Any) -> Any:
        """The value, with gradients stopped if none may flow into row ``i``."""
        return jax.lax.stop_gradient(value) if i in self._frozen else value

    def _numbers(self, i: int, sources: Sources) -> Any:
        return sources.numbers[self._places[i]] if i in self._places else None

    def _draw(self, i: int, sources: Sources) -> Any:
        init, spec = self.rows[i]
        if i in self._places:
            init = init.bound(self._numbers(i, sources))
        count = self._draws[i]
        ordinal = count if sources.ordinals is None else sources.ordinals[count]
        return init.device_value(folded(sources.key, ordinal + sources.after), spec.shape, spec.type)


def row_label(row: int) -> str:
    """The scope under which a row is traced; XLA keeps it with every instruction."""
    return f"mgraph.{row}"


def operator_label(operator: Any) -> str:
    """The scope of a row in programs shared by equal structures; profilers name the row's kernels by it."""
    return f"mgraph.{operator.type}"


def _run_again_backward(
    rows: _Rows,
    span: range,
    values: dict[int, Any],
    sources: Sources,
    checkpoints: Checkpoints,
    rule_set: str,
) -> None:
    """``rows.run`` over a span whose inner values the backward pass recomputes."""
    uses = {
        k for i in range(span.stop, len(rows.rows)) if not is_leaf(rows.rows[i]) for k in rows.rows[i][1:]
    }
    inner = [i for i in span if rows.rows[i][0] is not INPUT]
    kept = [i for i in inner if i in uses or i in checkpoints.wanted]
    entering = sorted({k for i in inner if not is_leaf(rows.rows[i]) for k in rows.rows[i][1:]} - {*inner})
    probes = {i: probe for i, probe in sources.probes.items() if i in span}

    def run(rule_set: str, inputs: list[Any]) -> list[Any]:
        *known, (numbers, clip_value, key, ordinals), probes = inputs
        local = dict(zip(entering, known, strict=True))
        computed = [local[i] for i in entering if not is_leaf(rows.rows[i])]
        after = zero_after(computed)
        sources = Sources(numbers, clip_value, key, ordinals, probes, after=after)
        rows.run(span, local, sources, rule_set)
        return [local[i] for i in kept]

    given = sources.numbers, sources.clip_value, sources.key, sources.ordinals
    inputs = [*(values[i] for i in entering), given, probes]
    trained = [*(rows.flags[i] for i in entering), False, True]
    found = recomputed(run, inputs, trained, checkpoints.platform, rule_set)
    values.update(zip(kept, found, strict=True))
