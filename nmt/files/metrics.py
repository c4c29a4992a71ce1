"""Load metric models strictly: a file must hold exactly the parameters that its model needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from mgraph import MGraphError, ModelFileError, ParameterError
from mgraph.files.items import MODEL_YML, parameters_of
from mgraph.files.parameter_files import read_items_and_integers
from nmt.models.metrics import MetricModel, metric_names, words_in_table
from nmt.models.precision import FLOAT32, in_floats, in_floats_of
from nmt.models.types import check_plain
from nmt.settings.metric_options import METRICS, MetricOptions, metric_options
from nmt.settings.model_options import ModelOptions, check_values, model_options


class MetricFile(NamedTuple):
    """A metric's file, read but not checked."""

    path: str
    options: ModelOptions
    items: Mapping[str, np.ndarray]

    @property
    def texts(self) -> int:
        """How many texts a line has; 0 for any number."""
        return METRICS[self.options.type]

    @property
    def dim_vocab(self) -> int:
        """The rows of the table of word embeddings."""
        return words_in_table(self.options, {name: array.shape for name, array in self.items.items()})


def read_metric(path: str | os.PathLike[str]) -> MetricFile | None:
    """Read the file of a metric; None if it holds another model, or a model without a configuration.

    ``ModelFileError`` if the file is damaged, ``OSError`` if it cannot be read.
    """
    name = os.fspath(path)
    items = in_floats(read_items_and_integers(path))
    if MODEL_YML not in items:
        return None
    options = model_options(items, name)
    return MetricFile(name, options, items) if options.type in METRICS else None


def load_metric(
    file: MetricFile,
    command: Any = None,
    *,
    separator: int,
    precision: str = FLOAT32,
    embedding: bool = False,
) -> MetricModel:
    """The model in a file of Marian's types ``comet-qe``, ``comet``, ``comet-unified`` or ``bleurt``.

    command: has, as the fields of ``MetricOptions``, the metric's options that the file lacks.
    separator: the id of ``</s>``. precision: ``float32``, ``float16`` or ``bfloat16``. embedding: for
    sentence vectors instead of scores.

    ``ModelFileError`` for integers as parameters; ``ParameterError``, which lists all, for missing, unknown
    or wrongly shaped parameters; ``UnsupportedOptionError`` for an unsupported option. Every message names
    the file.
    """
    options = file.options
    try:
        check_values(options)
        check_plain(options)
        metric = metric_options(options, command or MetricOptions())
        found = parameters_of(file.items)
        odd = [f"{item} {array.dtype}" for item, array in found.items() if array.dtype.kind != "f"]
        if odd:
            raise ModelFileError(f"expected floating-point parameters, got {', '.join(odd)}")
        params = metric_names(options.type).in_graph(found, options)
        model = MetricModel(
            options, metric, in_floats_of(params, precision), separator=separator, embedding=embedding
        )
        _check(model, params)
    except MGraphError as error:
        raise type(error)(f"{file.path}: {error}") from None
    return model


def _check(model: MetricModel, params: dict[str, np.ndarray]) -> None:
    """``ParameterError`` unless the parameters are those that the model needs."""
    needed = {name: tuple(map(int, one.shape)) for name, one in model.declared().items()}
    lines = [f"{name} {shape} is missing" for name, shape in needed.items() if name not in params]
    for name, array in params.items():
        if name not in needed:
            lines.append(f"{name} {array.shape} is not used")
        elif array.shape != needed[name]:
            lines.append(f"{name} has the shape {array.shape}, expected {needed[name]}")
    if lines:
        said = "".join(f"\n  {line}" for line in lines)
        raise ParameterError(
            f"the parameters are not those of a model of type {model.type} with these options{said}"
        )
