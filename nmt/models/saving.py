"""Models into model files, as Marian would write them."""

from __future__ import annotations

import os

import numpy as np

from mgraph.files.items import MODEL_YML, with_model_yml
from mgraph.files.parameter_files import write_items
from nmt.model_options import text_of
from nmt.models.model import Model
from nmt.models.support import find_type


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to ``path``, an ``.npz`` or ``.bin``; all or nothing.

    The file has the parameters as float32, under the names and in the order that Marian gives them for this
    type, and the options as ``special:model.yml``. A float32 ``.npz`` that Marian wrote comes out byte for
    byte. ``ModelFileError`` for another ending, ``OSError`` if the file cannot be written.
    """
    params = {name: np.asarray(model.params[name], np.float32) for name in sorted(model.params)}
    items = find_type(model.type).names.in_file(params, model.options)
    write_items(path, {**items, MODEL_YML: with_model_yml(text_of(model.options))})
