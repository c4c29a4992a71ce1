"""What an update does with a gradient, compared with Marian's formulas written out in numpy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import Adagrad, Adam, Optimizer, Sgd
from nmt.training.learning.objective import Differentiated
from nmt.training.learning.scaling import CostScale, CostScaling, Normalization
from nmt.training.learning.step import (
    DeviceState,
    Quantization,
    Reported,
    Scalars,
    UpdateStep,
    decay_of_update,
)

PARAMS = {"a": np.float32([[1.0, -2.0], [0.5, 3.0]]), "b": np.float32([[0.25, -1.0]])}
GRADIENTS = {"a": np.float32([[3.0, -4.0], [0.0, 1.0]]), "b": np.float32([[-2.0, 0.5]])}
NORM = math.sqrt(sum(float((g**2).sum()) for g in GRADIENTS.values()))
SCALARS = Scalars(rate=0.1, words=5, normalizer=1, decay=0.25, norm_average=0, norm_excess=math.inf)


def start(step: UpdateStep, scale: float | None = None, average: bool = False) -> DeviceState:
    params = {name: jnp.array(value) for name, value in PARAMS.items()}
    return DeviceState(
        params,
        step.optimizer.init(params),
        params if average else None,
        None if scale is None else CostScale(jnp.float32(scale), jnp.int32(0)),
        {name: jnp.zeros_like(p) for name, p in params.items()} if step.quantization else None,
    )


def run(
    step: UpdateStep, state: DeviceState, gradients: dict[str, np.ndarray] = GRADIENTS, **scalars: float
) -> tuple[DeviceState, Reported]:
    found = Differentiated(gradients, np.float32(7), np.float32(5))
    packed = SCALARS._replace(**scalars).packed()
    after: tuple[DeviceState, Reported] = jax.device_get(jax.jit(step)(state, found, packed))
    return after


def with_one(number: float) -> dict[str, np.ndarray]:
    """Gradients in which a number is replaced."""
    return {**GRADIENTS, "b": np.float32([[number, 0.5]])}


def assert_moved(state: DeviceState, factor: float) -> None:
    """Assert that Sgd moved the parameters by the gradients times a factor."""
    expected = {name: value - 0.1 * factor * GRADIENTS[name] for name, value in PARAMS.items()}
    chex.assert_trees_all_close(state.params, expected, rtol=1e-6)


def test_the_norm_is_reported_before_clipping() -> None:
    for limit, factor in ((1.0, 1 / NORM), (10.0, 1.0), (0.0, 1.0)):
        step = UpdateStep(Sgd(0, clip_norm=limit))
        state, reported = run(step, start(step))
        assert float(reported.gradient_norm) == pytest.approx(NORM / 5)
        assert (float(reported.cost), float(reported.labels)) == (7, 5)
        assert_moved(state, factor)


def test_normalized_gradients() -> None:
    words = Normalization(by_words=True)
    step = UpdateStep(Sgd(0), normalize_gradient=True)
    state, reported = run(step, start(step), normalizer=words.count(5))
    assert float(reported.gradient_norm) == pytest.approx(NORM / 5)
    assert_moved(state, 1 / 5)


def test_words_relative_to_their_running_average() -> None:
    ratio = Normalization(by_ratio=True)
    assert ratio.count(100) == pytest.approx(1)
    assert ratio.count(200) == pytest.approx(200 / 110)
    assert ratio.count(50) == pytest.approx(50 / 104)
    both = Normalization(by_words=True, by_ratio=True, average_words=10)
    assert both.count(20) == pytest.approx(400 / 11)


@pytest.mark.parametrize("logs", [False, True])
def test_unusual_gradients_get_the_average_norm(logs: bool) -> None:
    step = UpdateStep(Sgd(0), dynamic="log" if logs else "norm")
    of_word = NORM / 5
    shape = math.log if logs else float
    for average, excess, factor in (
        (0.5 * of_word, 0.4, 0.5),
        (0.5 * of_word, 10.0, 1.0),
        (0.9 * of_word, math.inf, 1.0),
    ):
        state, _ = run(step, start(step), norm_average=shape(average), norm_excess=excess)
        assert_moved(state, factor)
    for bad in (np.nan, np.inf):
        state, reported = run(step, start(step), with_one(bad))
        assert float(reported.gradient_norm) == 0
        assert_moved(state, 0)


def test_the_limit_of_the_norm_begins_after_the_window_and_fades_out() -> None:
    limits = Normalization(deviations=2, window=10, fadeout=20)
    assert limits.limit(10, 3.0, 0.25) == (3.0, math.inf)
    assert limits.limit(11, 3.0, 0.25) == (3.0, 1.0)
    assert limits.limit(31, 3.0, 0.25) == (3.0, 1.5)
    assert Normalization(deviations=2, window=1).limit(50, 3.0, 0.25) == (3.0, 1.0)
    # The average itself is a limit, too.
    assert Normalization(deviations=0, window=1).limit(50, 3.0, 0.25) == (3.0, 0.0)
    assert Normalization(window=1).limit(50, 3.0, 0.25) == (3.0, math.inf)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("optimizer", [Adam(0), Adagrad(0)])
def test_checked_gradients_that_are_not_finite_change_nothing(optimizer: Optimizer, bad: float) -> None:
    step = UpdateStep(optimizer, check_gradient=True)
    before = start(step, average=True)
    state, reported = run(step, before, with_one(bad))
    jax.tree.map(np.testing.assert_array_equal, state, before)
    assert float(reported.gradient_norm) == 0
    after, _ = run(step, before)
    assert int(after.optimizer.steps) == 1


def test_unchecked_gradients_go_where_they_lead() -> None:
    step = UpdateStep(Sgd(0, clip_norm=1.0))
    state, reported = run(step, start(step), with_one(np.nan))
    assert np.isnan(reported.gradient_norm)
    np.testing.assert_array_equal(np.isnan(state.params["b"]), [[True, False]])


def test_scaled_costs() -> None:
    step = UpdateStep(Sgd(0), cost_scaling=CostScaling(8, frequency=2, multiplier=4, minimum=2))
    scaled = {name: 8 * g for name, g in GRADIENTS.items()}
    state, reported = run(step, start(step, 8), scaled)
    assert float(reported.gradient_norm) == pytest.approx(NORM / 5)
    assert_moved(state, 1)
    assert tuple(map(float, state.scale or ())) == (8, 1)
    state, _ = run(step, state, scaled)
    assert tuple(map(float, state.scale or ())) == (32, 0)
    state, reported = run(step, start(step, 8), with_one(np.nan))
    assert (*map(float, state.scale or ()), float(reported.gradient_norm)) == (2, 0, 0)
    assert_moved(state, 0)


def test_a_factor_may_stay_for_more_updates_than_int32_can_count() -> None:
    scaling = CostScaling(8, frequency=10**10)
    assert tuple(map(float, scaling.after(scaling.start(), True))) == (8, 1)


def test_at_the_least_factor_what_overflows_is_cut() -> None:
    scaling = CostScaling(2, minimum=2)
    step = UpdateStep(Sgd(0), cost_scaling=scaling, largest=100.0)
    state, _ = run(step, start(step, 2), with_one(np.nan))
    np.testing.assert_allclose(state.params["b"], PARAMS["b"] - 0.1 * np.float32([[0, 0.25]]))
    state, _ = run(step, start(step, 2), with_one(-np.inf))
    np.testing.assert_allclose(state.params["b"], PARAMS["b"] - 0.1 * np.float32([[-50, 0.25]]), rtol=1e-6)
    strict = replace(step, check_gradient=True)
    state, _ = run(strict, start(strict, 2), with_one(-np.inf))
    assert_moved(state, 0)


def test_averages_and_frozen_parameters() -> None:
    step = UpdateStep(Sgd(0), frozen=frozenset({"b"}))
    state, _ = run(step, start(step, average=True))
    average = state.average or {}
    np.testing.assert_allclose(average["a"], 0.75 * PARAMS["a"] + 0.25 * state.params["a"], rtol=1e-6)
    np.testing.assert_array_equal(average["b"], PARAMS["b"])
    np.testing.assert_array_equal(state.params["b"], PARAMS["b"])


def test_the_share_of_new_parameters_in_the_average() -> None:
    assert decay_of_update(1e-4, 1, 50) == pytest.approx(0.9)
    assert decay_of_update(1e-4, 11, 50) == pytest.approx(1 - 11 / 20)
    assert decay_of_update(1e-4, 10**6, 50) == pytest.approx(1e-4, rel=1e-3)
    assert decay_of_update(0.1, 10**6, 300, 100) == pytest.approx(1 - 0.9**3, rel=1e-6)
    assert decay_of_update(0.1, 11, 200, 100) == pytest.approx(1 - 21 / 30)
    assert decay_of_update(0.1, 11, 50, 100) == decay_of_update(0.1, 11, 50)


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.98, 0.999, 0.9999999])
def test_adam_corrects_its_first_moments_to_the_last_digit(beta: float) -> None:
    gradient = np.float32([3.7, -1e-4, 250.0])
    ascent = Adam(0, beta1=beta, beta2=beta, eps=0).transformation(-1)
    state = ascent.init({"p": jnp.zeros(3)})
    for _ in range(3):
        moves, state = ascent.update({"p": gradient}, state, {"p": jnp.zeros(3)})
        np.testing.assert_allclose(moves["p"], np.sign(gradient), rtol=1e-6)


# -- rounding


def nearest(x: np.ndarray, scale: float, values: list[float]) -> np.ndarray:
    choices = scale * np.array(values)
    return choices[np.abs(x[..., None] - choices).argmin(-1)]


def test_parameters_of_few_bits() -> None:
    x = np.random.default_rng(2).standard_normal((9, 7)).astype(np.float32)
    scale = np.abs(x).max()
    found = np.asarray(Quantization(4).rounded(x))
    np.testing.assert_allclose(found, nearest(x, scale, [k / 7 for k in range(-7, 8)]), rtol=1e-6)
    powers = [sign * 2.0**-k for k in range(8) for sign in (1, -1)]
    logs = np.asarray(Quantization(4, logarithmic=True).rounded(x))
    np.testing.assert_allclose(logs, nearest(x, scale, powers), rtol=1e-5)
    better = np.asarray(Quantization(3, steps=5).rounded(x))
    assert np.square(better - x).sum() < np.square(np.asarray(Quantization(3).rounded(x)) - x).sum()
    assert len(np.unique(np.abs(better))) <= 4


def test_rows_and_zeros_are_left_alone() -> None:
    row = np.float32([[0.3, -0.8, 1.0]])
    np.testing.assert_array_equal(Quantization(2).rounded(row), row)
    np.testing.assert_array_equal(Quantization(2, biases=True).rounded(row), [[0, -1, 1]])
    for logarithmic in (False, True):
        zeros = np.zeros((2, 3), np.float32)
        np.testing.assert_array_equal(Quantization(3, logarithmic, 2).rounded(zeros), zeros)


def test_what_rounding_takes_off_is_added_before_the_next() -> None:
    step = UpdateStep(Sgd(0), quantization=Quantization(3))
    state, _ = run(step, start(step))
    exact: Any = PARAMS["a"] - 0.1 * GRADIENTS["a"]
    errors = state.errors or {}
    np.testing.assert_allclose(state.params["a"] + errors["a"], exact, rtol=1e-6)
    assert np.abs(errors["a"]).max() > 0.01 and not errors["b"].any()
    again, _ = run(step, state)
    following = exact - 0.1 * GRADIENTS["a"]
    np.testing.assert_allclose(again.params["a"] + (again.errors or {})["a"], following, rtol=1e-6)
