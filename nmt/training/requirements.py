"""What a training needs: whatever can be known to be wrong is said before anything is made or started."""

from __future__ import annotations

import os
from dataclasses import replace

from nmt.architecture import parameters
from nmt.models.support import check_options
from nmt.settings import require_readable
from nmt.settings.dump import new_model_options
from nmt.settings.training import TrainOptions
from nmt.text.order import Rows
from nmt.text.parallel import Fields
from nmt.text.sentences import check_alphas
from nmt.training.embeddings import check_vectors
from nmt.training.learning.settings import check_settings
from nmt.training.reports import check_reports
from nmt.training.schedule.scheduler import Scheduler
from nmt.training.schedule.state import TrainingState
from nmt.training.validation.creation import check_validation
from nmt.training.vocabularies import check_vocabs, require_streams


def check_training(options: TrainOptions) -> None:
    """The errors of a training with these options that are known before it begins, custom fallbacks included.

    ``OSError`` for a file that cannot be read or written, ``OptionError`` and others of ``MGraphError`` for
    invalid values. No text is read, no device is started.
    """
    for fallback in ({}, *options.custom_fallbacks):
        _check(replace(options, **fallback))


def _check(options: TrainOptions) -> None:
    streams = options.text_streams
    if options.no_reload or not os.path.exists(options.model):
        require_streams(options)
        model = new_model_options(options, (1,) * streams)  # the true sizes are not known yet
        check_options(model)
        parameters(model)
    _check_texts(options, streams)
    check_vocabs(options)
    require_readable("--pretrained-model", [options.pretrained_model])
    check_vectors(options.embedding_vectors, options.dim_emb)
    check_settings(options)
    Scheduler(options, TrainingState(options.learn_rate))
    check_validation(options)
    check_reports(options)


def _check_texts(options: TrainOptions, streams: int) -> None:
    """The training text, its layout and its batches."""
    require_readable("--train-sets", options.train_sets)
    for name, path in () if options.tsv else options.extra_fields.items():
        require_readable(f"--{name}", [path])
    check_alphas(options.sentencepiece_alphas, streams)
    Rows.from_options(options, Fields.from_options(options, streams))
