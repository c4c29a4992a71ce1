"""``mgraph distill``: train a small student on the translations of a teacher, down to files in 8 bits."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from nmt.commands.common import greet
from nmt.commands.train import TERMINATED
from nmt.runtime.log import logging_as
from nmt.runtime.signals import on_signals
from nmt.settings import Command
from nmt.settings.distillation import DistillOptions

COMMAND = Command(
    "distill",
    "train a small student on the translations of a teacher, down to files in 8 bits",
    DistillOptions,
    examples=(
        (
            "mgraph distill -m model.npz -v vocab.spm vocab.spm -i text.en --valid-sets dev.en dev.de",
            "from one teacher; run it again to continue after an interruption",
        ),
        (
            "mgraph distill -m a.npz b.npz -v v.spm v.spm -i text.en -r text.de --choose chrf --beam-size 8 "
            "--valid-sets dev.en dev.de",
            "from an ensemble, with the translations nearest to known ones",
        ),
        (
            "mgraph distill -m opus-mt-de-en -i text.de --valid-sets dev.de dev.en",
            "from the folder of a published model",
        ),
        (
            "mgraph distill -i text.de --translations text.en --valid-sets dev.de dev.en",
            "from translations of any other system",
        ),
    ),
)


def run(options: DistillOptions, argv: Sequence[str]) -> int | None:
    """Run the stages that are not done; the exit code is 143 after SIGTERM."""
    from nmt.distillation.distillation import Distillation
    from nmt.distillation.stages import StoppedError

    with logging_as(options):
        greet(COMMAND, argv, options)
        job = Distillation(options)
        try:
            with on_signals(job.stop, signal.SIGTERM):
                print(job.run(), end="")
        except StoppedError:
            return TERMINATED
    return None
