"""Training in 16 bits: costs follow those of float32, unless a part of the recipe is missing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nmt.files import create_model
from nmt.models import Model
from nmt.settings import TRAIN
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import Batch, pad
from nmt.training.learning.batch_arrays import specs_of
from nmt.training.learning.learner import Learner
from nmt.training.learning.settings import objective_of, step_of
from nmt.training.learning.step import DeviceState, UpdateStep

UPDATES = 30
MODEL = ModelOptions(
    type="lm-transformer",
    dim_vocabs=(20,),
    dim_emb=16,
    dec_depth=1,
    transformer_heads=2,
    transformer_dim_ffn=32,
    tied_embeddings=True,
)
OPTIONS = TRAIN.from_python(
    {
        "train_sets": ("source", "target"),
        "optimizer_params": (0.9, 0.999, 1e-9),
        "label_smoothing": 0.1,
        "transformer_dropout": 0.1,
        "clip_norm": 0.0,
    }
)
RATE = 3e-4
DRAWS = np.zeros(4, np.uint32)
SCALED = {"cost_scaling": ("256", "1000", "2", "1")}
FOLLOWING = {"bfloat16": 0.003, "float16": 0.0006}
"""How far costs may be from those of float32, relative to them."""


class NarrowMasters(UpdateStep):
    """Keeps parameters in bfloat16."""

    def __call__(self, state: DeviceState, *given: Any) -> Any:
        after, reported = super().__call__(state, *given)
        rounded = {name: p.astype(jnp.bfloat16).astype(p.dtype) for name, p in after.params.items()}
        return after._replace(params=rounded), reported


@cache
def model() -> Model:
    return create_model(MODEL, seed=3)


@cache
def batches() -> list[Batch]:
    """Three batches of eight sentences."""
    dice = np.random.default_rng(0)
    return [
        pad([[dice.integers(2, 20, length).tolist() for length in range(2, 10)]], (8, 10), target=True)
        for _ in range(3)
    ]


def costs(precision: str, kind: type[UpdateStep] = UpdateStep, **options: Any) -> np.ndarray:
    """The cost per word of each update, with the three batches in turn."""
    given = replace(OPTIONS, precision=(precision, "float32"), **options)
    objective = objective_of(model(), given)
    step = step_of(given, objective)
    learner = Learner(objective, kind(**vars(step)), seed=1)
    found = []
    for number in range(UPDATES):
        result = learner.update([batches()[number % 3]], learn_rate=RATE, number=number + 1)
        found.append(float(result.cost) / result.words)
    return np.array(found)


@cache
def float32() -> np.ndarray:
    return costs("float32")


def off(found: np.ndarray) -> float:
    """The largest relative difference from float32."""
    return float(np.abs(found / float32() - 1).max())


@pytest.mark.parametrize("precision", FOLLOWING)
@pytest.mark.sampled("float16")
def test_costs_follow_those_of_float32(precision: str) -> None:
    assert float32()[27] < 0.97 * float32()[0]  # the first batch's costs
    assert off(costs(precision, **SCALED)) < FOLLOWING[precision]


def test_parameters_need_32_bits() -> None:
    assert off(costs("bfloat16", NarrowMasters, **SCALED)) > 5 * FOLLOWING["bfloat16"]


def test_small_gradients_vanish_in_float16() -> None:
    """A cost scale that makes gradients small stands in for small costs."""
    small = str(2.0**-24)
    assert off(costs("float16", cost_scaling=(small, "1000", "2", small))) > 5 * FOLLOWING["float16"]


@pytest.mark.parametrize("precision", FOLLOWING)
def test_what_is_kept_and_added_up_has_32_bits(precision: str) -> None:
    given = replace(OPTIONS, precision=(precision, "float32"), exponential_smoothing=0.1)
    learner = Learner.from_options(model(), given, seed=1)
    gradient = learner.objective.differentiated(specs_of(learner.objective.arrays(batches()[0])))
    state = learner.state()
    summed = jax.eval_shape(gradient, model().params, learner.objective.arrays(batches()[0]), DRAWS, 1.0)
    kept = jax.tree.leaves((state.params, state.moments, state.average, summed))
    assert len(kept) > 5 * len(model().params) and {array.dtype.name for array in kept} == {"float32"}
