"""Translations of the validation set in a file, for a program that judges them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

from nmt.settings import OptionError
from nmt.training.schedule.state import TrainingState
from nmt.training.validation.evaluation import Evaluation
from nmt.training.validation.log import valid_log
from nmt.training.validation.metric import Metric
from nmt.training.validation.script import Script


@dataclass(frozen=True)
class OutputName:
    """The name of the file for translations (``--valid-translation-output``).

    template: with ``{E}``, ``{B}``, ``{U}`` and ``{T}`` for the number of the epoch, of the batches in it, of
    updates, and of target words; each may have a format, ``{U:08}``. Empty for no file.

    OptionError for other braces, and if there is no such directory, unless its name depends on the numbers.
    """

    template: str

    def __post_init__(self) -> None:
        self.of(TrainingState(eta=0.0))
        folder = os.path.dirname(self.template)
        if folder and "{" not in folder and not os.path.isdir(folder):
            raise OptionError(f"--valid-translation-output: there is no directory {folder}")

    def of(self, state: TrainingState) -> str:
        """The name at this point of training."""
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
                "--valid-translation-output: {E}, {B}, {U} and {T} are what may be in braces, "
                f"got '{self.template}'"
            ) from None


class TranslationMetric(Metric):
    """``translation``: what a program prints of the file of translations; higher is better.

    Without a program the set is translated all the same, and there is no value.

    folder: for the file, if ``output`` is empty (``--tempdir``).
    """

    def __init__(
        self, kind: str, epsilon: float, script: Script | None, output: OutputName, folder: str = "/tmp"
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
        return None if self.script is None else self.script.run(path)
