"""Parameters from and to Marian's model files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelFileError
from .items import MODEL_YML, model_yml, read_npz, with_model_yml, write_npz
from .types import Type, as_type


def load_parameters(path: str | os.PathLike[str], type_: Type) -> tuple[dict[str, np.ndarray], str | None]:
    """Parameters of a model by name, floating point ones as ``type_``, and its ``special:model.yml``."""
    _check_suffix(path)
    items = read_npz(path)
    values = {
        name: array.astype(type_.dtype) if as_type(array.dtype).is_float else array
        for name, array in items.items()
        if not name.startswith("special:")
    }
    return values, model_yml(items)


def save_parameters(path: str | os.PathLike[str], values: Mapping[str, Any], meta: str | None) -> None:
    """Write parameters sorted by name, as float32, with ``meta`` as ``special:model.yml``; atomically.

    ``ModelFileError`` for a ``bool`` parameter, which no model file can hold.
    """
    _check_suffix(path)
    items: dict[str, np.ndarray] = {}
    for name in sorted(values):
        array = np.asarray(values[name])
        if as_type(array.dtype) is Type.bool:
            raise ModelFileError(f"{os.fspath(path)}: parameter {name!r} is bool; a model file holds numbers")
        items[name] = array.astype(np.float32) if as_type(array.dtype).is_float else array
    if meta is not None:
        items[MODEL_YML] = with_model_yml(meta)
    write_npz(path, items)


def _check_suffix(path: str | os.PathLike[str]) -> None:
    if Path(path).suffix != ".npz":
        raise ModelFileError(f"{os.fspath(path)}: expected a model file that ends in .npz")
