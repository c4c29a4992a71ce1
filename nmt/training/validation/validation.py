"""``Validation``: evaluates the model in training with every metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat

import jax
import numpy as np

from nmt.models import Model
from nmt.search.beam_search import BeamSearch
from nmt.search.results import Printing
from nmt.search.schedule import searches_at_once
from nmt.search.service import TranslationService
from nmt.settings import OptionError, nearest, require_tempdir
from nmt.settings.model_options import ModelOptions
from nmt.settings.training import TrainOptions
from nmt.text.background import Stopped
from nmt.text.output import significant
from nmt.text.vocabs.base import Vocab
from nmt.training.schedule.display import LogicalEpoch
from nmt.training.schedule.state import TrainingState, period
from nmt.training.update import Tensors
from nmt.training.validation.bleu import TEXT_METRICS, TextMetric
from nmt.training.validation.evaluation import Evaluation, ValidationSet, check_sets
from nmt.training.validation.metrics import (
    ACCURACY,
    CROSS_ENTROPIES,
    Accuracy,
    Announcements,
    CrossEntropy,
    Metric,
    OutputName,
    Record,
    Script,
    ScriptMetric,
    TranslationMetric,
    valid_log,
)

SCRIPT = "valid-script"
KINDS = (*CROSS_ENTROPIES, ACCURACY, SCRIPT, "translation", *TEXT_METRICS)


def is_wanted(options: TrainOptions) -> bool:
    """Whether the options ask for validation: ``valid-sets`` or ``valid-script-path``, and a ``valid-freq``
    other than 0."""
    wanted = options.valid_sets or options.valid_script_path
    return bool(wanted and period(options.valid_freq, "--valid-freq").n)


def stalled_on(options: TrainOptions, state: TrainingState, kinds: Sequence[str]) -> int:
    """The number of validations in a row without improvement: of the first metric, or the minimum or the
    maximum over all metrics (``--early-stopping-on``)."""
    stalled = [Record.of(state.validators[kind]).stalled for kind in kinds]
    return {"first": stalled[0], "all": min(stalled), "any": max(stalled)}[options.early_stopping_on]


def check_validation(options: TrainOptions) -> None:
    """Raise the errors of validation that can be found without vocabularies: OptionError for invalid options,
    OSError for an unreadable file."""
    if not is_wanted(options):
        return
    _check_metrics(options)
    if any(kind != SCRIPT for kind in options.valid_metrics):
        check_sets(options.valid_sets, 1 if options.tsv else options.text_streams, options.tsv)


def metrics_of(options: TrainOptions, vocab: Vocab) -> list[Metric]:
    """The metrics of ``--valid-metrics``, in their order.

    vocab: of the target. OptionError for a metric that is unknown, not supported, duplicated or has invalid
    options.
    """
    kinds, epsilons = options.valid_metrics, options.early_stopping_epsilon
    script, output = _check_metrics(options)
    texts = [kind for kind in kinds if kind in ("translation", *TEXT_METRICS)]
    if vocab.eos_id < 0 and texts:
        raise OptionError(
            f"--valid-metrics: {texts[0]} is for translations, and the target is a class (--input-types); "
            f"there are {', '.join((*CROSS_ENTROPIES, ACCURACY))}"
        )
    announcements = Announcements()

    def metric(kind: str, epsilon: float) -> Metric:
        if kind in CROSS_ENTROPIES:
            return CrossEntropy(kind, epsilon)
        if kind == ACCURACY:
            return Accuracy(kind, epsilon)
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
    """Check the metrics and their options; return the script and the output name that they share."""
    kinds = options.valid_metrics
    if not kinds:
        raise OptionError("--valid-metrics: at least one metric is needed, got none")
    if len(set(kinds)) < len(kinds):
        raise OptionError(f"--valid-metrics: each metric may be given once, got {' '.join(kinds)}")
    for kind in kinds:
        if kind not in KINDS:
            known = ", ".join(KINDS)
            raise OptionError(
                f"--valid-metrics: unknown metric {nearest(kind, KINDS, prefix='')} (metrics: {known})"
            )
    path, arguments = options.valid_script_path, options.valid_script_args
    script = Script(path, arguments) if path else None
    if SCRIPT in kinds and script is None:
        raise OptionError(f"--valid-metrics: {SCRIPT} needs --valid-script-path")
    if "translation" in kinds and not options.valid_translation_output:
        require_tempdir(options.tempdir)
    return script, OutputName(options.valid_translation_output)


class Validation:
    """Marian's validators: all metrics of ``--valid-metrics``, in their order.

    vocabs: of the model's sources and its target. data: the validation set; empty if no metric needs it.

    Only the parameters change between runs, so programs are compiled once for each shape.
    """

    def __init__(
        self,
        options: TrainOptions,
        model_options: ModelOptions,
        vocabs: Sequence[Vocab],
        metrics: Sequence[Metric],
        data: ValidationSet,
    ) -> None:
        self.options, self.model_options = options, model_options
        self.vocabs, self.metrics, self.data = tuple(vocabs), tuple(metrics), data
        self.latest: dict[str, float] = {}
        """The values of the last run by kind, float32; metrics without a value are missing."""
        self._epoch = LogicalEpoch(options.logical_epoch)
        self._model: Model | None = None

    @classmethod
    def from_options(
        cls, options: TrainOptions, model_options: ModelOptions, vocabs: Sequence[Vocab]
    ) -> Validation | None:
        """The validation that the options ask for; None unless ``is_wanted``.

        OptionError for an invalid value, and the errors of ``ValidationSet.read``.
        """
        if not is_wanted(options):
            return None
        metrics = metrics_of(options, vocabs[-1])
        data = ValidationSet((), options.valid_mini_batch)
        if any(not isinstance(metric, ScriptMetric) for metric in metrics):
            data = ValidationSet.read(options, vocabs, right_left=model_options.right_left)
        return cls(options, model_options, vocabs, metrics, data)

    def register(self, state: TrainingState) -> None:
        """Give each metric an entry in ``state`` unless it has one; reset entries as the options say."""
        if not state.validator:
            state.validator = self.metrics[0].kind
        if self.options.valid_reset_stalled or self.options.valid_reset_all:
            state.stalled = state.stalled_max = 0
        for metric in self.metrics:
            entry = state.validators.get(metric.kind)
            record = metric.start if entry is None or self.options.valid_reset_all else Record.of(entry)
            if self.options.valid_reset_stalled:
                record = Record(record.best)
            state.validators[metric.kind] = record.entry

    def run(
        self,
        params: Tensors,
        state: TrainingState,
        save_best: Callable[[str], None],
        save_dev: Callable[[], None],
        stopped: Callable[[], bool] = lambda: False,
    ) -> int:
        """Evaluate ``params`` with every metric, log the values, and store them in ``state.validators``.

        params: to validate; the smoothed ones with smoothing.
        save_best: saves them as the best by the given metric; called with ``keep_best`` for each new best
            value, before the value is in ``state``.
        save_dev: saves them as ``<model>.dev.npz``, for ``valid-script``.
        stopped: once it returns True, ``Stopped`` is soon raised, and ``state`` is as before.

        Returns the number of stalled validations, see ``stalled``.
        """
        self.latest, before = {}, dict(state.validators)
        with self._evaluation(params, save_dev, stopped) as evaluation:
            try:
                for metric in self.metrics:
                    self._measure(metric, evaluation, state, save_best)
            except Stopped:
                state.validators = before
                raise
        return self.stalled(state)

    def stalled(self, state: TrainingState) -> int:
        """See ``stalled_on``."""
        return stalled_on(self.options, state, [metric.kind for metric in self.metrics])

    def _measure(
        self,
        metric: Metric,
        evaluation: Evaluation,
        state: TrainingState,
        save_best: Callable[[str], None],
    ) -> None:
        record = Record.of(state.validators[metric.kind])
        measured = metric.measure(evaluation, state)
        value = 0.0
        if measured is not None:
            with np.errstate(over="ignore"):
                self.latest[metric.kind] = value = float(np.float32(measured))
            if self.options.keep_best and metric.improves(record, value):
                save_best(metric.kind)
            record = metric.next_record(record, value)
        self._log(metric.kind, value, record, state)
        state.validators[metric.kind] = record.entry

    @contextmanager
    def _evaluation(
        self, params: Tensors, save_dev: Callable[[], None], stopped: Callable[[], bool]
    ) -> Iterator[Evaluation]:
        """The evaluation of ``params``, which are released afterwards because they may be large."""
        placed = {name: jax.device_put(params[name], jax.local_devices()[0]) for name in sorted(params)}
        options = self.options
        if self._model is None:
            self._model = Model(self.model_options, placed, marian_exact=options.marian_exact)
        model = self._model
        model.params = placed
        search = BeamSearch(
            [model],
            source_vocab=self.vocabs[0],
            target_vocab=self.vocabs[-1],
            options=options,
            n_best=options.n_best,
            searches=searches_at_once(options.cpu_threads),
        )
        printing = Printing(options.n_best, options.word_scores)
        service = TranslationService(search, printing, right_left=self.model_options.right_left)
        try:
            yield Evaluation(
                model,
                service,
                self.data,
                save_dev,
                stopped=stopped,
                quiet=options.quiet_translation,
                accuracy=ACCURACY in options.valid_metrics,
            )
        finally:
            model.params = {}

    def _log(self, kind: str, value: float, record: Record, state: TrainingState) -> None:
        what = "new best"
        if record.stalled:
            what = f"stalled {record.stalled} times (last best: {significant(record.best)})"
        epoch = self._epoch.text(state)
        valid_log.info("Ep. %s : Up. %d : %s : %s : %s", epoch, state.batches, kind, significant(value), what)
