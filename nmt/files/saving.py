"""Models into model files, as Marian would write them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mgraph.files.items import MODEL_YML, with_model_yml
from mgraph.files.parameter_files import write_items
from nmt.models.model import Model
from nmt.models.types import find_type
from nmt.settings.model_options import ModelOptions, text_of


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to ``path``, an ``.npz`` or ``.bin``; all or nothing.

    A float32 ``.npz`` that Marian wrote comes out byte for byte. ``ModelFileError`` for another ending,
    ``OSError`` if the file cannot be written.
    """
    write_items(path, model_items(model.options, model.params))


def model_items(options: ModelOptions, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What a model's file holds: the parameters as float32, under the names and in the order that Marian
    gives them for this type, and the options as ``special:model.yml``."""
    arrays = {name: np.asarray(params[name], np.float32) for name in sorted(params)}
    return {
        **find_type(options.type).names.in_file(arrays, options),
        MODEL_YML: with_model_yml(text_of(options)),
    }


def marian_order(options: ModelOptions, names: Iterable[str]) -> list[str]:
    """The names of a model's parameters in the order that they have in Marian's memory and files: sorted, but
    where Marian's graphs have other names than ours, by those."""
    names = sorted(names)
    numbers = {name: np.full((1, 1), number) for number, name in enumerate(names)}
    return [
        names[number.item()]
        for number in find_type(options.type).names.in_file(numbers, options).values()
        if number.size
    ]
