"""Initializers of parameters and constants, under Marian's names (``inits::glorotUniform`` is
``inits.glorot_uniform``).

Two families. A *fixed* initializer gives the same numbers each time; its value is computed by numpy when the
node is made. A *random* one is a formula over uniform or normal numbers and is evaluated with one of two
sources: numpy on the host for parameters (drawn once, from the graph's seed and the parameter's name), JAX
inside the compiled program for constants (drawn at each run). The numbers differ from Marian's, which
themselves differ between CPU and GPU.

Source: Marian, ``graph/node_initializers.h``.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import ModuleType
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from . import threefry
from .arrays import as_array, checked_seed, described, flag, holds_numbers, real, refuse_traced, whole
from .draws import Key, RowsKey
from .errors import ArgumentError, ElementTypeError, ShapeError
from .files.paths import path_text
from .files.word_vectors import of_unit_length, read_into
from .operators import OPEN, takes
from .places import here
from .scalars import weak_scalars
from .shape import Shape
from .types import Type, as_type


class RandomSource(Protocol):
    """Where random numbers come from: ``HostSource`` or ``DeviceSource``, which both draw float32."""

    @property
    def numpy(self) -> ModuleType:
        """``numpy`` or ``jax.numpy``, for functions of the drawn numbers."""

    def uniform(self, shape: Shape) -> Any:
        """Uniform in [0, 1)."""

    def normal(self, shape: Shape) -> Any:
        """Standard normal."""


class HostSource:
    """Random numbers by numpy, outside any program."""

    numpy = np

    def __init__(self, *seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))

    def uniform(self, shape: Shape) -> np.ndarray:
        return self._generator.random(shape, np.float32)

    def normal(self, shape: Shape) -> np.ndarray:
        return self._generator.standard_normal(shape, np.float32)


class DeviceSource:
    """Random numbers by JAX, inside a program.

    With threefry, a shape with a longer first axis begins with the same numbers. With four or more axes, each
    row along the last axis has a key made from its indices, so that a number does not depend on the size of
    any axis: three axes of attention's weights change size from batch to batch.
    """

    numpy = jnp

    def __init__(self, key: Key) -> None:
        self._key = key.key if isinstance(key, RowsKey) else key
        self._rows = key.rows if isinstance(key, RowsKey) else None

    def uniform(self, shape: Shape) -> jax.Array:
        return self._by_rows(threefry.uniform, shape)

    def normal(self, shape: Shape) -> jax.Array:
        return self._by_rows(partial(jax.random.normal, dtype=jnp.float32), shape)

    def _by_rows(self, draw: Callable[[jax.Array, Shape], jax.Array], shape: Shape) -> jax.Array:
        if len(shape) < 4:
            return draw(self._key, shape)
        fold = jax.vmap(jax.vmap(threefry.fold_in, (None, 0)), (0, None))
        rows = jnp.arange(shape[0]) if self._rows is None else self._rows
        keys = fold(self._key[None], rows).reshape(-1)
        for size in shape[1:-1]:
            keys = fold(keys, jnp.arange(size)).reshape(-1)
        return jax.vmap(lambda key: draw(key, shape[-1:]))(keys).reshape(shape)


class Initializer:
    """Base of all initializers."""


class Fixed(Initializer):
    """An initializer whose value is known without drawing: ``f(shape, type) -> array``. It pickles if the
    function does."""

    def __init__(self, name: str, function: Callable[[Shape, Type], Any]) -> None:
        self._name, self._function = name, function

    def value(self, shape: Shape, type_: Type) -> np.ndarray:
        """The value as a fresh numpy array that shares no memory with the user's."""
        given = np.asarray(self._function(shape, type_))
        if not _holds_real_numbers(given):
            raise ElementTypeError(f"{self._name}: expected real numbers, got {given.dtype}")
        try:
            with np.errstate(invalid="ignore"):
                value = given.astype(type_.dtype)
        except OverflowError:  # from Python ints
            raise ElementTypeError(f"{self._name}: {type_} cannot hold {max(given.flat, key=abs)}") from None
        if type_.is_index and given.dtype != value.dtype and not np.array_equal(value, given):
            raise ElementTypeError(f"{self._name}: {type_} cannot hold {given[given != value].ravel()[0]}")
        if value.shape != shape:
            raise ShapeError(f"{self._name} gave a value of shape {value.shape} for a node of {shape}")
        value.flags.writeable = False
        return value

    def __repr__(self) -> str:
        return f"inits.{self._name}"


def _holds_real_numbers(array: np.ndarray) -> bool:
    if array.dtype == object:  # such as Python ints beyond 64 bits
        return all(isinstance(number, numbers.Real) for number in array.flat)
    return holds_numbers(array)


@dataclass(frozen=True)
class Random(Initializer):
    """An initializer that draws; its fields are part of a program's structure, except ``runtime_fields``,
    whose numbers are arguments of the program."""

    runtime_fields: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def generic(self) -> tuple[Random, tuple[float, ...]] | None:
        """The initializer with its runtime fields left open, and their numbers; ``None`` without such
        fields."""
        numbers = tuple(getattr(self, name) for name in self.runtime_fields)
        if not numbers or OPEN in numbers:
            return None
        return replace(self, **dict.fromkeys(self.runtime_fields, OPEN)), numbers

    def __getstate__(self) -> dict[str, Any]:
        # called by copy and pickle, which would duplicate ``OPEN``
        return {name: value for name, value in vars(self).items() if name != "generic"}

    @property
    def open_numbers(self) -> int:
        """How many numbers ``bound`` of a generic initializer takes."""
        return sum(getattr(self, name) is OPEN for name in self.runtime_fields)

    def bound(self, numbers: Any) -> Random:
        """A generic initializer with the numbers of a vector in its runtime fields. The numbers may be
        traced, so do not keep the result."""
        return replace(self, **dict(zip(self.runtime_fields, weak_scalars(numbers), strict=True)))

    def draw(self, source: RandomSource, shape: Shape) -> Any:
        """Float32 numbers of ``shape`` from ``source``."""
        raise TypeError(f"{type(self).__name__} does not say how it draws")

    def check(self, shape: Shape) -> None:
        """``ShapeError`` for a shape that the initializer is not defined for."""

    def host_value(self, seed: tuple[int, ...], shape: Shape, type_: Type) -> np.ndarray:
        """A value drawn by numpy from a seed of non-negative ints."""
        return np.asarray(self.draw(HostSource(*seed), shape), type_.dtype)

    def device_value(self, key: Key, shape: Shape, type_: Type) -> jax.Array:
        """A value drawn inside a program."""
        return self.draw(DeviceSource(key), shape).astype(type_.dtype)


# ---------------------------------------------------------------- fixed values


def from_value(value: float) -> Fixed:
    """Every element is ``value``."""
    refuse_traced("inits.from_value", value)
    if as_array("inits.from_value", value).ndim:
        raise ArgumentError(f"inits.from_value expects one number, got {described(value)}{here()}")
    return Fixed("from_value", partial(_filled, value))


def _filled(value: float, shape: Shape, type_: Type) -> np.ndarray:
    # For an integer node's type, numpy would truncate fractions.
    known = type_.is_float and np.asarray(value).dtype.kind in "biuf"
    return np.full(shape, value, type_.dtype if known else None)


def zeros() -> Fixed:
    """Every element is 0."""
    return Fixed("zeros", _zeros)


def _zeros(shape: Shape, type_: Type) -> np.ndarray:
    return np.zeros(shape, type_.dtype)


def ones() -> Fixed:
    """Every element is 1."""
    return Fixed("ones", _ones)


def _ones(shape: Shape, type_: Type) -> np.ndarray:
    return np.ones(shape, type_.dtype)


def dummy() -> Fixed:
    """Leaves the value unspecified, for a node that is set before use (here: zeros)."""
    return zeros()


def eye(value: float = 1.0) -> Fixed:
    """``value`` on the diagonal of a square matrix, 0 elsewhere; ``ShapeError`` for other shapes."""
    return Fixed("eye", partial(_diagonal, real("inits.eye", "value", value)))


def _diagonal(value: float, shape: Shape, type_: Type) -> np.ndarray:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShapeError(f"inits.eye needs a square matrix, got shape {shape}")
    return np.eye(shape[0]) * value


def from_vector(values: Any) -> Fixed:
    """The given numbers in row-major order; ``ShapeError`` unless the node has exactly as many elements."""
    flat = as_array("inits.from_vector", values).reshape(-1)
    return Fixed("from_vector", partial(_shaped, flat))


def _shaped(flat: np.ndarray, shape: Shape, type_: Type) -> np.ndarray:
    if flat.size != math.prod(shape):
        raise ShapeError(
            f"inits.from_vector got {flat.size} values for a node of shape {shape}, "
            f"which holds {math.prod(shape)}"
        )
    return flat.reshape(shape)


def from_sparse_vector(indices: Any, values: Any) -> Fixed:
    """``values`` at ``indices`` of the row-major elements, 1e-6 elsewhere; ``ShapeError`` unless there is one
    value per index and all indices exist. Source: Marian, ``inits::fromSparseVector``."""
    places = as_array("inits.from_sparse_vector", indices).reshape(-1)
    numbers = as_array("inits.from_sparse_vector", values).reshape(-1)
    return Fixed("from_sparse_vector", partial(_scattered, places, numbers))


def _scattered(places: np.ndarray, numbers: np.ndarray, shape: Shape, type_: Type) -> np.ndarray:
    size = math.prod(shape)
    if places.shape != numbers.shape or not np.isin(places, np.arange(size)).all():
        raise ShapeError(
            f"inits.from_sparse_vector: expected one value for each index from 0 to {size - 1}, got "
            f"{places.size} indices and {numbers.size} values for a node of shape {shape}"
        )
    flat = np.full(size, 1e-6, np.result_type(numbers, np.float64))
    flat[places.astype(np.int64)] = numbers
    return flat.reshape(shape)


def from_word2vec(path: str | os.PathLike[str], normalize: bool = False, *, seed: int = 1) -> Fixed:
    """A table ``(words, dim)`` from a text file of word vectors (``mgraph.files.word_vectors``).

    Words without a vector get a random one, drawn with ``seed`` and variance ``2 / (words + dim)``.
    ``normalize`` divides by the norm of the whole table, as Marian does. ``WordVectorsError`` with file and
    line, ``ShapeError`` for a node that is not a matrix, ``ArgumentError`` for a negative seed. Source:
    Marian, ``inits::fromWord2vec``.
    """
    seed = checked_seed(seed)
    return Fixed("from_word2vec", partial(_read, path_text(path), normalize, seed))


def _read(path: str, normalize: bool, seed: int, shape: Shape, type_: Type) -> np.ndarray:
    if len(shape) != 2:
        raise ShapeError(f"inits.from_word2vec fills a matrix (words, dim), got shape {shape}")
    table = np.asarray(glorot_normal().draw(HostSource(seed), shape), np.float32)
    with open(path, "rb") as stream:
        read_into(table, stream, path)
    return of_unit_length(table) if normalize else table


def from_tensor(array: Any) -> Fixed:
    """A copy of an array (numpy, JAX, or another node's ``val()``) that has the node's shape."""
    return Fixed("from_tensor", partial(_given, as_array("inits.from_tensor", array)))


def from_item(item: Any) -> Fixed:
    """A copy of an item of a model file (see ``mgraph.files.items``) that has the node's shape."""
    return Fixed("from_item", partial(_given, as_array("inits.from_item", item)))


def _given(array: Any, shape: Shape, type_: Type) -> Any:
    return array


def from_lambda(function: Callable[[Shape, np.dtype[Any]], Any], intermediate_type: Any = None) -> Fixed:
    """Whatever ``function(shape, dtype)`` returns; with ``intermediate_type`` the function works in
    that element type and the result is cast to the node's."""
    if not (callable(function) and takes(function, 2)):
        raise ArgumentError(
            f"inits.from_lambda expects function(shape, dtype), got {described(function)}{here()}"
        )
    return Fixed("from_lambda", partial(_called, function, intermediate_type))


def _called(
    function: Callable[[Shape, np.dtype[Any]], Any], intermediate_type: Any, shape: Shape, type_: Type
) -> np.ndarray:
    inner = type_ if intermediate_type is None else as_type(intermediate_type)
    found = as_array("inits.from_lambda", function(shape, inner.dtype))
    known = intermediate_type is not None and holds_numbers(found)
    return found.astype(inner.dtype) if known else found


def range(begin: float, end: float, step: float = 1) -> Fixed:
    """``begin, begin + step, ...`` below ``end``; as many numbers as the node has elements. ``ArgumentError``
    for a step of 0 and for non-finite numbers."""
    if not all(map(math.isfinite, _reals("range", begin=begin, end=end, step=step))) or not step:
        raise ArgumentError(f"inits.range has no numbers from {begin} to {end} by {step}{here()}")
    return Fixed("range", partial(_sequence, begin, end, step))


def _sequence(begin: float, end: float, step: float, shape: Shape, type_: Type) -> np.ndarray:
    count = math.ceil(max(0, min((end - begin) / step, sys.maxsize)))  # of numpy.arange
    if count != math.prod(shape):
        raise ShapeError(
            f"inits.range({begin}, {end}, {step}) has {count} values, "
            f"the node of shape {shape} holds {math.prod(shape)}"
        )
    return np.arange(begin, end, step).reshape(shape)


def sinusoidal_position_embeddings(start: int = 0) -> Fixed:
    """Sine in the first half of the last axis, cosine in the second:
    ``angle(pos, i) = pos * 10000 ** (-(i mod (dim // 2)) / (dim / 2 - 1))``, in radians.

    Shape ``(..., positions, dim)``, positions counted from ``start`` over all rows. ``ShapeError`` for fewer
    than 3 features, for which the formula divides by 0.
    Source: Vaswani et al. 2017 in tensor2tensor's layout, as Marian computes it (float32).
    """
    start = whole("inits.sinusoidal_position_embeddings", "start", start)
    return Fixed("sinusoidal_position_embeddings", partial(_sinusoids, start))


def _sinusoids(start: int, shape: Shape, type_: Type) -> np.ndarray:
    dim = shape[-1] if shape else 0
    if dim < 3:
        raise ShapeError(f"inits.sinusoidal_position_embeddings needs at least 3 features, got shape {shape}")
    n = dim // 2
    positions = np.arange(start, start + math.prod(shape[:-1]), dtype=np.float32)
    column = np.arange(dim)
    step = np.log(np.float32(10000.0)) / np.float32(dim / 2 - 1)
    angle = positions[:, None] * np.exp((column % n).astype(np.float32) * -step)[None, :]
    return np.where(column < n, np.sin(angle), np.cos(angle)).reshape(shape)


# ---------------------------------------------------------------- random values


def _float32(number: Any) -> Any:
    """A field's number in float32, or the traced scalar of a runtime field, which has no type of its own."""
    return np.float32(number) if isinstance(number, float) else number


@dataclass(frozen=True)
class Uniform(Random):
    low: float
    width: float
    runtime_fields = ("low", "width")

    def draw(self, source: RandomSource, shape: Shape) -> Any:
        return source.uniform(shape) * _float32(self.width) + _float32(self.low)


@dataclass(frozen=True)
class Normal(Random):
    mean: float
    stddev: float
    runtime_fields = ("mean", "stddev")

    def draw(self, source: RandomSource, shape: Shape) -> Any:
        return source.normal(shape) * _float32(self.stddev) + _float32(self.mean)


@dataclass(frozen=True)
class Bernoulli(Random):
    prob: float
    scale: float
    shift: float
    runtime_fields = ("prob", "scale", "shift")

    def draw(self, source: RandomSource, shape: Shape) -> Any:
        hit = (source.uniform(shape) < _float32(self.prob)).astype(np.float32)
        return hit * _float32(self.scale) + _float32(self.shift)


@dataclass(frozen=True)
class Gumbel(Random):
    eps: float

    def draw(self, source: RandomSource, shape: Shape) -> Any:
        u = source.uniform(shape) * np.float32(1.0 - 2.0 * self.eps) + np.float32(self.eps)
        return -source.numpy.log(-source.numpy.log(u))


@dataclass(frozen=True)
class Glorot(Random):
    fan_in: bool
    fan_out: bool
    scale: float
    normal: bool

    def check(self, shape: Shape) -> None:
        if len(shape) < 2:
            raise ShapeError(
                "a Glorot initializer, the default of graph.param, needs at least two axes, got shape"
                f" {shape}; give another, such as inits.zeros()"
            )

    def draw(self, source: RandomSource, shape: Shape) -> Any:
        numerator = 2.0 if self.normal else 6.0
        if self.fan_in == self.fan_out:
            spread = math.sqrt(numerator / (shape[-2] + shape[-1]))
        else:
            spread = math.sqrt(numerator / 2 / (shape[-2] if self.fan_in else shape[-1]))
        width = np.float32(spread * self.scale)
        if self.normal:
            return source.normal(shape) * width
        return (source.uniform(shape) * np.float32(2) - np.float32(1)) * width


def _reals(init: str, **values: Any) -> list[float]:
    """The arguments of an initializer that are numbers."""
    return [real(f"inits.{init}", name, value) for name, value in values.items()]


def uniform(a: float = 0.0, b: float = 1.0) -> Random:
    """Uniform in ``[a, b)``."""
    low, high = _reals("uniform", a=a, b=b)
    return Uniform(low, high - low)


def normal(mean: float = 0.0, stddev: float = 1.0) -> Random:
    """Normal with the given mean and standard deviation."""
    return Normal(*_reals("normal", mean=mean, stddev=stddev))


def bernoulli(p: float, scale: float = 1.0, shift: float = 0.0) -> Random:
    """``(u < p) * scale + shift`` with ``u`` uniform in [0, 1); ``0 <= p <= 1``."""
    p, scale, shift = _reals("bernoulli", p=p, scale=scale, shift=shift)
    if not 0 <= p <= 1:
        raise ArgumentError(f"inits.bernoulli expects a probability 0 <= p <= 1, got {p}{here()}")
    return Bernoulli(p, scale, shift)


def dropout(p: float) -> Random:
    """A dropout mask: 0 with probability ``p``, else ``1 / (1 - p)``; ``ArgumentError`` unless
    ``0 <= p < 1``."""
    p = real("inits.dropout", "p", p)
    if not 0 <= p < 1:
        raise ArgumentError(f"inits.dropout expects a probability 0 <= p < 1, got {p}")
    return Bernoulli(1.0 - p, 1.0 / (1.0 - p), 0.0)


def gumbel(eps: float = 1e-5) -> Random:
    """Gumbel noise ``-log(-log(u))`` with ``u`` uniform in ``[eps, 1 - eps)``."""
    return Gumbel(real("inits.gumbel", "eps", eps))


def glorot_uniform(fan_in: bool = False, fan_out: bool = False, scale: float = 1.0) -> Random:
    """Uniform in ``+-scale * sqrt(6 / (in + out))``; in = second-to-last axis, out = last axis.

    With ``fan_in`` alone ``sqrt(3 / in)``, with ``fan_out`` alone ``sqrt(3 / out)``; setting both is the
    same as setting neither. ``ShapeError`` for fewer than two axes. Source: Glorot and Bengio 2010.
    """
    return _glorot("inits.glorot_uniform", fan_in, fan_out, scale, normal=False)


def glorot_normal(fan_in: bool = False, fan_out: bool = False, scale: float = 1.0) -> Random:
    """Normal with standard deviation ``scale * sqrt(2 / (in + out))``; with one flag alone
    ``sqrt(1 / in)`` or ``sqrt(1 / out)``. ``ShapeError`` for fewer than two axes. Source: Glorot and Bengio
    2010."""
    return _glorot("inits.glorot_normal", fan_in, fan_out, scale, normal=True)


def _glorot(what: str, fan_in: Any, fan_out: Any, scale: Any, *, normal: bool) -> Random:
    fans = flag(what, "fan_in", fan_in), flag(what, "fan_out", fan_out)
    return Glorot(*fans, real(what, "scale", scale), normal=normal)
