"""Checkpoints: Marian's files next to a model in training, written and read as one set.

``model.npz`` has the parameters for translation, smoothed with ``--exponential-smoothing``. Next to it are
``.optimizer.npz`` (moments, raw parameters), ``.progress.yml`` (schedule, generators), ``.yml`` (all options)
and ``.decoder.yml``. Marian and mgraph can resume from each other's files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgraph import ModelFileError
from mgraph.files.items import read_npz, replacing, write_npz
from mgraph.files.parameter_files import Path, read_items, write_items
from nmt.files import load_model
from nmt.files.saving import marian_order, model_items
from nmt.settings.model_options import ModelOptions
from nmt.settings.printing import decoder_config, training_config
from nmt.settings.train import new_model_options
from nmt.settings.training import TrainOptions
from nmt.settings.yaml_text import MAX_CHARACTERS
from nmt.training.checkpoints.file_set import replacing_set, settle
from nmt.training.checkpoints.moments import Moments
from nmt.training.checkpoints.state_files import read_state, state_text
from nmt.training.schedule.state import TrainingState
from nmt.training.update import LearnerState, Tensors

logger = logging.getLogger(__name__)


def may_replace(path: str, params: Mapping[str, Any], targets: str) -> bool:
    """Whether ``params`` may replace the model file ``path``.

    Parameters with NaN or infinity must not replace a finite model, because training cannot recover from
    them. A warning then says what was not saved and how to continue. If there is no finite model to lose,
    they are saved, also with a warning.

    targets: the names of the files to write, for the warning.
    """
    bad = _not_finite(params)
    if not bad:
        return True
    found = f"{bad[0]} and {len(bad) - 1} more parameters are" if len(bad) > 1 else f"{bad[0]} is"
    if not _is_finite(path):
        logger.warning(
            "[training] %s not finite; saving %s anyway: there is no finite model to lose", found, targets
        )
        return True
    logger.warning(
        "[training] %s not finite: not saving %s; %s stays as it is. To go on from it, restart this training "
        "with --check-gradient-nan, --clip-norm or a smaller --learn-rate",
        found,
        targets,
        path,
    )
    return False


def _not_finite(params: Mapping[str, Any]) -> list[str]:
    arrays = {name: np.asarray(value) for name, value in params.items()}
    return [
        name
        for name, array in arrays.items()
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all()
    ]


def _is_finite(path: str) -> bool:
    """Whether the file exists, is readable and has only finite numbers."""
    try:
        return os.path.exists(path) and not _not_finite(read_items(path))
    except ModelFileError:
        return False


OPTIMIZER, PROGRESS, CONFIG, DECODER = ".optimizer.npz", ".progress.yml", ".yml", ".decoder.yml"


@dataclass(frozen=True)
class Checkpoint:
    """The state from which training resumes.

    options: of the model; they override the command line, as in Marian. learner: initialized where files are
    missing. state: of the schedule; initialized without ``.progress.yml``.
    """

    options: ModelOptions
    learner: LearnerState
    state: TrainingState


def save_checkpoint(
    path: Path,
    training: TrainOptions,
    options: ModelOptions,
    learner: LearnerState,
    state: TrainingState,
    *,
    final: bool = False,
) -> bool:
    """Write the checkpoint of the model ``path``, an ``.npz`` or ``.bin``, atomically.

    Returns False if it was not written because NaN would replace a finite model, see ``may_replace``. If the
    process is killed at any moment, ``load_checkpoint`` finds either the previous checkpoint or this one.

    Unless ``--overwrite`` or ``final``, the model is also saved as ``model.iterN.npz``, and with
    ``--overwrite-checkpoint false`` so are the other files.

    training: its options, with the paths and sizes of the vocabularies. options: of the model.
    ``ModelFileError`` for another file name extension, ``OSError`` if a file cannot be written.
    """
    name = os.fspath(path)
    # A copy is always an .npz, as in Marian.
    iteration = f"{os.path.splitext(name)[0]}.iter{state.batches}.npz"
    copies = [] if final or training.overwrite else [iteration]
    params = learner.params if learner.average is None else learner.average
    if not may_replace(name, params, " and ".join((*copies, name))):
        return False
    items = Moments(training).items(learner, marian_order(options, learner.params))
    with replacing_set(name) as folder:
        for model in (*copies, name):
            _write_model(folder, model, training, options, params)
            if model == name or not training.overwrite_checkpoint:
                logger.info("[training] Saving optimizer and progress beside %s", model)
                beside = os.path.join(folder, os.path.basename(model))
                _write_text(beside + CONFIG, training_config(training))
                _write_text(beside + PROGRESS, state_text(state))
                write_npz(beside + OPTIMIZER, items)
    return True


def save_best(
    path: Path, training: TrainOptions, options: ModelOptions, params: Mapping[str, Any], kind: str
) -> None:
    """Write the best model so far by a metric, ``model.npz.best-KIND.npz``, and its ``.decoder.yml``
    (``--keep-best``). Atomic; arguments and errors as in ``save_checkpoint``."""
    name = os.fspath(path)
    best = f"{name}.best-{kind}{os.path.splitext(name)[1]}"
    if may_replace(best, params, best):
        _write_alone(best, training, options, params)


def save_for_script(
    path: Path, training: TrainOptions, options: ModelOptions, params: Mapping[str, Any]
) -> None:
    """Write ``model.npz.dev.npz`` and its ``.decoder.yml`` for ``--valid-script-path`` to evaluate. Atomic;
    arguments and errors as in ``save_checkpoint``."""
    name = os.fspath(path)
    _write_alone(f"{name}.dev{os.path.splitext(name)[1]}", training, options, params)


def load_checkpoint(path: Path, training: TrainOptions) -> Checkpoint | None:
    """The checkpoint of the model ``path``, ours or Marian's; None if that file does not exist.

    A set of files that a killed process left is moved into place if it is complete, else removed. A missing
    file causes a warning, and its state is initialized: without an optimizer file, or with
    ``--no-optimizer-reload``, the parameters are those of the model file, with ``--exponential-smoothing``
    the smoothed ones. Moments of another optimizer are ignored, as in Marian.

    training: its model options apply only if the file has none, or with ``--ignore-model-config``.
    ``ModelFileError`` or ``ParameterError`` for files that are damaged or do not match,
    ``TrainingStateError`` for a damaged ``.progress.yml``, ``UnsupportedOptionError`` for an unsupported
    model; all messages name the file.
    """
    name = os.fspath(path)
    settle(name)
    if not os.path.exists(name):
        left = [path for path in (name + OPTIMIZER, name + PROGRESS) if os.path.exists(path)]
        if left:
            logger.warning(
                "%s does not exist: training starts over and replaces %s", name, " and ".join(left)
            )
        return None
    logger.info("Loading model from %s", name)
    own = new_model_options(training, training.dim_vocabs)
    model = load_model(
        name,
        options=replace(own, given=frozenset(own)),
        ignore_config=training.ignore_model_config,
        vocabs=training.vocabs,
    )
    order = marian_order(model.options, model.params)
    params = {parameter: np.asarray(model.params[parameter]) for parameter in order}
    state, moments = _read_progress(name + PROGRESS, training), Moments(training)
    if training.no_optimizer_reload:
        logger.info("--no-optimizer-reload is specified, we are skipping optimizer state restoration")
        return Checkpoint(model.options, moments.fresh(params), state)
    return Checkpoint(model.options, _read_learner(name + OPTIMIZER, params, moments, state), state)


def _write_alone(name: str, training: TrainOptions, options: ModelOptions, params: Mapping[str, Any]) -> None:
    """Write a model from which training is not resumed."""
    with replacing_set(name) as folder:
        _write_model(folder, name, training, options, params)


def _write_model(
    folder: str, name: str, training: TrainOptions, options: ModelOptions, params: Mapping[str, Any]
) -> None:
    plain = options.type in ("amun", "nematus")  # Marian's wording
    what = "model" if plain else "model weights and runtime parameters"
    logger.info("Saving %s to %s", what, name)
    target = os.path.join(folder, os.path.basename(name))
    write_items(target, model_items(options, params))
    _write_text(target + DECODER, decoder_config(training, name))


def _write_text(path: str, text: str) -> None:
    with replacing(path) as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def _read_progress(path: str, training: TrainOptions) -> TrainingState:
    if not os.path.exists(path):
        logger.warning("%s does not exist: the schedule starts from the beginning", path)
        return TrainingState(training.learn_rate, loaded=True)
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        return read_state(stream.read(MAX_CHARACTERS + 1), path)


def _read_learner(path: str, params: Tensors, moments: Moments, state: TrainingState) -> LearnerState:
    if not os.path.exists(path):
        logger.warning("%s does not exist: the parameters are those of the model, moments are new", path)
        return moments.fresh(params)
    learner = moments.state(read_npz(path), params, path, updates=state.batches)
    logger.info("[training] Parameters and moments restored from %s", path)
    return learner
