"""Wrong rules of public projects: which witness catches each, and at which values."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, NaryNodeOp, check_gradients
from mgraph.gradcheck import check_loss

from . import public_mistakes
from .public_mistakes import (
    ORDINARY,
    TELLING,
    CrossEntropy,
    CumulativeProduct,
    Gather,
    Huber,
    LayerNorm,
    NormalDensity,
    PRelu,
    Scaled,
    Sinc,
    SteepSigmoid,
    TotalVariation,
    Truncated,
    custom_vjp,
)

FIRST = {"jax", "differences"}
WITNESSES: dict[type[NaryNodeOp], set[str]] = {
    NormalDensity: FIRST,
    LayerNorm: FIRST,
    Huber: FIRST,
    Gather: FIRST,
    PRelu: FIRST,
    CumulativeProduct: FIRST,
    CrossEntropy: {"second"},
    Truncated: {"scan", "remat"},
    Sinc: {"second"},
}
"""The witnesses that catch a mistake in float64; for ``Sinc``, they take JAX's mistake for the rule's."""
FLOAT64_IS_RIGHT = (SteepSigmoid, Scaled)


@pytest.mark.parametrize("operator", WITNESSES, ids=lambda c: c.__name__)
def test_a_mistake_is_caught_where_it_shows(
    operator: type[NaryNodeOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_mistakes, "MEMORY", itertools.count())
    values = TELLING.get(operator, ORDINARY[operator])
    expected = WITNESSES[operator]
    report = check_gradients(operator, values=values, thorough=expected != FIRST)
    seen = {witness for check in report.checks for witness in check.objections}
    assert expected <= seen, report
    if expected != FIRST:
        assert not seen & FIRST, report


@pytest.mark.parametrize("operator", TELLING, ids=lambda c: c.__name__)
def test_at_other_values_it_is_hidden(operator: type[NaryNodeOp]) -> None:
    assert check_gradients(operator, values=ORDINARY[operator]).ok


@pytest.mark.parametrize("operator", FLOAT64_IS_RIGHT, ids=lambda c: c.__name__)
def test_float64_hides_mistakes_of_other_types(operator: type[NaryNodeOp]) -> None:
    assert check_gradients(operator, values=TELLING.get(operator, ORDINARY[operator])).ok


def test_at_ties_every_slope_between_both_sides_is_a_choice_and_is_shown() -> None:
    report = check_gradients(TotalVariation, values=TELLING[TotalVariation])
    assert report.ok, report
    for check in report.checks:
        ties = [kink for kink in check.kinks if kink.where is not None]
        assert len(ties) == 12 and all(
            kink.at_the_point and abs(kink.rule) == abs(kink.left) for kink in ties
        )
    assert "at a kink" in str(report)


def test_a_whole_loss_is_checked_in_float32_too() -> None:
    params = {"x": TELLING[SteepSigmoid][0]}

    def loss(graph: ExpressionGraph) -> mgraph.Node:
        return mgraph.sum(mgraph.flatten(SteepSigmoid(graph.param("x", (1, 2)))))

    _, (check,) = check_loss(loss, params)
    assert check.verdict == "UNSTABLE" and check.objections == ("float32",)
    assert check.differences["float64"] < 1e-14 and check.differences["float32"] == np.inf


def test_the_sum_of_some_hundred_rows_in_bfloat16_is_off_by_per_cents() -> None:
    """No witness in float64 or float32 sees this."""
    h = jnp.asarray(np.random.default_rng(0).uniform(size=(500, 4)), jnp.bfloat16)
    exact = np.sum(np.asarray(h, np.float64), 0, keepdims=True)

    def error(function) -> float:
        weight = jnp.ones((1, 4), jnp.bfloat16)
        found = jax.grad(lambda w: jnp.sum(function(h, w)))(weight)
        return np.max(np.abs(np.asarray(found, np.float64) / exact - 1))

    assert error(custom_vjp(Scaled)) > 0.02
    assert error(jnp.multiply) < 0.01


@pytest.mark.parametrize("operator", [*WITNESSES, SteepSigmoid], ids=lambda c: c.__name__)
@pytest.mark.sampled(every=3)
def test_the_function_with_custom_vjp_has_the_same_mistake(
    operator: type[NaryNodeOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``jax.test_util.check_grads`` sees it, unless the mistake is not smooth or depends on chance."""
    monkeypatch.setattr(public_mistakes, "MEMORY", itertools.count())
    with jax.enable_x64(True):
        function, values = custom_vjp(operator), TELLING.get(operator, ORDINARY[operator])
        floats = [jnp.asarray(a) for a in values if a.dtype.kind == "f"]
        rest = values[len(floats) :]

        def check(order: int) -> None:
            jax.test_util.check_grads(lambda *a: function(*a, *rest), floats, order, modes=["rev"])

        if WITNESSES.get(operator) == FIRST:
            with pytest.raises(AssertionError):
                check(1)
        else:
            check(1)
        if operator is CrossEntropy:
            with pytest.raises(AssertionError):
                check(2)
