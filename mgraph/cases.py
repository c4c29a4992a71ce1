"""``Case`` and ``Convention``: how an operator declares the inputs on which its gradient is checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from .arrays import allocating, as_array, described
from .errors import ArgumentError, ShapeError, first_line
from .shape import Shape, as_shape
from .types import Type

DOMAINS = ("real", "positive", "unit", "distinct", "mask", "int8", "index:n", "offsets:n")

_INTEGERS = re.compile(r"(index|offsets):\d+")


class _Declared:
    """Base of classes whose ``fields`` is a read-only mapping, which pickle and copy do not support."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "fields": dict(vars(self)["fields"])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, fields=MappingProxyType(state["fields"]))


@dataclass(frozen=True)
class Case(_Declared):
    """Child shapes and operator fields on which ``check_gradients`` can try a node class::

        class ClipNodeOp(UnaryNodeOp):
            cases = (Case((2, 3), domain="distinct", c=0.4),)

    ``domain`` says where values come from, one name for all children or one per child:

    - ``real``: standard normal;
    - ``positive``: uniform in [0.5, 2);
    - ``unit``: uniform in [0.05, 0.95);
    - ``distinct``: odd multiples of 0.1, no two equal across all children of this domain: no ties, and
      0.1 away from zero and from every even multiple of 0.1, where a kink may be;
    - ``mask``: zeros and ones, as floats;
    - ``int8``: int8 from -127 to 127;
    - ``index:n``: uint32 below ``n``;
    - ``offsets:n``: non-decreasing uint32 from 0 to ``n``: where the rows of a CSR matrix begin and end.

    ``through`` is a function of nodes to check in place of a class that needs more than children and
    fields, such as a loop's step or a node with several outputs.
    """

    shapes: tuple[Shape, ...]
    domains: tuple[str, ...]
    fields: Mapping[str, Any]
    through: Callable[..., Any] | None = None

    def __init__(
        self,
        *shapes: Shape,
        domain: str | tuple[str, ...] = "real",
        through: Callable[..., Any] | None = None,
        **fields: Any,
    ) -> None:
        object.__setattr__(self, "shapes", tuple(map(_checked_shape, shapes)))
        object.__setattr__(self, "domains", _checked_domains(domain, self.shapes))
        object.__setattr__(self, "fields", MappingProxyType(fields))
        object.__setattr__(self, "through", through)

    def values(self, seed: int = 0, rows: int | None = None) -> list[np.ndarray]:
        """One array per child, determined by the seed: int8 for ``int8``, uint32 for indices and offsets,
        else float64.

        With ``rows``, that many examples along a new first axis. ``ShapeError`` if they do not fit into
        memory.
        """
        random = np.random.default_rng(seed)
        lead = () if rows is None else (rows,)
        children = list(zip(self.shapes, self.domains, strict=True))
        count = sum(math.prod(shape) for shape, domain in children if domain == "distinct")
        with allocating("drawn values", (*lead, count), Type.float64):
            grid = _grid(random, lead, count)
        found, start = [], 0
        for shape, domain in children:
            if domain == "distinct":
                stop = start + math.prod(shape)
                found.append(grid[..., start:stop].reshape((*lead, *shape)))
                start = stop
            else:
                with allocating("drawn values", (*lead, *shape), Type.float64):
                    found.append(_draw(random, (*lead, *shape), domain))
        return found

    @property
    def is_empty(self) -> bool:
        """Whether the case has floating-point children, all of them without elements."""
        children = zip(self.shapes, self.domains, strict=True)
        sizes = [math.prod(shape) for shape, domain in children if _is_float(domain)]
        return bool(sizes) and not any(sizes)

    def __str__(self) -> str:
        shapes = " ".join("x".join(map(str, s)) or "scalar" for s in self.shapes)
        return " ".join([shapes, *(f"{k}={v}" for k, v in self.fields.items())])


@dataclass(frozen=True, eq=False)
class Convention(_Declared):
    """Gradients that a rule promises where no derivative decides: at kinks and ties, at non-finite numbers,
    and for rules that by design are not derivatives::

        class ReLUNodeOp(UnaryNodeOp):
            conventions = (Convention([-0.0, 0.0, math.nan], gradients=([0, 0, math.nan],)),)

    ``children`` holds the values of each child as an array or nested list; integers become int32.
    ``gradients`` holds one gradient per child, ``None`` for an integer child. ``adjoint`` is the adjoint of
    the node's value, 1 everywhere by default.
    """

    children: tuple[np.ndarray, ...]
    gradients: tuple[Any, ...]
    adjoint: Any
    fields: Mapping[str, Any]

    def __init__(self, *children: Any, gradients: tuple[Any, ...], adjoint: Any = 1.0, **fields: Any) -> None:
        if not isinstance(gradients, Sequence | np.ndarray) or len(gradients) != len(children):
            got = len(gradients) if isinstance(gradients, Sequence) else described(gradients)
            raise ArgumentError(f"Convention: expected {len(children)} gradients, one per child, got {got}")
        arrays = [as_array("Convention", child) for child in children]
        for array in arrays:
            if array.dtype.kind not in "buif":
                raise ArgumentError(f"Convention: expected the values of a child, got {array!r}")
        whole = tuple(a.astype(np.int32) if np.issubdtype(a.dtype, np.integer) else a for a in arrays)
        object.__setattr__(self, "children", whole)
        object.__setattr__(self, "gradients", gradients)
        object.__setattr__(self, "adjoint", adjoint)
        object.__setattr__(self, "fields", MappingProxyType(fields))

    @property
    def case(self) -> Case:
        """The case with these shapes and fields."""
        return Case(*(array.shape for array in self.children), **self.fields)


def check_declared(cls: Any) -> None:
    """``ArgumentError`` unless ``cls.cases`` is a tuple or list of ``Case``, ``cls.conventions`` one of
    ``Convention``."""
    for name, kind in (("cases", Case), ("conventions", Convention)):
        declared = getattr(cls, name, ())
        if not isinstance(declared, tuple | list) or not all(isinstance(d, kind) for d in declared):
            raise ArgumentError(
                f"{cls.__name__}.{name}: expected a tuple such as ({kind.__name__}(...),), got {declared!r}"
            )


def _checked_shape(shape: Any) -> Shape:
    try:
        return as_shape(shape)
    except ShapeError as e:
        hint = f"; domain={shape!r} says where values come from" if isinstance(shape, str) else ""
        raise ArgumentError(f"Case: {first_line(e)}{hint}") from None


def _checked_domains(domain: Any, shapes: Sequence[Shape]) -> tuple[str, ...]:
    """One domain per child."""
    children = len(shapes)
    domains = (domain,) * children if isinstance(domain, str) else domain
    if not isinstance(domains, tuple | list) or len(domains) != children:
        raise ArgumentError(f"Case: expected one domain or {children}, one per child, got {domain!r}")
    for name in domains:
        if not isinstance(name, str) or (name not in DOMAINS and not _INTEGERS.fullmatch(name)):
            raise ArgumentError(f"Case: expected one of the domains {', '.join(DOMAINS)}, got {name!r}")
    for name, shape in zip(domains, shapes, strict=True):
        if _INTEGERS.fullmatch(name):
            _check_integers(name, shape)
    return tuple(domains)


def _check_integers(domain: str, shape: Shape) -> None:
    """``ArgumentError`` unless there are uint32 numbers of the domain for a child of this shape."""
    kind, last = domain.partition(":")[0], _bound(domain)
    if kind == "index" and not 1 <= last <= 2**32:
        raise ArgumentError(f"Case: expected index:n with n from 1 to 2**32, got {domain!r}")
    if kind == "offsets" and last >= 2**32:
        raise ArgumentError(f"Case: expected offsets:n with n below 2**32, got {domain!r}")
    if kind == "offsets" and not (shape and shape[-1]):
        raise ArgumentError(f"Case: {domain} begins with 0 and needs a last axis with elements, got {shape}")


def _grid(random: np.random.Generator, lead: Shape, count: int) -> np.ndarray:
    """Odd multiples of 0.1 in random order, shuffled separately for each example."""
    if not lead:
        return 0.2 * (random.permutation(count) - count // 2) + 0.1
    orders = random.permuted(np.tile(np.arange(count), (*lead, 1)), axis=-1)
    return 0.2 * (orders - count // 2) + 0.1


def _draw(random: np.random.Generator, shape: Shape, domain: str) -> np.ndarray:
    if domain.startswith("index:"):
        return random.integers(_bound(domain), size=shape, dtype=np.uint32)
    if domain.startswith("offsets:"):
        return _draw_offsets(random, shape, _bound(domain))
    if domain == "int8":
        return random.integers(-127, 127, size=shape, dtype=np.int8, endpoint=True)
    if domain == "mask":
        return random.integers(2, size=shape).astype(np.float64)
    if domain == "positive":
        return random.uniform(0.5, 2.0, shape)
    if domain == "unit":
        return random.uniform(0.05, 0.95, shape)
    return random.standard_normal(shape)


def _is_float(domain: str) -> bool:
    return domain != "int8" and not _INTEGERS.fullmatch(domain)


def _bound(domain: str) -> int:
    """The ``n`` of ``index:n`` and ``offsets:n``."""
    return int(domain.partition(":")[2])


def _draw_offsets(random: np.random.Generator, shape: Shape, last: int) -> np.ndarray:
    offsets = np.sort(random.integers(last, size=shape, dtype=np.uint32, endpoint=True))
    offsets[..., 0], offsets[..., -1] = 0, last
    return offsets
