"""What a training needs: whatever can be known to be wrong is said before anything is made or started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nmt.models.parameters import parameters
from nmt.models.types import check_options
from nmt.settings import require_readable
from nmt.settings.checks import extra_fields, text_streams
from nmt.settings.dump import new_model_options
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


def check_training(values: Mapping[str, Any]) -> None:
    """The errors of a training with these options that are known before it begins, custom fallbacks included.

    values: all options of ``mgraph train`` by attribute name. ``OSError`` for a file that cannot be read or
    written, ``OptionError`` and others of ``MGraphError`` for invalid values. No text is read, no
    device is started.
    """
    for fallback in ({}, *values["custom_fallbacks"]):
        _check({**values, **fallback})


def _check(values: Mapping[str, Any]) -> None:
    streams = text_streams(values)
    if values["no_reload"] or not os.path.exists(values["model"]):
        require_streams(values)
        options = new_model_options(values, (1,) * streams)  # the true sizes are not known yet
        check_options(options)
        parameters(options)
    _check_texts(values, streams)
    check_vocabs(values)
    require_readable("--pretrained-model", [values["pretrained_model"]])
    check_vectors(values["embedding_vectors"], values["dim_emb"])
    check_settings(values)
    Scheduler.from_options(values, TrainingState(values["learn_rate"]))
    check_validation(values)
    check_reports(values)


def _check_texts(values: Mapping[str, Any], streams: int) -> None:
    """The training text, its layout and its batches."""
    require_readable("--train-sets", values["train_sets"])
    for option in () if values["tsv"] else extra_fields(values):
        require_readable(f"--{option}", [values[option.replace("-", "_")]])
    check_alphas(values["sentencepiece_alphas"], streams)
    Rows.from_options(values, Fields.from_options(values, streams))
