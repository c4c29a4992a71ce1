"""Save models as Marian does, and convert model files."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mgraph import ModelFileError, ParameterError, Type
from mgraph.files.binary_items import FLOAT32
from mgraph.files.intgemm import GEMM_TYPES, PACKINGS
from mgraph.files.items import MODEL_YML, with_model_yml
from mgraph.files.parameter_files import Path, load_parameters, write_items
from mgraph.files.paths import path_text
from nmt.files.loading import check_parameters
from nmt.models.model import Model
from nmt.models.types import find_type
from nmt.settings.model_options import ModelOptions, text_of

logger = logging.getLogger(__name__)

# How Marian saves an empty list; it writes it differently when it converts a file.
_EMPTY_LIST = re.compile(r":\n +\[\]$", re.MULTILINE)


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to ``path``, an ``.npz``, ``.bin`` or ``.safetensors``, whole or not at all.

    Reproduces Marian's float32 ``.npz`` byte for byte. ``ModelFileError`` for another ending and for a model
    that was loaded in int8, ``ParameterError`` if the parameters do not fit the options, so that the file
    could not be loaded, ``OSError`` if it cannot be written.
    """
    name = path_text(path)
    if any(value.dtype == np.int8 for value in model.params.values()):
        raise ModelFileError(
            f"{name}: this model was loaded with precision int8; load it in float32 to save it "
            "(convert_model writes int8)"
        )
    try:
        check_parameters(model)
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
    write_items(path, model_items(model.options, model.params))


def model_items(options: ModelOptions, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The items of a model's file: the float32 parameters, under Marian's names and in its order for this
    type, and the options as ``special:model.yml``."""
    arrays = {name: np.asarray(params[name], np.float32) for name in sorted(params)}
    return {
        **find_type(options.type).names.in_file(arrays, options),
        MODEL_YML: with_model_yml(text_of(options)),
    }


def marian_order(options: ModelOptions, names: Iterable[str]) -> list[str]:
    """The names of a model's parameters in the order of Marian's files: sorted by Marian's names."""
    names = sorted(names)
    numbers = {name: np.full((1, 1), number) for number, name in enumerate(names)}
    return [
        names[number.item()]
        for number in find_type(options.type).names.in_file(numbers, options).values()
        if number.size
    ]


def convert_model(source: Path, target: Path, *, gemm_type: str = FLOAT32) -> None:
    """Convert the model file ``source`` to ``target``: ``.npz``, ``.bin`` or ``.safetensors``.

    Parameters are sorted by name, floating-point ones become float32, and the configuration is kept; an
    ``.npz`` or ``.bin`` equals Marian's byte for byte. ``gemm_type`` quantizes matrices in a ``.bin``:
    ``intgemm8``, ``intgemm8ssse3``, ``intgemm8avx2``, ``intgemm8avx512``, or ``intgemm16``,
    ``intgemm16sse2``, ``intgemm16avx2``, ``intgemm16avx512``; ``bergamot-intgemm8`` is for Bergamot and
    Firefox, and quantizes embeddings, too. Matrices that Marian would then use wrongly stay float32
    (``mgraph.files.intgemm``), with a warning. From a quantized source come the quantized values.

    ``ModelFileError``, which names the file, for a damaged one, for another ending and for a ``gemm_type``
    that is unknown or not for this format; ``OSError`` if a file cannot be read or written.
    """
    values, text = load_parameters(source, Type.float32)
    report_unquantized(values, gemm_type)
    meta = None if text is None else _EMPTY_LIST.sub(": []", text)
    # Marian's converter writes floating-point items first, its trainer last.
    order = sorted(values, key=lambda name: (values[name].dtype.kind != "f", name))
    items = {name: values[name] for name in order}
    if meta is not None:
        items[MODEL_YML] = with_model_yml(meta)
    write_items(target, items, gemm_type=gemm_type)


def report_unquantized(values: Mapping[str, np.ndarray], gemm_type: str) -> None:
    """Warn of matrices that ``gemm_type`` leaves as float32, though Marian would quantize them."""
    if gemm_type not in GEMM_TYPES:
        return
    packing = PACKINGS[GEMM_TYPES[gemm_type]]
    left = [name for name, array in values.items() if packing.takes(name) and not packing.fits(name, array)]
    if left:
        logger.warning(
            "%d matrices stay float32, which Marian would use wrongly as %s (their sizes, or transposed): %s",
            len(left),
            gemm_type,
            " ".join(left),
        )
