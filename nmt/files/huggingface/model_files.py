"""Marian's models from one file format to another, as ``marian-conv`` does it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import numpy as np

from mgraph import Type
from mgraph.files.binary_items import FLOAT32
from mgraph.files.intgemm import GEMM_TYPES, PACKINGS, is_quantized
from mgraph.files.items import MODEL_YML, with_model_yml
from mgraph.files.parameter_files import Path, load_parameters, write_items

logger = logging.getLogger(__name__)

# How Marian saves an empty list, and how it writes one that it has read: byte for byte what it converts.
_EMPTY_LIST = re.compile(r":\n +\[\]$", re.MULTILINE)


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
