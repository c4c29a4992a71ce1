"""``mgraph average``: write the mean of the checkpoints of a training as one model."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from nmt.commands.common import greet, require_distinct, require_model_name
from nmt.runtime.log import logging_as
from nmt.settings import Command, OptionError, Options, option, require_readable, require_writable
from nmt.settings.sections import Logging

logger = logging.getLogger(__name__)


class AveragedModels(Options):
    """The models to average."""

    title = "Models"

    models: tuple[str, ...] = option((), "checkpoints", short="m")
    output: str = option("model.avg.npz", "the model to write: .npz, .bin or .safetensors", short="o")
    smoothing: float = option(0.0, "weight of each later model in a moving average; 0: all equal", least=0)


class BestModels(Options):
    """The choice of the models to average."""

    title = "Choice"

    best: int = option(0, "only the N best by a validation metric; 0: all", least=0)
    metric: str = option("cross-entropy", "the metric")
    valid_log: str = option("", "log of the training, with the metric's values")


class AverageOptions(AveragedModels, BestModels, Logging):
    """The options of ``mgraph average``."""


COMMAND = Command(
    "average",
    "average the parameters of models, usually the last checkpoints of a training",
    AverageOptions,
    examples=(
        ("mgraph average -m model.iter{8000,9000,10000}.npz -o model.avg.npz", "the mean of three"),
        ("mgraph average -m model.iter*.npz --smoothing 0.3", "later updates count more"),
        (
            "mgraph average -m model.iter*.npz --best 4 --metric chrf --valid-log valid.log",
            "the four with the best chrF",
        ),
    ),
)


def run(options: AverageOptions, argv: Sequence[str]) -> None:
    """Average ``--models``, or the ``--best`` of them, into ``--output``."""
    _check(options)
    from nmt.files.averaging import average_models, best_checkpoints
    from nmt.training.validation.metrics import CROSS_ENTROPIES

    with logging_as(options):
        greet(COMMAND, argv, options)
        models: Sequence[str] = options.models
        if options.best:
            models = [
                os.fspath(path)
                for path in best_checkpoints(
                    models,
                    options.valid_log,
                    options.metric,
                    options.best,
                    lower_is_better=options.metric in CROSS_ENTROPIES,
                )
            ]
        average_models(models, options.output, smoothing=options.smoothing)
        logger.info("Wrote the mean of %s to %s", ", ".join(models), options.output)


def _check(options: AverageOptions) -> None:
    """OptionError for conflicts; OSError for files that cannot be read or written."""
    if not options.models:
        raise OptionError("--models: at least one model is needed, got 0")
    if options.smoothing > 1:
        raise OptionError(f"--smoothing must be from 0 to 1, got {options.smoothing:g}")
    if options.best and not options.valid_log:
        raise OptionError("--best needs --valid-log")
    if options.valid_log and not options.best:
        raise OptionError("--valid-log needs --best")
    require_readable("--models", options.models)
    require_readable("--valid-log", [options.valid_log])
    require_model_name("--output", options.output)
    require_distinct({"--models": options.models}, options.output)
    require_writable("--output", options.output)
