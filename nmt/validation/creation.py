"""The metrics that ``--valid-metrics`` names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

from nmt.options import OptionError, nearest
from nmt.validation import bleu, cross_entropy
from nmt.validation.bleu import TextMetric
from nmt.validation.cross_entropy import CrossEntropy
from nmt.validation.log import Announcements
from nmt.validation.metric import Metric
from nmt.validation.script import Script, ScriptMetric
from nmt.validation.translation import OutputName, TranslationMetric
from nmt.vocab import Vocab

KINDS = (*cross_entropy.KINDS, "valid-script", "translation", *bleu.KINDS)
OTHERS = ("accuracy", "bert-lm-accuracy", "bert-sentence-accuracy", "embedding")
"""Marian's metrics of models that are no translation models."""


def metrics_of(values: Mapping[str, Any], vocab: Vocab) -> list[Metric]:
    """The metrics that the options of ``marian train`` ask for, in their order.

    vocab: of the target. OptionError for a metric that is unknown, not supported or named twice, and for
    options of it that do not fit.
    """
    kinds, epsilons = values["valid_metrics"], values["early_stopping_epsilon"]
    if not kinds:
        raise OptionError("--valid-metrics: at least one metric is needed, got none")
    if len(set(kinds)) < len(kinds):
        raise OptionError(f"--valid-metrics: each metric counts once, got {' '.join(kinds)}")
    _require_known(kinds)
    script = None
    if values["valid_script_path"]:
        script = Script(values["valid_script_path"], values["valid_script_args"])
    output = OutputName(values["valid_translation_output"])
    announcements = Announcements()

    def metric(kind: str, epsilon: float) -> Metric:
        if kind in cross_entropy.KINDS:
            return CrossEntropy(kind, epsilon)
        if kind == "translation":
            return TranslationMetric(kind, epsilon, script, output, values["tempdir"])
        if kind == "valid-script":
            if script is None:
                raise OptionError("--valid-metrics: valid-script needs --valid-script-path")
            return ScriptMetric(kind, epsilon, script)
        return TextMetric(
            kind, epsilon, vocab, output, quiet=values["quiet_validation"], announcements=announcements
        )

    each = epsilons if len(epsilons) == len(kinds) else repeat(epsilons[0], len(kinds))
    return [metric(kind, epsilon) for kind, epsilon in zip(kinds, each, strict=True)]


def _require_known(kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        if kind in OTHERS:
            raise OptionError(f"--valid-metrics: {kind} is not for translation models, and not supported")
        if kind not in KINDS:
            raise OptionError(
                f"--valid-metrics: unknown metric {nearest(kind, KINDS, prefix='')} "
                f"(metrics: {', '.join(KINDS)})"
            )
