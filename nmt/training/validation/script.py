"""Scores that a program of the user's computes (``--valid-script-path``)."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.settings import OptionError
from nmt.training.schedule.state import TrainingState
from nmt.training.validation.evaluation import Evaluation
from nmt.training.validation.log import valid_log
from nmt.training.validation.metric import Metric

_NUMBER = re.compile(rb"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|nan)\b)", re.IGNORECASE)
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)


@dataclass(frozen=True)
class Script:
    """A program that prints a score.

    command, arguments: ``--valid-script-path`` and ``--valid-script-args``. As in Marian they are words of a
    line for the shell, which divides and expands them.

    OptionError if ``command`` is the name of one file, and there is no such program.
    """

    command: str
    arguments: Sequence[str] = ()

    def __post_init__(self) -> None:
        if _PLAIN.fullmatch(self.command) and shutil.which(self.command) is None:
            raise OptionError(f"--valid-script-path: there is no program {self.command} that can be run")

    def run(self, path: str = "") -> float:
        """The number at the start of the program's output; ``path``, if any, is its last argument.

        0 if there is no number, as in Marian; that is logged, and so is an exit status other than 0.
        """
        line = " ".join([self.command, *self.arguments, *([shlex.quote(path)] if path else [])])
        done = subprocess.run(line, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            valid_log.warning("%s ended with status %d", line, done.returncode)
        found = _NUMBER.match(done.stdout)
        if found is None:
            shown = done.stdout[:80].decode("utf-8", "replace").strip()
            valid_log.warning("%s: the output is to begin with a number, got '%s'; taken as 0", line, shown)
            return 0.0
        return float(found[1])


class ScriptMetric(Metric):
    """``valid-script``: what a program makes of the model; higher is better.

    The program gets no argument that names the model: it is saved for it as ``<model>.dev.npz``.
    """

    def __init__(self, kind: str, epsilon: float, script: Script) -> None:
        super().__init__(kind, epsilon)
        self.script = script

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        evaluation.save_dev()
        return self.script.run()
