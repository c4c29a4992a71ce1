"""How the table of parameters is written: rows make blocks, blocks are parts of bigger blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from layers import UnsupportedOptionError
from mgraph import inits
from mgraph.inits import Initializer

from .conditions import ALWAYS, Condition, OfName
from .scope import Scope, Size


@dataclass(frozen=True)
class Init:
    """How a parameter begins; ``kind`` is the name of a function of ``mgraph.inits``.

    scaled: whether ``transformer-depth-scaling`` divides it by the square root of the layer's number.
    """

    kind: str
    fan_in: bool = False
    fan_out: bool = False
    scaled: bool = False

    def initializer(self, scale: float = 1.0) -> Initializer:
        """The initializer itself."""
        if self.kind == "glorot_uniform":
            return inits.glorot_uniform(self.fan_in, self.fan_out, scale)
        fixed: Initializer = getattr(inits, self.kind)()
        return fixed

    def __str__(self) -> str:
        fans = [name for name in ("fan_in", "fan_out") if getattr(self, name)]
        return f"{self.kind}({', '.join(fans)})" if fans else self.kind


GLOROT = Init("glorot_uniform")
SCALED = Init("glorot_uniform", scaled=True)
FAN_IN = Init("glorot_uniform", fan_in=True)
FAN_OUT = Init("glorot_uniform", fan_out=True)
ZEROS, ONES, EYE = Init("zeros"), Init("ones"), Init("eye")


@dataclass(frozen=True)
class Row:
    """A parameter of a block: its name behind a prefix, its shape, how it begins, when it exists."""

    name: str
    shape: tuple[Size, Size]
    init: Init = GLOROT
    when: Condition = ALWAYS


@dataclass(frozen=True)
class Either:
    """A size that depends on a condition."""

    when: Condition
    then: Size | Either
    other: Size | Either

    def chosen(self, scope: Scope) -> Size:
        """The size that holds here."""
        size = self.then if self.when.holds(scope) else self.other
        return size.chosen(scope) if isinstance(size, Either) else size


@dataclass(frozen=True)
class Each:
    """Numbers that repeat a part, from ``first`` to ``last``; names have ``{name}`` where the number stands.

    tied: the option that lists other numbers to stand in the names, if it is given.
    """

    name: str
    first: Size
    last: Size
    tied: str = ""

    def numbers(self, scope: Scope) -> Iterator[tuple[int, int]]:
        """Each number, and the number that stands in the names."""
        numbers = range(scope.size(self.first), scope.size(self.last) + 1)
        tied = scope[self.tied] if self.tied else ()
        if tied and len(tied) != len(numbers):
            raise UnsupportedOptionError(
                f"{self.tied}: expected a number for each of {len(numbers)} layers, got {list(tied)}"
            )
        return zip(numbers, tied or numbers, strict=True)


@dataclass(frozen=True)
class Part:
    """A block inside another, once or for ``each`` of some numbers.

    prefix: what comes between the prefix around and the names of the block. suffix: what comes after the
    names of its rows. sizes: what names in the block stand for. rooted: whether the prefix around is left
    out.
    """

    block: Block
    prefix: str = ""
    suffix: str = ""
    when: Condition = ALWAYS
    each: Each | None = None
    sizes: Mapping[str, Size | Either] = field(default_factory=dict)
    rooted: bool = False

    def bind(self, scope: Scope) -> Scope:
        """The meaning of names inside, given that around; its prefix stays that around."""
        bound, texts = dict(scope.bound), dict(scope.texts)
        for name, size in self.sizes.items():
            size = size.chosen(scope) if isinstance(size, Either) else size
            bound[name] = scope.size(size)
            texts[name] = scope.text(size)
        return replace(scope, bound=bound, texts=texts)


@dataclass(frozen=True)
class Block:
    """Parameters that belong together, in rows of its own and in parts.

    title: what it is, in a line. needs: a condition without which it cannot be.
    """

    name: str
    title: str
    rows: tuple[Row, ...] = ()
    parts: tuple[Part, ...] = ()
    needs: OfName | None = None

    def at(
        self,
        prefix: str = "",
        *,
        suffix: str = "",
        when: Condition = ALWAYS,
        each: Each | None = None,
        rooted: bool = False,
        **sizes: Size | Either,
    ) -> Part:
        """This block as a part of another."""
        return Part(self, prefix, suffix, when, each, sizes, rooted)
