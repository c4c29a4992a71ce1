"""``mgraph train``: train a model, as marian does."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace

from mgraph import compile_stats
from nmt.commands.common import greet, report_programs
from nmt.runtime.launchers import launched
from nmt.runtime.log import logging_as
from nmt.runtime.signals import on_signals
from nmt.settings import TRAIN, TrainOptions

COMMAND = TRAIN
TERMINATED = 143  # a shell's exit code for a program ended by SIGTERM


def run(options: TrainOptions, argv: Sequence[str]) -> int | None:
    """Train a new model or resume one; the exit code is 143 after SIGTERM, as with marian."""
    # Only the first of several processes logs.
    index = launched(options.num_processes, options.process_id).index
    heard = replace(options, quiet=True, log="", valid_log="") if index else options
    with logging_as(heard, heard.valid_log):
        greet(TRAIN, argv, options)
        from nmt.training.trainer import Trainer

        trainer, programs = Trainer(options), compile_stats()
        heeded = (signal.SIGTERM,) if options.sigterm == "save-and-exit" else ()
        with on_signals(trainer.stop, *heeded):
            trainer.train()
        report_programs(programs)
    return TERMINATED if trainer.stopped else None
