"""Training in 16 bits compared with float32: the curves of a transformer.

A transformer is trained from the same parameters, on the same batches with the same dropout, in float32, in
bfloat16, and in float16 with the cost scaling of ``--fp16``, on the files CORPUS/train.de, train.en, dev.de
and dev.en. For each precision and seed FOLDER gets the validation cross-entropies, per word in nats, computed
in float32 from the float32 parameters; then a table and a picture are made of them. Finished trainings are
not repeated, unless their options have changed. On most CPUs 16 bits take several times as long as float32;
on Intel's with AMX bfloat16 is faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measuring import positive
from benchmarks.training.curves import EUROPARL, TRANSFORMER, Curve, Line, corpus_data, curve, picture

FLOAT32, BFLOAT16, FLOAT16 = "float32", "bfloat16", "float16"
PRECISIONS: dict[str, dict[str, Any]] = {
    FLOAT32: {},
    BFLOAT16: {"precision": (BFLOAT16, FLOAT32)},
    FLOAT16: {"fp16": True},
}
LINES = {
    FLOAT32: Line("float32", "#2a6fbb"),
    BFLOAT16: Line("bfloat16", "#c2571a"),
    FLOAT16: Line("float16, cost scaled", "#3d8f4e"),
}


def table(curves: Mapping[str, list[Curve]]) -> str:
    """By update, the means over the seeds, and the largest difference from float32 with the same seed."""
    others = [precision for precision in PRECISIONS if precision != FLOAT32]
    heads = ["update", *PRECISIONS, *(f"{precision}, largest difference" for precision in others)]
    if len(curves[FLOAT32]) > 1:
        heads.append("seeds differ by")
    lines = [f"| {' | '.join(heads)} |", f"|{'---:|' * len(heads)}"]
    for step, (update, _) in enumerate(curves[FLOAT32][0]):
        costs = {precision: [own[step][1] for own in curves[precision]] for precision in PRECISIONS}
        gaps = ([a - b for a, b in zip(costs[other], costs[FLOAT32], strict=True)] for other in others)
        cells = [f"{statistics.mean(own):.4f}" for own in costs.values()]
        cells += [f"{max(gap, key=abs):+.4f}" for gap in gaps]
        if len(costs[FLOAT32]) > 1:
            cells.append(f"{max(costs[FLOAT32]) - min(costs[FLOAT32]):.4f}")
        lines.append(f"| {update} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, print the table, write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", type=Path, help="folder of train.de, train.en, dev.de, dev.en")
    parser.add_argument("vocab", help="the vocabulary of both sides")
    parser.add_argument("--seeds", type=positive, default=4, help="trainings of each kind (%(default)s)")
    parser.add_argument("--updates", type=positive, default=300, help="of each (%(default)s)")
    given = parser.parse_args()
    if not (given.corpus / "train.de").is_file():
        parser.error(f"there is no {given.corpus / 'train.de'}")
    given.folder.mkdir(parents=True, exist_ok=True)
    options = {**TRANSFORMER, **EUROPARL, **corpus_data(given.corpus, given.vocab)}
    options["after_batches"] = given.updates
    curves: dict[str, list[Curve]] = {precision: [] for precision in PRECISIONS}
    for seed in range(1, given.seeds + 1):
        for precision, own in PRECISIONS.items():
            curves[precision].append(
                curve(given.folder, f"{precision}.{seed}", options | own | {"seed": seed})
            )
            print(f"{precision}, seed {seed}: {curves[precision][-1][-1][1]:.4f}", file=sys.stderr)
    print(table(curves))
    picture({line: curves[name] for name, line in LINES.items()}, "Europarl", given.folder / "curves.svg")


if __name__ == "__main__":
    main()
