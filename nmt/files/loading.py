"""Load models strictly: a file must hold exactly the parameters that its model needs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layers import FactorGroups, Parameter
from mgraph import MGraphError, ModelFileError
from mgraph.files.items import MODEL_YML, SPECIAL
from mgraph.files.parameter_files import read_items_and_integers
from mgraph.files.paths import path_text
from nmt.models import checking
from nmt.models.checking import completed
from nmt.models.model import Model
from nmt.models.parameters import initial_values, parameters
from nmt.models.precision import FLOAT32, INT8, check_precision, in_floats, in_floats_of, in_int8
from nmt.models.types import check_options, find_type
from nmt.settings.model_options import ModelOptions, check_values, model_options
from nmt.text.vocabs.loading import factors_of, require_number

_MULTIPLIER = "_QuantMultA"
"""End of the names of Bergamot's multipliers, which quantize the activations that a matrix multiplies."""


def load_model(
    path: str | os.PathLike[str],
    *,
    options: ModelOptions | None = None,
    ignore_config: bool = False,
    marian_exact: bool = False,
    precision: str = FLOAT32,
    vocabs: Sequence[str] = (),
) -> Model:
    """Load the model in ``path``, an ``.npz`` or ``.bin`` made by Marian, or a ``.safetensors``.

    The configuration comes from the file (``special:model.yml``). ``options`` replace it if the file has
    none, as old files do, or with ``ignore_config`` (``--ignore-model-config``). Missing sizes are inferred
    from the parameters. marian_exact: see ``Network``. precision: ``float32``, ``float16`` or ``bfloat16``,
    the type of all values except losses and scores; or ``int8``, which multiplies integers: those of a
    quantized file, with its own multipliers for activations if it has any, or those that float32 is rounded
    to (``nmt.models.precision``). vocabs: the vocabulary files, sources first; needed if one is factored
    (``.fsv``).

    ``ArgumentError`` for an unknown precision, ``VocabError`` for a damaged factored vocabulary. All other
    messages name the model's file: ``ModelFileError`` if it is damaged or has no configuration;
    ``ParameterError``, which lists all, for missing, unknown or wrongly shaped parameters;
    ``UnsupportedOptionError`` for an unknown or unsupported type or option; ``OptionError`` if a vocabulary
    is factored and there are not as many vocabularies as the model has; ``OSError`` if it cannot be read.
    """
    name = path_text(path)
    check_precision(precision)
    options, found, multipliers = _read(path, options, ignore_config, factors_of(vocabs))
    try:
        check_options(options)
        if precision == INT8:
            checking.check_parameters(options, _shapes(found))
            declared = parameters(options, found)
            params = in_int8(found, declared, _of_matrices(multipliers, declared))
            return Model(options, params, marian_exact=marian_exact)
        model = Model(options, in_floats_of(found, precision), marian_exact=marian_exact)
        check_parameters(model)
    except MGraphError as error:
        raise type(error)(f"{name}: {error}") from None
    return model


def read_parameters(
    path: str | os.PathLike[str], options: ModelOptions | None = None, ignore_config: bool = False
) -> tuple[ModelOptions, dict[str, np.ndarray]]:
    """The options of a model file, and its parameters under their names in graphs, without checking that they
    match. Arguments and errors as for ``load_model``."""
    options, found, _ = _read(path, options, ignore_config, ())
    return options, in_floats(found)


def _read(
    path: str | os.PathLike[str],
    options: ModelOptions | None,
    ignore_config: bool,
    factors: tuple[FactorGroups | None, ...],
) -> tuple[ModelOptions, dict[str, Any], dict[str, np.ndarray]]:
    """Options, parameters, and Bergamot's multipliers by their names in the file."""
    name = path_text(path)
    items = read_items_and_integers(path)
    if options is None or (MODEL_YML in items and not ignore_config):
        options = model_options(in_floats(items), name)
    options = replace(options, factors=factors)
    multipliers = in_floats({item: array for item, array in items.items() if item.endswith(_MULTIPLIER)})
    items = {item: array for item, array in items.items() if not _is_extra(item)}
    try:
        kind = find_type(options.type)
        check_values(options)
        if factors:
            require_number(len(factors), len(kind.encoders) + 1)
        params = _parameters(kind.names.in_graph(items, options))
        return completed(options, _shapes(params)), params, multipliers
    except MGraphError as error:
        raise type(error)(f"{name}: {error}") from None


def create_model(options: ModelOptions, *, seed: int = 1) -> Model:
    """A new model with ``options``, initialized as in Marian. ``UnsupportedOptionError`` for an unknown or
    unsupported type or option."""
    check_options(options)
    return Model(options, initial_values(options, seed))


def check_parameters(model: Model) -> None:
    """``ParameterError`` that lists all missing, unknown and wrongly shaped parameters."""
    checking.check_parameters(model.options, _shapes(model.params))


def _shapes(params: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in params.items()}


def _is_extra(item: str) -> bool:
    """Whether an item is not a parameter: the configuration, or Bergamot's quantization factors."""
    return item.startswith(SPECIAL) or item.endswith(_MULTIPLIER)


def _of_matrices(
    multipliers: Mapping[str, np.ndarray], declared: Mapping[str, Parameter]
) -> dict[str, np.ndarray]:
    """Bergamot's multipliers by the names of the matrices. That of the output layer is named ``none`` if rows
    of the layer's table were selected, or the table was transposed."""
    found = {}
    for name, parameter in declared.items():
        item = multipliers.get(f"{name}{_MULTIPLIER}")
        if item is None and parameter.contracted == 1:
            item = multipliers.get(f"none{_MULTIPLIER}")
        if item is not None and item.size == 1 and item.reshape(()) > 0:
            found[name] = item.astype(np.float32).reshape(1)
    return found


def _parameters(items: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters: float32 arrays, and matrices of integers."""
    arrays = {name: array for name, array in items.items() if isinstance(array, np.ndarray)}
    odd = [f"{name} {array.dtype}" for name, array in arrays.items() if array.dtype.kind != "f"]
    if odd:
        raise ModelFileError(f"expected floating-point parameters, got {', '.join(odd)}")
    return {**items, **{name: array.astype(np.float32, copy=False) for name, array in arrays.items()}}
