"""The metrics that ``--valid-metrics`` names."""

from __future__ import annotations

from itertools import repeat

from nmt.settings import OptionError, nearest, require_tempdir
from nmt.settings.training import TrainOptions
from nmt.text.vocabs.base import Vocab
from nmt.training.schedule.units import period
from nmt.training.validation.bleu import TEXT_METRICS, TextMetric
from nmt.training.validation.cross_entropy import CROSS_ENTROPIES, CrossEntropy
from nmt.training.validation.data import check_sets
from nmt.training.validation.log import Announcements
from nmt.training.validation.metric import Metric
from nmt.training.validation.script import Script, ScriptMetric
from nmt.training.validation.translation import OutputName, TranslationMetric

SCRIPT = "valid-script"
KINDS = (*CROSS_ENTROPIES, SCRIPT, "translation", *TEXT_METRICS)
OTHERS = ("accuracy", "bert-lm-accuracy", "bert-sentence-accuracy", "embedding")
"""Marian's metrics of models that are no translation models."""


def is_wanted(options: TrainOptions) -> bool:
    """Whether the options of ``marian train`` ask for validation: with ``valid-sets`` or
    ``valid-script-path``, and a ``valid-freq`` that is not 0."""
    wanted = options.valid_sets or options.valid_script_path
    return bool(wanted and period(options.valid_freq, "--valid-freq").n)


def check_validation(options: TrainOptions) -> None:
    """The errors of validation that are known before there is a vocabulary: OptionError for what options
    cannot be, OSError for a file that cannot be read."""
    if not is_wanted(options):
        return
    _check_metrics(options)
    if any(kind != SCRIPT for kind in options.valid_metrics):
        check_sets(options.valid_sets, 1 if options.tsv else options.text_streams, options.tsv)


def metrics_of(options: TrainOptions, vocab: Vocab) -> list[Metric]:
    """The metrics that the options of ``marian train`` ask for, in their order.

    vocab: of the target. OptionError for a metric that is unknown, not supported or named twice, and for
    options of it that do not fit.
    """
    kinds, epsilons = options.valid_metrics, options.early_stopping_epsilon
    script, output = _check_metrics(options)
    announcements = Announcements()

    def metric(kind: str, epsilon: float) -> Metric:
        if kind in CROSS_ENTROPIES:
            return CrossEntropy(kind, epsilon)
        if kind == "translation":
            return TranslationMetric(kind, epsilon, script, output, options.tempdir)
        if kind == SCRIPT and script:
            return ScriptMetric(kind, epsilon, script)
        return TextMetric(
            kind, epsilon, vocab, output, quiet=options.quiet_validation, announcements=announcements
        )

    each = epsilons if len(epsilons) == len(kinds) else repeat(epsilons[0], len(kinds))
    return [metric(kind, epsilon) for kind, epsilon in zip(kinds, each, strict=True)]


def _check_metrics(options: TrainOptions) -> tuple[Script | None, OutputName]:
    """The program and the file of translations that metrics share."""
    kinds = options.valid_metrics
    if not kinds:
        raise OptionError("--valid-metrics: at least one metric is needed, got none")
    if len(set(kinds)) < len(kinds):
        raise OptionError(f"--valid-metrics: each metric counts once, got {' '.join(kinds)}")
    _require_known(kinds)
    script = None
    if options.valid_script_path:
        script = Script(options.valid_script_path, options.valid_script_args)
    if SCRIPT in kinds and script is None:
        raise OptionError(f"--valid-metrics: {SCRIPT} needs --valid-script-path")
    if "translation" in kinds and not options.valid_translation_output:
        require_tempdir(options.tempdir)
    return script, OutputName(options.valid_translation_output)


def _require_known(kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        if kind in OTHERS:
            raise OptionError(f"--valid-metrics: {kind} is not for translation models, and not supported")
        if kind not in KINDS:
            raise OptionError(
                f"--valid-metrics: unknown metric {nearest(kind, KINDS, prefix='')} "
                f"(metrics: {', '.join(KINDS)})"
            )
