"""Which options would explain the parameters of a file, where those that it carries do not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nmt.settings.model_options import ModelOptions

from .notation import Each, Part, Row
from .scope import TRAINING, Scope, joined
from .table import Parameter, entered
from .types import TYPES

Shapes = Mapping[str, tuple[int, ...]]

_MULTIPLE = re.compile(r"(?:([0-9]+) \* )?([a-z-]+(?:\[-?[0-9]+\])?)")
_DIGITS = re.compile("[0-9]+")
_NUMBER = "(?P<{name}>0|[1-9][0-9]{{0,8}})"
_GROUP = re.compile(r"\(\?P<[^)]*\)")
_ELEMENT = re.compile(r"dim-vocabs\[(-?[0-9]+)\]")


@dataclass(frozen=True)
class _Place:
    """A row of the table, the parts around it from the outermost on, and a pattern of its names."""

    parts: tuple[Part, ...]
    row: Row
    pattern: str

    def lacks(self, options: ModelOptions, numbers: Mapping[str, str]) -> list[str] | None:
        """What must be otherwise for the row to be there with these numbers; ``None`` if no option can."""
        lacking: list[str] = []
        scope = Scope(options)
        for part in self.parts:
            number = None
            if part.each is not None:
                written = int(numbers[part.each.name])
                number = next((n for n in part.each.numbers(scope) if n[1] == written), None)
                if number is None and written < scope.size(part.each.first):
                    return None
                if number is None:
                    number = written, written
                    lacking.append(_more(part.each, scope, written))
            scope = entered(part, scope, number)
            failing = [condition for condition in part.when.each() if not condition.holds(scope)]
            if part is self.parts[-1]:
                failing += [condition for condition in self.row.when.each() if not condition.holds(scope)]
            if not all(condition.is_choice(scope) for condition in failing):
                return None
            lacking += [condition.text(scope) for condition in failing]
        return None if "" in lacking else lacking


def _more(each: Each, scope: Scope, number: int) -> str:
    """The option that would repeat a part as far as ``number``; empty if none does."""
    if each.tied and scope[each.tied]:
        return f"{number} in {each.tied}"
    last = scope.text(each.last)
    return "" if last.isdecimal() else f"{last} of at least {number}"


def explanations(names: Iterable[str], options: ModelOptions) -> dict[str, str]:
    """What would make a model have each of these parameters, in words; empty if nothing in the table."""
    here = _by_shape(options.type)
    # The sizes do not matter here, but there must be enough of them for every type.
    anywhere = replace(options, dim_vocabs=(1, 1, 1))
    elsewhere = [(replace(anywhere, type=other), _by_shape(other)) for other in TYPES] if names else []
    hints = {}
    for name in names:
        lacking = [lacks for lacks in _lacking(name, options, here) if lacks]
        fewest = min(map(len, lacking), default=0)
        ways = dict.fromkeys(", ".join(lacks) for lacks in lacking if len(lacks) == fewest)
        if not ways:
            ways = {f"type {o.type}": None for o, places in elsewhere if [] in _lacking(name, o, places)}
        hints[name] = f"exists with {', or with '.join(ways)}" if ways else ""
    return hints


def _lacking(name: str, options: ModelOptions, places: Mapping[str, list[_Place]]) -> list[list[str] | None]:
    candidates = places.get(_DIGITS.sub("#", name), [])
    matches = [(place, re.fullmatch(place.pattern, name)) for place in candidates]
    return [place.lacks(options, match.groupdict()) for place, match in matches if match]


def _by_shape(model_type: str) -> dict[str, list[_Place]]:
    """The places of a model type by their names with # for every number."""
    places: dict[str, list[_Place]] = {}
    for place in _places(TYPES[model_type].at()):
        places.setdefault(_DIGITS.sub("#", _GROUP.sub("#", place.pattern)), []).append(place)
    return places


def _places(
    part: Part, prefix: str = "", groups: Mapping[str, str] | None = None, around: tuple[Part, ...] = ()
) -> Iterator[_Place]:
    groups = dict(groups or {})
    if part.each is not None:
        groups[part.each.name] = _NUMBER.format(name=part.each.name)
    prefix = joined("" if part.rooted else prefix, part.prefix.format_map(groups))
    parts = (*around, part)
    for row in part.block.rows:
        pattern = joined(prefix, row.name) + part.suffix.format_map(groups)
        yield _Place(parts, row, pattern)
    for below in part.block.parts:
        yield from _places(below, prefix, groups, parts)


def told_sizes(needed: Mapping[str, Parameter], shapes: Shapes) -> dict[str, int]:
    """The values of options that ``shapes`` tell, by name (``dim-emb``, ``dim-vocabs[0]``).

    ``needed`` are the parameters that the table asks for. Each that is there, with as many axes, votes for
    the options in its sizes; the value with most votes counts.
    """
    votes: dict[str, Counter[int]] = {}
    for name, parameter in needed.items():
        shape = shapes.get(name, ())
        if len(shape) != len(parameter.sizes):
            continue
        for text, size in zip(parameter.sizes, shape, strict=True):
            multiple = _MULTIPLE.fullmatch(text)
            factor = int(multiple[1] or 1) if multiple else 0
            if multiple and size and size % factor == 0:
                votes.setdefault(multiple[2], Counter())[size // factor] += 1
    return {name: counter.most_common(1)[0][0] for name, counter in votes.items()}


def with_sizes(options: ModelOptions, told: Mapping[str, int]) -> ModelOptions:
    """The options with the sizes that were told in place of theirs."""
    values: dict[str, Any] = {}
    vocabs = list(options.dim_vocabs)
    for name, size in told.items():
        element = _ELEMENT.fullmatch(name)
        if element:
            vocabs[int(element[1])] = size
        elif name in TRAINING:
            values["extra"] = {**options.extra, name: size}
        else:
            values[name.replace("-", "_")] = size
    return replace(options, dim_vocabs=tuple(vocabs), **values)
