"""Reading parameters from Marian's model files, and writing them."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import as_array, refuse_traced, text
from ..errors import ModelFileError
from ..types import Type, as_type
from .binary_items import FLOAT32, BinaryItems, read_bin, read_bin_integers, write_bin
from .intgemm import IntegerMatrix
from .items import (
    MODEL_YML,
    SPECIAL,
    model_yml,
    npz_items,
    parameters_of,
    read_npz,
    with_model_yml,
    write_npz,
)
from .paths import path_text
from .safetensors import read_items_of_safetensors, write_items_as_safetensors

Path = str | os.PathLike[str]
Source = Path | bytes | bytearray | memoryview | Mapping[str, ArrayLike]
"""A model: its file, the contents of a file, or its items."""
_ZIP = b"PK"

_READERS = {".npz": read_npz, ".bin": read_bin, ".safetensors": read_items_of_safetensors}
_WRITERS = {".npz": write_npz, ".bin": write_bin, ".safetensors": write_items_as_safetensors}
# Marian's order of element types in a file.
_KINDS = ("i", "u", "f")

log = logging.getLogger("mgraph.files")


def read_items(path: Path) -> dict[str, np.ndarray]:
    """All items of a model file, read as ``.npz``, ``.bin`` or ``.safetensors`` according to its name; see
    ``read_npz``, ``read_bin`` and ``read_safetensors``."""
    return _by_suffix(path, _READERS)(path)


def read_items_and_integers(path: Path) -> dict[str, np.ndarray | IntegerMatrix]:
    """Like ``read_items``, but quantized 8-bit matrices stay as they are in the file."""
    if _by_suffix(path, _READERS) is read_bin:
        return read_bin_integers(path)
    return {**read_items(path)}


def write_items(path: Path, items: Mapping[str, ArrayLike], *, gemm_type: str = FLOAT32) -> None:
    """Writes ``items`` as ``.npz``, ``.bin`` or ``.safetensors``, according to the name of ``path``; see
    ``write_npz``, ``write_bin`` and ``write_safetensors``. Only ``.bin`` supports a ``gemm_type`` other than
    float32."""
    write = _by_suffix(path, _WRITERS)
    if gemm_type == FLOAT32:
        write(path, items)
    elif write is write_bin:
        write_bin(path, items, gemm_type=gemm_type)
    else:
        raise ModelFileError(f"{os.fspath(path)}: gemm-type: {gemm_type} is for models that end in .bin")


def items_of(source: Source) -> dict[str, np.ndarray]:
    """The items of a model file, of the bytes of an ``.npz`` or a ``.bin``, or the items given."""
    if isinstance(source, Mapping):
        for name, array in source.items():
            refuse_traced(f"item {text('the name of an item', name)!r}", array)
        return {name: _item(name, array) for name, array in source.items()}
    if not isinstance(source, bytes | bytearray | memoryview):
        return read_items(source)
    data, name = bytes(source), f"a model of {len(source)} bytes"
    if data.startswith(_ZIP):
        return npz_items(io.BufferedReader(io.BytesIO(data)), name)
    return BinaryItems(np.frombuffer(data, np.uint8), name).arrays()


def _item(name: str, array: Any) -> np.ndarray:
    """A given item as an array, not copied if it is one; ``ArgumentError`` or ``ShapeError`` if it cannot be
    one."""
    try:
        return np.asarray(array)
    except (TypeError, ValueError):
        return as_array(f"item {name!r}", array)  # says why not


def load_parameters(source: Source, type_: Type) -> tuple[dict[str, np.ndarray], str | None]:
    """Parameters of a model by name, floating-point ones as ``type_``, and its ``special:model.yml``."""
    items = items_of(source)
    values = {
        name: array.astype(type_.dtype, copy=False) if as_type(array.dtype).is_float else array
        for name, array in parameters_of(items).items()
    }
    return values, model_yml(items)


def save_parameters(
    path: Path, values: Mapping[str, Any], meta: str | None, *, gemm_type: str = FLOAT32
) -> None:
    """Write parameters atomically, sorted by type, then by name, floating-point ones as float32, with
    ``meta`` as ``special:model.yml``. ``gemm_type``: see ``write_bin``. Without parameters, as in Marian,
    nothing is written, and the log has a warning.

    ``ModelFileError`` for parameters that no model file can hold: a ``bool`` parameter, and one called
    ``special:...``, which a reader would not take for a parameter.
    """
    _by_suffix(path, _WRITERS)
    if not values:
        log.warning("%s: there are no parameters to save, the file is not written", os.fspath(path))
        return
    arrays: dict[str, np.ndarray] = {}
    for name in sorted(values):
        array = np.asarray(values[name])
        if as_type(array.dtype) is Type.bool:
            raise ModelFileError(f"{os.fspath(path)}: parameter {name!r} is bool; a model file holds numbers")
        if name.startswith(SPECIAL):
            raise ModelFileError(f"{os.fspath(path)}: a model file cannot hold a parameter {name!r}")
        arrays[name] = array.astype(np.float32) if as_type(array.dtype).is_float else array
    items = dict(sorted(arrays.items(), key=lambda item: _type_order(item[1].dtype)))
    if meta is not None:
        items[MODEL_YML] = with_model_yml(meta)
    write_items(path, items, gemm_type=gemm_type)


def _type_order(dtype: np.dtype[Any]) -> tuple[int, int]:
    return _KINDS.index(dtype.kind), dtype.itemsize


def _by_suffix(path: Path, choices: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    name = path_text(path)
    for suffix, choice in choices.items():
        if name.endswith(suffix):
            return choice
    raise ModelFileError(f"{name}: expected a model file that ends in {_listed(choices)}")


def _listed(choices: Mapping[str, Any]) -> str:
    *suffixes, last = choices
    return f"{', '.join(suffixes)} or {last}"
