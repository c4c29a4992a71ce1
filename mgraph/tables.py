"""Tables as lines of text."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Lines with aligned columns, indented by two spaces; ``sides`` has ``<`` for each left-aligned column
    and ``>`` for each right-aligned column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines
