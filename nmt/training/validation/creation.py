"""The metrics that ``--valid-metrics`` names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

from nmt.settings import OptionError, nearest, require_tempdir
from nmt.settings.checks import text_streams
from nmt.text.vocabs.base import Vocab
from nmt.training.schedule.units import period
from nmt.training.validation import bleu, cross_entropy
from nmt.training.validation.bleu import TextMetric
from nmt.training.validation.cross_entropy import CrossEntropy
from nmt.training.validation.data import check_sets
from nmt.training.validation.log import Announcements
from nmt.training.validation.metric import Metric
from nmt.training.validation.script import Script, ScriptMetric
from nmt.training.validation.translation import OutputName, TranslationMetric

SCRIPT = "valid-script"
KINDS = (*cross_entropy.KINDS, SCRIPT, "translation", *bleu.KINDS)
OTHERS = ("accuracy", "bert-lm-accuracy", "bert-sentence-accuracy", "embedding")
"""Marian's metrics of models that are no translation models."""


def is_wanted(values: Mapping[str, Any]) -> bool:
    """Whether the options of ``marian train`` ask for validation: with ``valid-sets`` or
    ``valid-script-path``, and a ``valid-freq`` that is not 0."""
    wanted = values["valid_sets"] or values["valid_script_path"]
    return bool(wanted and period(values["valid_freq"], "--valid-freq").n)


def check_validation(values: Mapping[str, Any]) -> None:
    """The errors of validation that are known before there is a vocabulary: OptionError for what options
    cannot be, OSError for a file that cannot be read."""
    if not is_wanted(values):
        return
    _check_metrics(values)
    if any(kind != SCRIPT for kind in values["valid_metrics"]):
        check_sets(values["valid_sets"], 1 if values["tsv"] else text_streams(values), values["tsv"])


def metrics_of(values: Mapping[str, Any], vocab: Vocab) -> list[Metric]:
    """The metrics that the options of ``marian train`` ask for, in their order.

    vocab: of the target. OptionError for a metric that is unknown, not supported or named twice, and for
    options of it that do not fit.
    """
    kinds, epsilons = values["valid_metrics"], values["early_stopping_epsilon"]
    script, output = _check_metrics(values)
    announcements = Announcements()

    def metric(kind: str, epsilon: float) -> Metric:
        if kind in cross_entropy.KINDS:
            return CrossEntropy(kind, epsilon)
        if kind == "translation":
            return TranslationMetric(kind, epsilon, script, output, values["tempdir"])
        if kind == SCRIPT and script:
            return ScriptMetric(kind, epsilon, script)
        return TextMetric(
            kind, epsilon, vocab, output, quiet=values["quiet_validation"], announcements=announcements
        )

    each = epsilons if len(epsilons) == len(kinds) else repeat(epsilons[0], len(kinds))
    return [metric(kind, epsilon) for kind, epsilon in zip(kinds, each, strict=True)]


def _check_metrics(values: Mapping[str, Any]) -> tuple[Script | None, OutputName]:
    """The program and the file of translations that metrics share."""
    kinds = values["valid_metrics"]
    if not kinds:
        raise OptionError("--valid-metrics: at least one metric is needed, got none")
    if len(set(kinds)) < len(kinds):
        raise OptionError(f"--valid-metrics: each metric counts once, got {' '.join(kinds)}")
    _require_known(kinds)
    script = None
    if values["valid_script_path"]:
        script = Script(values["valid_script_path"], values["valid_script_args"])
    if SCRIPT in kinds and script is None:
        raise OptionError(f"--valid-metrics: {SCRIPT} needs --valid-script-path")
    if "translation" in kinds and not values["valid_translation_output"]:
        require_tempdir(values["tempdir"])
    return script, OutputName(values["valid_translation_output"])


def _require_known(kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        if kind in OTHERS:
            raise OptionError(f"--valid-metrics: {kind} is not for translation models, and not supported")
        if kind not in KINDS:
            raise OptionError(
                f"--valid-metrics: unknown metric {nearest(kind, KINDS, prefix='')} "
                f"(metrics: {', '.join(KINDS)})"
            )
