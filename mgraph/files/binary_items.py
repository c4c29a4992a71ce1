"""Marian's binary model files (``.bin``): items stored in the layout that they have in memory.

All numbers are little endian. A file is, one after the other::

    uint64        version, 1
    uint64        number of items
    uint64 x 4    per item: bytes of its name and zero byte, code of its type, number of axes, bytes of data
    bytes         per item: its name and a zero byte
    int32         per item: the sizes of its axes
    uint64        number of zero bytes that follow, so that data begins at a multiple of 256
    bytes         per item: its data and zero bytes up to a multiple of 256

Source: Marian, ``common/binary.cpp``, ``common/types.h``.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ModelFileError
from ..shape import Shape
from .archive import MAX_MEMBERS, MAX_NAME_BYTES
from .intgemm import GEMM_TYPES, PACKINGS, IntegerMatrix
from .items import MAX_RANK, PADDING, is_plausible, mapped, replacing, storable

VERSION, ENCRYPTED = 1, 2
FLOAT32 = "float32"
"""The value of Marian's option ``gemm-type`` that quantizes nothing."""

_CODES = {
    "i1": 0x101, "i2": 0x102, "i4": 0x104, "i8": 0x108,
    "u1": 0x201, "u2": 0x202, "u4": 0x204, "u8": 0x208,
    "f2": 0x402, "f4": 0x404, "f8": 0x408,
}  # fmt: skip
_DTYPES = {code: np.dtype(f"<{kind}") for kind, code in _CODES.items()}
_FBGEMM = {0x802: "packed16", 0x1801: "packed8avx2", 0x2801: "packed8avx512"}
_MAX_SIZE = 2**31 - 1


def read_bin(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All items of the ``.bin`` file at ``path``, in the file's order.

    The file is mapped into memory: an array is a read-only view of it, and its bytes are read when they are
    used. So replace a file that is in use, as ``write_bin`` does, and never write into it. Matrices that
    Marian quantized for intgemm become float32 arrays immediately. Raises ``ModelFileError``, which names the
    file and what is wrong, for anything but a valid file of such items; ``OSError`` if it cannot be opened.
    """
    return BinaryItems(mapped(path), os.fspath(path)).arrays()


def read_bin_integers(path: str | os.PathLike[str]) -> dict[str, np.ndarray | IntegerMatrix]:
    """Like ``read_bin``, but 8-bit matrices stay quantized."""
    items = BinaryItems(mapped(path), os.fspath(path))
    return {entry.name: items.matrix(entry) for entry in items.entries}


def write_bin(
    path: str | os.PathLike[str], items: Mapping[str, ArrayLike], *, gemm_type: str = FLOAT32
) -> None:
    """Writes ``items``, in their order, as the ``.bin`` file that Marian would write; all or nothing.

    Element types and names are those of ``write_npz``. ``gemm_type`` is ``float32`` or one of
    ``mgraph.files.intgemm.GEMM_TYPES``, which quantizes the matrices that Marian quantizes, judged by their
    names, except matrices whose sizes are not multiples of 16 (for some kinds 32 or 64), which Marian would
    garble. For items that no ``.bin`` can hold, and for another ``gemm_type``, ``ModelFileError`` before
    ``path`` is touched.
    """
    arrays = storable(path, items)
    for item, array in arrays.items():
        if max(array.shape, default=0) > _MAX_SIZE:
            raise ModelFileError(
                f"{os.fspath(path)}: item {item!r} of shape {array.shape} is too long for .bin"
            )
    kinds = _kinds(path, arrays, gemm_type)
    names = [name.encode() + b"\0" for name in arrays]
    sizes = [
        PACKINGS[code].size(array.shape) if code in PACKINGS else array.nbytes
        for code, array in zip(kinds, arrays.values(), strict=True)
    ]
    entries = (
        struct.pack("<4Q", len(name), code, array.ndim, _padded(size))
        for name, code, array, size in zip(names, kinds, arrays.values(), sizes, strict=True)
    )
    shapes = (struct.pack(f"<{array.ndim}i", *array.shape) for array in arrays.values())
    header = b"".join([struct.pack("<2Q", VERSION, len(arrays)), *entries, *names, *shapes])
    # Marian begins data at the next multiple, even if the header already ends at one.
    padding = PADDING - (len(header) + 8) % PADDING
    with replacing(path) as file:
        file.write(header + struct.pack("<Q", padding) + bytes(padding))
        for code, (name, array), size in zip(kinds, arrays.items(), sizes, strict=True):
            packing = PACKINGS.get(code)
            plain = array.reshape(-1).view(np.uint8)
            file.write(packing.quantize(array, name) if packing else plain.data)
            file.write(bytes(_padded(size) - size))


def _kinds(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], gemm_type: str) -> list[int]:
    """The type codes of the items in a file of ``gemm_type``."""
    plain = [_CODES[array.dtype.str[1:]] for array in arrays.values()]
    if gemm_type == FLOAT32:
        return plain
    if gemm_type not in GEMM_TYPES:
        known = ", ".join([FLOAT32, *GEMM_TYPES])
        raise ModelFileError(f"{os.fspath(path)}: gemm-type: expected one of {known}, got {gemm_type!r}")
    code = GEMM_TYPES[gemm_type]
    return [
        code if kind == _CODES["f4"] and PACKINGS[code].fits(name, array) else kind
        for kind, (name, array) in zip(plain, arrays.items(), strict=True)
    ]


class ItemHeader(NamedTuple):
    """What the header says about an item, and where the item's data begins."""

    name: str
    code: int
    shape: Shape
    size: int
    offset: int


class BinaryItems:
    """The items in the bytes ``data`` of a binary model; ``entries`` lists them.

    Every count and size is checked against the file before memory is allocated for it: items lie inside the
    file, one after the other up to its end; names are unique UTF-8 of at most ``MAX_NAME_BYTES``; there are
    at most ``MAX_MEMBERS`` items. ``ModelFileError`` with the path in front for anything else.
    """

    def __init__(self, data: np.ndarray, path: str):
        self.path = path
        self._data = data
        self._at = 0
        self.entries = self._entries()

    def error(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {what}")

    def arrays(self) -> dict[str, np.ndarray]:
        """The items by name."""
        return {entry.name: self._array(entry) for entry in self.entries}

    def _entries(self) -> list[ItemHeader]:
        count = self._count()
        rows = np.reshape(self._numbers("<u8", 4 * count, "the list of items"), (count, 4)).tolist()
        names: dict[str, None] = {}
        for number, (length, *_) in enumerate(rows):
            name = self._name(number, length)
            if name in names:
                raise self.error(f"{name!r} appears twice")
            names[name] = None
        shapes = [self._shape(name, row[2]) for name, row in zip(names, rows, strict=True)]
        (padding,) = self._numbers("<u8", 1, "the padding").tolist()
        self._skip(padding, "the padding before the data")
        entries = []
        for name, shape, (_, code, _, size) in zip(names, shapes, rows, strict=True):
            entries.append(ItemHeader(name, code, shape, size, self._at))
            self._skip(size, f"the data of {name!r}")
        if self._at != len(self._data):
            raise self.error(f"{len(self._data) - self._at} bytes too many after its last item")
        return entries

    def _count(self) -> int:
        if len(self._data) < 16:
            raise self.error(f"not a .bin model file ({len(self._data)} bytes)")
        version, count = self._numbers("<u8", 2, "the start").tolist()
        if version == ENCRYPTED:
            raise self.error("encrypted by Marian (version 2 of .bin); only plain files are read")
        if version != VERSION:
            raise self.error(
                f"not a .bin model file: it begins with {version:#x}, expected version {VERSION}"
            )
        if count > MAX_MEMBERS:
            raise self.error(f"its header declares {count} items (at most {MAX_MEMBERS} are read)")
        return count

    def _name(self, number: int, length: int) -> str:
        if not 2 <= length <= MAX_NAME_BYTES:
            raise self.error(f"the name of item {number} has {length} bytes (2 to {MAX_NAME_BYTES} are read)")
        raw = self._numbers("u1", length, f"the name of item {number}").tobytes()
        if raw.find(b"\0") != length - 1:
            raise self.error(f"the name of item {number} does not end in its only zero byte: {raw[:40]!r}")
        try:
            return raw[:-1].decode()
        except UnicodeDecodeError:
            raise self.error(f"the name of item {number} is not UTF-8: {raw[:40]!r}") from None

    def _shape(self, name: str, rank: int) -> Shape:
        if rank > MAX_RANK:
            raise self.error(f"{name!r} has {rank} axes (at most {MAX_RANK} are read)")
        shape = tuple(self._numbers("<i4", rank, f"the shape of {name!r}").tolist())
        if not is_plausible(shape):
            raise self.error(f"{name!r} has the shape {shape}, which no array can have")
        return shape

    def _numbers(self, dtype: str, count: int, what: str) -> np.ndarray:
        start = self._at
        self._skip(count * np.dtype(dtype).itemsize, what)
        return self._data[start : self._at].view(dtype)

    def _skip(self, count: int, what: str) -> None:
        end = self._at + count
        if end > len(self._data):
            raise self.error(
                f"cut short or damaged: {what} would reach byte {end}, the file has {len(self._data)}"
            )
        self._at = end

    def _array(self, entry: ItemHeader) -> np.ndarray:
        item = self.matrix(entry)
        return item.dequantized() if isinstance(item, IntegerMatrix) else item

    def matrix(self, entry: ItemHeader) -> np.ndarray | IntegerMatrix:
        """One item; a quantized 8-bit matrix is not dequantized."""
        packing, dtype = PACKINGS.get(entry.code), _DTYPES.get(entry.code)
        if packing is not None:
            needed = packing.size(entry.shape)
        elif dtype is not None:
            needed = math.prod(entry.shape) * dtype.itemsize
        else:
            raise self.error(f"{entry.name!r} {_unreadable(entry.code)}")
        if not needed <= entry.size <= needed + PADDING:
            raise self.error(
                f"{entry.name!r} has {entry.size} bytes of data, its shape {entry.shape} needs {needed}"
            )
        data = self._data[entry.offset : entry.offset + needed]
        if packing is None:
            assert dtype is not None
            # Copies data that is not aligned, as in old files.
            return np.require(data.view(dtype).reshape(entry.shape), dtype.newbyteorder("="), "A")
        try:
            return packing.read(data, entry.name, entry.shape)
        except ModelFileError as error:
            raise self.error(f"{entry.name!r}: {error}") from None


def _unreadable(code: int) -> str:
    if code in _FBGEMM:
        return (
            f"is {_FBGEMM[code]}, packed by FBGEMM for one kind of processor; convert the model with "
            "--gemm-type float32 or intgemm8"
        )
    return f"is of an unknown type, code {code:#x}"


def _padded(size: int) -> int:
    return -(-size // PADDING) * PADDING
