"""The exchanges of a compiled program, read from its text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.scaling.exchange import sent_in_a_ring

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}
_LINE = re.compile(rf"= (.+?) ({'|'.join(KINDS)})\((.*)")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_NAMED = re.compile(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}")
_AXIS = re.compile(r"'(\w+)'")
_COUNTED = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=")


class Collective(NamedTuple):
    """One exchange."""

    kind: str
    arrays: tuple[tuple[int, ...], ...]
    """The shapes of its results on one device."""
    size: int
    """The bytes of its results on one device."""
    devices: int
    """How many take part in each; for a ``collective-permute`` 2."""

    @property
    def sent(self) -> float:
        """The bytes that each device sends, in a ring."""
        return sent_in_a_ring(self.kind, self.size, self.devices)


def collectives(text: str) -> Iterator[Collective]:
    """The exchanges between devices in the text of a compiled program (``compiled.as_text()``)."""
    for line in text.splitlines():
        found = _LINE.search(line)
        if not found:
            continue
        results, kind, rest = found.groups()
        arrays = [(type_, _numbers(sizes)) for type_, sizes in _ARRAY.findall(results)]
        size = sum(SIZES[type_] * math.prod(shape) for type_, shape in arrays)
        devices = 2 if kind == "collective-permute" else _members(rest)
        if devices > 1:
            yield Collective(kind, tuple(shape for _, shape in arrays), size, devices)


def _members(rest: str) -> int:
    """How many devices are in a group: they are listed, or counted, or are those along axes of a mesh."""
    if listed := _LISTED.search(rest):
        return len(_numbers(listed[1]))
    if counted := _COUNTED.search(rest):
        return int(counted[2])
    if named := _NAMED.search(rest):
        sizes = dict(axis.split("=") for axis in named[1].split(","))
        return math.prod(int(sizes[f"'{axis}'"]) for axis in _AXIS.findall(named[2]))
    raise ValueError(f"expected replica_groups, got {rest:.200}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()
