"""Rows of a table, printed as they come."""

from __future__ import annotations

from collections.abc import Sequence

from .rounds import Samples


class Table:
    """A table on standard output: a title line, then a row at a time, columns aligned.

    columns: their names. The first is ``width`` wide and left-aligned; the others are right-aligned, as wide
    as their name but at least 12 characters.
    """

    def __init__(self, columns: Sequence[str], width: int = 36) -> None:
        self._widths = [width, *(max(12, len(column)) for column in columns[1:])]
        self.row(*columns)

    def row(self, *cells: str | int | float | Samples) -> None:
        """Print a row: numbers with three digits, samples as median and, if several, spread."""
        texts = [
            f"{_text(cell):<{width}}" if place == 0 else f"{_text(cell):>{width}}"
            for place, (cell, width) in enumerate(zip(cells, self._widths, strict=False))
        ]
        print("  ".join(texts).rstrip(), flush=True)


def _text(cell: str | int | float | Samples) -> str:
    match cell:
        case Samples():
            spread = f" ±{100 * cell.spread:.0f}%" if len(cell.values) > 1 else ""
            return f"{_digits(cell.median)}{spread}"
        case float():
            return _digits(cell)
        case _:
            return f"{cell:,}" if isinstance(cell, int) else cell


def _digits(value: float) -> str:
    """Three digits, and no exponent."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    places = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2 if magnitude >= 1 else 3
    return f"{value:,.{places}f}"
