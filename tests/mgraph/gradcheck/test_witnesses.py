"""What each witness sees: small gradients, kinks, cotangents, results that do not repeat."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ShapeError, UnaryNodeOp, check_gradients, check_operators
from mgraph.gradcheck.report import GradientReport
from mgraph.gradcheck.witnesses.problem import Problem
from tests.helpers.fresh import python


def seen(report: GradientReport) -> set[str]:
    """The witnesses that say a gradient is wrong."""
    return {witness for check in report.checks for witness in check.objections}


# ---------------------------------------------------------------- differences that know their error


@jax.custom_jvp
def scaled(x, factors):
    return jnp.sin(x) * factors


@scaled.defjvp
def _(primals, tangents):
    """Wrong where the factor is tiny, as the rules below are, so JAX is no witness."""
    (x, factors), (dx, _) = primals, tangents
    sign = jnp.where(factors < 1e-10, -1.0, 1.0)
    return scaled(x, factors), sign * jnp.cos(x) * factors * dx


class Scaled(UnaryNodeOp):
    """sin(x) times factors, half of them 1 and half of them 1e-14."""

    type = "scaled"

    def factors(self, x):
        return jnp.where(jnp.arange(x.shape[-1]) % 2, 1e-14, 1.0)

    def forward_ops(self, x):
        return jnp.sin(x) * self.factors(x)

    def backward_ops(self, adj, val, x):
        return (adj * jnp.cos(x) * self.factors(x),)


class TinySignWrong(Scaled):
    def backward_ops(self, adj, val, x):
        factors = self.factors(x)
        return (adj * jnp.cos(x) * jnp.where(factors < 1e-10, -factors, factors),)


class TinySignWrongLikeJax(TinySignWrong):
    def forward_ops(self, x):
        return scaled(x, self.factors(x))


@pytest.mark.parametrize("size", [6, 100])
def test_a_wrong_sign_of_tiny_gradients_is_seen_by_both_witnesses(size: int) -> None:
    assert check_gradients(Scaled, (size,)).ok
    report = check_gradients(TinySignWrong, (size,))
    assert seen(report) == {"jax", "differences"}, report
    assert seen(check_gradients(TinySignWrongLikeJax, (size,))) == {"differences"}
    (check,) = report.checks
    finding = check.finding
    assert finding.wrong and abs(finding.expected) < 1e-12 and check.differences["differences"] < 1e-12
    assert abs(finding.found + finding.expected) < 1e-6 * abs(finding.expected), "the sign alone is wrong"
    assert "wrong by 2.0e+00" in check.verdict and ", can see " in check.verdict


def test_what_rounding_hides_is_not_held_against_a_rule() -> None:
    """The second input moves the output by less than its last place: its gradient cannot be seen."""

    def hidden(x: mgraph.Node, y: mgraph.Node) -> mgraph.Node:
        return 1.0 + mgraph.exp(x) + y * 1e-19

    report = check_gradients(hidden, (3,), (3,))
    assert report.ok, report
    assert 0 < report.checks[1].findings["differences"].bound < 1e-12


@pytest.mark.parametrize("spread", [50.0, 150.0, 400.0])
@pytest.mark.parametrize("function", [mgraph.softmax, mgraph.logsoftmax, mgraph.sigmoid, mgraph.tanh])
@pytest.mark.sampled(every=3)
def test_rounding_where_a_function_is_saturated_is_not_held_against_a_rule(
    function: Any, spread: float
) -> None:
    """``c - sum(c y)`` is 0 where y is 1, and stays 0 if c is moved, but its rounding is that of c."""
    for seed in range(3):
        values = spread * np.random.default_rng(seed).standard_normal((2, 4))
        report = check_gradients(function, values=[values], seed=seed)
        assert report.ok, report


def test_an_output_that_keeps_its_bits_may_move_where_decimals_say_so() -> None:
    assert (report := check_gradients(mgraph.softmax, values=[np.linspace(0.0, -6000.0, 31)])).ok, report


class SmallOnesInBfloat16(UnaryNodeOp):
    type = "small ones in bfloat16"

    def forward_ops(self, x):
        return jnp.exp(x)

    def backward_ops(self, adj, val, x):
        return (adj * jnp.where(val < 1e-8, val.astype(jnp.bfloat16).astype(val.dtype), val),)


def test_the_rounding_of_a_narrower_type_is_held_against_a_rule() -> None:
    assert "jax" in seen(check_gradients(SmallOnesInBfloat16, values=[[1.0, 2.0, -30.3, -40.7]]))


class Cancelling(UnaryNodeOp):
    """x^2 + 2e8 x, next to numbers a billion times as large."""

    type = "cancelling"

    factor: float = 2.0

    def forward_ops(self, x):
        return (x + 1e8) ** 2 - 1e16

    def backward_ops(self, adj, val, x):
        return (adj * self.factor * (x + 1e8),)


class Softplus(UnaryNodeOp):
    """log(1 + exp(x)), whose 1 leaves few digits of a small power."""

    type = "softplus by log"

    factor: float = 1.0

    def forward_ops(self, x):
        return jnp.log(1.0 + jnp.exp(x))

    def backward_ops(self, adj, val, x):
        return (self.factor * adj * jax.nn.sigmoid(x),)


@jax.custom_jvp
def softplus(x, factor):
    return jnp.log(1.0 + jnp.exp(x))


@softplus.defjvp
def _(primals, tangents):
    (x, factor), (dx, _) = primals, tangents
    return softplus(x, factor), factor * jax.nn.sigmoid(x) * dx


class SoftplusLikeJax(Softplus):
    """Its mistake is JAX's, too."""

    def forward_ops(self, x):
        return softplus(x, self.factor)


@pytest.mark.parametrize(
    ("operator", "at", "right"),
    [(Cancelling, 0.0, 2.0), (Softplus, -20.0, 1.0), (SoftplusLikeJax, -40.0, 1.0)],
)
def test_rounding_within_a_forward_is_not_held_against_a_rule_and_hides_no_mistake(
    operator: Any, at: float, right: float
) -> None:
    values = [at + np.random.default_rng(1).standard_normal(5)]
    assert (report := check_gradients(operator, values=values, fields={"factor": right})).ok, report
    for factor in (-right, right * (1 + 1e-5)):
        report = check_gradients(operator, values=values, fields={"factor": factor})
        assert seen(report) >= {"differences" if operator is SoftplusLikeJax else "jax"}, report


def test_a_flat_function_has_a_sharp_bound() -> None:
    class Leaks(Ramp):
        def forward_ops(self, x):
            return jax.nn.relu(x)  # its own derivative is told to JAX

        def backward_ops(self, adj, val, x):
            return (adj * jnp.where(x > 0, 1.0, 1e-18),)

    (check,) = check_gradients(Leaks, values=[[-1.0, -2.0, -3.0]]).checks
    assert set(check.objections) == {"jax", "differences"}
    assert check.findings["differences"].bound < 1e-30


def test_steps_reach_beyond_no_singularity() -> None:
    report = check_gradients(lambda x: 1.0 / x + mgraph.log(x), values=[[3.0, 1e-2, 1e-4, 1e-7]])
    assert report.ok and not report.checks[0].kinks, report
    assert max(report.checks[0].allowed[w] for w in ("jax", "differences")) < 1e-6


@pytest.mark.parametrize(
    ("function", "place"),
    [(mgraph.log, 1e-12), (lambda x: mgraph.log(1.0 - x), 1 - 1e-10), (mgraph.sqrt, 1e-13)],
)
def test_where_steps_are_too_long_no_right_rule_is_accused(function: Any, place: float) -> None:
    """Differences still grow with each shorter step there, so they say nothing about the derivative."""
    report = check_gradients(function, values=[[place, 0.5]])
    assert report.ok, report


class OffBy(UnaryNodeOp):
    type = "off by"

    factor: float = 1.0

    def forward_ops(self, x):
        return jnp.exp(x) * jnp.sin(x)

    def backward_ops(self, adj, val, x):
        return (self.factor * adj * jnp.exp(x) * (jnp.sin(x) + jnp.cos(x)),)


@pytest.mark.parametrize(("factor", "slope"), [(1.0, 2.0), (1.1, 1.0)])
def test_taylor_remainders_fall_by_two_or_by_one(factor: float, slope: float) -> None:
    (check,) = (report := check_gradients(OffBy, (3, 4), fields={"factor": factor})).checks
    assert check.ok == (slope == 2) and check.taylor.slope == pytest.approx(slope, abs=0.1)
    assert f"Taylor: child 0 slope {check.taylor.slope:.2f}" in str(report)
    assert len(check.taylor.steps) == len(check.taylor.remainders) > 8


def test_an_affine_function_has_no_remainder() -> None:
    (check,) = check_gradients(lambda x: 3.0 * x + 1.0, (2, 3)).checks
    assert check.ok and check.taylor.slope is None and str(check.taylor) == "no remainder (affine)"


def test_errors_of_a_millionth_of_a_millionth_are_seen() -> None:
    (check,) = check_gradients(OffBy, (5,), fields={"factor": 1 + 1e-8}).checks
    assert {"jax", "differences"} == set(check.objections)
    assert check.finding.bound < 1e-11 * abs(check.finding.expected)


# ---------------------------------------------------------------- kinks


class Ramp(UnaryNodeOp):
    """The larger of 0 and x; ``at_zero`` is the rule's slope at 0."""

    type = "ramp"

    at_zero: float = 0.0

    def forward_ops(self, x):
        return jnp.maximum(x, 0.0)

    def backward_ops(self, adj, val, x):
        return (adj * jnp.where(x == 0, self.at_zero, x > 0),)


@pytest.mark.parametrize(
    ("at_zero", "ok"), [(0.0, True), (0.5, True), (1.0, True), (1.01, False), (-0.1, False)]
)
@pytest.mark.parametrize("size", [3, 60])
@pytest.mark.sampled(every=3)
def test_a_subgradient_is_any_number_between_the_slopes(at_zero: float, ok: bool, size: int) -> None:
    values = np.linspace(-1.0, 1.0, size)
    values[1] = 0.0
    report = check_gradients(Ramp, values=[values], fields={"at_zero": at_zero}, thorough=True)
    assert report.ok == ok, report
    if size == 3:
        (kink,) = (k for k in report.checks[0].kinks if k.at_the_point and k.where)
        assert kink.where == (1,) and kink.rule == pytest.approx(at_zero * (kink.left + kink.right))
        assert "child 0 [1]: at a kink, slopes" in str(report)


def test_a_choice_at_a_kink_hides_no_error_elsewhere() -> None:
    class SteepAtOne(Ramp):
        def backward_ops(self, adj, val, x):
            return (adj * jnp.where(x == 1, 1.01, x >= 0),)

    (check,) = check_gradients(SteepAtOne, values=[[0.0, 1.0, -0.5]]).checks
    assert set(check.objections) == {"jax", "differences"}
    assert check.findings["jax"].where == check.findings["differences"].where == (1,)


@pytest.mark.parametrize(("at_zero", "ok"), [(0.0, True), (0.5, True), (1.01, False), (np.nan, False)])
def test_a_subgradient_may_be_chosen_where_jax_has_nan(at_zero: float, ok: bool) -> None:
    class Length(Ramp):
        def forward_ops(self, x):
            return jnp.sqrt(jnp.sum(x * x, -1, keepdims=True))

        def backward_ops(self, adj, val, x):
            return (adj * jnp.where(val == 0, self.at_zero, x / val),)

    values, fields = [np.array([[0.0], [2.0]])], {"at_zero": at_zero}
    report = check_gradients(Length, values=values, fields=fields, thorough=True)
    assert report.ok == ok, report
    assert ("(nan at [0, 0])" in report.checks[0].verdict) == np.isnan(at_zero)


@pytest.mark.parametrize("distance", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_beside_a_kink_the_derivative_is_known(distance: float, side: float) -> None:
    class OtherSide(Ramp):
        def backward_ops(self, adj, val, x):
            return (adj * jnp.where(jnp.abs(x) < 0.1, x < 0, x > 0),)

    values = [np.array([0.7, side * distance, -0.8])]
    report = check_gradients(Ramp, values=values)
    assert report.ok, report
    (kink,) = (k for k in report.checks[0].kinks if k.where == (1,))
    assert distance < kink.distance < 3 * distance
    assert seen(check_gradients(OtherSide, values=values)) == {"jax", "differences"}


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (mgraph.relu, [[0.0, 1.0, -1.0]]),
        (mgraph.abs, [[0.0, 1.0, -1.0]]),
        (lambda x: mgraph.clip(x, 0.5), [[0.5, -0.5, 0.2, 1.0]]),
        (mgraph.maximum, [[0.3, 0.1], [0.3, 0.2]]),
        (mgraph.minimum, [[0.3, 0.1], [0.3, 0.2]]),
    ],
    ids=["relu", "abs", "clip", "maximum", "minimum"],
)
def test_mgraphs_own_rules_say_subgradients(function: Any, values: Any) -> None:
    given = values if function in (mgraph.maximum, mgraph.minimum) else [values]
    report = check_gradients(function, values=[np.array(v) for v in given])
    assert report.ok, report
    assert any(kink.at_the_point for check in report.checks for kink in check.kinks)


class Largest(UnaryNodeOp):
    type = "largest"

    def forward_ops(self, x):
        return jnp.max(x, -1, keepdims=True)

    def backward_ops(self, adj, val, x):
        ties = (x == val).astype(x.dtype)
        return (adj * ties / jnp.sum(ties, -1, keepdims=True),)


class LargestGivesAllToEach(Largest):
    """Each gradient is possible by itself; together they exceed the maximum's change."""

    def backward_ops(self, adj, val, x):
        return (adj * (x == val),)


def test_ties_that_move_together_have_a_derivative() -> None:
    values = [np.array([[0.5, 0.5, -1.0]])]
    assert check_gradients(Largest, values=values).ok
    for seed in range(3):
        assert seen(check_gradients(LargestGivesAllToEach, values=values, seed=seed)) == {"differences"}
    assert seen(check_gradients(mgraph.max, values=[values[0].T])) == {"differences"}, "it is Marian's rule"


class Sorted(UnaryNodeOp):
    """Sorts rows; elements of a tie get the adjoints in their order, as by JAX, in the opposite one, their
    mean, or all the first one's."""

    type = "sorted"

    ties: str = "jax"
    scale: float = 1.0

    def forward_ops(self, x):
        return jnp.sort(x)

    def backward_ops(self, adj, val, x):
        adj = self.scale * adj
        order = jnp.argsort(x, -1)
        ranks = jnp.argsort(order, -1)
        tied = (x[..., None] == val[..., None, :]).astype(x.dtype)
        first, last = jnp.argmax(tied, -1), x.shape[-1] - 1 - jnp.argmax(tied[..., ::-1], -1)
        places = {"jax": ranks, "opposite": first + last - ranks, "first": first}
        if self.ties == "mean":
            return (jnp.sum(tied * adj[..., None, :], -1) / jnp.sum(tied, -1),)
        return (jnp.take_along_axis(adj, places[self.ties], -1),)


@pytest.mark.parametrize(
    ("ties", "ok"), [("jax", True), ("opposite", True), ("mean", True), ("first", False)]
)
def test_ties_of_more_than_two_may_be_broken_in_any_order(ties: str, ok: bool) -> None:
    for seed in range(3):
        values = [np.array([[1.0, 1.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0]])]
        report = check_gradients(Sorted, values=values, fields={"ties": ties}, seed=seed)
        assert report.ok == ok, report


def test_long_steps_that_all_cross_kinks_do_not_count() -> None:
    """Where long steps to both sides cross kinks, the median is linear but for the point itself."""
    values = [np.array([[1e6 + 0.1, 1e6 + 0.5, 1e6 + 1.3]])]
    for seed in range(3):
        assert (report := check_gradients(Sorted, values=values, seed=seed)).ok, report
    assert seen(check_gradients(Sorted, values=values, fields={"scale": 1.01})) == {"jax", "differences"}


# ---------------------------------------------------------------- cotangents


class Doubled(UnaryNodeOp):
    type = "doubled"

    def forward_ops(self, x):
        return 2.0 * x

    def backward_ops(self, adj, val, x):
        return (2.0 * adj,)


class NeverZero(Doubled):
    """Avoids zero where there is no need to."""

    def backward_ops(self, adj, val, x):
        return (2.0 * jnp.where(jnp.any(adj != 0), adj, 1e-30),)


class DividesByItsAdjoint(Doubled):
    def backward_ops(self, adj, val, x):
        return (2.0 * adj * (jnp.sum(adj) / jnp.sum(adj)),)


class DenseOnly(Doubled):
    """Treats an adjoint with a single nonzero number as a whole row of that number."""

    def backward_ops(self, adj, val, x):
        return (2.0 * jnp.where(jnp.sum(adj != 0) == 1, jnp.sum(adj), adj),)


@pytest.mark.parametrize(
    ("wrong", "witnesses"),
    [(NeverZero, {"zero"}), (DividesByItsAdjoint, {"zero"}), (DenseOnly, {"one-hot"})],
)
def test_special_cotangents_see_what_random_ones_cannot(wrong: Any, witnesses: set[str]) -> None:
    assert check_gradients(wrong, (2, 3)).ok
    assert seen(check_gradients(wrong, (2, 3), thorough=True)) == witnesses
    asked = check_gradients(wrong, (2, 3), cotangents=next(iter(witnesses)))
    assert seen(asked) == witnesses


@jax.custom_vjp
def pair(x):
    return jnp.sin(x), jnp.cos(x)


def _pair_forward(x):
    return pair(x), x


def _pair_backward(x, adjoints):
    first, second = adjoints
    gradient = first * jnp.cos(x) - second * jnp.sin(x)
    return (jnp.where(jnp.any(second != 0), gradient, 0 * gradient),)


pair.defvjp(_pair_forward, _pair_backward)


def test_a_missing_cotangent_is_tried() -> None:
    """The rule forgets the first output where the second is not used."""

    def values(point, rule_set, frozen):
        return pair(point[0]) if rule_set == "rules" else (jnp.sin(point[0]), jnp.cos(point[0]))

    with jax.enable_x64(True):
        problem = Problem(values, [np.linspace(0.2, 2.0, 4)], seed=0)
        (first,), (more,) = problem.first_order("rules"), problem.cotangents("rules")
    assert first.differences["jax"] < 1e-14 and first.differences["differences"] < 1e-12
    assert more.differences["zero"] == 0 and more.differences["missing"] == pytest.approx(1.0)


def test_cotangents_of_the_user() -> None:
    class WrongInTheCorner(Doubled):
        def backward_ops(self, adj, val, x):
            return (2.0 * adj.at[0, 0].mul(1.5),)

    corner, rest = np.zeros((2, 3)), np.ones((2, 3))
    corner[0, 0], rest[0, 0] = 3.0, 0.0
    assert seen(check_gradients(WrongInTheCorner, (2, 3), cotangents=corner)) == {"jax", "differences"}
    assert check_gradients(WrongInTheCorner, (2, 3), cotangents=rest).ok
    strided = np.asfortranarray(np.repeat(corner, 2, axis=1))[:, ::2]
    assert not strided.flags.c_contiguous
    same = [check_gradients(WrongInTheCorner, (2, 3), cotangents=c).checks for c in (corner, strided)]
    assert same[0] == same[1]
    with pytest.raises(ShapeError, match=r"cotangents: expected .* \(2, 3\).*, got \(3,\)"):
        check_gradients(Doubled, (2, 3), cotangents=np.ones(3))
    with pytest.raises(mgraph.ArgumentError, match="cotangents"):
        check_gradients(Doubled, (2, 3), cotangents="some")
    for bad in (np.nan, np.inf, 1j):
        with pytest.raises(mgraph.ArgumentError, match="cotangents: expected finite real numbers, got "):
            check_gradients(Doubled, (2, 3), cotangents=np.full((2, 3), bad))


def test_the_short_form_asks_for_first_derivatives() -> None:
    rows: list[str] = []
    report = check_operators(["tanh", "sin", "cos"], quick=True, on_row=lambda row: rows.append(row.type))
    assert report.ok and rows == [row.type for row in report.rows] == ["tanh", "sin", "cos"]
    assert all(row.differences.keys() == {"jax", "differences", "zero"} for row in report.rows)


class LateOutputWrong(Doubled):
    """Wrong for any single output beyond the first forty."""

    def backward_ops(self, adj, val, x):
        late = jnp.where(jnp.arange(x.shape[-1]) >= 40, 3.0, 2.0)
        return (adj * jnp.where(jnp.sum(adj != 0) == 1, late, 2.0),)


def test_every_output_is_taken_alone_where_it_is_asked_for() -> None:
    assert check_gradients(LateOutputWrong, (41,)).ok
    asked = check_gradients(LateOutputWrong, (41,), thorough=True, cotangents="one-hot")
    assert seen(asked) == {"one-hot"}


# ---------------------------------------------------------------- repeatability


class Unsteady(Doubled):
    """Off by a few roundings that differ each time, like a sum whose order is left to chance."""

    def backward_ops(self, adj, val, x):
        def shaken(g):
            type(self).calls += 1
            return np.full_like(g, 2 + 1e-15 * type(self).calls)

        shape = jax.ShapeDtypeStruct(adj.shape, adj.dtype)
        constant = jax.lax.stop_gradient(adj)
        return (adj * jax.pure_callback(shaken, shape, constant, vmap_method="broadcast_all"),)

    calls = 0


def test_what_does_not_repeat_is_named() -> None:
    assert check_gradients(Unsteady, (2, 3)).ok
    report = check_gradients(Unsteady, (2, 3), thorough=True)
    assert "repeat" in seen(report) and "NOT REPEATABLE" in str(report), report
    steady = check_gradients(Unsteady, (2, 3), thorough=True, nondet_tol=1e-12)
    assert "repeat" not in seen(steady)


@pytest.mark.slow
def test_another_device_must_give_the_same_bits() -> None:
    """In a separate process with two virtual devices, because devices are fixed when JAX starts."""
    code = """
import jax, jax.numpy as jnp, numpy as np
from mgraph.gradcheck.witnesses.problem import Problem

class Elsewhere(Problem):
    off = 0.0

    def run(self, function, *args, name=""):
        found = super().run(function, *args, name=name)
        first = jax.tree.leaves(args)[0]
        there = isinstance(first, jax.Array) and first.devices() == {jax.devices()[1]}
        return jax.tree.map(lambda g: g * (1 + self.off), found) if there else found

def values(point, rule_set, frozen):
    return jnp.sin(point[0])

with jax.enable_x64(True):
    for off in (0.0, 1e-14):
        problem = Elsewhere(values, [np.ones(3)], 0)
        problem.off = off
        problem.first_order("rules")
        (answer,) = problem.repeated("rules")
        assert (answer.differences["repeat"] > 0) == (off > 0), answer
"""
    python(code, XLA_FLAGS="--xla_force_host_platform_device_count=2")
