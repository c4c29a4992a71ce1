"""Checks the gradient rules against ``jax.grad`` on a model's training loss."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from mgraph import ArgumentError
from mgraph.gradcheck import LossReport, check_loss
from nmt.models import Model
from nmt.search.scoring import Streams
from nmt.text.batches import pad
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

    ``ArgumentError`` without samples, for the wrong number of streams, or a label smoothing outside 0 to 1.
    """
    if not samples:
        raise ArgumentError("expected at least one sample")
    streams = {len(sample) for sample in samples}
    if streams != {model.sources + 1}:
        raise ArgumentError(
            f"expected the ids of {model.sources} sources and a target in each sample, got"
            f" {' or '.join(map(str, sorted(streams)))} streams"
        )
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"expected a label smoothing from 0 to 1, got {label_smoothing}")
    batch = pad(list(zip(*samples, strict=True)), target=True)
    loss, checks = check_loss(
        lambda graph: cross_entropy_loss(graph, model, batch, label_smoothing),
        model.params,
        float32=float32,
        rule_set=rule_set,
    )
    title = (
        f"{len(checks)} parameters, {len(samples)} sentences, {batch.words} target words, "
        f"cross entropy {loss:.4f}, label smoothing {label_smoothing:g}"
    )
    facts = {
        "loss": loss,
        "words": batch.words,
        "sentences": len(samples),
        "label_smoothing": float(label_smoothing),
    }
    return LossReport(title, checks, facts=facts)


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
