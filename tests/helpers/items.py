"""Arrays by name, as files hold them, and files that are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
