"""``MemoryUse``: the memory that a compiled step needs, as XLA planned it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True)
class MemoryUse:
    """The memory of one program and the reserved memory, in bytes."""

    arguments: int
    """Parameters, constants and other leaves."""
    results: int
    """Values and gradients that are returned."""
    temporaries: int
    """The peak of temporary buffers."""
    reserved: int | None
    """What ``reserve_workspace_mb`` reserved; ``None`` if nothing."""

    @staticmethod
    def of(compiled: Any, reserved: int | None) -> MemoryUse:
        """The memory of a compiled program."""
        found = compiled.memory_analysis()
        return MemoryUse(
            found.argument_size_in_bytes,
            found.output_size_in_bytes - found.alias_size_in_bytes,
            found.temp_size_in_bytes,
            reserved,
        )

    @property
    def needed(self) -> int:
        """All the memory that the program needs."""
        return self.arguments + self.results + self.temporaries

    @property
    def fits(self) -> bool:
        """Whether the program needs no more than is reserved; true if nothing is reserved."""
        return self.reserved is None or self.needed <= self.reserved

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {getattr(self, name) / MIB:.1f}" for name in ("arguments", "results", "temporaries")
        )
        there = "" if self.reserved is None else f", {self.reserved / MIB:.0f} MiB are reserved"
        return f"needs {self.needed / MIB:.1f} MiB ({parts}){there}"

    __repr__ = __str__  # for prompts and notebooks
