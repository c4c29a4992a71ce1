"""Checks the gradient rules against ``jax.grad`` on a model's training loss."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mgraph import ArgumentError
from mgraph.arrays import real
from mgraph.gradcheck import DepartureReport, LossReport, check_layers, check_loss
from nmt.models import Model
from nmt.search.scoring import Streams, check_ids
from nmt.text.batches import Batch, pad
from nmt.text.parallel import ParallelLines, source_names
from nmt.text.sentences import LineEncoder
from nmt.training.learning.objective import cross_entropy_loss

logger = logging.getLogger(__name__)


def check_model_gradients(
    model: Model,
    samples: Sequence[Streams],
    *,
    label_smoothing: float = 0.0,
    float32: bool = True,
    rule_set: str = "rules",
) -> LossReport:
    """Compare the gradient of each parameter with ``jax.grad`` of the same forward pass.

    The loss is ``cross_entropy_loss``: without dropout, summed over the target words. Samples are the ids of
    all source streams and of the target, ``</s>`` included. See ``mgraph.gradcheck.loss`` for the comparison;
    ``float32=False`` skips float32. ``rule_set="marian"`` checks Marian's own formulas instead.

    ``ArgumentError`` without samples, for a sample that lacks ids of a stream or has ids outside a stream's
    vocabulary, or for a label smoothing outside 0 to 1.
    """
    batch = _batch(model, samples, label_smoothing)
    loss, checks = check_loss(
        lambda graph: cross_entropy_loss(graph, model, batch, label_smoothing),
        model.params,
        float32=float32,
        rule_set=rule_set,
    )
    title = (
        f"{len(checks)} parameters, {_size(batch, samples)}, "
        f"cross entropy {loss:.4f}, label smoothing {label_smoothing:g}"
    )
    return LossReport(title, checks, facts=_facts(batch, samples, label_smoothing, loss))


def check_model_layers(
    model: Model,
    samples: Sequence[Streams],
    *,
    label_smoothing: float = 0.0,
    float32: bool = True,
    rule_set: str = "rules",
) -> DepartureReport:
    """Examine the same loss operator by operator, and name those whose rules depart from JAX.

    Arguments and errors are as for ``check_model_gradients``; see ``mgraph.gradcheck.check_layers`` for the
    comparison.
    """
    batch = _batch(model, samples, label_smoothing)
    report = check_layers(
        lambda graph: cross_entropy_loss(graph, model, batch, label_smoothing),
        model.params,
        float32=float32,
        rule_set=rule_set,
    )
    facts = _facts(batch, samples, label_smoothing, report.loss)
    title = f"{report.title}, {_size(batch, samples)}, label smoothing {label_smoothing:g}"
    return replace(report, title=title, parameters=replace(report.parameters, facts=facts))


def _batch(model: Model, samples: Sequence[Streams], label_smoothing: float) -> Batch:
    """The samples as one batch; see ``check_model_gradients`` for the errors."""
    check_ids(model, samples)
    if not samples:
        raise ArgumentError("expected at least one sample")
    if not 0 <= real("the loss", "label_smoothing", label_smoothing) <= 1:
        raise ArgumentError(f"expected a label smoothing from 0 to 1, got {label_smoothing}")
    return pad(list(zip(*samples, strict=True)), target=True)


def _size(batch: Batch, samples: Sequence[Streams]) -> str:
    return f"{len(samples)} sentences, {batch.words} target words"


def _facts(
    batch: Batch, samples: Sequence[Streams], label_smoothing: float, loss: float
) -> dict[str, float | int]:
    return {
        "loss": loss,
        "words": batch.words,
        "sentences": len(samples),
        "label_smoothing": float(label_smoothing),
    }


def read_samples(texts: Sequence[Iterable[str | bytes]], encoder: LineEncoder, lines: int) -> list[Streams]:
    """The ids of the first ``lines`` lines of each source and the target; fewer if the texts are shorter.

    Lines that are empty in one text, or too long for ``encoder``, are skipped with a warning.
    ``ParallelTextError`` if one text ends before another, ``ArgumentError`` if no line is left.
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
            f"no line has words in each text and at most {encoder.max_length} of them, </s> included"
        )
    return samples
