"""``.progress.yml``: written as by Marian byte for byte, read back bit for bit, and errors in other files."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.training.checkpoints.state_files import TrainingStateError, read_state, state_text
from nmt.training.schedule.state import NEVER, Progress, TrainingState, Unit
from tests.helpers import places

DATA = places.DATA / "scheduler"
MARIAN = (DATA / "reload.progress.yml").read_text()
LEAST = "epochs: 2\nbatches: 9\nbatches-epoch: 4\nsamples: 16\neta: 0.5"


def test_marians_file_is_read_and_written_again() -> None:
    state = read_state(MARIAN, "file")
    assert state_text(state) == MARIAN
    assert (state.batches, state.validator, state.loaded) == (11, "cross-entropy", True)
    assert state.validators["cross-entropy"]["stalled"] == 0
    assert (
        np.float32(state.validators["cross-entropy"]["last-best"])
        == state.validators["cross-entropy"]["last-best"]
    )
    assert len(state.seed_corpus.split()) == 625


@given(st.floats(width=32))
def test_real_numbers_keep_their_bits(number: float) -> None:
    state = TrainingState(eta=number, validators={"bleu": {"last-best": number, "stalled": 3}})
    again = read_state(state_text(state), "file")
    for found in (again.eta, again.validators["bleu"]["last-best"]):
        assert struct.pack("f", found) == struct.pack("f", number) or (
            math.isnan(found) and math.isnan(number)
        )


def test_digits_are_as_few_as_may_be() -> None:
    for number, text in [
        (0.1, "0.1"), (1 / 3, "0.33333334"), (1e-4, "0.0001"), (1e-5, "1e-05"), (3e38, "3e+38"),
        (0.0, "0"), (math.inf, ".inf"), (-math.inf, "-.inf"), (math.nan, ".nan"), (16777217.0, "16777216"),
    ]:  # fmt: skip
        assert f"\neta: {text}\n" in state_text(TrainingState(eta=number))


def test_marians_infinities_are_read() -> None:
    """Marian writes them in this form, which it then cannot read."""
    state = read_state(f"{LEAST}\ncost-sum: inf\nloss-var-slow: -inf\nloss-avg-slow: nan", "file")
    assert (state.cost_sum, state.loss_var_slow) == (math.inf, -math.inf)
    assert math.isnan(state.loss_avg_slow)


def test_keys_of_ours_stay() -> None:
    state = TrainingState(eta=0.1, extra={"mgraph-seed": "12", "mgraph-odd": 'a: [b\n"c"', "mgraph-none": ""})
    assert read_state(state_text(state), "file").extra == state.extra


def test_keys_that_older_marians_lack_are_as_new() -> None:
    state = read_state(LEAST, "file")
    assert (state.epochs, state.eta, state.labels_total, state.warmup_start) == (2, 0.5, 0, NEVER)
    assert (state.validators, state.eta_factor, state.reset) == ({}, 1.0, False)
    for none in "~", "", "null":
        assert read_state(f"{LEAST}\nvalidators: {none}", "file").validators == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "model.progress.yml: expected the keys of a training state, got none"),
        ("a: [", "model.progress.yml is not valid YAML: "),
        ("a: " + "[" * 5000, "is not valid YAML: more than 16 nested maps and lists"),
        (LEAST.replace("9", str(2**64)), "batches: expected a whole number, got '18446744073709551616'"),
        (LEAST.replace("batches-epoch", "x"), "expected the key batches-epoch of a training state"),
        (LEAST.replace("9", "-9"), "model.progress.yml: batches: expected a whole number, got '-9'"),
        (LEAST.replace("9", "[1]"), r"batches: expected a whole number, got '\[\"1\"\]'"),
        (LEAST.replace("0.5", "fast"), "eta: expected a number, got 'fast'"),
        (LEAST.replace("0.5", "{}"), "eta: expected a number, got '{}'"),
        (f"{LEAST}\nreset: 1", "reset: expected true or false, got '1'"),
        (f"{LEAST}\nwarmup-start: 3x", "warmup-start: expected a number with u, t or e, got '3x'"),
        (f"{LEAST}\nvalidators: bleu", "validators: expected 'last-best' and 'stalled' of each validator"),
        (f"{LEAST}\nvalidators:\n  bleu:\n    stalled: 3", "validators: expected 'last-best' and 'stalled'"),
        (
            f"{LEAST}\nvalidators:\n  bleu: 3\n  chrf: {{last-best: 1, stalled: 0}}",
            "validators: expected 'last-best' and 'stalled'",
        ),
        (f"{LEAST}\nvalidator: [bleu]", "validator: expected text"),
        (f"{LEAST}\nseed-batch: 1 2", r"model.progress.yml: seed-batch: expected 625 .*, got '1 2'"),
        (f"{LEAST}\nseed-corpus: [1]", "model.progress.yml: seed-corpus: expected 625 numbers of 32 bits"),
    ],
)
def test_errors_name_file_key_and_value(text: str, message: str) -> None:
    with pytest.raises(TrainingStateError, match=message):
        read_state(text, "model.progress.yml")


def test_periods_end_where_a_multiple_is_crossed() -> None:
    state = TrainingState(eta=0.1, batches=10, prev_batches=9, labels_total=120, prev_labels_total=99)
    assert state.entered_new_period_of(Progress(5, Unit.UPDATES))
    assert not state.entered_new_period_of(Progress(4, Unit.UPDATES))
    assert state.entered_new_period_of(Progress(100, Unit.LABELS))
    assert not state.entered_new_period_of(Progress(98, Unit.LABELS))
    assert not state.entered_new_period_of(NEVER)
