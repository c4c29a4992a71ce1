"""Items: the named arrays that a Marian model file is made of.

A model, its optimizer's state and its configuration (``special:model.yml``) are all items. This module reads
``.npz`` files, and writes them byte for byte as Marian does. Files may come from untrusted sources: nothing
in them is executed, and every size is checked before an array is allocated. For ``.bin`` files see
``mgraph.files.binary_items``.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ModelFileError
from .archive import MAX_NAME_BYTES, Member, ZipArchive
from .paths import is_special, path_text

SPECIAL = "special:"
"""How the names of items that are not parameters begin."""
MODEL_YML = SPECIAL + "model.yml"
# Marian pads a text item with zero bytes to a multiple of this.
PADDING = 256
# The most axes of an array, and the largest product of its non-zero sizes.
MAX_RANK = 32
MAX_EXTENT = 1 << 40

_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 4096
# The header as numpy and Marian write it, keys in this order; nothing in it is evaluated.
_HEADER = re.compile(
    r"\{ *'descr': *'(\||[<>])([fiu])([1248])', *'fortran_order': *(True|False), *"
    r"'shape': *\(((?: *\d{1,19} *,)* *(?:\d{1,19})?) *\) *,? *\} *\n?"
)
_ELEMENT_TYPES = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"})


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All items of the ``.npz`` file at ``path``, in the file's order, as C-ordered native arrays.

    Element types are kept, except that signed 8-byte integers become ``uint64``, as in Marian. Raises
    ``ModelFileError``, which names the file and what is wrong, for anything but a valid npz file of plain
    numbers; ``OSError`` if the file cannot be opened.
    """
    with open(path, "rb") as file:
        return npz_items(file, os.fspath(path))


def npz_items(file: BufferedReader, path: str) -> dict[str, np.ndarray]:
    """The items of an open ``.npz``, called ``path`` in errors; see ``read_npz``."""
    items: dict[str, np.ndarray] = {}
    archive = ZipArchive(file, path)
    for member in archive.members:
        name = member.name.removesuffix(".npy")
        if name in ("", member.name):
            raise archive.error(f"{member.name!r} is not an item: items are called NAME.npy")
        items[name] = _array(archive, member, archive.read(member))
    return items


def write_npz(path: str | os.PathLike[str], items: Mapping[str, ArrayLike]) -> None:
    """Writes ``items``, in their order, as the ``.npz`` file that Marian would write; all or nothing.

    Each array is stored uncompressed, C-ordered and little endian under ``NAME.npy``, in the element
    types that Marian knows: float16/32/64, int8/16/32/64, uint8/16/32/64. Another type, or a name
    that no reader would accept, raises ``ModelFileError`` before ``path`` is touched.
    """
    arrays = storable(path, items)
    with replacing(path) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            header = _header(array)
            # Marian leaves all these fields zero, so the same model gives the same bytes at any time.
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 0, 0, 0, 0, 0))
            info.create_system = 0
            info.file_size = len(header) + array.nbytes
            with archive.open(info, "w") as member:
                member.write(header)
                member.write(array.reshape(-1).view(np.uint8).data)
            info.external_attr = 0


def mapped(path: str | os.PathLike[str]) -> np.ndarray:
    """The bytes of the file at ``path``, mapped into memory read-only."""
    with open(path, "rb") as file:
        empty = not os.fstat(file.fileno()).st_size
        return np.empty(0, np.uint8) if empty else np.asarray(np.memmap(file, np.uint8, "r"))


def is_plausible(shape: Sequence[int]) -> bool:
    """Whether an array may have this shape. An empty array may claim any other sizes, so they are bounded."""
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        return False
    return math.prod(max(size, 1) for size in shape) <= MAX_EXTENT


def parameters_of(items: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The items that are parameters."""
    return {name: array for name, array in items.items() if not name.startswith(SPECIAL)}


def model_yml(items: Mapping[str, np.ndarray]) -> str | None:
    """The text of the item ``special:model.yml`` up to its first zero byte; None without the item.

    Bytes that are not UTF-8 become surrogate escapes. Raises ``ModelFileError`` if the item is not
    a row of bytes.
    """
    item = items.get(MODEL_YML)
    if item is None:
        return None
    if item.ndim != 1 or item.dtype.itemsize != 1:
        raise ModelFileError(f"{MODEL_YML} should be a row of int8, it is {item.dtype} of shape {item.shape}")
    return item.tobytes().partition(b"\0")[0].decode("utf-8", "surrogateescape")


def with_model_yml(text: str) -> np.ndarray:
    """``text`` as the item ``special:model.yml``: int8, followed by a zero byte, padded with zero bytes
    to a multiple of 256. The inverse of ``model_yml``."""
    try:
        data = text.encode("utf-8", "surrogateescape") + b"\0"
    except UnicodeEncodeError:
        raise ModelFileError(f"{MODEL_YML}: expected a text, got half a surrogate pair in it") from None
    return np.frombuffer(data.ljust(-(-len(data) // PADDING) * PADDING, b"\0"), np.int8)


def refuse_folder(path: str | os.PathLike[str]) -> None:
    """``IsADirectoryError`` for a folder, or a link to one, where a file belongs."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that replaces ``path`` when the ``with`` block succeeds; else it leaves no trace.

    It is written next to ``path``, flushed to the disk, then renamed: a reader, or a machine that loses
    power, sees either the old file or the whole new one. Symbolic links and permissions are kept. A pipe or a
    device is written directly. An ``OSError`` names ``path``.
    """
    target = os.path.realpath(path_text(path))
    refuse_folder(path)
    folder, name = os.path.split(target)
    begin = os.fsdecode(os.fsencode(name)[:200])  # the system counts bytes, not characters
    temporary = os.path.join(folder, f".{begin}.{secrets.token_hex(8)}")
    try:
        if is_special(path):
            with open(path, "wb") as file:
                yield file
            return
        with open(temporary, "xb") as file:
            keep_mode(target, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno and error.filename in (None, temporary):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    sync_folder(folder)


def keep_mode(old: str, new: str) -> None:
    """Gives ``new`` the permissions of the file ``old``, which it will replace, if there is one."""
    if os.path.exists(old):
        mode = stat.S_IMODE(os.stat(old).st_mode)
        if mode != stat.S_IMODE(os.stat(new).st_mode):
            os.chmod(new, mode)


def sync_folder(folder: str) -> None:
    """Makes a rename in ``folder`` survive a power loss, if the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _array(archive: ZipArchive, member: Member, data: bytearray) -> np.ndarray:
    """The array in the ``.npy`` bytes ``data`` (numpy's format, versions 1 to 3)."""
    if data[:6] != _MAGIC or len(data) < 12 or data[6] not in (1, 2, 3):
        raise archive.error(f"{member.name!r} is not an array in numpy's format")
    width = 2 if data[6] == 1 else 4
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if start > min(len(data), _MAX_HEADER_BYTES):
        raise archive.error(
            f"{member.name!r} has a header of {start} bytes in {len(data)} "
            f"(at most {_MAX_HEADER_BYTES} are read)"
        )
    text = data[8 + width : start].decode("latin-1")
    match = _HEADER.fullmatch(text)
    if (
        match is None
        or (code := match[2] + match[3]) not in _ELEMENT_TYPES
        or (match[1] == "|" and match[3] != "1")
    ):
        raise archive.error(
            f"{member.name!r} is not an array of plain numbers "
            f"(float, int or uint of 1 to 8 bytes): {text.strip()[:200]}"
        )
    shape = tuple(int(size) for size in match[5].split(",") if size.strip())
    count = math.prod(shape)
    if not is_plausible(shape) or count * int(match[3]) != len(data) - start:
        raise archive.error(
            f"{member.name!r} has {len(data) - start} bytes of numbers, but its "
            f"shape is {shape} of {match[3]} bytes each"
        )
    array = np.frombuffer(data, np.dtype(match[1] + code), count, start)
    array = array.reshape(shape, order="F" if match[4] == "True" else "C")
    array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return array.view(np.uint64) if code == "i8" else array


def storable(path: str | os.PathLike[str], items: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """``items`` as the arrays that a model file holds, C-ordered and little endian.

    ``ModelFileError`` for an element type or a name that the file cannot hold; see ``write_npz``.
    """
    arrays = {}
    for name, value in items.items():
        array = np.asarray(value)
        if not _is_item_name(name):
            raise ModelFileError(f"{os.fspath(path)}: {name[:80]!r} cannot be the name of an item")
        if f"{array.dtype.kind}{array.dtype.itemsize}" not in _ELEMENT_TYPES:
            raise ModelFileError(
                f"{os.fspath(path)}: item {name!r} is {array.dtype}; a model file "
                "holds float16/32/64, int8 to int64 and uint8 to uint64"
            )
        arrays[name] = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    return arrays


def _is_item_name(name: str) -> bool:
    try:
        return "\0" not in name and 0 < len(name.encode()) <= MAX_NAME_BYTES - len(".npy")
    except UnicodeEncodeError:
        return False


def _header(array: np.ndarray) -> bytes:
    """The ``.npy`` header that Marian writes: aligned to 16 bytes, with ``<`` before one-byte types, too."""
    shape = f"({array.shape[0]},)" if array.ndim == 1 else f"({', '.join(map(str, array.shape))})"
    text = (
        f"{{'descr': '<{array.dtype.kind}{array.dtype.itemsize}', 'fortran_order': False, "
        f"'shape': {shape}, }}"
    ).encode()
    size = -(-(len(text) + 11) // 16) * 16
    return b"\x93NUMPY\1\0" + (size - 10).to_bytes(2, "little") + text.ljust(size - 11) + b"\n"
