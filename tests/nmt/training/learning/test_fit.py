"""``--mini-batch-fit``: batches fit into the workspace, and nearly fill it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph import ArgumentError
from nmt.training.learning.fit import MIB, Fit
from tests.helpers.fresh import python


class Planned:
    """Models the memory of programs: for gradients of parameters or for values at all positions, whichever
    needs more."""

    def __init__(self, parameters: int, position: int, pair: int, groups: int = 1) -> None:
        self.parameters, self.position, self.pair, self.groups = parameters, position, pair, groups
        self.asked: list[tuple[int, int]] = []

    def needed(self, rows: int, length: int) -> int:
        own = -(-rows // self.groups)
        return max(
            self.parameters, self.parameters // 2 + own * length * (self.position + self.pair * length)
        )

    def __call__(self, rows: int, length: int) -> int:
        assert (rows, length) not in self.asked, "a program is looked at once"
        self.asked.append((rows, length))
        return self.needed(rows, length)


@given(
    parameters=st.integers(0, 50 * MIB),
    position=st.integers(1 << 10, 1 << 16),
    pair=st.integers(0, 1 << 9),
    workspace=st.integers(100 * MIB, 4000 * MIB),
    groups=st.sampled_from([1, 3, 8]),
    step=st.sampled_from([7, 10, 16]),
)
def test_batches_fit_and_nearly_fill_the_workspace(
    parameters: int, position: int, pair: int, workspace: int, groups: int, step: int
) -> None:
    planned = Planned(parameters, position, pair, groups)
    fit = Fit(planned, workspace, step=step, longest=100, groups=groups)
    assert len(planned.asked) < 20
    for length in range(1, 101):
        rows = fit((length // 2, length))
        assert rows == fit((length, 1)) and rows % groups == 0
        assert planned.needed(rows, length) <= workspace
        assert planned.needed(rows + 9 * groups, max(length, step)) >= 0.75 * workspace
    beyond = fit((300, 1))
    assert groups <= beyond and planned.needed(beyond, 300) <= workspace


def test_one_program_of_each_further_length_is_enough_for_values_at_all_positions() -> None:
    planned = Planned(MIB, 1 << 14, 0)
    Fit(planned, 1000 * MIB, step=10, longest=80)
    rows = {length: rows for rows, length in planned.asked}
    assert [length for _, length in planned.asked][-3:] == [20, 40, 80]
    assert all(900 * MIB < planned.needed(rows[length], length) <= 1000 * MIB for length in (20, 40, 80))


def test_batches_that_are_divided_are_larger() -> None:
    sizes = [
        Fit(Planned(0, 1 << 14, 0), 100 * MIB, step=10, longest=50, multiplier=multiplier)((20, 20))
        for multiplier in (1, 1.5, 2)
    ]
    assert sizes[0] > 8 and sizes[1:] == [1.5 * sizes[0], 2 * sizes[0]]


def test_typical_words_are_those_of_all_lengths_together() -> None:
    fit = Fit(Planned(0, 1 << 14, 0), 100 * MIB, step=10, longest=20)
    assert fit.typical_words == (10 * fit((10,)) + 20 * fit((20,))) // 2


@pytest.mark.parametrize(("length", "longest"), [(10, 10), (40, 40)])
def test_a_sentence_that_does_not_fit_is_an_error(length: int, longest: int) -> None:
    said = rf"2 sentences of {length} words, one for each group of devices, need \d+ MB"
    with pytest.raises(ArgumentError, match=f"^--mini-batch-fit: {said}, more than --workspace 1$"):
        Fit(Planned(0, 110_000 if longest == 10 else 30_000, 1, 2), MIB, step=10, longest=longest, groups=2)


REAL = """
import json
from dataclasses import replace
import numpy as np
from mgraph import Sgd
from nmt.runtime import devices
from nmt.training.learning.objective import LossOptions
from nmt.settings import TrainOptions
from nmt.settings.model_options import ModelOptions
from nmt.files import create_model
from nmt.training.learning.fit import full_batch, fitting
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import Objective
from nmt.training.learning.placement import SharedPlacement
from nmt.training.learning.step import UpdateStep

two = devices.start_all(1, cpu_devices=2)
options = ModelOptions(type="s2s", dim_vocabs=(50, 50), dim_emb=8, dim_rnn=12, dec_cell_base_depth=1)
objective = Objective(create_model(options, seed=1), LossOptions(0.1))
learner = Learner(objective, UpdateStep(Sgd(0.1)), seed=1, placement=SharedPlacement(two))
asked = TrainOptions(mini_batch_fit=True, mini_batch_fit_step=8, workspace=4, max_length=16)
fit = fitting(learner, asked)
found = {}
for length in (8, 16):
    rows = fit((length, length))
    found[length] = rows, learner.memory(full_batch(rows, length, 2)) - learner.held
print(json.dumps(found))
assert fitting(learner, replace(asked, mini_batch_fit=False)) is None
"""


@pytest.mark.slow
def test_compiled_programs_take_no_more_than_the_workspace() -> None:
    found = json.loads(python(REAL))
    (short, small), (long, large) = found["8"], found["16"]
    assert short > 1.5 * long > 15 and short % 2 == long % 2 == 0
    assert all(0.8 * 4 * MIB < needed <= 4 * MIB for needed in (small, large))
