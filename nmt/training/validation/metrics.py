"""Validation metrics: their records, cross entropy, scripts, and translations in files."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nmt.runtime.log import VALID
from nmt.settings import OptionError
from nmt.text.background import Stopped
from nmt.training.schedule.state import TrainingState
from nmt.training.validation.evaluation import Evaluation


class _Marked(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"[valid] {msg}", kwargs


valid_log = _Marked(logging.getLogger(VALID), {})


class Announcements:
    """Remembers which lines were logged, so that each is logged once."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def first(self, reason: str) -> bool:
        """Whether ``reason`` comes up for the first time."""
        if reason in self._made:
            return False
        self._made.add(reason)
        return True


WORST = float(np.finfo(np.float32).max)


class Record(NamedTuple):
    """The history of a metric, as ``.progress.yml`` stores it; values are float32."""

    best: float
    """The best value so far."""
    stalled: int = 0
    """Validations since the last sufficient improvement."""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Record:
        """From an entry of ``TrainingState.validators``."""
        return cls(float(np.float32(entry["last-best"])), int(entry["stalled"]))

    @property
    def entry(self) -> dict[str, Any]:
        """An entry of ``TrainingState.validators``."""
        return {"last-best": self.best, "stalled": self.stalled}


class Metric(ABC):
    """A measure of model quality.

    kind: its name in ``--valid-metrics``. epsilon: a smaller improvement does not count for early stopping,
    although the value becomes the best (``--early-stopping-epsilon``); with 0 any improvement counts.
    """

    lower_is_better = False

    def __init__(self, kind: str, epsilon: float = 0.0) -> None:
        self.kind, self.epsilon = kind, np.float32(epsilon)

    @abstractmethod
    def measure(self, evaluation: Evaluation, state: TrainingState) -> float | None:
        """The value; None if there is none, which is neither an improvement nor a stall."""

    @property
    def start(self) -> Record:
        """The record before the first value: anything is better."""
        return Record(WORST if self.lower_is_better else -WORST)

    def improves(self, record: Record, value: float) -> bool:
        """Whether ``value`` is better than the best so far, by any amount."""
        return value < record.best if self.lower_is_better else value > record.best

    def next_record(self, record: Record, value: float) -> Record:
        """The record after ``value``, computed in float32 as in Marian. NaN is not an improvement."""
        if not self.improves(record, value):
            return Record(record.best, record.stalled + 1)
        with np.errstate(over="ignore"):
            gain = np.abs(np.float32(record.best) - np.float32(value))
        return Record(value, record.stalled + 1 if gain < self.epsilon else 0)


CROSS_ENTROPIES = ("cross-entropy", "ce-mean", "ce-mean-words", "ce-sum", "perplexity")


class CrossEntropy(Metric):
    """With ``C`` the sum of ``-ln p`` over all target words, ``</s>`` included, in nats:

    - ``ce-sum``: ``C``;
    - ``cross-entropy`` and ``ce-mean``: ``C`` divided by the number of sentences;
    - ``ce-mean-words``: ``C`` divided by the number of target words;
    - ``perplexity``: ``exp`` of ``ce-mean-words``.

    Without dropout, label smoothing and data weighting. Source: Marian, ``--valid-metrics``.
    """

    lower_is_better = True

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        cost, words, sentences, _ = evaluation.cost
        if self.kind == "ce-sum":
            return cost
        if self.kind == "ce-mean-words":
            return cost / words
        if self.kind == "perplexity":
            with np.errstate(over="ignore"):
                return float(np.exp(np.float64(cost / words)))
        return cost / sentences


ACCURACY = "accuracy"


class Accuracy(Metric):
    """The share of target words, ``</s>`` included, that are the most probable ones given the words before
    them, from 0 to 1; higher is better.

    Source: Marian, ``--valid-metrics accuracy``, which counts the padding of a batch, too; with
    ``--valid-mini-batch 1`` there is none, and the numbers are equal.
    """

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        return evaluation.cost.correct / evaluation.cost.words


_NUMBER = re.compile(rb"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|nan)\b)", re.IGNORECASE)
POLL_SECONDS = 0.2
"""How often to check whether a running program must be stopped."""
TERMINATION_SECONDS = 2.0
"""How long a program may take to exit after SIGTERM."""
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)


@dataclass(frozen=True)
class Script:
    """A program that prints a score.

    command, arguments: ``--valid-script-path`` and ``--valid-script-args``; as in Marian the shell splits and
    expands them. OptionError if ``command`` is a plain name and no such program exists.
    """

    command: str
    arguments: Sequence[str] = ()

    def __post_init__(self) -> None:
        if _PLAIN.fullmatch(self.command) and shutil.which(self.command) is None:
            raise OptionError(f"--valid-script-path: {self.command} is not an executable program")

    def run(self, path: str = "", stopped: Callable[[], bool] = lambda: False) -> float:
        """The number at the start of the program's output; ``path``, if any, is its last argument.

        0 if there is no number, as in Marian; this and a nonzero exit status are logged. Once ``stopped``
        returns True, the program is terminated, and ``Stopped`` is raised.
        """
        line = " ".join([self.command, *self.arguments, *([shlex.quote(path)] if path else [])])
        with subprocess.Popen(
            line, shell=True, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as program:
            output = _output(program, stopped)
        if program.returncode:
            valid_log.warning("%s ended with status %d", line, program.returncode)
        found = _NUMBER.match(output)
        if found is None:
            shown = output[:80].decode("utf-8", "replace").strip()
            valid_log.warning("%s: the output must begin with a number, got '%s'; using 0", line, shown)
            return 0.0
        return float(found[1])


def _output(program: subprocess.Popen[bytes], stopped: Callable[[], bool]) -> bytes:
    """All that a program writes; on any error, and on ``Stopped``, it is terminated together with all that it
    has started, because it is a shell, not the scorer itself."""
    output: bytes | None = None
    try:
        while output is None and not stopped():
            with suppress(subprocess.TimeoutExpired):
                output, _ = program.communicate(timeout=POLL_SECONDS)
        if output is None or stopped():  # a signal to all processes may have ended the program, too
            raise Stopped
        return output
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                program.communicate(timeout=TERMINATION_SECONDS)
            os.killpg(program.pid, signal.SIGKILL)
        raise


class ScriptMetric(Metric):
    """``valid-script``: a program's score of the model; higher is better.

    The model is saved for the program as ``<model>.dev.npz``; no argument names the file.
    """

    def __init__(self, kind: str, epsilon: float, script: Script) -> None:
        super().__init__(kind, epsilon)
        self.script = script

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        evaluation.save_dev()
        return self.script.run(stopped=evaluation.stopped)


@dataclass(frozen=True)
class OutputName:
    """The name of the file for translations (``--valid-translation-output``).

    template: with ``{E}``, ``{B}``, ``{U}`` and ``{T}`` for the number of the epoch, of the batches in it, of
    updates, and of target words; each may have a format, ``{U:08}``. Empty for no file.

    OptionError for other braces, and if the directory does not exist, unless its name has braces.
    """

    template: str

    def __post_init__(self) -> None:
        self.of(TrainingState(eta=0.0))
        folder = os.path.dirname(self.template)
        if folder and "{" not in folder and not os.path.isdir(folder):
            raise OptionError(f"--valid-translation-output: directory {folder} does not exist")

    def of(self, state: TrainingState) -> str:
        """The name for this state."""
        numbers = {
            "E": state.epochs,
            "B": state.batches_epoch,
            "U": state.batches,
            "T": state.labels_total,
        }
        try:
            return self.template.format(**numbers)
        except (KeyError, IndexError, ValueError, AttributeError, TypeError):
            raise OptionError(
                "--valid-translation-output: only {E}, {B}, {U} and {T} are allowed in braces, "
                f"got '{self.template}'"
            ) from None


class TranslationMetric(Metric):
    """``translation``: a program's score of the file of translations; higher is better.

    Without a program the set is still translated, but the metric has no value. folder: for the file if
    ``output`` is empty (``--tempdir``).
    """

    def __init__(
        self, kind: str, epsilon: float, script: Script | None, output: OutputName, folder: str
    ) -> None:
        super().__init__(kind, epsilon)
        self.script, self.output, self.folder = script, output, folder
        if script is None:
            valid_log.warning("No post-processing script given for validating translator")

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float | None:
        if path := self.output.of(state):
            return self._judged(evaluation, path)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix="mgraph.", suffix=".txt") as file:
            return self._judged(evaluation, file.name)

    def _judged(self, evaluation: Evaluation, path: str) -> float | None:
        evaluation.write(path, n_best=True)
        return None if self.script is None else self.script.run(path, evaluation.stopped)
