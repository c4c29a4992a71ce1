"""The parameters of a model, as its layers declare them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from layers import Parameter, UnsupportedOptionError
from mgraph import ArgumentError, ExpressionGraph, GraphError, ParameterError, ShapeError
from nmt.models.network import Network
from nmt.models.parts import NO_DROPOUT, TRAINING
from nmt.settings.model_options import ModelOptions

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of parameters by name."""


class NamedSize(int):
    """A size that knows its option: twice ``NamedSize(512, "dim-rnn")`` is 1024, ``2 * dim-rnn`` as text."""

    def __new__(cls, value: int, option: str, factor: int = 1) -> NamedSize:
        size = super().__new__(cls, value)
        size.option, size.factor = option, factor
        return size

    option: str
    factor: int

    def __mul__(self, other: Any) -> Any:
        product = super().__mul__(other)
        plain = isinstance(other, int) and not isinstance(other, NamedSize)
        return NamedSize(product, self.option, self.factor * other) if plain else product

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        total = super().__add__(other)
        if isinstance(other, NamedSize) and other.option == self.option:
            return NamedSize(total, self.option, self.factor + other.factor)
        return NamedSize(total, self.option, self.factor) if other == 0 else total

    __radd__ = __add__

    @property
    def text(self) -> str:
        """The expression of the option."""
        return self.option if self.factor == 1 else f"{self.factor} * {self.option}"


def text_of_size(size: int) -> str:
    """A size in terms of its option, or as a number."""
    return size.text if isinstance(size, NamedSize) else str(size)


def named(options: ModelOptions) -> ModelOptions:
    """The options with every size as ``NamedSize``."""
    sizes: dict[str, Any] = {
        f.name: NamedSize(value, f.name.replace("_", "-"))
        for f in fields(options)
        if "dim_" in f.name and type(value := getattr(options, f.name)) is int and value
    }
    vocabs = tuple(NamedSize(size, f"dim-vocabs[{i}]") for i, size in enumerate(options.dim_vocabs))
    length = options.extra.get("max-length")
    length = length if isinstance(length, int) else TRAINING["max-length"]
    extra = MappingProxyType({**options.extra, "max-length": NamedSize(length, "max-length")})
    return replace(options, dim_vocabs=vocabs, extra=extra, **sizes)


def parameters(options: ModelOptions, names: Collection[str] = ()) -> dict[str, Parameter]:
    """The parameters of a model, sorted by name, with shapes of ``NamedSize``.

    names: those in the model's file, if any: old files have other parameters in some places.
    ``UnsupportedOptionError`` for an unknown type or options that exclude each other; ``ParameterError`` if
    two parts of a model share a name but not a shape.
    """
    found: dict[str, Parameter] = {}
    for parameter in _network(named(options), names).parameters():
        first = found.setdefault(parameter.name, parameter)
        if first.shape != parameter.shape:
            raise ParameterError(
                f"{parameter.name}: shared, but {plain(first.shape)} and {plain(parameter.shape)}"
            )
    return dict(sorted(found.items()))


def plain(shape: Collection[int]) -> tuple[int, ...]:
    """A shape of plain integers."""
    return tuple(map(int, shape))


def _network(options: ModelOptions, names: Collection[str]) -> Network:
    try:
        return Network(options, dict.fromkeys(names, ()), NO_DROPOUT, False)
    except UnsupportedOptionError:
        raise
    except (ArgumentError, GraphError, ShapeError) as error:
        raise UnsupportedOptionError(f"type {options.type}: {error}") from None


def initial_values(options: ModelOptions, seed: int) -> dict[str, Any]:
    """The parameters of a new model by name, initialized as in Marian."""
    graph = ExpressionGraph(inference=True, seed=seed)
    for parameter in parameters(options).values():
        parameter.on(graph)
    return dict(graph.params().vals())
