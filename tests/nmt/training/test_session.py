"""What a training run logs."""

from __future__ import annotations

import errno
import itertools
import logging
import re
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.errors import JaxRuntimeError

from mgraph import DeviceError
from nmt import Trainer
from nmt.search.scoring import Scoring
from nmt.text.corpus import Corpus
from nmt.text.parallel import CorpusError
from nmt.training.checkpoints.checkpoint import load_checkpoint
from nmt.training.checkpoints.state_files import TrainingStateError, read_state
from nmt.training.learning.learner import Learner
from nmt.training.processes import Agreement, Processes, lost_processes
from nmt.training.update import UpdateResult
from tests.helpers.places import DATA
from tests.helpers.small_models import TEXT, small_trainer

CHECKPOINT = DATA / "checkpoint" / "lm-adam"


def log_of(caplog: pytest.LogCaptureFixture, **options: Any) -> list[str]:
    """The lines that a training logs."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "nmt"):
        small_trainer(**options).train()
    return [record.getMessage() for record in caplog.records]


def test_what_was_left_out_is_said_even_if_no_epoch_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = log_of(caplog, model=tmp_path / "m.npz", after_batches=1)
    assert any(
        line.startswith("[data] so far, some read ahead: ")
        and line.endswith(" with more words than --max-length")
        for line in lines
    )


def test_another_seed_does_not_count_when_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"model": tmp_path / "m.npz", "after_batches": 1}
    log_of(caplog, seed=3, **options)
    said = "[training] Resuming with --seed 3, as before; got 4"
    assert said in log_of(caplog, seed=4, **options)
    assert not any("--seed" in line for line in log_of(caplog, **options))


def test_what_is_quantized_or_not_resumed_is_said_as_by_marian(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"model": tmp_path / "m.npz", "quantize_bits": 8, "no_optimizer_reload": True}
    begun = log_of(caplog, after_batches=1, **options)
    resumed = log_of(caplog, after_batches=1, **options)
    quantized = "Quantizing the model to 8-bits"
    anew = "--no-optimizer-reload is specified, we are skipping optimizer state restoration"
    assert quantized in begun and quantized in resumed
    assert anew not in begun and resumed.index(anew) < resumed.index(quantized)


@pytest.mark.parametrize("scaling", [[], ["8.f"]])
@pytest.mark.sampled("scaling0")
def test_float16_needs_a_cost_scale(
    scaling: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"precision": ["float16", "float32"], "cost_scaling": scaling, "after_batches": 1}
    said = "[training] --precision float16 without --cost-scaling: small gradients become 0; --fp16 has both"
    assert (said in log_of(caplog, model=tmp_path / "m.npz", **options)) == (not scaling)


class Cost:
    """The cost of an update, which is done once the cost is read."""

    def __init__(self, cost: Any, device: Device) -> None:
        self._cost, self._device, self.waited = cost, device, False

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self._device.under_way -= not self.waited
        self.waited = True
        return np.asarray(self._cost)


class Device(logging.Handler):
    """Counts the updates that a device was given and that are not waited for.

    trainer, stopping: the trainer that is stopped while the update of this number is started.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.under_way = self.handed = self.stopping = 0
        self.trainer: Trainer | None = None
        self.counts: list[int] = []
        self.said: list[tuple[str, int]] = []
        """Logged lines, each with the number of updates under way."""
        update = Learner.update

        def counted(learner: Learner, *arguments: Any, **named: Any) -> UpdateResult:
            self.handed += 1
            self.under_way += 1
            self.counts.append(self.under_way)
            if self.trainer and self.handed == self.stopping:
                self.trainer.stop()
            result = update(learner, *arguments, **named)
            return result._replace(cost=Cost(result.cost, self))

        monkeypatch.setattr(Learner, "update", counted)

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.getMessage(), self.under_way))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    device, logger = Device(monkeypatch), logging.getLogger("nmt")
    logger.addHandler(device)
    yield device
    logger.removeHandler(device)


def test_two_updates_are_under_way_and_what_is_said_is_done(
    device: Device, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_of(caplog, model=tmp_path / "m.npz", mini_batch=1, after_epochs=3, disp_freq=4, save_freq=5)
    assert device.handed == 9
    assert max(device.counts) == 2
    for told in ("Seen ", "Ep. ", "Saving model", "Training finished", "[data] 3", "Starting data epoch"):
        assert {count for line, count in device.said if line.startswith(told)} == {0}, told


def test_a_training_that_is_stopped_begins_no_update(device: Device, tmp_path: Path) -> None:
    device.trainer, device.stopping = small_trainer(mini_batch=1, model=tmp_path / "m.npz"), 5
    device.trainer.train()
    assert device.handed == 5
    assert max(device.counts) == 2
    state = (tmp_path / "m.npz.progress.yml").read_text()
    assert read_state(state, "m.npz").batches == 5


def test_a_training_that_is_stopped_while_statistics_are_collected_compiles_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = small_trainer(model=tmp_path / "m.npz", mini_batch_fit=True, workspace=64, max_length=30)
    measured = []

    def memory(learner: Learner, *arguments: Any, **named: Any) -> int:
        measured.append(arguments)
        if len(measured) == 2:
            trainer.stop()
        return learner.held + (1 << 20)

    monkeypatch.setattr(Learner, "memory", memory)
    with caplog.at_level(logging.INFO, "nmt"):
        trainer.train()
    assert len(measured) == 2 and trainer.stopped
    assert caplog.messages[-1] == "[batching] Stopped while collecting statistics; nothing is saved"
    assert not (tmp_path / "m.npz").exists()


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[Trainer, int], None]:
    """A function that makes a trainer stop during the validation of a given number."""
    scored = Scoring.scores_and_best
    validations, stops = itertools.count(1), dict[int, Trainer]()

    def scores_and_best(self: Scoring, *given: Any) -> Iterator[Any]:
        trainer = stops.get(next(validations))
        for place, found in enumerate(scored(self, *given)):
            if trainer and place == 2:
                trainer.stop()
            yield found

    monkeypatch.setattr(Scoring, "scores_and_best", scores_and_best)
    return lambda trainer, number: stops.__setitem__(number, trainer)


VALIDATED = {
    "mini_batch": 1,
    "learn_rate": 0.5,
    "valid_sets": [TEXT / "train.german"],
    "valid_freq": "2",
    "valid_metrics": ["perplexity"],
    "lr_decay": 0.5,
    "lr_decay_strategy": "stalled",
    "lr_decay_start": [1],
    "after_batches": 9,
    "save_freq": "3",
}
"""A training whose validations stall."""


@pytest.mark.parametrize("number", [2, 3, 5], ids=["at an update", "when saving, too", "at the end"])
@pytest.mark.sampled("at an update")
def test_a_validation_that_is_stopped_is_made_by_the_run_that_goes_on(
    number: int,
    stopping: Callable[[Trainer, int], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(folder: str, stopped_at: int = 0) -> dict[str, bytes]:
        (tmp_path / folder).mkdir(exist_ok=True)
        trainer = small_trainer(**VALIDATED, model=tmp_path / folder / "m.npz", seed=1)
        if stopped_at:
            stopping(trainer, stopped_at)
        trainer.train()
        assert trainer.stopped == bool(stopped_at)
        names = ("m.npz", "m.npz.optimizer.npz", "m.npz.progress.yml")
        return {name: (tmp_path / folder / name).read_bytes() for name in names}

    with caplog.at_level(logging.INFO, "nmt"):
        parted = run("parted", number)
        assert b"mgraph-validation-due" in parted["m.npz.progress.yml"]
        assert read_state(parted["m.npz.progress.yml"].decode(), "").batches == min(2 * number, 9)
        parted = run("parted")
        assert "stalled" in caplog.text and "Decaying" in caplog.text
    assert parted == run("whole")


def test_a_training_that_is_stopped_before_a_validation_has_it_due(
    device: Device, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "m.npz"
    device.trainer, device.stopping = small_trainer(**VALIDATED, model=model), 4
    device.trainer.train()
    with caplog.at_level(logging.INFO, "nmt"):
        small_trainer(**VALIDATED, model=model).train()
    said = [line.split(" : ")[1] for line in caplog.text.splitlines() if "perplexity" in line]
    assert said == ["Up. 4", "Up. 6", "Up. 8", "Up. 9"]


def test_a_checkpoint_that_cannot_be_written_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def sync_file(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.fsync", sync_file)
    with pytest.raises(OSError, match="full") as raised:
        small_trainer(after_batches=1, model=tmp_path / "m.npz").train()
    assert raised.value.filename == str(tmp_path / "m.npz")
    assert "Saving what was trained" not in caplog.text


@pytest.mark.parametrize("valid_freq", ["4", "3"], ids=["due at the end", "made at the last update"])
def test_a_training_that_is_stopped_with_the_last_epoch_ends_as_if_it_were_not(
    valid_freq: str, device: Device, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "m.npz"
    options = VALIDATED | {"after_batches": 0, "after_epochs": 2, "valid_freq": valid_freq, "model": model}
    device.trainer, device.stopping = small_trainer(**options), 6
    with caplog.at_level(logging.INFO, "nmt"):
        device.trainer.train()
        assert "logical epoch 3" not in caplog.text
        small_trainer(**options).train()
    said = [line.split(" : ")[1] for line in caplog.text.splitlines() if "perplexity" in line]
    assert said == (["Up. 4", "Up. 6"] if valid_freq == "4" else ["Up. 3", "Up. 6"])
    state = read_state((tmp_path / "m.npz.progress.yml").read_text(), "m.npz")
    assert (state.batches, state.epochs) == (6, 3)


def test_a_training_that_is_killed_in_its_last_validation_makes_it_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = VALIDATED | {"after_batches": 3, "model": tmp_path / "m.npz"}
    scored, scorings = Scoring.scores_and_best, itertools.count(1)

    def scores_and_best(self: Scoring, *given: Any) -> Iterator[Any]:
        if next(scorings) == 2:
            raise KeyboardInterrupt
        return scored(self, *given)

    monkeypatch.setattr(Scoring, "scores_and_best", scores_and_best)
    with pytest.raises(KeyboardInterrupt):
        small_trainer(**options).train()
    with caplog.at_level(logging.INFO, "nmt"):
        small_trainer(**options).train()
    assert "Up. 3 : perplexity" in caplog.text


def test_a_validation_that_fails_loses_no_update(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def save_for_script(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full", "m.npz.dev.npz")

    monkeypatch.setattr("nmt.training.session.save_for_script", save_for_script)
    options = VALIDATED | {"valid_freq": "4", "valid_metrics": ["valid-script"], "model": tmp_path / "m.npz"}
    with pytest.raises(OSError, match="full"):
        small_trainer(**options, valid_script_path="true").train()
    state = (tmp_path / "m.npz.progress.yml").read_text()
    assert read_state(state, "m.npz").batches == 4 and "mgraph-validation-due" in state


def test_a_corpus_that_fails_loses_no_update(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin = Corpus.begin_epoch

    def begin_epoch(corpus: Corpus) -> None:
        if corpus.epoch == 1:
            raise CorpusError("gone")
        begin(corpus)

    with monkeypatch.context() as patched:
        patched.setattr(Corpus, "begin_epoch", begin_epoch)
        options = {"mini_batch": 1, "seed": 1, "after_batches": 7}
        with pytest.raises(CorpusError, match="gone"):
            small_trainer(**options, model=tmp_path / "m.npz").train()
    for name in ("m.npz", "whole.npz"):
        small_trainer(**options, model=tmp_path / name).train()
    assert "Saving what was trained before the error" in caplog.text
    assert (tmp_path / "m.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_an_error_before_the_first_update_leaves_no_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise the next command would resume from it and take its options."""

    def begin_epoch(_: Corpus) -> None:
        raise CorpusError("gone")

    monkeypatch.setattr(Corpus, "begin_epoch", begin_epoch)
    with pytest.raises(CorpusError, match="gone"):
        small_trainer(mini_batch=1, after_batches=7, model=tmp_path / "m.npz").train()
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".npz", ".yml")] == []


def test_what_another_process_wants_counts_at_the_next_batch() -> None:
    class Two(Processes):
        """This process and another one that wants something."""

        def __init__(self) -> None:
            self.count = 2

        def gathered(self, row: np.ndarray) -> Any:
            return np.stack([row, np.array(True)])

    agreement = Agreement(Two(), lambda: False)
    agreement.ask()
    assert not agreement()
    agreement.ask()
    assert agreement()


def test_errors_of_networks_are_about_lost_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def met(error: Exception) -> None:
        with lost_processes():
            raise error

    gloo = "UNKNOWN: Gloo all-reduce failed: Read error [127.0.0.1]:62130: Connection reset by peer"
    for kind in (ValueError, JaxRuntimeError):  # JAX raises the first for programs that run immediately
        with pytest.raises(kind, match="Gloo"):
            met(kind(gloo))
    monkeypatch.setattr("jax.process_count", lambda: 2)
    for kind in (ValueError, JaxRuntimeError):
        with pytest.raises(DeviceError, match="has ended or cannot be reached.*reset by peer"):
            met(kind(gloo))
        with pytest.raises(kind, match="another"):
            met(kind("another"))


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a learning rate of 1, parameters are sure to become NaN."""
    update = Learner.update

    def diverged(learner: Learner, *arguments: Any, learn_rate: float, **named: Any) -> UpdateResult:
        return update(learner, *arguments, learn_rate=np.nan if learn_rate == 1 else learn_rate, **named)

    monkeypatch.setattr(Learner, "update", diverged)


def finite(model: Path) -> bool:
    with np.load(model) as items:
        return all(np.isfinite(items[name]).all() for name in items.files)


@pytest.mark.usefixtures("diverging")
def test_a_finite_model_is_not_lost_to_nan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tmp_path / "m.npz"
    options = {"model": model, "mini_batch": 1, "seed": 1, "save_freq": 3, "overwrite": False}
    log_of(caplog, **options, after_batches=3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    lines = log_of(caplog, **options, after_batches=9, learn_rate=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    costs = [line for line in lines if "The cost of update" in line]
    assert [line.partition(";")[0] for line in costs] == ["[scheduler] The cost of update 5 is nan"]
    copies = [f"{tmp_path / f'm.iter{number}.npz'} and " for number in (6, 9)]
    refused = [line.partition(" not finite: not ")[2] for line in lines if " not finite: " in line]
    wanted = [f"saving {copy}{model}; {model} stays as it is." for copy in (*copies, "")]
    assert [line.partition(" To go on")[0] for line in refused] == wanted
    log_of(caplog, **options, after_batches=9)
    assert finite(model)
    assert model.read_bytes() != before["m.npz"]


@pytest.mark.usefixtures("diverging")
def test_where_no_finite_model_is_lost_others_are_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "m.npz"
    log_of(caplog, model=model, mini_batch=1, after_batches=4, learn_rate=1)
    assert "anyway: there is no finite model to lose" in caplog.text
    assert not finite(model)


@pytest.mark.usefixtures("diverging")
def test_a_fallback_goes_on_from_the_finite_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners: list[weakref.ref[Learner]] = []
    first_state = Learner._new_state

    def new_state(learner: Learner, params: Any) -> Any:
        assert all(before() in (None, learner) for before in learners), "two states would be on the device"
        learners.append(weakref.ref(learner))
        return first_state(learner, params)

    options = {"model": tmp_path / "m.npz", "mini_batch": 1, "save_freq": 5}
    log_of(caplog, **options, after_batches=2)
    monkeypatch.setattr(Learner, "_new_state", new_state)
    divergence = {"throw_on_divergence": ["1000"], "custom_fallbacks": [{"learn_rate": 1e-4}]}
    log_of(caplog, **options, after_batches=9, learn_rate=1, **divergence)
    assert "parameters are not finite; resuming from the last checkpoint with --learn-rate" in caplog.text
    assert finite(tmp_path / "m.npz")


@pytest.mark.thorough
def test_a_fallback_may_start_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"model": tmp_path / "m.npz", "mini_batch": 1, "after_batches": 4, "save_freq": 1}
    diverging = {"throw_on_divergence": ["100", "10", "5", "2u"]}
    for fallback, how in (({}, "resuming from the last checkpoint"), ({"no_reload": True}, "starting again")):
        again = [{**fallback, "throw_on_divergence": []}]
        lines = log_of(caplog, **options, no_reload=True, **diverging, custom_fallbacks=again)
        (said,) = (line for line in lines if "; resuming from" in line or "; starting again" in line)
        assert how in said and said.endswith("--throw-on-divergence []")
    # nothing to resume from
    options |= {"model": tmp_path / "n.npz", "save_freq": 100}
    lines = log_of(caplog, **options, **diverging, custom_fallbacks=[{"throw_on_divergence": []}])
    assert any("; starting again with" in line for line in lines)


@pytest.mark.thorough
def test_another_cost_scale_counts_when_training_goes_on(tmp_path: Path) -> None:
    model = tmp_path / "m.npz"

    def scale(after: int, *words: str) -> float:
        trainer = small_trainer(model=model, mini_batch=1, after_batches=after, cost_scaling=words)
        trainer.train()
        found = load_checkpoint(model, trainer.options).learner.cost_scale
        return 0.0 if found is None else found[0]

    assert scale(1, "8", "1", "2") == 16
    progress = Path(f"{model}.progress.yml")
    keys = [line.partition(":")[0] for line in progress.read_text().splitlines()]
    assert scale(2, "8", "1", "2") == 32  # as if it had not been interrupted
    assert [line.partition(":")[0] for line in progress.read_text().splitlines()] == keys  # in this order
    assert scale(3, "1024", "100") == 1024
    assert scale(4) == 0


CHANGED = "The corpus has changed, "


def changed(caplog: pytest.LogCaptureFixture, folder: Path, after: int, **options: Any) -> list[str]:
    """The warnings about a changed corpus."""
    text, model = folder / "text", folder / "m.npz"
    log_of(caplog, **{"model": model, "mini_batch": 1, "train_sets": [text]} | options, after_batches=after)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [line for line in lines if CHANGED in line]


@pytest.mark.thorough
def test_another_text_of_as_many_lines_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text, moved = tmp_path / "text", tmp_path / "moved"
    text.write_text("a b\nc d\ne\n")
    assert not changed(caplog, tmp_path, 1)
    assert not changed(caplog, tmp_path, 2)
    moved.write_bytes(text.read_bytes())
    assert not changed(caplog, tmp_path, 3, train_sets=[moved])
    text.write_text("b b\nc d\ne\n")
    (line,) = changed(caplog, tmp_path, 4)
    assert line.endswith(f"starts a new epoch instead: {text} has other contents than {moved} had")
    text.write_text("b b\nc d\ne e\n")
    (line,) = changed(caplog, tmp_path, 5)
    assert line.endswith(f"{text} has 12 bytes, {text} had 10")
    text.write_text("a b\nc d\ne\n")
    assert not changed(caplog, tmp_path, 6, no_restore_corpus=True)
    assert f"{CHANGED}starting a new epoch of it: {text} has 10 bytes" in caplog.text


def test_an_epoch_begun_with_no_restore_corpus_resumes_as_if_uninterrupted(tmp_path: Path) -> None:
    """Also the pieces that are sampled in it, which depend on its number."""
    text = tmp_path / "text"
    text.write_text("".join(f"haus {word} und {word} {word}\n" for word in "a b c d e f g h i j".split()))
    pieces = {"vocabs": [TEXT / "joint.spm"], "sentencepiece_alphas": (0.1,), "max_length": 50}
    given = {"train_sets": [text], "mini_batch": 1, "seed": 1, **pieces}

    def trained(name: str, *stops: int) -> dict[str, np.ndarray]:
        model = tmp_path / name
        small_trainer(model=model, after_batches=16, **given).train()
        for number, stop in enumerate(stops):
            small_trainer(model=model, after_batches=stop, no_restore_corpus=not number, **given).train()
        found = load_checkpoint(model, small_trainer(model=model, **given).options)
        assert found and (found.state.epochs, found.state.batches_epoch) == (2, stops[-1] - 16)
        return found.learner.params

    whole, parts = trained("whole.npz", 22), trained("parts.npz", 19, 22)
    assert all(np.array_equal(parts[name], value) for name, value in whole.items())


def test_a_training_that_does_not_know_its_corpus_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, progress = tmp_path / "text", tmp_path / "m.npz.progress.yml"
    text.write_text("a b\nc d\ne\n")
    changed(caplog, tmp_path, 1)
    lines = progress.read_text().splitlines()
    progress.write_text("\n".join(line for line in lines if not line.startswith("mgraph-")))
    text.write_text("b b\nc d\ne\n")
    assert not changed(caplog, tmp_path, 2)
    progress.write_text(re.sub("mgraph-corpus: .*", "mgraph-corpus: 5", progress.read_text()))
    with pytest.raises(TrainingStateError, match=r"m\.npz\.progress\.yml: mgraph-corpus: .*, got '5'"):
        changed(caplog, tmp_path, 3)


def test_whose_number_of_ids_vocabularies_are_held_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number in the model that training resumes from, or in an option."""
    owners = []

    class Asked(Exception):
        pass

    def asked(values: Any, *, owner: str) -> None:
        owners.append(owner)
        raise Asked

    monkeypatch.setattr("nmt.training.session.load_or_create_vocabs", asked)
    model = tmp_path / "m.npz"
    for _ in range(2):
        with pytest.raises(Asked):
            options = {"type": "lm", "train_sets": [TEXT / "train.german"], "vocabs": [TEXT / "german.yml"]}
            Trainer(model=model, cpu_threads=1, **options).train()
        shutil.copy(CHECKPOINT / "model.npz", model)
    assert owners == ["--dim-vocabs", str(model)]
