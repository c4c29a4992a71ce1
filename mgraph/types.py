"""Element types of nodes, under Marian's names."""

from __future__ import annotations

import builtins
import enum
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .errors import ElementTypeError
from .names import meant
from .places import here


class Type(enum.StrEnum):
    """The element type of a node's value; equal to its name (``Type.float32 == "float32"``).

    ``bfloat16`` and ``bool`` do not exist in Marian. Source: Marian, ``common/types.h``.
    """

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"
    int8 = "int8"
    int16 = "int16"
    int32 = "int32"
    int64 = "int64"
    uint8 = "uint8"
    uint16 = "uint16"
    uint32 = "uint32"
    uint64 = "uint64"
    bool = "bool"

    # Enum's own hash is the same number, but computed by Python code at each look-up.
    __hash__ = str.__hash__

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype (``ml_dtypes``' for bfloat16)."""
        return _DTYPES[self]

    @property
    def is_float(self) -> builtins.bool:
        """Whether values of this type can carry a gradient."""
        return self in _FLOATS

    @property
    def is_index(self) -> builtins.bool:
        """Whether values of this type can select rows, columns or classes."""
        return self.value.startswith(("int", "uint"))

    @property
    def is_wide(self) -> builtins.bool:
        """Whether JAX keeps this type only while 64-bit types are enabled."""
        return self in _WIDE


TypeName: TypeAlias = Type | str | np.dtype[Any] | type[Any]
"""What ``as_type`` takes."""

_DTYPES: dict[Type, np.dtype[Any]] = {t: jnp.dtype(t.value) for t in Type}
_BY_DTYPE: dict[np.dtype[Any], Type] = {dtype: t for t, dtype in _DTYPES.items()}
_FLOATS = frozenset({Type.float16, Type.bfloat16, Type.float32, Type.float64})
_WIDE = frozenset({Type.float64, Type.int64, Type.uint64})


def as_type(value: Any) -> Type:
    """``Type`` of a ``Type``, its name, a numpy dtype or a scalar class.

    Raises ``ElementTypeError`` for anything that is not an element type of a graph.
    """
    if type(value) is Type:
        return value
    try:
        if value is None or isinstance(value, jax.Array):
            raise TypeError  # numpy would read None as float64, and JAX an array as its type
        return _BY_DTYPE[jnp.dtype(value)]
    except (TypeError, ValueError, KeyError):  # ValueError: e.g. for a name that is not Unicode
        names = ", ".join(t.value for t in Type)
        hint = meant(value, [t.value for t in Type]) if isinstance(value, str) else ""
        raise ElementTypeError(f"expected an element type ({names}), got {value!r}{hint}{here()}") from None
