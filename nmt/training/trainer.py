"""Training of translation models, as ``mgraph train`` does it."""

from __future__ import annotations

import gc
import logging
import os
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from nmt.runtime import compilation_cache, devices
from nmt.runtime.launchers import Launch, launched
from nmt.settings import TRAIN, TrainOptions
from nmt.settings.config import log_notices, takes
from nmt.settings.option import shown
from nmt.settings.train import after_divergence

if TYPE_CHECKING:
    from nmt.settings.keywords import TrainKeywords
    from nmt.training.learning.placement import Placement

logger = logging.getLogger(__name__)


class Trainer:
    """Trains a model as Marian does: the same options, costs and files.

    given: the options of ``mgraph train`` in snake_case with Marian's defaults, for example
    ``model="model.npz", type="transformer", train_sets=["train.de", "train.en"],
    vocabs=["vocab.spm", "vocab.spm"], after="10e"``; sequences may be lists or tuples. Aliases such as
    ``task="transformer-base"`` set several options. The fields of ``nmt.settings.TrainOptions`` list all
    options with types; an object of that class may be passed first, and the named options override it.
    Options of the command line only, such as ``quiet``, are refused with what to do instead: set up
    ``logging.getLogger("nmt")`` in place of the log options, pass the options of a file in place of
    ``config``.

    If the model exists, training resumes from its last checkpoint, bit for bit as if it had never been
    interrupted, on the same machine with the same jaxlib and number of threads.

    Raises OptionError for an invalid value, TypeError for an option that is unknown or of the command line
    only, ModelFileError and other subclasses of MGraphError for invalid files, OSError for missing ones.
    """

    @takes(TRAIN)
    def __init__(self, options: TrainOptions | None = None, /, **given: Unpack[TrainKeywords]) -> None:
        if options is None:
            options = TRAIN.from_python(given)
            log_notices(TRAIN, options)
        elif not isinstance(options, TrainOptions):
            raise TypeError(
                f"expected options by name, as Trainer(model='model.npz', ...), or TrainOptions first, "
                f"got {options!r:.80}"
            )
        else:
            options = TRAIN.changed(options, given)
        self.options = options
        self._stopped = False

    def __repr__(self) -> str:
        return f"Trainer({self.options.model!r}, {self.options.type})"

    def train(self) -> None:
        """Train until a stopping criterion is met or ``stop`` is called, then save the model.

        Options and files are validated before anything is created or started. ``ModelLockedError`` if another
        process trains this model, ``DeviceError`` if a device or another process is missing,
        ``DivergenceError`` if training diverges (``throw_on_divergence``, ``check_nan``) and none of
        ``custom_fallbacks`` is left.
        """
        from nmt.training.checkpoints.lock import training_lock
        from nmt.training.setup import check_training

        options = self.options
        launch = launched(options.num_processes, options.process_id)
        check_training(options, first=not launch.index)
        with nullcontext() if launch.index else training_lock(options.model):  # the first process writes
            try:
                self._start(launch)
            finally:
                devices.release_freed_memory()

    def _start(self, launch: Launch) -> None:
        """Start the devices, and train on them."""
        options = self.options
        compilation_cache.use(options.compilation_cache)
        if not devices.join_processes(launch, options.coordinator, lambda: self._stopped):
            return
        used = devices.start_all(
            options.cpu_threads, options.devices, options.cpu_devices, launch.local_index
        )
        from nmt.training.learning.placement import placement_on

        parts = options.tensor_parallel
        self._train(options, placement_on(used, shard_state=options.shard_state, tensor_parallel=parts))

    def _train(self, options: TrainOptions, placement: Placement) -> None:
        """Train; after divergence resume from the last checkpoint with the options of the next fallback."""
        fallbacks = list(options.custom_fallbacks)
        while (diverged := self._session(options, placement, forgives=bool(fallbacks))) is not None:
            error, saved = diverged
            fallback = fallbacks.pop(0)
            named = ((name.replace("_", "-"), shown(value) or "[]") for name, value in fallback.items())
            anew = fallback.get("no_reload") or (options.no_reload and not saved)
            there = not anew and os.path.exists(options.model)
            how = "resuming from the last checkpoint" if there else "starting again"
            said = ", ".join(f"--{name} {value}" for name, value in named)
            logger.warning("%s; %s with %s", error, how, said)
            options = replace(after_divergence(self.options, fallback), no_reload=anew)
            gc.collect()  # frees the session that diverged, and its parameters: it refers to itself

    def _session(
        self, options: TrainOptions, placement: Placement, *, forgives: bool
    ) -> tuple[str, bool] | None:
        """Train to the end and return None; or, with ``forgives``, until divergence, and return what is wrong
        and whether a checkpoint has been written."""
        from nmt.text.background import Stopped
        from nmt.training.processes import lost_processes
        from nmt.training.schedule.divergence import DivergenceError
        from nmt.training.session import Session

        with lost_processes():
            try:
                session = Session(options, lambda: self._stopped, placement)
            except Stopped:  # before the first update of this run
                logger.info("[batching] Stopped while collecting statistics; nothing is saved")
                self._stopped = True
                return None
            try:
                session.run()
            except DivergenceError as error:
                if not forgives:
                    raise
                return str(error), session.saved
        self._stopped |= session.stopped
        return None

    def stop(self) -> None:
        """Make ``train`` end after the current update, in the middle of a validation, or between two programs
        of ``mini_batch_fit``; safe in signal handlers and other threads. Another ``Trainer`` can resume; it
        first repeats that validation."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called, here or in a process that trains together with this one."""
        return self._stopped
