"""What a training begins with: vocabularies, the options of a new model, its parameters."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mgraph import ParameterError
from mgraph.files.parameter_files import read_items
from nmt.architecture import initial_values
from nmt.models import Dropouts, Model
from nmt.models.support import check_options, find_type
from nmt.settings.dump import new_model_options
from nmt.settings.model_options import OPTIONS, ModelOptions
from nmt.settings.option import shown
from nmt.settings.train import TRAIN
from nmt.settings.training import TrainOptions
from nmt.text.vocabs.base import VocabError
from nmt.training.checkpoints.checkpoint import Checkpoint
from nmt.training.embeddings import word_vectors
from nmt.training.vocabularies import load_or_create_vocabs as load_or_create_vocabs

logger = logging.getLogger(__name__)


def new_model(training: TrainOptions, dim_vocabs: Sequence[int], seed: int) -> Model:
    """A model to be trained, as the options of training want it to begin.

    Its parameters are drawn as Marian initializes them; ``--embedding-vectors`` and ``--pretrained-model``
    take the place of some. It has the dropouts of the options.

    dim_vocabs: ids in each vocabulary. seed: of what is drawn.
    ``UnsupportedOptionError`` for a model that there is not, ``ParameterError`` if a parameter of the
    pretrained model has another shape, ``WordVectorsError`` for word vectors that do not fit.
    """
    options = new_model_options(training, tuple(dim_vocabs))
    check_options(options)
    # Marian reads these of the command line, and keeps them out of its models.
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
    """The model of a checkpoint, with the dropouts of the options of training.

    ``VocabError`` if the vocabularies have other sizes (``dim_vocabs`` of the options) than the model.
    """
    own, given = checkpoint.options.dim_vocabs, tuple(training.dim_vocabs)
    if own != given:
        raise VocabError(
            f"--vocabs: sizes of {list(given)}, but the model {training.model} has {list(own)} "
            "(dim-vocabs); expected the vocabularies that it was trained with"
        )
    return _model(checkpoint.options, checkpoint.learner.params, training)


def with_model_options(training: TrainOptions, options: ModelOptions, path: str) -> TrainOptions:
    """The options of training with those of the model in the file ``path``, which count, as in Marian.

    A warning names those that were given otherwise.
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
        logger.warning("%s was made with other options, which count: %s", path, ", ".join(other))
    return replace(training, **own)


def _model(options: ModelOptions, params: Mapping[str, Any], training: TrainOptions) -> Model:
    return Model(options, params, Dropouts.from_options(training), marian_exact=training.marian_exact)


def _pretrained(path: str, drawn: Mapping[str, Any], options: ModelOptions) -> dict[str, np.ndarray]:
    """The parameters in the model file ``path`` that the model has, too."""
    items = {name: array for name, array in read_items(path).items() if not name.startswith("special:")}
    found = find_type(options.type).names.in_graph(items, options)
    taken = {name: array.astype(np.float32, copy=False) for name, array in found.items() if name in drawn}
    wrong = [
        f"{name} {array.shape}, expected {tuple(drawn[name].shape)}"
        for name, array in taken.items()
        if array.shape != drawn[name].shape
    ]
    if wrong:
        raise ParameterError(f"{path}: parameters of another shape than the model's: {'; '.join(wrong)}")
    logger.info(
        "[training] %d of %d parameters from the pretrained model %s", len(taken), len(drawn), os.fspath(path)
    )
    for names, what in ((set(drawn) - set(taken), "drawn"), (set(found) - set(drawn), "not used")):
        if names:
            logger.warning("%s: %d parameters %s: %s", path, len(names), what, ", ".join(sorted(names)))
    return taken
