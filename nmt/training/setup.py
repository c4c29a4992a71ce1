"""Preparation of training: validation of the options, and the model to train."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mgraph import ParameterError
from mgraph.files.items import parameters_of
from mgraph.files.parameter_files import read_items
from nmt.models import Dropouts, Model
from nmt.models.parameters import initial_values, parameters
from nmt.models.types import check_options, find_type
from nmt.settings import OptionError, require_readable
from nmt.settings.model_options import OPTIONS, ModelOptions
from nmt.settings.option import shown
from nmt.settings.train import TRAIN, after_divergence, new_model_options
from nmt.settings.training import TrainOptions
from nmt.text.order import Rows
from nmt.text.parallel import Fields
from nmt.text.sentences import check_alphas
from nmt.text.vocabs.base import VocabError
from nmt.text.vocabs.loading import factors_of
from nmt.training.checkpoints.checkpoint import Checkpoint
from nmt.training.learning.division import divided_axes
from nmt.training.learning.settings import check_settings
from nmt.training.reports import check_reports
from nmt.training.schedule.scheduler import Scheduler
from nmt.training.schedule.state import TrainingState
from nmt.training.update import Grouping
from nmt.training.validation.validation import check_validation
from nmt.training.vocabularies import (
    check_vectors,
    check_vocabs,
    require_streams,
    require_vocabs_writable,
    word_vectors,
)
from nmt.training.vocabularies import load_or_create_vocabs as load_or_create_vocabs

logger = logging.getLogger(__name__)


def check_training(options: TrainOptions, *, first: bool = True) -> None:
    """Validate the options before training begins, custom fallbacks included.

    first: whether this process is the first of several, or alone. The others run no validation and write
    nothing.

    ``OSError`` for a file that cannot be read or written, ``OptionError`` or another ``MGraphError`` for
    invalid values. Reads no text and starts no device.
    """
    for one in (options, *(after_divergence(options, fallback) for fallback in options.custom_fallbacks)):
        _check(one)
        if first:
            _check_outputs(one)
            check_validation(one)


def _check(options: TrainOptions) -> None:
    streams = options.text_streams
    if options.no_reload or not os.path.exists(options.model):
        require_streams(options)
        model = new_model_options(options, (1,) * streams)  # the true sizes are not known yet
        check_options(model)
        parameters(model)
        divided_axes(model, options.tensor_parallel)
    require_readable("--train-sets", options.train_sets)
    for name, path in () if options.tsv else options.extra_fields.items():
        require_readable(f"--{name}", [path])
    check_alphas(options.sentencepiece_alphas, streams)
    Rows(options, Fields.from_options(options, streams))
    check_vocabs(options)
    require_readable("--pretrained-model", [options.pretrained_model])
    check_vectors(options.embedding_vectors, options.dim_emb)
    check_settings(options)
    Scheduler(options, TrainingState(options.learn_rate, loaded=True))  # computes no rate yet
    Grouping(options, lambda: 1.0)


def _check_outputs(options: TrainOptions) -> None:
    """Fail now, not after hours of training, if files cannot be written."""
    folder = os.path.dirname(options.model) or "."
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(f"--model {options.model}: the directory {folder} is not writable")
    require_vocabs_writable(options)
    check_reports(options)


def new_model(training: TrainOptions, dim_vocabs: Sequence[int], seed: int) -> Model:
    """A new model to train, with the dropouts of the options.

    Its parameters are initialized as in Marian; ``--embedding-vectors`` and ``--pretrained-model`` override
    some of them.

    dim_vocabs: ids in each vocabulary. seed: of the initialization.
    ``UnsupportedOptionError`` for an unsupported model, ``ParameterError`` if a parameter of the pretrained
    model has another shape, ``WordVectorsError`` for word vectors that do not match the model.
    """
    options = new_model_options(training, tuple(dim_vocabs))
    options = replace(options, factors=factors_of(training.vocabs))
    check_options(options)
    # Marian reads these from the command line and does not save them in models.
    beside = {
        "transformer-depth-scaling": training.transformer_depth_scaling,
        "max-length": training.max_length,
    }
    params = initial_values(replace(options, extra=beside), seed)
    if training.embedding_vectors:
        normalization = training.embedding_normalization
        params |= word_vectors(options, training.embedding_vectors, normalization=normalization, seed=seed)
    if training.pretrained_model:
        params |= _pretrained(training.pretrained_model, params, options)
    return _model(options, params, training)


def reloaded_model(checkpoint: Checkpoint, training: TrainOptions) -> Model:
    """The model of a checkpoint, with the dropouts of the training options.

    ``VocabError`` if the sizes of the vocabularies (``dim_vocabs`` of the options) differ from the model's.
    """
    own, given = checkpoint.options.dim_vocabs, tuple(training.dim_vocabs)
    if own != given:
        raise VocabError(
            f"--vocabs: sizes of {list(given)}, but the model {training.model} has {list(own)} "
            "(dim-vocabs); expected the vocabularies that it was trained with"
        )
    return _model(checkpoint.options, checkpoint.learner.params, training)


def with_model_options(training: TrainOptions, options: ModelOptions, path: str) -> TrainOptions:
    """The training options, overridden by those of the model in the file ``path``, as in Marian.

    A warning names the options for which another value was given.
    """
    own: dict[str, Any] = {
        OPTIONS[name].attribute: options[name] for name in options.given if name in TRAIN.options
    }
    plain = ModelOptions()
    other = [
        f"{OPTIONS[name].name}: {shown(options[name])}"
        for name in sorted(options.given)
        if getattr(training, OPTIONS[name].attribute, None) not in (None, plain[name], options[name])
    ]
    if other:
        logger.warning("%s overrides these options: %s", path, ", ".join(other))
    return replace(training, **own)


def _model(options: ModelOptions, params: Mapping[str, Any], training: TrainOptions) -> Model:
    return Model(options, params, Dropouts.from_options(training), marian_exact=training.marian_exact)


def _pretrained(path: str, drawn: Mapping[str, Any], options: ModelOptions) -> dict[str, np.ndarray]:
    """The parameters in the model file ``path`` that this model also has."""
    found = find_type(options.type).names.in_graph(parameters_of(read_items(path)), options)
    taken = {name: array.astype(np.float32, copy=False) for name, array in found.items() if name in drawn}
    wrong = [
        f"{name} {array.shape}, expected {tuple(drawn[name].shape)}"
        for name, array in taken.items()
        if array.shape != drawn[name].shape
    ]
    if wrong:
        raise ParameterError(f"{path}: parameters with other shapes than the model's: {'; '.join(wrong)}")
    logger.info(
        "[training] %d of %d parameters from the pretrained model %s", len(taken), len(drawn), os.fspath(path)
    )
    for names, what in ((set(drawn) - set(taken), "drawn"), (set(found) - set(drawn), "not used")):
        if names:
            logger.warning("%s: %d parameters %s: %s", path, len(names), what, ", ".join(sorted(names)))
    return taken
