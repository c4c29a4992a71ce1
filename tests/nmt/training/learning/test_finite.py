"""``--check-nan``: training stops at a cost or gradient that is not finite and says where it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from nmt.files import create_model
from nmt.models import Model
from nmt.settings import TRAIN
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import pad
from nmt.training.learning.finite import FiniteCheck
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import Differentiated
from nmt.training.schedule.divergence import DivergenceError

OPTIONS = ModelOptions(
    type="lm-transformer", dim_vocabs=(11,), dim_emb=4, transformer_heads=2, transformer_dim_ffn=6
)
VALUES = TRAIN.from_python({"train_sets": ("a", "b"), "check_nan": True, "transformer_dropout": 0.1})
BATCH = pad([[[5, 6, 7, 0], [2, 0]]], target=True)


def learner_of(values: dict[str, Any], **options: Any) -> Learner:
    params = create_model(OPTIONS, seed=3).params
    return Learner.from_options(Model(OPTIONS, params | values), replace(VALUES, **options), seed=1)


def test_the_operation_is_named() -> None:
    broken = learner_of({"decoder_Wemb": np.full((11, 4), 3e38, np.float32)})
    with pytest.raises(DivergenceError) as error:
        broken.update([BATCH], learn_rate=0.01, number=7)
    said = str(error.value)
    assert said.startswith("--check-nan: update 7: the cost is nan, the gradient is not finite at ")
    assert " and " in said and " more; the value of " in said and "child 0: " in said


def test_finite_updates_go_on_and_skipped_ones_are_not_looked_at() -> None:
    learner = learner_of({})
    assert np.isfinite(learner.update([BATCH], learn_rate=0.01, number=1).cost)
    plain = learner_of({}, check_nan=False)
    plain.update([BATCH], learn_rate=0.01, number=1)
    for name, value in plain.state().params.items():
        np.testing.assert_array_equal(learner.state().params[name], value)
    assert plain.finite is None and learner.finite is not None and learner.finite.gradients
    for skipping in ({"check_gradient_nan": True}, {"cost_scaling": ("8", "10", "1", "8")}):
        found = learner_of({}, **skipping).finite
        assert found is not None and not found.gradients


@pytest.mark.thorough
def test_a_gradient_alone_is_enough() -> None:
    learner = learner_of({})
    params = learner.state().params
    gradients = {name: jnp.zeros_like(value) for name, value in params.items()}
    gradients["decoder_l1_ffn_b1"] = jnp.full((1, 6), jnp.inf)
    found = Differentiated(gradients, jnp.float32(3), jnp.float32(2))
    arrays = learner.objective.arrays(BATCH)
    FiniteCheck(learner.objective, gradients=False).check(found, params, arrays, 1, 1)
    with pytest.raises(DivergenceError) as error:
        FiniteCheck(learner.objective, gradients=True).check(found, params, arrays, 1, 1)
    expected = "--check-nan: update 1: the cost is 3, the gradient is not finite at decoder_l1_ffn_b1"
    assert str(error.value) == expected
