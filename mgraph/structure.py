"""``Structure``: what a program computes, apart from values, names and nodes.

Rows are made of operators, specs and positions, so they can be the key of a compiled program and outlive the
tape that they were recorded on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from .inits import Random
from .specs import is_wide


class Input:
    """Marks a leaf whose value is passed to the program."""

    generic = None
    open_numbers = 0

    def __repr__(self) -> str:
        return "input"


INPUT = Input()
"""First entry of the row ``(INPUT, spec, trainable)``; for a random leaf its initializer takes this place."""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Structure:
    """Rows of a program and the nodes whose trainability the user set by hand; hashable.

    In a generic structure operators and initializers take the numbers of their runtime fields as arguments.
    """

    rows: tuple[Row, ...]
    overrides: tuple[tuple[int, bool], ...] = ()

    is_canonical: ClassVar[bool] = True
    """Equal structures compute the same result: rows hold only operators and row numbers."""

    @cached_property
    def _hash(self) -> int:
        return hash((self.rows, self.overrides))

    def __hash__(self) -> int:
        return self._hash

    def trainable(self, inputs: tuple[bool, ...] | None = None) -> list[bool]:
        """For each row, whether a gradient flows through it; ``inputs`` replaces the input leaves' flags."""
        flags: list[bool] = []
        overrides = dict(self.overrides)
        leaf = iter(inputs) if inputs is not None else None
        for i, row in enumerate(self.rows):
            head = row[0]
            if head is INPUT:
                flag = row[2] if leaf is None else next(leaf)
            elif is_leaf(row):
                flag = False
            else:
                flag = head.differentiable and any(flags[k] for k in row[1:])
            flags.append(overrides.get(i, flag))
        return flags

    @cached_property
    def _wide(self) -> bool:
        heads = {row[0] for row in self.rows}
        leaves = {head for head in heads if head is INPUT or isinstance(head, Random)}
        specs = {row[1] for row in self.rows if row[0] in leaves}
        return any(map(is_wide, specs)) or any(head.makes_wide() for head in heads - leaves)

    def is_wide(self) -> bool:
        """Whether any value has a type that JAX keeps only while 64-bit types are enabled."""
        return self._wide

    def generic(self) -> tuple[Structure, tuple[float, ...]]:
        """The structure with its runtime fields left open, and their numbers in the order of the rows."""
        found = [(i, row[0].generic) for i, row in enumerate(self.rows) if row[0].generic is not None]
        if not found:
            return self, ()
        rows = list(self.rows)
        for i, (family, _) in found:
            rows[i] = (family, *rows[i][1:])
        return Structure(tuple(rows), self.overrides), tuple(n for _, (_, numbers) in found for n in numbers)

    @cached_property
    def places(self) -> dict[int, slice]:
        """For each generic row, its slice of the vector of all numbers."""
        places, start = {}, 0
        for i, (head, *_) in enumerate(self.rows):
            count = head.open_numbers
            if count:
                places[i] = slice(start, start + count)
                start += count
        return places


def is_leaf(row: Row) -> bool:
    """Whether a row is an input or a random leaf rather than an operator with its children."""
    return row[0] is INPUT or isinstance(row[0], Random)


@dataclass(frozen=True)
class Excerpt:
    """A part of a tape with rows numbered from 0, and where its rows come from."""

    structure: Structure
    inputs: Sequence[int]
    """For each input row, the tape's node whose value it takes."""
    random: Sequence[int]
    """For each random row, its number among the tape's random leaves."""
    row_of: Mapping[int, int] | range
    """For each node of the tape, its row in the excerpt."""
