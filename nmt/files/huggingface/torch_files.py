"""Read the arrays in ``pytorch_model.bin`` without PyTorch and without executing anything in the file.

Such a file is a pickle of a dictionary of tensors, with their numbers outside the pickle: since PyTorch 1.6
in a zip archive, before that one after another in the same file. Only dictionaries, tensors and the kinds of
their storage are supported; anything else is rejected by name.
Source: PyTorch, ``torch/serialization.py``.
"""

from __future__ import annotations

import io
import math
import os
import reprlib
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from mgraph import ModelFileError
from mgraph.files.archive import ZipArchive, expansion_limit
from mgraph.files.items import MAX_RANK
from nmt.files.huggingface.pickles import Load, read_pickle

MAX_PICKLE_BYTES = 1 << 24
_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1",
    "ByteStorage": "<u1",
}  # fmt: skip
_BFLOAT16 = "BFloat16Storage"


def read_torch(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of the state dictionary in the file at ``path``, by name; ``bfloat16`` as float32.

    ``ModelFileError``, which names the file, if it is not a valid file of plain tensors.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        zipped = file.read(4) == b"PK\3\4"
        file.seek(0)
        try:
            found = _zipped(ZipArchive(file, name)) if zipped else _legacy(file)
            return _arrays(found, expansion_limit(os.fstat(file.fileno()).st_size))
        except ModelFileError as error:
            prefix = "" if str(error).startswith(name) else f"{name}: "
            raise ModelFileError(f"{prefix}{error}") from None
        except (TypeError, ValueError, OverflowError) as error:  # of an impossible storage or view
            raise ModelFileError(f"{name}: not a file of PyTorch's, or damaged: {str(error)[:200]}") from None


class _Storage:
    """The numbers that tensors are views of; ``data`` is empty until they have been read."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.count = kind, count
        self.data = np.empty(0, np.uint8)

    @property
    def size(self) -> int:
        return self.count * np.dtype(_STORAGES[self.kind]).itemsize


class _Tensor:
    """A view of a storage that the pickle asks for."""

    def __init__(self, storage: _Storage, offset: Any, shape: Any, strides: Any) -> None:
        if not all(_are_sizes(sizes) for sizes in ((offset,), shape, strides)) or len(shape) != len(strides):
            raise ModelFileError(f"a tensor of shape {_shown(shape)} and strides {_shown(strides)}")
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if 0 not in shape and (last >= storage.count or math.prod(shape) > storage.count):
            raise ModelFileError(f"a tensor of shape {shape} reaches beyond its storage")

    @property
    def place(self) -> tuple[Any, ...]:
        """What identifies the view; equal for tied tensors."""
        return id(self.storage), self.offset, self.shape, self.strides

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * max(np.dtype(_STORAGES[self.storage.kind]).itemsize, 4)

    def array(self) -> np.ndarray:
        """The view as a separate array."""
        if 0 in self.shape:
            return np.zeros(self.shape, np.float32)
        flat = self.storage.data.view(_STORAGES[self.storage.kind])
        steps = tuple(step * flat.itemsize for step in self.strides)
        array = np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, steps).copy()
        return (array.astype(np.uint32) << 16).view(np.float32) if self.storage.kind == _BFLOAT16 else array


def _are_sizes(values: Any) -> bool:
    return (
        type(values) is tuple
        and len(values) <= MAX_RANK
        and all(type(size) is int and size >= 0 for size in values)
    )


def _shown(value: Any) -> str:
    """A short text for ``value``, however large or nested."""
    return reprlib.repr(value)[:80]


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ModelFileError("a tensor without a storage")
    return _Tensor(storage, offset, shape, strides)


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _ordered(*items: Any) -> dict[Any, Any]:
    """An ordered dictionary; pickles write it empty, then its entries."""
    if items:
        raise ModelFileError("a dictionary that was not written as PyTorch writes it")
    return {}


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _ordered,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): name for name in _STORAGES},
}


def _allowed(module: str, name: str) -> Any:
    if (module, name) not in _ALLOWED:
        raise ModelFileError(f"it asks for {module}.{name}; only dictionaries of tensors are read")
    return _ALLOWED[module, name]


def _storages(storage: Callable[[str, str, int], _Storage]) -> Load:
    """A function that calls ``storage`` with the kind, key and count in a pickle's reference to a storage."""

    def load(asked: tuple[Any, ...]) -> _Storage:
        match asked:
            case ("storage", str(kind), str(key), _, int(count), *rest) if kind in _STORAGES and count >= 0:
                if not any(rest) and type(count) is int:
                    return storage(kind, key, count)
        raise ModelFileError(f"it asks for {_shown(asked)}; only plain storages are read")

    return load


def _arrays(found: Any, most: int) -> dict[str, np.ndarray]:
    """The arrays of a dictionary of tensors, up to a size limit; tied tensors share one array."""
    if type(found) is not dict or not all(isinstance(tensor, _Tensor) for tensor in found.values()):
        raise ModelFileError("expected a dictionary of tensors")
    views = {tensor.place: tensor for tensor in found.values()}
    if sum(tensor.size for tensor in views.values()) > most:
        raise ModelFileError(f"its tensors overlap; together they are more than {most} bytes")
    arrays = {place: tensor.array() for place, tensor in views.items()}
    return {str(key): arrays[tensor.place] for key, tensor in found.items()}


def _zipped(archive: ZipArchive) -> Any:
    members = {member.name: member for member in archive.members}
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ModelFileError("an archive without a data.pkl")
    if members[pickles[0]].size > MAX_PICKLE_BYTES:
        raise ModelFileError(f"{pickles[0]!r} is too large (at most {MAX_PICKLE_BYTES} bytes are read)")
    root = pickles[0].removesuffix("data.pkl")
    storages: dict[str, _Storage] = {}

    def storage(kind: str, key: str, count: int) -> _Storage:
        if key not in storages:
            member = members.get(f"{root}data/{key}")
            found = _Storage(kind, count)
            if member is None or member.size != found.size:
                raise ModelFileError(f"the storage {key!r} of {found.size} bytes is missing")
            found.data = np.frombuffer(archive.read(member), np.uint8)
            storages[key] = found
        return storages[key]

    return read_pickle(io.BytesIO(archive.read(members[pickles[0]])), _allowed, _storages(storage))


def _legacy(file: BinaryIO) -> Any:
    storages: dict[str, _Storage] = {}

    def storage(kind: str, key: str, count: int) -> _Storage:
        return storages.setdefault(key, _Storage(kind, count))

    def load() -> Any:
        return read_pickle(file, _allowed, _storages(storage))

    try:
        magic = load()
    except ModelFileError as error:
        raise ModelFileError(f"not a file of PyTorch's: {error}") from None
    if type(magic) is not int or magic != _MAGIC:
        raise ModelFileError("not a file of PyTorch's")
    load(), load()  # the protocol and the sizes of the machine's integers
    found, keys = load(), load()
    if type(keys) is not list or not all(type(key) is str and key in storages for key in keys):
        raise ModelFileError(f"the storages {_shown(keys)}, which no tensor has")
    if missing := sorted(storages.keys() - set(keys)):  # its tensors would be views of other memory
        raise ModelFileError(f"the storages {_shown(missing)} of its tensors are missing")
    for key in keys:
        _fill(storages[key], key, file)
    return found


def _fill(storage: _Storage, key: str, file: BinaryIO) -> None:
    """Read the numbers of a storage from the current position of ``file``."""
    if storage.size > os.fstat(file.fileno()).st_size - file.tell() - 8:
        raise ModelFileError(f"cut short: the storage {key!r} should have {storage.size} bytes")
    count, data = int.from_bytes(file.read(8), "little"), file.read(storage.size)
    if count != storage.count:
        raise ModelFileError(f"the storage {key!r} has {count} numbers, and should have {storage.count}")
    storage.data = np.frombuffer(data, np.uint8)
