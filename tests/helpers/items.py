"""Arrays by name, as files hold them, files that are refused, and the memory that reading takes."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgraph import ModelFileError


def same(items: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> bool:
    """Whether names, their order, shapes, types and bytes are the same."""

    def facts(items: Mapping[str, np.ndarray]) -> list:
        return [(name, a.shape, a.dtype.str, a.tobytes()) for name, a in items.items()]

    return facts(items) == facts(others)


def refuses(read: Callable[[Path], Any], path: Path, data: bytes, message: str) -> None:
    """Assert that reading a file of these bytes is an error whose message begins with its path."""
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")


def read_changed(
    read: Callable[[Path], dict[str, np.ndarray]], path: Path, changes: Iterable[Iterable[tuple[int, int]]]
) -> Iterator[dict[str, np.ndarray]]:
    """What is read of a file with some bytes changed, given by place and value, where it is not refused."""
    whole = path.read_bytes()
    for change in changes:
        data = bytearray(whole)
        for at, value in change:
            data[at] = value
        path.write_bytes(data)
        try:
            items = read(path)
        except ModelFileError as error:
            assert str(error).startswith(f"{path}: ")
        else:
            yield items


@contextmanager
def allocating_less_than(limit: int) -> Iterator[None]:
    """Assert that at no time more than ``limit`` bytes are allocated, and a file's buffer: 8 KiB, from Python
    3.15 on 128 KiB."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit + io.DEFAULT_BUFFER_SIZE
    finally:
        tracemalloc.stop()
