"""The gradient of a whole model's training loss: hand-written rules held against ``jax.grad``.

For each parameter the two gradients are compared twice. In float64 they must agree to 1e-10 of the
gradient's largest element: that shows whether the rules are right, because nothing else can differ by more
than rounding. In float32 they must agree to 1e-5: that shows whether the rules are also computed as well as
JAX computes its own. The forward and the values of the parameters are the same in all four gradients.

Rounding is no fault of a rule. No difference counts that lies 1e-14 (in float64) or 1e-8 (in float32) below
the largest element of the whole model's gradient, nor in float32 one within ten times of what JAX's own
gradient is off by, measured in float64: where large terms cancel float32 holds few digits of what is left. A
gradient without an element above that 1e-14 is **zero**, as that of the bias of an attention's keys is, to
which softmax is invariant; its differences are relative to the whole model's largest element.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from mgraph import ArgumentError, ExpressionGraph, Type
from nmt.models import Model
from nmt.search.scorer import Streams
from nmt.text.batches import Batch, pad
from nmt.text.parallel import ParallelLines, source_names
from nmt.text.sentences import LineEncoder
from nmt.training.learning.objective import cross_entropy_loss

logger = logging.getLogger(__name__)

TOLERANCE_FLOAT64 = 1e-10
TOLERANCE_FLOAT32 = 1e-5
RESOLUTION_FLOAT64 = 1e-14
"""What is rounding in float64, relative to the largest element of the whole model's gradient: some 45 units
in its last place. Sums whose terms cancel are off by about one."""
RESOLUTION_FLOAT32 = 1e-8
"""The same in float32: a tenth of a unit."""
ROUNDING_FACTOR = 10
"""How many times JAX's own rounding error in float32 two ways in float32 may differ by: both have one, and
the largest of few elements varies."""
WRONG, UNSTABLE = "WRONG", "UNSTABLE"


@dataclass(frozen=True, slots=True)
class ParameterCheck:
    """The gradient by one parameter.

    gradient: the magnitude of its largest element, by JAX in float64.
    float64, float32: the largest difference of rule and JAX in that type; relative to ``gradient``, or to
        the largest element of the whole model's gradient where this one is ``zero``.
    rounding: the same for JAX in float32 and JAX in float64.
    allowed64, allowed32: the differences up to which rule and JAX agree.
    zero: whether the gradient is zero as far as float64 can tell.

    ``float32`` and ``rounding`` are ``None`` where only float64 was computed.
    """

    name: str
    shape: tuple[int, ...]
    gradient: float
    float64: float
    float32: float | None
    rounding: float | None
    allowed64: float
    allowed32: float
    zero: bool

    @property
    def ok(self) -> bool:
        """Whether rule and JAX agree."""
        return self.verdict not in (WRONG, UNSTABLE)

    @property
    def verdict(self) -> str:
        """``ok``; ``zero`` or ``rounding`` where that explains why it is; ``WRONG`` where float64 says so,
        ``UNSTABLE`` where the rule is right and float32 computes it worse than JAX does."""
        float32 = self.float32 or 0.0
        if not self.float64 <= self.allowed64 or math.isinf(self.float64):
            return WRONG
        if not float32 <= self.allowed32 or math.isinf(float32):
            return UNSTABLE
        if self.zero:
            return "zero"
        return "ok" if self.float64 <= TOLERANCE_FLOAT64 and float32 <= TOLERANCE_FLOAT32 else "rounding"

    @property
    def worst(self) -> float:
        """The larger of the two differences."""
        return max(self.float64, self.float32 or 0.0)


@dataclass(frozen=True)
class ModelGradientReport:
    """What ``check_model_gradients`` found; prints as a table of the ten worst rows.

    rows: one per parameter: first those that are wrong, then by the largest difference.
    loss, words, sentences: what was differentiated: the loss in float64, summed over so many words.
    """

    rows: tuple[ParameterCheck, ...]
    loss: float
    words: int
    sentences: int
    label_smoothing: float

    @property
    def ok(self) -> bool:
        """Whether every parameter's gradients agree."""
        return all(row.ok for row in self.rows)

    def worst(self, type_: str) -> ParameterCheck | None:
        """The row of the largest difference in ``"float64"`` or ``"float32"``, ``None`` without one.

        Rows where rounding decides (``rounding``) do not count.
        """
        rows = [r for r in self.rows if getattr(r, type_) is not None and r.verdict != "rounding"]
        return max(rows, key=lambda row: getattr(row, type_), default=None)

    def table(self, rows: int | None = None) -> str:
        """The report as text with the first ``rows`` rows, or all."""
        shown = self.rows[:rows]
        width = max([len("parameter"), *(len(row.name) for row in shown)])
        lines = [
            f"{len(self.rows)} parameters, {self.sentences} sentences, {self.words} target words, "
            f"cross entropy {self.loss:.4f}, label smoothing {self.label_smoothing:g}",
            f"  {'':{width}}  {'':12}  {'largest':>8}    rule - jax, relative      jax, float32",
            f"  {'parameter':{width}}  {'shape':12}  {'element':>8}  {'float64':>10}  {'float32':>10}  "
            f"{'- float64':>12}  verdict",
        ]
        for row in shown:
            shape = "x".join(map(str, row.shape)) or "scalar"
            lines.append(
                f"  {row.name:{width}}  {shape:12}  {row.gradient:8.1e}  {row.float64:10.1e}  "
                f"{_number(row.float32):>10}  {_number(row.rounding):>12}  {row.verdict}"
            )
        if left := len(self.rows) - len(shown):
            lines.append(f"  ... and {left} more")
        return "\n".join([*lines, *self._summary()])

    def _summary(self) -> Iterator[str]:
        zeros = sum(row.zero for row in self.rows)
        rounded = sum(row.verdict == "rounding" for row in self.rows)
        if zeros:
            yield f"zero, and relative to the model's largest element: {zeros}"
        if rounded:
            yield f"off by no more than JAX's own rounding (rounding): {rounded}"
        limits = {"float64": TOLERANCE_FLOAT64, "float32": TOLERANCE_FLOAT32}
        for type_, limit in limits.items():
            if worst := self.worst(type_):
                found = f"{getattr(worst, type_):.1e} by {worst.name}"
                yield f"worst in {type_}: {found} (allowed: {limit:g})"
        wrong = sum(not row.ok for row in self.rows)
        yield f"{wrong} of {len(self.rows)} gradients are wrong" if wrong else "all gradients agree"

    def as_json(self) -> dict[str, Any]:
        """The report as what JSON can hold; a difference that is not finite is ``None``."""
        return {
            "ok": self.ok,
            "loss": _finite(self.loss),
            "words": self.words,
            "sentences": self.sentences,
            "label_smoothing": self.label_smoothing,
            "worst": {
                type_: {"parameter": worst.name, "difference": _finite(getattr(worst, type_))}
                for type_ in ("float64", "float32")
                if (worst := self.worst(type_))
            },
            "parameters": [
                {
                    "name": row.name,
                    "shape": list(row.shape),
                    "gradient": _finite(row.gradient),
                    "float64": _finite(row.float64),
                    "float32": _finite(row.float32),
                    "rounding": _finite(row.rounding),
                    "allowed": {"float64": _finite(row.allowed64), "float32": _finite(row.allowed32)},
                    "verdict": row.verdict,
                    "ok": row.ok,
                }
                for row in self.rows
            ],
        }

    def __str__(self) -> str:
        return self.table(10)


def check_model_gradients(
    model: Model,
    samples: Sequence[Streams],
    *,
    label_smoothing: float = 0.0,
    float32: bool = True,
    rule_set: str = "rules",
) -> ModelGradientReport:
    """Hold every parameter's gradient of the loss of ``samples`` against ``jax.grad`` of the same forward.

    The loss is ``cross_entropy_loss``: without dropout, summed over the target words. Samples are ids of
    every source stream and of the target, ``</s>`` included. The module's page says what is compared;
    ``float32=False`` leaves out float32. ``rule_set="marian"`` judges Marian's own formulas instead.
    Matrix products are computed in full float32, also on devices where JAX would round their operands.

    ``ArgumentError`` for no samples, other streams than the model's, or a label smoothing outside of 0 to 1.
    """
    if not samples:
        raise ArgumentError("expected at least one sample to differentiate the loss of")
    streams = {len(sample) for sample in samples}
    if streams != {model.sources + 1}:
        raise ArgumentError(
            f"expected the ids of {model.sources} sources and a target in each sample, got"
            f" {' or '.join(map(str, sorted(streams)))} streams"
        )
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"expected a label smoothing from 0 to 1, got {label_smoothing}")
    batch = pad(list(zip(*samples, strict=True)), target=True)
    loss = _Loss(model, batch, label_smoothing)
    value, expected = loss.gradients(Type.float64, "jax")
    wide = _differences(loss.gradients(Type.float64, rule_set)[1], expected)
    whole = max(filter(math.isfinite, map(_largest, expected.values())), default=0.0)
    narrow: dict[str, float] = {}
    rounding: dict[str, float] = {}
    if float32:
        by_jax = loss.gradients(Type.float32, "jax")[1]
        rounding = _differences(by_jax, expected)
        narrow = _differences(loss.gradients(Type.float32, rule_set)[1], by_jax)
    rows = [
        _row(name, gradient, whole, wide[name], narrow.get(name), rounding.get(name))
        for name, gradient in expected.items()
    ]
    rows.sort(key=lambda row: (not row.ok, row.worst), reverse=True)
    return ModelGradientReport(tuple(rows), value, batch.words, len(samples), float(label_smoothing))


def _row(
    name: str, gradient: np.ndarray, whole: float, wide: float, narrow: float | None, rounding: float | None
) -> ParameterCheck:
    """The check of one parameter from its absolute differences."""
    size = _largest(gradient)
    zero = size <= RESOLUTION_FLOAT64 * whole
    scale = whole if zero else size

    def relative(difference: float) -> float:
        if difference == 0:
            return 0.0
        return difference / scale if 0 < scale < math.inf else math.inf

    resolution = relative(RESOLUTION_FLOAT64 * whole)
    off = relative(rounding) if rounding is not None and math.isfinite(rounding) else 0.0
    return ParameterCheck(
        name,
        gradient.shape,
        size,
        float64=relative(wide),
        float32=None if narrow is None else relative(narrow),
        rounding=None if rounding is None else relative(rounding),
        allowed64=resolution if zero else max(TOLERANCE_FLOAT64, resolution),
        allowed32=max(TOLERANCE_FLOAT32, ROUNDING_FACTOR * off, relative(RESOLUTION_FLOAT32 * whole)),
        zero=zero,
    )


@dataclass(frozen=True)
class _Loss:
    """The loss of one batch as a function of the parameters."""

    model: Model
    batch: Batch
    label_smoothing: float

    def gradients(self, kind: Type, rule_set: str) -> tuple[float, dict[str, np.ndarray]]:
        """The loss and its gradient by each parameter, computed in ``kind``."""
        began = time.perf_counter()
        graph = ExpressionGraph()
        graph.set_default_element_type(kind)
        node = cross_entropy_loss(graph, self.model, self.batch, self.label_smoothing)
        function = graph.function(node, derivatives=rule_set)
        with jax.enable_x64(kind is Type.float64), jax.default_matmul_precision("highest"):
            params = {name: np.asarray(p).astype(kind.dtype) for name, p in self.model.params.items()}
            value, found = jax.jit(jax.value_and_grad(lambda p: function.pure(p)[0]))(params)
            result = float(value), {name: np.asarray(gradient) for name, gradient in found.items()}
        logger.info("%s in %s: %.1f s", rule_set, kind, time.perf_counter() - began)
        return result


def _differences(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The largest difference by each parameter; infinite where a gradient is not finite."""
    with np.errstate(invalid="ignore"):
        return {n: _largest(found[n].astype(np.float64) - gradient) for n, gradient in expected.items()}


def _largest(array: np.ndarray) -> float:
    largest = float(np.max(np.abs(array), initial=0.0))
    return largest if math.isfinite(largest) else math.inf


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def read_samples(texts: Sequence[Iterable[str | bytes]], encoder: LineEncoder, lines: int) -> list[Streams]:
    """The first ``lines`` lines as ids, of each source and then of the target; fewer if texts are shorter.

    Lines that are empty in one of the texts, and those that ``encoder`` finds too long, are passed over with
    a warning. ``ParallelTextError`` if one text ends before another, ``ArgumentError`` if no line is left.
    """
    samples: list[Streams] = []
    names = [*source_names(len(texts) - 1), "target"]
    rows = ParallelLines(texts, names)
    for number, row in enumerate(rows):
        if len(samples) == lines:
            break
        empty = [name for name, line in zip(names, row, strict=True) if not line.strip()]
        if empty:
            logger.warning("line %d is left out: its %s is empty", number + 1, " and ".join(empty))
            continue
        sample = encoder.sentence(number, row)
        if not sample.problem:
            samples.append(sample.sequences)
    if len(samples) < lines:
        rows.check()
    if not samples:
        raise ArgumentError(
            f"there is no line with words in each text, at most {encoder.max_length} with </s>"
        )
    return samples
