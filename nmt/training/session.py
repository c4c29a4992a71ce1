"""A training run, from the options to the last checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from mgraph.device import platform_of
from nmt.settings.model_options import ModelOptions
from nmt.settings.training import Extras, TrainOptions
from nmt.text.background import Stopped
from nmt.text.corpus import Corpus
from nmt.text.lines import Fingerprint, changes, from_text, to_text
from nmt.text.parallel import CorpusError, ParallelTextError
from nmt.text.sharing.reading import Share
from nmt.text.vocabs.agreement import check_agreement, check_shared
from nmt.text.vocabs.base import ASKED, Vocab
from nmt.training.checkpoints.checkpoint import (
    Checkpoint,
    load_checkpoint,
    save_best,
    save_checkpoint,
    save_for_script,
)
from nmt.training.checkpoints.state_files import TrainingStateError
from nmt.training.compile_ahead import CompileAhead
from nmt.training.in_common import in_common
from nmt.training.learning.fit import fitting
from nmt.training.learning.learner import Learner
from nmt.training.learning.placement import ONE_DEVICE, Placement
from nmt.training.processes import Agreement, Processes
from nmt.training.reports import Reports
from nmt.training.schedule.divergence import DivergenceError
from nmt.training.schedule.scheduler import Scheduler
from nmt.training.schedule.state import TrainingState, Unit, progress
from nmt.training.setup import load_or_create_vocabs, new_model, reloaded_model, with_model_options
from nmt.training.update import Group, Grouping
from nmt.training.validation.validation import Validation, stalled_on

logger = logging.getLogger(__name__)

N = TypeVar("N", int, float)

SEED, TYPICAL_WORDS, EXACT = "mgraph-seed", "mgraph-typical-words", "mgraph-marian-exact"
COST_SCALING = "mgraph-cost-scaling"
CORPUS, VOCABS, DUE = "mgraph-corpus", "mgraph-vocabs", "mgraph-validation-due"
"""Our own keys in ``.progress.yml``, without which training could not resume bit for bit."""
VALIDATORS = ("validator", "validators", "stalled", "stalled_max")
"""The fields of the state that registering the validators changes before training."""
COMPILED_AT_ONCE = 2
"""How many programs are compiled ahead at the same time; XLA keeps about 1.4 cores busy with one."""


class Session:
    """Training with one set of options, new or resumed.

    stopped: called for each batch; whether to end, as after SIGTERM. placement: the devices that share
    updates. Each of several processes has its own session; the first writes all files.

    Raises Stopped when told to end while ``--mini-batch-fit`` still compiles its programs.
    """

    def __init__(
        self,
        options: TrainOptions,
        stopped: Callable[[], bool],
        placement: Placement = ONE_DEVICE,
    ) -> None:
        self._processes = Processes()
        self._stopped = Agreement(self._processes, stopped)
        found, options, vocabs = self._found(options)
        self.state = found.state if found else TrainingState(options.learn_rate)
        self.options = options = self._settled(options)
        self.learner, self.model_options = self._new_learner(found, vocabs, placement)
        self.validation = self._registered_validation(vocabs)
        """Set in the first process, if its options ask for validation; the other processes follow it."""
        self._validates = self._share_validators()
        self.scheduler = Scheduler(options, self.state, stalled=self._stalled if self._validates else None)
        sizes = fitting(self.learner, options, self._processes.least, self._agreed_to_stop)
        self._begun = self.state.batches
        """Updates before this run."""
        self.grouping = Grouping(options, self.scheduler.batch_size_multiplier, begun=self._begun > 0)
        self._ahead = self._compile_ahead()
        self.corpus = Corpus(
            options,
            vocabs,
            seed=self.seed,
            sizes=sizes,
            layout=self.learner.layout(self.grouping.parts),
            program=self.learner.program,
            share=self._share(),
            announce=self._ahead.announce if self._ahead else None,
            stopped=self._stopped,
        )
        self._remember_files()
        typical = _number(self.state, TYPICAL_WORDS, self.grouping.typical_words, options.model)
        self.grouping.typical_words = typical
        self.saved = False
        """Whether a checkpoint has been written."""

    def _found(self, options: TrainOptions) -> tuple[Checkpoint | None, TrainOptions, Sequence[Vocab]]:
        """The checkpoint, the options with those of its model and with the vocabularies, and the vocabularies
        themselves; equal in all processes, as far as ``in_common`` compares them."""
        with self._processes.in_turn():
            found = None if options.no_reload else load_checkpoint(options.model, options)
            if found:
                options = with_model_options(options, found.options, options.model)
            owner = options.model if found else ASKED
            vocabs, paths, dims = load_or_create_vocabs(options, owner=owner)
        options = replace(options, vocabs=paths, dim_vocabs=dims)
        updates = found.state.batches if found else None
        self._processes.require_same(partial(in_common, options, updates))
        return found, options, vocabs

    def _settled(self, options: TrainOptions) -> TrainOptions:
        """The options, with those settings that a resumed run keeps; sets the seed."""
        seed = self._processes.shared(options.seed or time.time_ns() % 2**31)
        self.seed = _number(self.state, SEED, int(seed), options.model)
        if options.seed not in (0, self.seed):
            logger.warning("[training] Resuming with --seed %d, as before; got %d", self.seed, options.seed)
        return replace(options, marian_exact=self._is_exact(options.marian_exact))

    def _new_learner(
        self, found: Checkpoint | None, vocabs: Sequence[Vocab], placement: Placement
    ) -> tuple[Learner, ModelOptions]:
        """The learner of a new or resumed model, and the model's options."""
        options = self.options
        model = reloaded_model(found, options) if found else new_model(options, options.dim_vocabs, self.seed)
        before = options.model if found else options.pretrained_model
        if before:
            check_agreement(before, vocabs, model.options)
        else:
            check_shared(options.model, vocabs, model.options)
        learner = Learner.from_options(model, options, seed=self.seed, placement=placement)
        if "float16" in options.precision and not options.cost_scaling:
            hint = "small gradients become 0; --fp16 has both"
            logger.warning("[training] --precision float16 without --cost-scaling: %s", hint)
        if options.quantize_bits:
            logger.info("Quantizing the model to %d-bits", options.quantize_bits)
        kept = self._keeps_cost_scale(options.cost_scaling)
        if found:
            learner.restore(found.learner if kept else replace(found.learner, cost_scale=None))
        return learner, model.options

    def _registered_validation(self, vocabs: Sequence[Vocab]) -> Validation | None:
        """The validation, in the first process only, with its metrics registered in the state."""
        validation: Validation | None = None
        with self._processes.in_turn():
            if self._processes.is_first:
                validation = Validation.from_options(self.options, self.model_options, vocabs)
                if validation:
                    validation.register(self.state)
        return validation

    def _share_validators(self) -> bool:
        """Give all processes the validators of the first; returns whether the first validates."""
        known = {name: getattr(self.state, name) for name in VALIDATORS} if self.validation else None
        first = self._processes.shared(known)
        for name, value in (first or {}).items():
            setattr(self.state, name, value)
        return first is not None

    def _compile_ahead(self) -> CompileAhead | None:
        """Compiles for batches that are read ahead. None on GPUs, which measure kernels while they compile,
        if batches are gathered first, and in several processes, which make batches only when needed."""
        if self.grouping.grows or self._processes.count > 1 or platform_of(None) != "cpu":
            return None
        return CompileAhead(lambda batch: self.learner.prepare(self.grouping.split(batch)), COMPILED_AT_ONCE)

    def _agreed_to_stop(self) -> bool:
        """Whether any process was asked to stop; all call this at the same point, and wait for each other."""
        self._stopped.wait(lambda: True)
        return self._stopped()

    def _share(self) -> Share | None:
        """The share of this process in reading the corpus."""
        processes = self._processes
        if processes.count == 1:
            return None
        return Share(processes.index, processes.count, processes.exchanged)

    def _is_exact(self, asked: bool) -> bool:
        """Whether to use Marian's own gradients: if asked to, or if the resumed run did."""
        before = self.state.extra.setdefault(EXACT, str(asked).lower()) == "true"
        if before and not asked:
            logger.info("[training] Resuming with --marian-exact, as before")
        if asked and not before:
            logger.warning("[training] Using --marian-exact from now on; earlier updates did not")
            self.state.extra[EXACT] = "true"
        return asked or before

    def _keeps_cost_scale(self, words: tuple[str, ...]) -> bool:
        """Whether to keep the factor of the last run: unless ``--cost-scaling`` has changed since."""
        asked = " ".join(words)
        before = self.state.extra.get(COST_SCALING, asked)
        if asked:
            self.state.extra[COST_SCALING] = asked
        else:
            self.state.extra.pop(COST_SCALING, None)
        if before != asked:
            logger.info("[training] Resuming with --cost-scaling %s; it was %s", asked or "[]", before)
        return before == asked

    def _remember_files(self) -> None:
        """Store the fingerprints of corpus and vocabularies, and warn of changes since the last run."""
        for line in self._changed(VOCABS, self.options.vocabs):
            logger.warning("[training] WRONG VOCABULARY? It has changed since the last run: %s", line)
        level, how = logging.WARNING, "resuming within it; --no-restore-corpus starts a new epoch instead"
        if self.options.no_restore_corpus:
            level, how = logging.INFO, "starting a new epoch of it"
        for line in self._changed(CORPUS, self.corpus.paths):
            logger.log(level, "[training] The corpus has changed, %s: %s", how, line)

    def _changed(self, key: str, paths: Sequence[str]) -> list[str]:
        """What has changed in files since the last run; their fingerprints are stored under ``key``."""
        now, noted = [Fingerprint.of(path) for path in paths], self.state.extra.get(key)
        self.state.extra[key] = to_text(now)
        try:
            return changes(now if noted is None else from_text(noted), now)
        except ValueError:
            where = f"{self.options.model}.progress.yml: {key}"
            raise TrainingStateError(f"{where}: expected a list of files, got {noted!r:.80}") from None

    def run(self) -> None:
        """Train until a stopping criterion is met or a stop is requested, then save."""
        ahead = closing(self._ahead) if self._ahead else nullcontext()
        with ahead, closing(self.corpus), self._reports() as reports, self._saved_in_need():
            self.scheduler.on_display = lambda record: reports.add(
                "train", self.state.batches, record.figures
            )
            self.scheduler.started()
            restored = self._restore_corpus()
            if self.state.extra.pop(DUE, None):
                self._validate(reports)
            while self._going():
                if not restored:
                    self.corpus.begin_epoch()
                    self._note_seeds()
                restored = False
                self._epoch(reports)
                if self._going():
                    self._end_epoch()
                else:
                    self.corpus.close()  # so that the report no longer changes
                    self._report_corpus("so far, some read ahead: ")
            self.scheduler.finished(interrupted=self._stopped())
            if not self.state.loaded and self._lacks_last_validation():
                self._validate(reports)
            if not self.state.loaded or self.state.validated:
                self._save(final=True)
        self._stopped.wait(lambda: True)  # a process that ends while the first one saves would kill it

    def _lacks_last_validation(self) -> bool:
        """Whether training is over, and its last update has not been validated."""
        if self.state.validated or self.scheduler.keep_going():
            return False
        # If this run has only ended an epoch, the last run validated its last update if that was due.
        return self.state.batches > self._begun or not self.scheduler.validating

    @contextmanager
    def _saved_in_need(self) -> Iterator[None]:
        """Save what has been trained if, after an update, files of the corpus or of the validation fail in
        the block. Not with several processes: each fails alone, so they could not save together."""
        try:
            yield
        except (OSError, CorpusError, ParallelTextError) as error:
            own = isinstance(error, OSError) and error.filename == self.options.model
            trained = self.state.batches > self._begun
            if trained and not own and self._processes.count == 1 and not self.state.loaded:
                logger.warning("[training] Saving what was trained before the error that ends training")
                with suppress(OSError):
                    self._save(final=True)
            raise

    @property
    def stopped(self) -> bool:
        """Whether this process or another was asked to stop."""
        return self._stopped()

    def _going(self) -> bool:
        return not self._stopped() and self.scheduler.keep_going()

    def _restore_corpus(self) -> bool:
        """Restore the last run's position in the corpus; False to start an epoch instead."""
        state = self.state
        if self.options.no_restore_corpus:
            self.corpus.epoch = state.epochs - 1  # the new epoch has this number when training resumes
            return False
        if not (state.seed_corpus or state.batches_epoch or state.epochs > 1):
            return False
        logger.info("[data] Restoring the corpus state to epoch %d, batch %d", state.epochs, state.batches)
        self.corpus.restore(state.seed_batch, state.seed_corpus, state.batches_epoch, epoch=state.epochs)
        return True

    def _note_seeds(self) -> None:
        """Store the states of the generators, from which the epoch that begins can be repeated."""
        self.state.seed_batch, self.state.seed_corpus = self.corpus.seed_batch, self.corpus.seed_corpus

    def _epoch(self, reports: Reports) -> None:
        """Run the remaining updates of the epoch."""
        self.grouping.begin_epoch()
        self._stopped.wait(lambda: self.corpus.ready)  # shuffling may take a long time
        for batch in self.corpus:
            self._stopped.ask()
            if not self._going():
                break
            group = self.grouping.add(batch)
            if group is None:
                continue
            self._update(group)
            reports.updated(self.state.batches)
            self._reset_optimizer()
            # Marian saves first, so its checkpoint lacks the effects of these steps.
            if self.scheduler.validating and self.scheduler.keep_going():
                self._validate(reports)
            if self.scheduler.replacing_with_smoothed:
                self.learner.replace_with_smoothed()
            if self.scheduler.saving:
                if self._validates and self._lacks_last_validation():
                    self.state.extra[DUE] = "true"  # should the run be killed before or in it
                self._save()

    def _update(self, group: Group) -> None:
        result = self.learner.update(
            group.batches,
            learn_rate=self.scheduler.learn_rate,
            number=self.state.batches + 1,
            gradient_norms=self._gradient_norms(),
        )
        self.scheduler.update(result._replace(batches=group.taken))

    def _gradient_norms(self) -> tuple[float, float]:
        """The average and variance of the gradient norms or of their logarithms, whichever the learner needs;
        zeros if it needs neither."""
        kind, state = self.learner.needs_gradient_norms, self.state
        if not kind:
            return 0.0, 0.0
        self.scheduler.settle()
        if kind == "log":
            return state.log_gradient_norm_avg, state.log_gradient_norm_var
        return state.gradient_norm_avg, state.gradient_norm_var

    def _report_corpus(self, when: str = "") -> None:
        self.scheduler.settle()
        for line in self.corpus.report().lines():
            logger.info("[data] %s%s", when, line)

    def _end_epoch(self) -> None:
        self._report_corpus()
        self.corpus.end_epoch()
        self._note_seeds()
        self.scheduler.new_epoch()
        self._reset_optimizer()

    def _reset_optimizer(self) -> None:
        if self.scheduler.reset_optimizer:
            self.learner.reset_optimizer()

    def _validate(self, reports: Reports) -> None:
        """Validate; if a stop is requested before the end, leave the validation to the resumed run."""
        if not self._validates:
            return
        self.scheduler.settle()
        before = self._stalled(self.state)
        self.state.extra[DUE] = "true"  # until the validation has ended
        found = self._processes.shared(None if self._stopped() else self._validators(reports))
        if found is None:
            self._stopped.agree()
            return
        del self.state.extra[DUE]
        self.state.validators.update(found)
        stalled = self._stalled(self.state)
        if stalled > before:
            self.scheduler.new_stalled(stalled)
            self._reset_optimizer()
        self.state.validated = True

    def _stalled(self, state: TrainingState) -> int:
        return stalled_on(self.options, state, self.options.valid_metrics)

    def _validators(self, reports: Reports) -> dict[str, Any] | None:
        """The validators' records after a validation by the first process; None if it was stopped."""
        params = self.learner.params(smoothed=True)
        with self._processes.in_turn(self._stopped.wanted) as stopped:
            if validation := self.validation:
                paths = self.options.model, self.options, self.model_options, params
                saving = partial(save_best, *paths), partial(save_for_script, *paths)
                try:
                    validation.run(params, self.state, *saving, stopped=stopped)
                except Stopped:
                    logger.info("[valid] Validation stopped; it starts over when training resumes")
                    return None
                reports.add("valid", self.state.batches, validation.latest)
        return self.state.validators

    def _save(self, *, final: bool = False) -> None:
        self.scheduler.settle()
        self.state.extra[TYPICAL_WORDS] = repr(self.grouping.typical_words)
        learner, path, written = self.learner.state(), self.options.model, False
        with self._processes.in_turn():
            if self._processes.is_first:
                written = save_checkpoint(
                    path, self.options, self.model_options, learner, self.state, final=final
                )
        written = self._processes.shared(written)
        self.saved |= written
        if not written and self.options.throw_on_divergence:
            raise DivergenceError("Detected training divergence: parameters are not finite")

    def _reports(self) -> Reports:
        after = progress(self.options.after.partition(",")[0], "--after")
        total = self.options.after_batches or (after.n if after.unit is Unit.UPDATES else 0)
        asked = self.options if self._processes.is_first else Extras()  # the others do not report
        return Reports(asked, total or None, self.state.batches)


def _number(state: TrainingState, key: str, default: N, model: str) -> N:
    """The value of our own key in ``.progress.yml``, initialized with the default."""
    text = state.extra.setdefault(key, repr(default))
    try:
        return type(default)(text)
    except ValueError:
        raise TrainingStateError(f"{model}.progress.yml: {key}: expected a number, got {text!r}") from None
