"""The scheduler, driven by the results of Marian's updates, compared with the lines that Marian logged and
the states that it saved (``tests/data/scheduler``); then what only our scheduler does."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mgraph.optimizers.optax_functions import schedules
from nmt.settings import TRAIN, OptionError
from nmt.settings.config import parse
from nmt.settings.training import TrainOptions
from nmt.training.checkpoints.state_files import read_state, state_text
from nmt.training.schedule.display import DisplayRecord
from nmt.training.schedule.divergence import DivergenceError
from nmt.training.schedule.learning_rate import LearningRate
from nmt.training.schedule.optax_schedule import BLOCK
from nmt.training.schedule.scheduler import Scheduler
from nmt.training.schedule.state import Progress, TrainingState, Unit, period, progress
from nmt.training.update import UpdateResult
from tests.helpers import places

DATA = places.DATA / "scheduler"
ROWS = sorted(path.stem for path in DATA.glob("*.txt") if path.stem not in ("german", "english"))
OTHERS = ("Replacing", "Training finished")
"""Marian's lines that are not the scheduler's, or belong to no event."""


def values(words: str = "") -> dict[str, Any]:
    return parse(TRAIN, [*words.split(), *"-t a.de a.en -v a.yml b.yml -m model.npz".split()])


def scheduler(words: str = "", state: TrainingState | None = None, **arguments: Any) -> Scheduler:
    return Scheduler(values(words), state or TrainingState(eta=0.0), **arguments)


def result(
    sentences: int = 2, words: int = 8, batches: int = 1, cost: Any = 16, norm: Any = 1
) -> UpdateResult:
    figures = [jnp.float32(figure) for figure in (cost, words, norm)]
    return UpdateResult(*figures, sentences, words, batches)


def read_events(name: str) -> tuple[str, list[tuple[list[str], list[str], dict[str, str]]]]:
    """The options of a row; for each event its words, the lines that Marian logged, the state it saved."""
    first, *lines = (DATA / f"{name}.txt").read_text().splitlines()
    found: list[tuple[list[str], list[str], dict[str, str]]] = []
    for line in lines:
        if line.startswith("> "):
            found[-1][1].append(line[2:])
        elif line.startswith("= "):
            found[-1][2].update(word.split("=") for word in line[2:].split())
        else:
            found.append((line.split(), [], {}))
    return first.removeprefix("# "), found


def compare(state: TrainingState, saved: dict[str, str]) -> None:
    """Compare with Marian's seven digits of real numbers; logarithms of norms close to 1 are close to 0."""
    for key, text in saved.items():
        found = getattr(state, key.replace("-", "_"))
        if isinstance(found, float):
            least = 1e-7 if key.startswith("log") else 1e-8
            assert found == pytest.approx(float(text), rel=2e-6, abs=least), (key, state.batches)
        else:
            assert str(found).lower() == text, (key, state.batches)


class Replay:
    """Plays Marian's events to our scheduler. Time passes as Marian's lines say."""

    def __init__(self, row: str) -> None:
        options, self.events = read_events(row)
        start = DATA / f"{row}.progress.yml"
        self.state = read_state(start.read_text(), start.name) if start.exists() else TrainingState(eta=0.0)
        self.seconds, self.stalled, self.done = 0.0, 0, False
        self.scheduler = scheduler(
            options, self.state, stalled=lambda _: self.stalled, clock=lambda: self.seconds
        )

    def update(self, figures: list[str], logged: list[str], saved: dict[str, str]) -> None:
        assert self.scheduler.keep_going()
        words = self.state.disp_words + int(figures[1])
        for line in logged:
            if speed := re.search(r"(\S+) words/s", line):
                self.seconds += words / float(speed[1])
        reported = result(*map(int, figures[:3]), *map(np.float32, figures[3:]))
        if not saved:
            with pytest.raises(DivergenceError, match="slow-moving average loss .* exceeded by fast-moving"):
                self.scheduler.update(reported)
            self.done = True
            return
        self.scheduler.update(reported)
        self.scheduler.settle()
        compare(self.state, saved)
        assert self.scheduler.replacing_with_smoothed == any("Replacing" in line for line in logged)
        self.done = not self.scheduler.keep_going()

    def validated(self, stalled: int) -> None:
        before, self.stalled = self.stalled, stalled
        if not self.done:
            assert self.scheduler.validating
            if stalled > before:
                self.scheduler.new_stalled(stalled)


@pytest.mark.parametrize("row", ROWS)
def test_repeats_marian(row: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt.training")
    replay = Replay(row)
    validates = any(words[0] == "stalled" for words, _, _ in replay.events)
    following = [words[0] for words, _, _ in replay.events[1:]] + ["end"]
    for (words, logged, saved), after in zip(replay.events, following, strict=True):
        caplog.clear()
        if words[0] == "update":
            replay.update(words[1:], logged, saved)
            if validates and not replay.done:
                assert replay.scheduler.validating == (after == "stalled")
        elif words[0] == "stalled":
            replay.validated(int(words[1]))
        else:
            replay.scheduler.new_epoch()
        ours = [record.getMessage() for record in caplog.records]
        assert ours == [line for line in logged if not line.startswith(OTHERS)]
    if replay.events[-1][2] or replay.events[-1][0][0] != "update":
        assert not replay.scheduler.keep_going()


class Figure:
    """A number that is still being computed until it is asked for."""

    def __init__(self, value: float) -> None:
        self.value, self.fetched = value, False

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.fetched = True
        return np.array(self.value, np.float32)


def test_costs_are_fetched_late_and_summed_alike() -> None:
    costs = np.random.default_rng(4).uniform(1, 1e5, 65).astype(np.float32)
    late, early = scheduler("--disp-freq 1000"), scheduler("--disp-freq 1000")
    figures = [Figure(cost) for cost in costs]
    for number, (cost, figure) in enumerate(zip(costs, figures, strict=True), 1):
        late.update(result()._replace(cost=figure))
        assert [each.fetched for each in figures[:number]] == [True] * (number - 1) + [False]
        early.update(result(cost=cost))
        early.settle()
    late.settle()
    assert all(figure.fetched for figure in figures)
    assert late.state == early.state
    assert late.state.cost_sum == np.add.accumulate(costs)[-1]
    assert late.state.cost_sum != np.float32(costs.astype(np.float64).sum())


@pytest.mark.parametrize(
    "tell", [Scheduler.new_epoch, lambda scheduler: scheduler.finished(interrupted=True)]
)
def test_what_is_said_is_done(tell: Callable[[Scheduler], None]) -> None:
    training, figures = scheduler("--disp-freq 1000"), [Figure(1.0), Figure(2.0)]
    for figure in figures:
        training.update(result()._replace(cost=figure))
    assert not all(figure.fetched for figure in figures)
    tell(training)
    assert all(figure.fetched for figure in figures)


@pytest.mark.parametrize("option", ["--disp-freq 3", "--save-freq 3", "--valid-freq 20t", "--disp-first 1"])
def test_costs_are_fetched_when_they_are_needed(option: str) -> None:
    training = scheduler(option)
    for _ in range(3):
        figure = Figure(1.0)
        training.update(result()._replace(cost=figure))
    assert figure.fetched == (option != "--disp-first 1")


def test_listeners_get_the_figures() -> None:
    records: list[DisplayRecord] = []
    times = iter((3.0, 10.0, 12.0))
    training = scheduler("--disp-freq 2", on_display=records.append, clock=lambda: next(times))
    training.started()  # time spent before this does not count
    training.update(result(cost=10))
    training.update(result(cost=14))
    assert records[0].figures == pytest.approx(
        {
            "epoch": 1, "sentences": 4, "cost": 1.5, "labels": 16, "batch_labels": 8, "total_labels": 16,
            "seconds": 2, "words_per_second": 8, "gradient_norm": 1, "learn_rate": 1e-4,
        }
    )  # fmt: skip
    assert records[0].update == 2


def test_a_run_goes_on_bit_by_bit_from_its_file() -> None:
    words = "--disp-freq 7 --lr-warmup 9 --lr-decay-inv-sqrt 5 --lr-decay 0.9 --lr-decay-strategy batches"
    words += " --lr-decay-start 4 --lr-decay-freq 3 --lr-decay-repeat-warmup --throw-on-divergence 3 2 900"
    draw = np.random.default_rng(1)
    results = [result(cost=draw.uniform(10, 90), norm=draw.uniform(0.1, 9)) for _ in range(20)]
    whole = scheduler(words)
    for each in results:
        whole.update(each)
    whole.settle()
    for stop in range(1, 20):
        first = scheduler(words)
        for each in results[:stop]:
            first.update(each)
        first.settle()
        second = scheduler(words, read_state(state_text(first.state), "file"))
        assert second.learn_rate == first.learn_rate
        for each in results[stop:]:
            second.update(each)
        second.settle()
        assert second.state == whole.state


def test_costs_that_are_not_finite_do_no_harm() -> None:
    training = scheduler("--disp-freq 1 --throw-on-divergence 1 1 0.1")
    training.update(result(cost=16))
    training.update(result(cost=np.nan, norm=0))
    training.update(result(cost=np.inf, norm=0))
    assert training.state.loss_avg_slow == 2.0
    assert training.state.gradient_norm_avg == 1.0


def test_costs_without_a_variance_do_not_diverge() -> None:
    training = scheduler("--throw-on-divergence 1 10 1")  # the slow average is the last cost
    for cost in (16, 15, 14):
        training.update(result(cost=cost))
    training.settle()
    assert training.state.loss_avg_fast > training.state.loss_avg_slow and training.state.loss_var_slow == 0


@pytest.mark.parametrize(
    ("before", "words", "shown"),
    [(1226.0, 8, "* 1,234 @ 8 after"), (math.inf, 8, "* inf @ 8 after"), (3.0, 0, "* 3 after")],
)
def test_label_counts_of_a_line(
    before: float, words: int, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    training = scheduler("--disp-freq 1", TrainingState(eta=0.0, cost_count=before))
    with caplog.at_level(logging.INFO, "nmt"):
        training.update(result(words=words))
    assert shown in caplog.text


@pytest.mark.parametrize(
    ("words", "expected"),
    [("0", 1.0), ("10", 0.3), ("3u", 1.0), ("2", 1.0), ("96t", 0.5), ("24t", 1.0), ("2e", 0.5)],
)
def test_batches_grow(words: str, expected: float) -> None:
    training = scheduler(f"--mini-batch-warmup {words}")
    for _ in range(3):
        training.update(result())
    assert training.batch_size_multiplier() == pytest.approx(expected)


def test_what_can_be_read_once_is_read_once() -> None:
    arguments = "--tsv -t stdin -v a.yml b.yml -m model.npz".split()
    training = Scheduler(parse(TRAIN, arguments), TrainingState(eta=0.0))
    assert training.keep_going()
    training.new_epoch()
    assert not training.keep_going()


def test_a_stalled_validation_without_decay_resets_no_optimizer() -> None:
    words = "--lr-decay 0.5 --lr-decay-strategy stalled --lr-decay-start 2 --lr-decay-reset-optimizer"
    training = scheduler(f"{words} --learn-rate 1")
    for stalled, rate in enumerate([1, 0.5, 0.5, 0.25], start=1):
        training.new_stalled(stalled)
        assert training.reset_optimizer == (stalled % 2 == 0)
        assert training.learn_rate == rate


def test_an_epoch_without_decay_resets_no_optimizer() -> None:
    words = "--lr-decay 0.5 --lr-decay-strategy epoch --lr-decay-start 3 --lr-decay-reset-optimizer"
    state = TrainingState(eta=1.0, loaded=True)
    training = scheduler(f"{words} --learn-rate 1", state)
    for rate in (1, 0.5, 0.25):
        training.new_epoch()
        assert (training.reset_optimizer, training.learn_rate) == (rate < 1, rate)
        assert not state.loaded


@pytest.mark.parametrize("strategy", ["epoch", "batches", "stalled"])
@pytest.mark.parametrize("decay", ["--lr-decay-start 1", "--lr-decay 0.5 --lr-decay-start 0"])
def test_nothing_decays_by_default_or_with_a_start_of_zero(strategy: str, decay: str) -> None:
    training = scheduler(f"--lr-decay-strategy {strategy} {decay} --lr-decay-freq 1 --learn-rate 1")
    training.update(result())
    training.new_stalled(1)
    training.new_epoch()
    assert training.learn_rate == 1


@pytest.mark.parametrize(
    ("words", "goes_on"), [("-t a b", True), ("--tsv -t a", True), ("--tsv -t stdin", False)]
)
def test_only_a_text_that_is_read_once_ends_with_its_epoch(words: str, goes_on: bool) -> None:
    options = parse(TRAIN, [*words.split(), *"-v a.yml b.yml -m model.npz".split()])
    training = Scheduler(options, TrainingState(eta=0.0))
    training.new_epoch()
    assert training.keep_going() == goes_on


def test_a_line_may_follow_at_once() -> None:
    records: list[DisplayRecord] = []
    training = scheduler("--disp-freq 1", clock=lambda: 0.0, on_display=records.append)
    training.update(result())
    assert records[0].words_per_second == math.inf


@pytest.mark.parametrize("event", [lambda training: training.new_stalled(1), Scheduler.new_epoch])
def test_a_stalled_validation_or_an_epoch_sets_the_rate_again(event: Callable[[Scheduler], None]) -> None:
    """As in Marian, so a warm-up that the last update has begun again counts at once."""
    training = scheduler("--lr-warmup 2 --lr-warmup-cycle --learn-rate 1")
    for _ in range(2):
        training.update(result())
    assert training.learn_rate == 1
    event(training)
    assert training.learn_rate == 0


def test_a_resumed_run_that_has_stalled_ends() -> None:
    state = TrainingState(eta=0.0, loaded=True)
    assert not scheduler("--early-stopping 3", state, stalled=lambda _: 3).keep_going()
    assert scheduler("--early-stopping 3", state, stalled=lambda _: 2).keep_going()
    assert scheduler("--early-stopping 0", state, stalled=lambda _: 99).keep_going()


def test_no_restore_corpus_forgets_the_epoch() -> None:
    state = TrainingState(eta=0.5, samples=9, cost_sum=3.0, disp_words=4, batches=7, loaded=True)
    training = scheduler("--no-restore-corpus", state)
    assert (state.samples, state.cost_sum, state.disp_words, state.batches) == (0, 0.0, 0, 7)
    assert training.learn_rate == 0.5


def test_the_warmup_is_repeated_in_its_own_unit() -> None:
    """Marian records the labels as updates, and aborts."""
    words = "--learn-rate 1 --lr-warmup 32t --lr-decay 0.5 --lr-decay-strategy batches --lr-decay-start 3"
    training = scheduler(f"{words} --lr-decay-freq 100 --lr-decay-repeat-warmup")
    rates = []
    for _ in range(6):
        training.update(result())
        rates.append(training.learn_rate)
    assert rates == [0.25, 0.5, 0.375, 0.125, 0.25, 0.375]
    assert training.state.warmup_start == Progress(24, Unit.LABELS)


@pytest.mark.parametrize(("words", "shown"), [("1e", "1"), ("2e", "0.500"), ("1u", "1.000"), ("1u 1", "1.0")])
def test_whole_passes_have_no_decimals(words: str, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt.training")
    scheduler(f"--disp-freq 1 --logical-epoch {words}").update(result())
    assert caplog.messages[-1].startswith(f"Ep. {shown} : Up. 1 : ")


def test_decimals_of_the_logical_epoch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt.training")
    training = scheduler("--disp-freq 1 --logical-epoch 1Ku")
    training.update(result(sentences=1234567, words=1000000, cost=math.e))
    assert caplog.messages[-1].startswith(
        "Ep. 0.001 : Up. 1 : Sen. 1,234,567 : Cost 0.00000272 * 1,000,000 @ 1,000,000 after 1,000,000 : Time "
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", "1000u"), ("0", "0u"), ("10Ku", "10000u"), ("10ku", "10000u"), ("20Gt", "20000000000t"),
        ("3e", "3e"), ("1.5K", "1500u"), ("1e3", "1000u"), ("1,000t", "1000t"), (".5K", "500u"),
        (" 5", "5u"), ("+5", "5u"), ("0.001M", "1000u"), ("1T", f"{10**12}u"),
    ],
)  # fmt: skip
def test_amounts(text: str, expected: str) -> None:
    assert str(progress(text, "--after")) == expected


@pytest.mark.parametrize(
    "text", ["", "10k", "-1", "0.5", "3x", "1_000", "100TT", "K", "u", "inf", "1e30", str(2**63), "1k,5", "."]
)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(OptionError, match=rf"--after: expected a whole number, .* got '{re.escape(text)}'"):
        progress(text, "--after")


def test_periods_are_not_in_epochs() -> None:
    assert period("3Kt", "--save-freq") == Progress(3000, Unit.LABELS)
    with pytest.raises(OptionError, match="--save-freq: expected updates .* got epochs: '2e'"):
        period("2e", "--save-freq")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--disp-freq 1e", "--disp-freq: expected updates"),
        ("--after 10e,3x", "--after: expected a whole number"),
        ("--lr-warmup x", "--lr-warmup: expected a whole number"),
        ("--lr-warmup 2e --lr-warmup-cycle", "--lr-warmup: expected updates"),
        ("--lr-decay-inv-sqrt 3u 4t", "--lr-decay-inv-sqrt: expected two numbers in one unit, got 3u 4t"),
        ("--lr-decay-inv-sqrt 3 4 5", "--lr-decay-inv-sqrt: expected one or two numbers with units, got 3"),
        ("--logical-epoch 0u", "--logical-epoch: expected an amount above 0, got '0u'"),
        ("--logical-epoch 1e x", "--logical-epoch: expected the number of decimals, at most 99, got 'x'"),
        ("--logical-epoch 1e 9999999999", "--logical-epoch: .* decimals, at most 99, got '9999999999'"),
        ("--logical-epoch 1e 1 2", "--logical-epoch: expected an amount and the number .* got 3 values"),
        ("--throw-on-divergence 3 x", "--throw-on-divergence: expected two numbers .* got 3 x"),
        ("--throw-on-divergence -1 2", "--throw-on-divergence: expected two numbers .* got -1 2"),
        ("--throw-on-divergence 3 -1", "--throw-on-divergence: expected two numbers .* got 3 -1"),
        ("--throw-on-divergence 3 2 5 3e", "--throw-on-divergence: expected updates"),
        ("--mini-batch-warmup x", "--mini-batch-warmup: expected a whole number"),
        ("--mini-batch-track-lr", "--mini-batch-track-lr"),
    ],
)
def test_errors_name_the_option(words: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        scheduler(words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"lr_decay_strategy": "never"},
            "--lr-decay-strategy must be one of epoch, batches, .*; got 'never'",
        ),
        (
            {"lr_decay_strategy": "epoch"},
            "--lr-decay-start: --lr-decay-strategy epoch takes one number, got 2",
        ),
        ({"lr_decay_start": (3,)}, "--lr-decay-start: .* epoch.stalled takes two numbers, got 1"),
    ],
)
def test_decays_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        LearningRate(TrainOptions(learn_rate=0.1, lr_decay=0.5, **arguments))


def test_a_root_from_the_beginning_needs_no_unit() -> None:
    for start in "0", "0t":
        state = TrainingState(eta=0.0, labels_total=300)
        LearningRate(TrainOptions(learn_rate=1.0, lr_decay_inv_sqrt=("100t", start))).set(state)
        assert state.eta == 0.5
    with pytest.raises(OptionError, match="expected one or two numbers with units, got 0"):
        LearningRate(TrainOptions(lr_decay_inv_sqrt=()))


def test_decays_from_the_first_update_on() -> None:
    words = "--lr-decay 0.5 --lr-decay-strategy batches --lr-decay-start 1 --lr-decay-freq 1 --learn-rate 1"
    training = scheduler(words)
    for rate in 0.5, 0.25:
        training.update(result())
        assert training.learn_rate == rate


def test_the_unit_of_a_warmup_under_way_stays() -> None:
    state = TrainingState(eta=0.1, warmup_start=Progress(5, Unit.LABELS))
    with pytest.raises(OptionError, match="--lr-warmup: expected the unit .* began at 5t; got 10u"):
        scheduler("--lr-warmup 10u", state)


# -- schedules of optax

UP: dict[str, Any] = {"init_value": 0, "peak_value": 1, "warmup_steps": 3}
SCHEDULES: dict[str, dict[str, Any]] = {
    "constant_schedule": {"value": 0.25},
    "cosine_decay_schedule": {"init_value": 1, "decay_steps": 5, "alpha": 0.1},
    "cosine_onecycle_schedule": {"transition_steps": 9, "peak_value": 2},
    "exponential_decay": {
        "init_value": 1, "transition_steps": 3, "decay_rate": 0.5, "staircase": True, "end_value": None
    },
    "linear_onecycle_schedule": {"transition_steps": 9, "peak_value": 2},
    "linear_schedule": {"init_value": 0, "end_value": 1, "transition_steps": 4, "transition_begin": 1},
    "piecewise_constant_schedule": {"init_value": 1, "boundaries_and_scales": {3: 0.5, 5: 0.1}},
    "piecewise_interpolate_schedule": {
        "interpolate_type": "cosine", "init_value": 1, "boundaries_and_scales": {3: 0.5, 5: 0.1}
    },
    "polynomial_schedule": {"init_value": 1, "end_value": 0, "power": 2, "transition_steps": 6},
    "sgdr_schedule": {"cosine_kwargs": [{**UP, "decay_steps": 4}, {**UP, "decay_steps": 5}]},
    "warmup_constant_schedule": UP,
    "warmup_cosine_decay_schedule": {**UP, "decay_steps": 8, "end_value": 0.1},
    "warmup_exponential_decay_schedule": {**UP, "transition_steps": 3, "decay_rate": 0.5},
}  # fmt: skip
REFUSED = "join_schedules"  # takes functions


def scheduled(name: str, arguments: dict[str, Any], words: str = "", **more: Any) -> Scheduler:
    params = tuple(f"{argument}={value}" for argument, value in arguments.items())
    options = replace(values(words), lr_schedule=f"optax.{name}", lr_schedule_params=params)
    return Scheduler(options, more.pop("state", TrainingState(eta=0.0)), **more)


@pytest.mark.parametrize("name", sorted(schedules().keys() - {REFUSED}))
def test_rates_of_schedules_of_optax(name: str) -> None:
    training, schedule = scheduled(name, SCHEDULES[name]), schedules()[name](**SCHEDULES[name])
    for update in range(10):
        assert training.learn_rate == pytest.approx(float(schedule(update)), rel=1e-6, abs=1e-6), update
        training.update(result())


def test_a_schedule_goes_on_where_it_was() -> None:
    name, arguments = "cosine_decay_schedule", {"init_value": 0.1, "decay_steps": 3 * BLOCK}
    words = "--lr-decay 0.5 --lr-decay-strategy batches --lr-decay-start 2 --lr-decay-freq 9999999"
    for batches in (0, 1, BLOCK - 2, BLOCK - 1, BLOCK, 2 * BLOCK + 5):
        state = TrainingState(eta=0.0, batches=batches)
        whole = scheduled(name, arguments, words, state=state)
        whole.update(result())
        whole.settle()
        resumed = scheduled(name, arguments, words, state=read_state(state_text(whole.state), "file"))
        assert resumed.learn_rate == whole.learn_rate
        for training in (whole, resumed):
            training.update(result())
            training.settle()
        assert resumed.state == whole.state
        decays = 0.5 if batches < 2 else 1.0
        rate = schedules()[name](**arguments)(batches + 2)
        assert whole.learn_rate == pytest.approx(decays * float(rate), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments", "words", "message"),
    [
        ("linear", {}, "", r"optax has no schedule 'linear'.*\(schedules: constant_schedule, "),
        (REFUSED, {}, "", "--lr-schedule: optax.join_schedules needs the arguments schedules, boundaries"),
        ("constant_schedule", {"rate": 1}, "", r"has no argument 'rate' to set \(arguments: value\)"),
        ("constant_schedule", {"value": ".inf"}, "", "_schedule: value: expected a number, got '.inf'"),
        ("constant_schedule", {"value": "inf"}, "", "constant_schedule gives inf at update 0"),
        (
            "constant_schedule",
            {"value": -1},
            "",
            "of at least 0, optax.constant_schedule gives -1.0 at update 0",
        ),
        (
            "constant_schedule",
            {"value": 1},
            "--lr-warmup 9 --learn-rate 1",
            "optax.constant_schedule gives the learning rate; expected --learn-rate 0.0001, --lr-warmup 0; "
            "--lr-schedule '' for none",
        ),
    ],
)
def test_schedules_that_cannot_be(name: str, arguments: dict[str, Any], words: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        scheduled(name, arguments, words)
