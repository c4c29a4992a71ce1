"""The table read for one model: its parameters by name."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from layers import UnsupportedOptionError, choose
from mgraph import ParameterError
from mgraph.inits import Initializer
from nmt.settings.model_options import ModelOptions

from .conditions import Condition
from .notation import Init, Part, Row
from .scope import Scope, joined
from .types import TYPES


@dataclass(frozen=True)
class Parameter:
    """One parameter of a model.

    name: Marian's, in graphs; files of some types have others. sizes: how options make its shape. init: how
    it begins, and scale: by what that is multiplied. block: the block whose row it is. when: the conditions
    that it exists with.
    """

    name: str
    shape: tuple[int, ...]
    sizes: tuple[str, ...]
    init: Init
    scale: float
    block: str
    when: tuple[str, ...]

    @property
    def initializer(self) -> Initializer:
        """The initializer."""
        return self.init.initializer(self.scale)


def parameters(options: ModelOptions, names: Collection[str] = ()) -> dict[str, Parameter]:
    """The parameters of a model, in the order of their names.

    names: those in the model's file, if there is one: old files have some parameter in place of another.
    ``UnsupportedOptionError`` for a type that is not in the table and for options that a block cannot have;
    ``ParameterError`` if two parts of a model share a name and ask for different shapes.
    """
    model = choose("type", options.type, TYPES)
    found: dict[str, Parameter] = {}
    for parameter in _inside(model.at(), Scope(options, names), ()):
        first = found.setdefault(parameter.name, parameter)
        if first.shape != parameter.shape:
            raise ParameterError(f"{parameter.name}: shared, but {first.shape} and {parameter.shape}")
    return dict(sorted(found.items()))


def possible(options: ModelOptions, names: Collection[str] = ()) -> dict[str, Parameter]:
    """The same where sizes may be wrong: nothing is refused, and of shared parameters the last counts."""
    scope = Scope(options, names)
    return {p.name: p for p in _inside(TYPES[options.type].at(), scope, (), strict=False)}


def _inside(part: Part, scope: Scope, when: tuple[str, ...], *, strict: bool = True) -> Iterator[Parameter]:
    """The parameters of a part, given the meaning of names around it and the conditions on the way to it."""
    for number in [None] if part.each is None else part.each.numbers(scope):
        inner = entered(part, scope, number)
        if not part.when.holds(inner):
            continue
        if strict:
            _require(part, inner)
        conditions = (*when, *_said(part.when, inner))
        for row in part.block.rows:
            if row.when.holds(inner):
                yield _parameter(part, row, inner, (*conditions, *_said(row.when, inner)))
        for below in part.block.parts:
            yield from _inside(below, inner, conditions, strict=strict)


def _require(part: Part, inner: Scope) -> None:
    needs = part.block.needs
    if needs is not None and not needs.holds(inner):
        raise UnsupportedOptionError(
            f"{inner.prefix}: {part.block.name} needs {needs.text(inner)}, got {needs.values(inner)}"
        )


def entered(part: Part, scope: Scope, number: tuple[int, int] | None) -> Scope:
    """The meaning of names inside a part, for one of its numbers and what stands for it in names."""
    if part.each is not None and number is not None:
        name, (value, written) = part.each.name, number
        scope = replace(scope, bound={**scope.bound, name: value}, numbers={**scope.numbers, name: written})
    inner = part.bind(scope)
    around = "" if part.rooted else scope.prefix
    return replace(inner, prefix=joined(around, inner.named(part.prefix)))


def full_name(part: Part, row: Row, inner: Scope) -> str:
    """The name of a row's parameter inside a part."""
    return joined(inner.prefix, row.name) + inner.named(part.suffix)


def _parameter(part: Part, row: Row, inner: Scope, when: tuple[str, ...]) -> Parameter:
    scaled = row.init.scaled and inner["transformer-depth-scaling"]
    return Parameter(
        full_name(part, row, inner),
        tuple(inner.size(size) for size in row.shape),
        tuple(inner.text(size) for size in row.shape),
        row.init,
        1 / math.sqrt(inner["layer"]) if scaled else 1.0,
        part.block.name,
        when,
    )


def _said(condition: Condition, scope: Scope) -> tuple[str, ...]:
    return tuple(c.text(scope) for c in condition.each() if c.is_choice(scope))
