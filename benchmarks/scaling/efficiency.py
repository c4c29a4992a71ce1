"""The efficiency that arithmetic expects of training on many devices.

An update takes the time of its operations, at a share of the chip's peak, plus that of its exchanges, at the
rate of the slowest link that they cross. Gradients are exchanged while others are still computed: at best the
backward pass hides all exchanges, at worst none. The gradients of several batches (``--optimizer-delay``) are
exchanged after the last batch. Devices always wait for what their group exchanges.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.measuring.chips import TERA, peak_of
from benchmarks.scaling.exchange import Work, between_groups, within_a_group

BACKWARDS = 2 / 3
"""The share of the operations that the backward pass takes."""
GB = 1e9


class Chip(NamedTuple):
    """A device, by its maker's figures."""

    name: str
    link: float
    """Bytes a second that it sends to others in its machine (of a TPU: to its neighbours)."""
    near: int = 8
    """How many devices such links connect: those of a machine, or of a TPU pod."""

    @property
    def peak(self) -> float:
        """Operations a second, dense products of bfloat16."""
        found = peak_of(self.name, "bfloat16")
        if found is None:
            raise ValueError(f"the peak of {self.name} is not known")
        return TERA * found


class Network(NamedTuple):
    """What connects machines."""

    name: str
    rate: float
    """Bytes a second that a machine sends."""


H100 = Chip("H100", 450 * GB)
A100 = Chip("A100", 300 * GB)
TPU = Chip("TPU v5e", 200 * GB, 256)
CARDS = Network("eight cards of 400 Gb/s", 8 * 50 * GB)
CARD = Network("one card of 400 Gb/s", 50 * GB)
ETHERNET = Network("100 Gb Ethernet", 12.5 * GB)


class Bounds(NamedTuple):
    """The least and the most efficiency that is expected."""

    least: float
    most: float

    def __str__(self) -> str:
        low, high = (f"{100 * share:.0f}" for share in self)
        return low if low == high else f"{low}-{high}"


def efficiency(work: Work, chip: Chip, network: Network, share: float) -> Bounds:
    """The time of the operations alone over the time of an update, if each group has these sentences.

    share: the share of the chip's peak that one device reaches. Groups are within a machine if they fit into
    one.
    """
    computing = work.operations / work.parts / (share * chip.peak)
    waiting = sum(exchange.sent for exchange in within_a_group(work)) / _rate(chip, network, work.parts)
    between = sum(exchange.sent for exchange in between_groups(work)) / _rate(chip, network, work.devices)
    hidden = BACKWARDS * computing if work.batches == 1 or work.shard_state else 0.0
    at_worst, at_best = between, max(0.0, between - hidden)
    return Bounds(*(computing / (computing + waiting + exposed) for exposed in (at_worst, at_best)))


def _rate(chip: Chip, network: Network, devices: int) -> float:
    """The bytes a second of a ring of devices. It crosses each machine's network once, and several rings, one
    for each card, share the work."""
    return chip.link if devices <= chip.near else min(chip.link, network.rate)
