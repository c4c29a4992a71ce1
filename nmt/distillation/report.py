"""Teacher and student compared: sizes, speeds, metrics."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nmt.distillation.teaching import segments
from nmt.models import Model
from nmt.models.parameters import parameters
from nmt.search.translator import Translator
from nmt.text.parallel import read_rows
from nmt.training.validation.bleu import BLEU_ORDER, ORDERS, NGramCounts

REPORT = "report.json"
TABLE = "report.txt"
REPEATED = 3


@dataclass(frozen=True)
class System:
    """One system.

    bytes: of its model files. parameters: how many numbers its parameters have.
    lines_a_second: of the validation source, once everything is compiled; the fastest of ``REPEATED`` runs.
    bleu, chrf: on the validation set, from 0 to 100. equal: the share of lines that equal the reference.
    """

    name: str
    bytes: int
    parameters: int
    lines_a_second: float
    bleu: float
    chrf: float
    equal: float


def measured(name: str, translator: Translator, valid_sets: Sequence[str]) -> System:
    """Translate the validation set, compare the translations with the references, and measure the speed."""
    source, reference = zip(*read_rows(valid_sets), strict=True)
    found = translator.translate(source)
    seconds = min(_seconds(translator, source) for _ in range(REPEATED))
    counts = {"bleu": NGramCounts(BLEU_ORDER), "chrf": NGramCounts(ORDERS["chrf"])}
    known = [line.decode("utf-8", "replace") for line in reference]
    for ours, theirs in zip(found, known, strict=True):
        for metric, sums in counts.items():
            sums.add(segments(ours, metric), segments(theirs, metric))
    return System(
        name=name,
        bytes=sum(os.path.getsize(path) for path in translator.options.models),
        parameters=sum(map(_numbers, translator.models)),
        lines_a_second=round(len(source) / max(seconds, 1e-9), 1),
        bleu=round(counts["bleu"].bleu(), 2),
        chrf=round(counts["chrf"].chrf(), 2),
        equal=round(sum(map(str.__eq__, found, known)) / max(len(known), 1), 4),
    )


def _seconds(translator: Translator, source: Sequence[bytes]) -> float:
    began = time.perf_counter()
    translator.translate(source)
    return time.perf_counter() - began


def _numbers(model: Model) -> int:
    """How many numbers a model's parameters have, without the scales of integers."""
    return sum(rows * columns for rows, columns in (p.shape for p in parameters(model.options).values()))


def write_report(folder: Path, systems: Sequence[System], seconds: Mapping[str, float]) -> str:
    """Write ``report.json``, and the same content as a table, ``report.txt``; returns the table.

    seconds: the time that each stage took.
    """
    content = {"systems": list(map(asdict, systems)), "seconds": dict(seconds)}
    (folder / REPORT).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    text = table(systems, seconds)
    (folder / TABLE).write_text(text, encoding="utf-8")
    return text


def table(systems: Sequence[System], seconds: Mapping[str, float]) -> str:
    """The report as a table with a line for each system, and the seconds of the stages."""
    lines = [f"{'':28} {'MB':>8} {'parameters':>12} {'lines/s':>9} {'BLEU':>6} {'chrF':>6} {'equal':>7}"]
    for one in systems:
        lines.append(
            f"{one.name:28} {one.bytes / 1e6:8.2f} {one.parameters:12,} {one.lines_a_second:9.1f} "
            f"{one.bleu:6.2f} {one.chrf:6.2f} {one.equal:7.1%}"
        )
    stages = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
    return "\n".join([*lines, "", stages, ""])
