"""Checkpoints: the files that Marian keeps beside a model in training, written and read as one set.

``model.npz`` has the parameters for translation: the smoothed ones with ``--exponential-smoothing``. Beside
it lie ``.optimizer.npz`` (moments, raw parameters), ``.progress.yml`` (schedule, generators), ``.yml`` (all
options) and ``.decoder.yml``. Marian continues from these files, and this from Marian's.
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
from mgraph.files.parameter_files import read_items, write_items
from nmt.files import load_model
from nmt.files.saving import marian_order, model_items
from nmt.settings.model_options import ModelOptions
from nmt.settings.printing import decoder_config, training_config
from nmt.settings.train import new_model_options
from nmt.settings.training import TrainOptions
from nmt.settings.yaml_text import MAX_CHARACTERS
from nmt.training.checkpoints.file_set import replacing_set, settle
from nmt.training.checkpoints.state_files import Moments, read_state, state_text
from nmt.training.schedule.state import TrainingState
from nmt.training.update import LearnerState, Tensors

logger = logging.getLogger(__name__)


def may_replace(path: str, params: Mapping[str, Any], targets: str) -> bool:
    """Whether ``params`` may be saved where the model file ``path`` is.

    They may not if some are NaN or infinite and the file's are all finite: training cannot go on from them,
    for an update with NaN gives NaN. A warning then says what was not saved, and how to go on; it also says
    so where such parameters are saved because there is no finite model to lose.

    targets: the files that they are for, for the warning.
    """
    bad = _not_finite(params)
    if not bad:
        return True
    found = f"{bad[0]} and {len(bad) - 1} more parameters are" if len(bad) > 1 else f"{bad[0]} is"
    if not _is_finite(path):
        logger.warning(
            "[training] %s not finite; there is no finite model in the place of %s", found, targets
        )
        return True
    logger.warning(
        "[training] %s not finite: not saving %s; %s stays as it is. To go on from it, begin this training "
        "again with --check-gradient-nan, --clip-norm or a smaller --learn-rate. Where no finite model is in "
        "the way, others are saved",
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
    """Whether there is a model that can be read, all of whose numbers are finite."""
    try:
        return os.path.exists(path) and not _not_finite(read_items(path))
    except ModelFileError:
        return False


OPTIMIZER, PROGRESS, CONFIG, DECODER = ".optimizer.npz", ".progress.yml", ".yml", ".decoder.yml"

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Checkpoint:
    """Where a training continues.

    options: of the model; they count in place of those of the command line, as in Marian.
    learner: what updates depend on; new where files are missing.
    state: the schedule, new without ``.progress.yml``.
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
    """Write the files of a checkpoint for the model ``path``, an ``.npz`` or ``.bin``; all or nothing.

    Returns whether they are written: not where a finite model would be lost to NaN, see ``may_replace``.

    A process that is killed at any moment leaves the checkpoint before or this one for ``load_checkpoint``.
    Unless ``--overwrite``, or it is the final one, the model is there as ``model.iterN.npz``, too, and with
    ``--overwrite-checkpoint false`` all the files beside it.

    training: its options, with the paths and sizes of the vocabularies. options: of the model.
    ``ModelFileError`` for another ending, ``OSError`` if a file cannot be written.
    """
    name = os.fspath(path)
    copies = [] if final or training.overwrite else [iteration_name(name, state.batches)]
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
    """Write ``model.npz.best-KIND.npz`` and its ``.decoder.yml`` for the model ``path``: the parameters
    that a validator of this kind likes best (``--keep-best``). All or nothing; arguments and errors as in
    ``save_checkpoint``."""
    best = best_name(os.fspath(path), kind)
    if may_replace(best, params, best):
        _write_alone(best, training, options, params)


def save_for_script(
    path: Path, training: TrainOptions, options: ModelOptions, params: Mapping[str, Any]
) -> None:
    """Write ``model.npz.dev.npz`` and its ``.decoder.yml`` for the model ``path``, which the script of
    ``--valid-script-path`` is to measure. All or nothing; arguments and errors as in ``save_checkpoint``."""
    name = os.fspath(path)
    _write_alone(f"{name}.dev{os.path.splitext(name)[1]}", training, options, params)


def load_checkpoint(path: Path, training: TrainOptions) -> Checkpoint | None:
    """The checkpoint of the model ``path``, ours or Marian's; None if that file does not exist.

    A set of files that was written and not yet moved to its place, because the process was killed, is moved
    there; one that was not written to its end is removed. Files that are missing are warned of, and what
    they would say is new: without an optimizer's file, or with ``--no-optimizer-reload``, the parameters are
    those of the model, the smoothed ones with smoothing. Moments of another optimizer are not taken, as in
    Marian.

    training: its options of the model count only where the file has none and with ``--ignore-model-config``.
    ``ModelFileError`` or ``ParameterError`` for files that are damaged or do not fit one another,
    ``TrainingStateError`` for a damaged ``.progress.yml``, ``UnsupportedOptionError`` for a model that cannot
    be read; they name the file.
    """
    name = os.fspath(path)
    settle(name)
    if not os.path.exists(name):
        return None
    logger.info("Loading model from %s", name)
    own = new_model_options(training, training.dim_vocabs)
    model = load_model(
        name, options=replace(own, given=frozenset(own)), ignore_config=training.ignore_model_config
    )
    order = marian_order(model.options, model.params)
    params = {parameter: np.asarray(model.params[parameter]) for parameter in order}
    state, moments = _read_progress(name + PROGRESS, training), Moments(training)
    if training.no_optimizer_reload:
        return Checkpoint(model.options, moments.fresh(params), state)
    return Checkpoint(model.options, _read_learner(name + OPTIMIZER, params, moments, state), state)


def iteration_name(path: str, iteration: int) -> str:
    """The file of the model as it was after so many updates; an ``.npz`` always, as in Marian."""
    return f"{os.path.splitext(path)[0]}.iter{iteration}.npz"


def best_name(path: str, kind: str) -> str:
    """The file of the model that a validator of this kind likes best."""
    return f"{path}.best-{kind}{os.path.splitext(path)[1]}"


def _write_alone(name: str, training: TrainOptions, options: ModelOptions, params: Mapping[str, Any]) -> None:
    """Write a model that no training goes on from."""
    with replacing_set(name) as folder:
        _write_model(folder, name, training, options, params)


def _write_model(
    folder: str, name: str, training: TrainOptions, options: ModelOptions, params: Mapping[str, Any]
) -> None:
    logger.info("Saving model to %s", name)
    target = os.path.join(folder, os.path.basename(name))
    write_items(target, model_items(options, params))
    _write_text(target + DECODER, decoder_config(training, name))


def _write_text(path: str, text: str) -> None:
    with replacing(path) as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def _read_progress(path: str, training: TrainOptions) -> TrainingState:
    if not os.path.exists(path):
        logger.warning("%s does not exist: the schedule begins anew", path)
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
