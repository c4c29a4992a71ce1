"""Models into model files, as Marian would write them, and from one format to another."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mgraph import Type
from mgraph.files.binary_items import FLOAT32
from mgraph.files.intgemm import GEMM_TYPES, PACKINGS, is_quantized
from mgraph.files.items import MODEL_YML, with_model_yml
from mgraph.files.parameter_files import Path, load_parameters, write_items
from nmt.models.model import Model
from nmt.models.support import find_type
from nmt.settings.model_options import ModelOptions, text_of

logger = logging.getLogger(__name__)

# How Marian saves an empty list, and how it writes one that it has read: byte for byte what it converts.
_EMPTY_LIST = re.compile(r":\n +\[\]$", re.MULTILINE)


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


def convert_model(source: Path, target: Path, *, gemm_type: str = FLOAT32) -> None:
    """Write the model in the file ``source`` as ``target``: ``.npz``, ``.bin`` or ``.safetensors``.

    Parameters come sorted by name, those of floating point as float32, with the model's configuration; an
    ``.npz`` or ``.bin`` is byte for byte Marian's. ``gemm_type`` quantizes matrices in a ``.bin``:
    ``intgemm8``, ``intgemm8ssse3``, ``intgemm8avx2``, ``intgemm8avx512`` and the like with 16. Matrices that
    Marian would then use wrongly stay float32 (``mgraph.files.intgemm``); a warning lists them. Quantized
    models are read, too: what comes out are the quantized numbers. ``ModelFileError`` that names the file
    for what cannot be read or written.
    """
    values, text = load_parameters(source, Type.float32)
    report_unquantized(values, gemm_type)
    meta = None if text is None else _EMPTY_LIST.sub(": []", text)
    # Marian's converter puts floating point before all else, its trainer behind.
    order = sorted(values, key=lambda name: (values[name].dtype.kind != "f", name))
    items = {name: values[name] for name in order}
    if meta is not None:
        items[MODEL_YML] = with_model_yml(meta)
    write_items(target, items, gemm_type=gemm_type)


def report_unquantized(values: Mapping[str, np.ndarray], gemm_type: str) -> None:
    """A warning that lists the matrices that ``gemm_type`` leaves as they are, though Marian would not."""
    if gemm_type not in GEMM_TYPES:
        return
    packing = PACKINGS[GEMM_TYPES[gemm_type]]
    left = [name for name, array in values.items() if is_quantized(name) and not packing.fits(name, array)]
    if left:
        logger.warning(
            "%d matrices stay float32, which Marian would use wrongly as %s (their sizes, or transposed): %s",
            len(left),
            gemm_type,
            " ".join(left),
        )
