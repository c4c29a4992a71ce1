"""Files of the safetensors format: named arrays with metadata, and no code.

A file is, one after the other::

    uint64        bytes of the header, little endian
    bytes         header: a JSON object in UTF-8, padded with spaces to a multiple of 8
    bytes         the data of all arrays, one after the other, little endian, last axis fastest

For each array the header has ``{"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}``, with
offsets from the first byte of data. It may also hold ``"__metadata__"``, an object of strings. A Marian model
is such a file with its configuration as the string ``special:model.yml``.

Source: github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ModelFileError
from .archive import MAX_MEMBERS
from .items import MODEL_YML, is_plausible, mapped, model_yml, replacing, storable, with_model_yml
from .json_text import read_json

MAX_HEADER_BYTES = 100_000_000
"""The limit that the format sets."""
METADATA = "__metadata__"

_ALIGNMENT = 8
_DTYPES = {
    "F64": "f8", "F32": "f4", "F16": "f2",
    "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
    "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1",
}  # fmt: skip
_CODES = {kind: code for code, kind in _DTYPES.items()}
_BFLOAT16 = "BF16"
# The library's order of arrays in a file: widest type first, among equal widths the last in its list first.
_ORDER = ("U8", "I8", "I16", "U16", "F16", "I32", "U32", "F32", "F64", "I64", "U64")


class Tensors(NamedTuple):
    """The contents of a file: its arrays in the order of their data, and the strings of ``__metadata__``."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, str]


def read_safetensors(path: str | os.PathLike[str]) -> Tensors:
    """The arrays and the metadata of the file at ``path``.

    The file is mapped into memory: an array is a read-only view of it. ``BF16``, which numpy lacks, becomes
    float32, exactly. ``ModelFileError``, which names the file and what is wrong, for anything but a valid
    file of plain numbers; ``OSError`` if it cannot be opened.
    """
    return _Reader(mapped(path), os.fspath(path)).tensors()


def write_safetensors(
    path: str | os.PathLike[str], arrays: Mapping[str, ArrayLike], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes the file that the safetensors library would write; all or nothing.

    Element types: float16/32/64, int8 to int64, uint8 to uint64. For another type, or a name that cannot be
    written, ``ModelFileError`` before ``path`` is touched.
    """
    stored = storable(path, arrays)
    if METADATA in stored:
        raise ModelFileError(f"{os.fspath(path)}: {METADATA!r} cannot be the name of an array")
    order = sorted(stored, key=lambda name: (-_ORDER.index(_CODES[stored[name].dtype.str[1:]]), name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name in order:
        array = stored[name]
        header[name] = {
            "dtype": _CODES[array.dtype.str[1:]],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise ModelFileError(f"{os.fspath(path)}: names and metadata must be UTF-8, as JSON is") from None
    text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise ModelFileError(
            f"{os.fspath(path)}: a header of {len(text)} bytes; the format has at most {MAX_HEADER_BYTES}"
        )
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(stored[name].reshape(-1).view(np.uint8).data)


def read_items_of_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """A model's items: the arrays by name, and the metadata ``special:model.yml`` as an item."""
    arrays, metadata = read_safetensors(path)
    items = {name: arrays[name] for name in sorted(arrays)}
    if MODEL_YML in metadata:
        items[MODEL_YML] = with_model_yml(metadata[MODEL_YML])
    return items


def write_items_as_safetensors(path: str | os.PathLike[str], items: Mapping[str, ArrayLike]) -> None:
    """The inverse of ``read_items_of_safetensors``, except for the order of items."""
    arrays = {name: np.asarray(value) for name, value in items.items()}
    text = model_yml(arrays)
    arrays.pop(MODEL_YML, None)
    write_safetensors(path, arrays, {} if text is None else {MODEL_YML: text})


class _Reader:
    """The arrays in the bytes ``data`` of a file; every size is checked before it is used."""

    def __init__(self, data: np.ndarray, path: str) -> None:
        self._data, self._path = data, path

    def error(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self._path}: {what}")

    def tensors(self) -> Tensors:
        header, start = self._header()
        metadata = header.pop(METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise self.error(f"{METADATA} should be an object with string values")
        if len(header) > MAX_MEMBERS:
            raise self.error(f"its header declares {len(header)} arrays (at most {MAX_MEMBERS} are read)")
        places = sorted((self._place(name, entry), name) for name, entry in header.items())
        at = 0
        for (begin, end), name in places:
            if begin != at:
                raise self.error(f"the data of {name!r} begins at byte {begin}, expected {at}")
            at = end
        if at != len(self._data) - start:
            raise self.error(
                f"cut short or damaged: {len(self._data) - start} bytes of data, its header declares {at}"
            )
        arrays = {
            name: self._array(name, header[name], self._data[start + begin : start + end])
            for (begin, end), name in places
        }
        return Tensors(arrays, metadata)

    def _header(self) -> tuple[dict[str, Any], int]:
        """The JSON object at the start, and where the data begins."""
        data = self._data
        size = int.from_bytes(data[:8].tobytes(), "little")
        if len(data) < 8 or not 2 <= size <= MAX_HEADER_BYTES or (len(data) > 8 and data[8] != ord("{")):
            raise self.error(f"not a safetensors file ({len(data)} bytes)")
        if size > len(data) - 8:
            raise self.error(f"cut short: a header of {size} bytes in a file of {len(data)}")
        try:
            header = read_json(data[8 : 8 + size].tobytes(), unique=True)
        except ValueError as error:
            raise self.error(f"its header is not JSON: {str(error)[:200]}") from None
        return header, 8 + size

    def _place(self, name: str, entry: Any) -> tuple[int, int]:
        offsets: Any = entry.get("data_offsets") if isinstance(entry, dict) else None
        if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise self.error(f"{name!r} has invalid data_offsets: {str(offsets)[:80]}")
        return offsets[0], offsets[1]

    def _array(self, name: str, entry: dict[str, Any], data: np.ndarray) -> np.ndarray:
        code: Any = entry.get("dtype")
        shape: Any = entry.get("shape")
        if not isinstance(code, str) or (code != _BFLOAT16 and code not in _DTYPES):
            known = " ".join([*_DTYPES, _BFLOAT16])
            raise self.error(f"{name!r} is of the type {str(code)[:40]!r}; expected one of {known}")
        if not _are_sizes(shape) or not is_plausible(shape):
            raise self.error(f"{name!r} has the shape {str(shape)[:80]}, which no array can have")
        dtype = np.dtype("<u2" if code == _BFLOAT16 else f"<{_DTYPES[code]}")
        if math.prod(shape) * dtype.itemsize != len(data):
            raise self.error(f"{name!r} has {len(data)} bytes of data, its shape {tuple(shape)} does not fit")
        array = data.view(dtype) if len(data) else np.empty(0, dtype)
        if code == _BFLOAT16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        # Copies data that is not aligned, as in old files.
        return np.require(array.reshape(shape), array.dtype.newbyteorder("="), "A")


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int for size in value)
