"""The arrays in ``pytorch_model.bin``, without PyTorch and without running anything that the file says.

Such a file is a pickle of a dictionary of tensors, with the numbers beside it: since PyTorch 1.6 in a zip
archive, before that one after the other in the same file. Of what a pickle can ask for only a dictionary,
a tensor and the kinds of its storage are there; all else is refused by name.
Source: PyTorch, ``torch/serialization.py``.
"""

from __future__ import annotations

import io
import math
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from mgraph import ModelFileError
from mgraph.files.archive import ZipArchive
from mgraph.files.items import MAX_RANK

_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1",
    "ByteStorage": "<u1",
}  # fmt: skip
_BFLOAT16 = "BFloat16Storage"


def read_torch(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of the state dictionary in the file at ``path``, by name; ``bfloat16`` as float32.

    ``ModelFileError``, which names the file, for whatever is not a sound file of plain tensors.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        zipped = file.read(4) == b"PK\3\4"
        file.seek(0)
        try:
            found = _zipped(ZipArchive(file, name)) if zipped else _legacy(file)
        except ModelFileError as error:
            prefix = "" if str(error).startswith(name) else f"{name}: "
            raise ModelFileError(f"{prefix}{error}") from None
        except Exception as error:  # a damaged pickle raises anything
            raise ModelFileError(f"{name}: not a file of PyTorch's, or damaged: {str(error)[:200]}") from None
    if not isinstance(found, dict) or not all(isinstance(array, np.ndarray) for array in found.values()):
        raise ModelFileError(f"{name}: expected a dictionary of tensors")
    return {str(key): array for key, array in found.items()}


class _Storage:
    """The numbers that tensors are views of; ``data`` is there once it has been read."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.count = kind, count
        self.data = np.empty(0, np.uint8)

    @property
    def size(self) -> int:
        return self.count * np.dtype(_STORAGES[self.kind]).itemsize


class _Tensor:
    """A view that the pickle asks for."""

    def __init__(
        self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def array(self) -> np.ndarray:
        """The view as an array of its own."""
        sizes = (self.offset, *self.shape, *self.strides)
        if not all(type(n) is int and n >= 0 for n in sizes) or len(self.shape) > MAX_RANK:
            raise ModelFileError(f"a tensor of shape {self.shape} and strides {self.strides}")
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if 0 in self.shape:
            return np.zeros(self.shape, np.float32)
        if last >= self.storage.count or math.prod(self.shape) > self.storage.count:
            raise ModelFileError(f"a tensor of shape {self.shape} reaches beyond its storage")
        flat = self.storage.data.view(_STORAGES[self.storage.kind])
        steps = tuple(step * flat.itemsize for step in self.strides)
        array = np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, steps).copy()
        return (array.astype(np.uint32) << 16).view(np.float32) if self.storage.kind == _BFLOAT16 else array


def _rebuild_tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ModelFileError("a tensor without a storage")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): name for name in _STORAGES},
}


class _Unpickler(pickle.Unpickler):
    """Reads a pickle that asks for nothing but the names above; ``storage`` finds or makes a storage."""

    def __init__(self, stream: BinaryIO, storage: Callable[[str, str, int], _Storage]) -> None:
        super().__init__(stream, encoding="utf-8")
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ModelFileError(f"it asks for {module}.{name}; only dictionaries of tensors are read")
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        tag, kind, key, _, count, *rest = pid
        if tag != "storage" or kind not in _STORAGES or type(count) is not int or count < 0 or any(rest):
            raise ModelFileError(f"it asks for {str(pid)[:80]}; only plain storages are read")
        return self._storage(kind, str(key), count)


def _arrays(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    return {key: value.array() if isinstance(value, _Tensor) else value for key, value in found.items()}


def _zipped(archive: ZipArchive) -> Any:
    members = {member.name: member for member in archive.members}
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ModelFileError("an archive without a data.pkl")
    root = pickles[0].removesuffix("data.pkl")
    storages: dict[str, _Storage] = {}

    def storage(kind: str, key: str, count: int) -> _Storage:
        if key not in storages:
            member = members.get(f"{root}data/{key}")
            found = _Storage(kind, count)
            if member is None or member.size != found.size:
                raise ModelFileError(f"the storage {key!r} of {found.size} bytes is not there")
            found.data = np.frombuffer(archive.read(member), np.uint8)
            storages[key] = found
        return storages[key]

    return _arrays(_Unpickler(io.BytesIO(archive.read(members[pickles[0]])), storage).load())


def _legacy(file: BinaryIO) -> Any:
    storages: dict[str, _Storage] = {}

    def storage(kind: str, key: str, count: int) -> _Storage:
        return storages.setdefault(key, _Storage(kind, count))

    def load() -> Any:
        return _Unpickler(file, storage).load()

    if load() != _MAGIC:
        raise ModelFileError("not a file of PyTorch's")
    load(), load()  # the protocol and the sizes of the machine's integers
    found = load()
    size = os.fstat(file.fileno()).st_size
    for key in load():
        if storages[key].size > size:
            raise ModelFileError(f"cut short: the storage {key!r} should have {storages[key].size} bytes")
        (count,) = np.frombuffer(file.read(8), "<i8")
        data = file.read(storages[key].size)
        if count != storages[key].count or len(data) != storages[key].size:
            raise ModelFileError(f"cut short: the storage {key!r} has {len(data)} bytes")
        storages[key].data = np.frombuffer(data, np.uint8)
    return _arrays(found)
