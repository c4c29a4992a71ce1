"""The tables of the page "Scale"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax

from benchmarks.measuring import Table
from benchmarks.scaling.efficiency import A100, CARD, CARDS, ETHERNET, H100, TPU, efficiency
from benchmarks.scaling.exchange import Work, between_groups, exchanges, within_a_group
from benchmarks.scaling.simulation import compiled, learner
from benchmarks.training.models import MODELS
from nmt.settings.model_options import ModelOptions

MB = 1e6
MIB = 1 << 20
BASE, BIG = (
    ModelOptions(**MODELS[f"transformer-{size}"], dim_vocabs=(32000, 32000), tied_embeddings_all=True)
    for size in ("base", "big")
)
WORDS = 8192
"""Positions of the source, and of the target, for each device."""
MORE = 4 * WORDS
SHARE = 0.33
COUNTS = (1, 2, 4, 8, 16, 32, 64)
DELAYS = (1, 2, 4, 8)
WIRES = (
    (H100, CARDS),
    (H100, CARD),
    (A100, CARD),
    (A100, ETHERNET),
    (TPU, CARDS),
)


def page_tables() -> Iterator[str]:
    """The tables in Markdown, all by arithmetic."""
    yield _table(["for an update, MB", "base", "big"], _sizes())
    wires = [chip.name if chip is TPU else f"{chip.name}, {network.name}" for chip, network in WIRES]
    for words in (WORDS, MORE):
        yield _table([f"devices, {words:,} words each", *wires], _by_groups(words))
    yield _table([f"batches of {WORDS:,} words for an update", *wires], _by_delay())
    yield _table(["big, devices of a group", "H100", "A100", "MB exchanged", "state, MB"], _by_parts())


def _sizes() -> Iterator[list[str]]:
    """What each of eight devices sends: between groups, and within its group."""
    divisions = {
        "8 groups": {"groups": 8},
        "8 groups, `--shard-state`": {"groups": 8, "shard_state": True},
        "4 groups of 2": {"groups": 4, "parts": 2},
        "1 group of 8": {"parts": 8},
    }
    for said, division in divisions.items():
        row = []
        for options in (BASE, BIG):
            parts = division.get("parts", 1)
            work = Work(options, source=parts * WORDS, target=parts * WORDS, itemsize=2, **division)
            between = sum(exchange.sent for exchange in between_groups(work))
            within = sum(exchange.sent for exchange in within_a_group(work))
            row.append(f"{between / MB:,.0f} + {within / MB:,.0f}")
        yield [said, *row]


def _by_groups(words: int) -> Iterator[list[str]]:
    for count in COUNTS:
        work = Work(BIG, groups=count, source=words, target=words, itemsize=2)
        yield [str(count), *(str(efficiency(work, *wires, SHARE)) for wires in WIRES)]


def _by_delay() -> Iterator[list[str]]:
    for batches in DELAYS:
        work = Work(BIG, groups=COUNTS[-1], batches=batches, source=WORDS, target=WORDS, itemsize=2)
        yield [str(batches), *(str(efficiency(work, *wires, SHARE)) for wires in WIRES)]


def _by_parts() -> Iterator[list[str]]:
    for parts in (1, 2, 4, 8):
        work = Work(BIG, parts=parts, source=parts * WORDS, target=parts * WORDS, itemsize=2)
        shares = (str(efficiency(work, chip, CARDS, SHARE)) for chip in (H100, A100))
        sent = sum(exchange.sent for exchange in exchanges(work))
        # Parameters, two moments of Adam and averages.
        yield [str(parts), *shares, f"{sent / MB:,.0f}", f"{4 * 4 * work.numbers / MB:,.0f}"]


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show_simulation(used: Sequence[jax.Device], options: ModelOptions) -> None:
    """Print what compiled programs exchange among devices of a CPU, next to what arithmetic says."""
    columns = ["groups x devices", "state MiB", "update MiB", "exchanges", "sent MB", "by arithmetic"]
    table = Table(columns, width=24)
    for work in _simulated(options, len(used)):
        trainer = learner(work, used)
        found = compiled(trainer, work)
        every = [*found.gradient, *found.update]
        sent = sum(exchange.sent for exchange in every)
        wanted = sum(exchange.sent for exchange in exchanges(work))
        name = f"{work.groups} x {work.parts}" + (", divided state" if work.shard_state else "")
        table.row(name, trainer.held / MIB, found.memory / MIB, len(every), sent / MB, wanted / MB)


def _simulated(options: ModelOptions, most: int) -> Iterator[Work]:
    """Groups of one device, then of several, with at most ``most`` devices in all."""
    counts = [1 << power for power in range(most.bit_length())]
    for count in counts:
        yield Work(options, groups=count, source=256, target=256)
    for parts in counts[1:]:
        if options.transformer_heads % parts == 0:
            yield Work(options, groups=most // parts, parts=parts, source=256, target=256)
    yield Work(options, groups=most, shard_state=True, source=256, target=256)
