"""Every operator, forward and backward, compared with its twin in jax.numpy.

Ours is the operator with its hand-written rule, recorded and compiled; the twin is what one would write for
it in jax.numpy, differentiated by ``jax.vjp``. Both give the same results, which is checked first. "backward"
is the program that computes the gradients by all inputs, with as much of the forward pass as they need.
Ratios are the times of ours over those of the twin, taken within a round; the slowest come last.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from benchmarks.measuring import Samples, Table, alternate, positive, print_machine
from benchmarks.operators import elementwise, reductions, shapes
from benchmarks.operators.twin import Pair, Twin, backward, forward
from nmt.commands import catalogue
from nmt.runtime import devices

TWINS = [*elementwise.TWINS, *shapes.TWINS, *reductions.TWINS]
COMPUTE_NOTHING = ("callback", "checkpoint", "choose", "constant_like", "debug", "get", "remove_as_root")
"""Operators that only name, choose or watch existing values."""
MS = 1e3


class Row(NamedTuple):
    """What was measured of a twin in one direction."""

    name: str
    ours: Samples
    plain: Samples

    @property
    def ratio(self) -> Samples:
        return self.ours.over(self.plain)


def without_twin() -> list[str]:
    """Operators of the catalogue that nothing here measures."""
    known = {twin.name for twin in TWINS}.union(COMPUTE_NOTHING)
    return [entry.name for entry in catalogue.entries() if entry.name not in known]


def measured(twins: list[Twin], make: Callable[[Twin], Pair], rounds: int, least: float) -> list[Row]:
    """A row for each twin; a round repeats it if it takes less than ``least`` seconds."""
    rows = []
    for twin in twins:
        pair = make(twin)
        candidates: dict[str, Callable[[], Any]] = {"ours": pair.ours, "plain": pair.plain}
        once = alternate(candidates, rounds=3)
        times = max(1, round(least / once["plain"].median))
        found = alternate({name: _repeated(run, times) for name, run in candidates.items()}, rounds, 0)
        rows.append(Row(str(twin), *(found[name].times(MS / times) for name in candidates)))
    return rows


def _repeated(run: Callable[[], Any], times: int) -> Callable[[], Any]:
    def repeated() -> None:
        for _ in range(times):
            jax.block_until_ready(run())

    return repeated


def show(direction: str, rows: list[Row], all_rows: bool) -> None:
    """Print the rows, the slowest last, and how many are quicker or slower than their twins."""
    print()
    table = Table([f"{direction}, ms", "ours", "jax.numpy", "ratio"], width=30)
    for row in sorted(rows, key=lambda row: row.ratio.median):
        if all_rows or row.ratio.median > 1.1:
            table.row(row.name, row.ours, row.plain, row.ratio)
    ratios = sorted(row.ratio.median for row in rows)
    slower = sum(ratio > 1.1 for ratio in ratios)
    quicker = sum(ratio < 0.9 for ratio in ratios)
    print(
        f"{direction}: {len(rows)} rows, median ratio {ratios[len(ratios) // 2]:.2f}; {quicker} below 0.9, "
        f"{slower} above 1.1"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these operators, as the catalogue has them"
    )
    parser.add_argument("--rounds", type=positive, default=9, help="of each row (%(default)s)")
    parser.add_argument("--least", type=float, default=0.002, help="seconds of a round (%(default)s)")
    parser.add_argument("--slow", action="store_true", help="print rows with a ratio above 1.1 only")
    given = parser.parse_args()
    if unknown := set(given.only or ()) - {twin.name for twin in TWINS}:
        parser.error(f"--only: no operator that is measured: {' '.join(sorted(unknown))}")
    twins = [twin for twin in TWINS if not given.only or twin.name in given.only]
    # As every command does, to keep freed memory on the CPU: else mapping pages would take most of the time.
    devices.start()
    print_machine(rounds=given.rounds, operators=len({twin.name for twin in twins}))
    print(f"nothing to measure: {', '.join(COMPUTE_NOTHING)}")
    if missing := without_twin():
        print(f"without a twin: {', '.join(missing)}")
    show("forward", measured(twins, forward, given.rounds, given.least), not given.slow)
    differentiable = [twin for twin in twins if twin.gradient]
    if differentiable:
        show("backward", measured(differentiable, backward, given.rounds, given.least), not given.slow)


if __name__ == "__main__":
    main()
