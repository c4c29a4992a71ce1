"""JAX functions with rules of their own, checked by all witnesses: right rules, and planted wrong ones."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mgraph import ArgumentError, check_gradients
from mgraph.gradcheck import GradientReport
from mgraph.gradcheck.functions.custom_rules import calls_of_rules
from mgraph.gradcheck.functions.inlined import without_rules
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT
from tests.helpers.ruled import right_jvp, right_vjp, with_jvp, with_vjp, wrong_jvp, wrong_vjp

X = np.array([0.3, -0.7, 1.2], np.float32)


def wrongly_transposed(x: Any, tangent: Any) -> Any:
    """A right tangent whose transpose is wrong."""
    call: Any = jax.custom_derivatives.linear_call
    return call(lambda slope, t: slope * t, lambda slope, g: 2 * slope * g, jnp.cos(x), tangent)


def objections(report: GradientReport) -> set[str]:
    return {objection for check in report.checks for objection in check.objections}


def in_loops(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``f`` under jit, checkpoint, scan, cond and vmap."""

    @jax.jit
    def program(x: Any) -> Any:
        def step(carry: Any, scale: Any) -> tuple[Any, Any]:
            branch = functools.partial(jax.lax.cond, carry[0] < 9, f, jnp.negative)
            return jax.checkpoint(branch)(carry) * scale, carry

        carry, _ = jax.lax.scan(step, x, jnp.arange(1.0, 3.0, dtype=x.dtype))
        return jax.vmap(jax.jit(f))(carry)

    return program


def test_right_rules_pass_every_witness() -> None:
    report = check_gradients(right_vjp, X, thorough=True)
    assert report.ok, report
    [check] = report.checks
    assert check.differences.keys() == {
        *("jax", "differences", "second", "vmap", "scan", "remat", "frozen", "jit", "value"),
        *("zero", "one-hot", "repeat"),
    }
    forward = check_gradients(right_jvp, X)
    assert forward.ok, forward
    assert {"jax", "forward", "dot"} <= forward.checks[0].differences.keys()


@pytest.mark.parametrize(
    ("planted", "seen"),
    [
        (wrong_vjp, {"jax", "differences"}),
        (with_vjp(lambda x, adjoint: jnp.cos(x)), {"jax", "differences"}),
        (wrong_jvp, {"jax", "differences", "forward"}),
        (with_jvp(wrongly_transposed), {"jax", "differences", "dot"}),
        (in_loops(wrong_vjp), {"jax", "differences"}),
    ],
    ids=["factor", "no adjoint", "tangent", "transpose", "in loops"],
)
def test_planted_rules_are_seen(planted: Any, seen: set[str]) -> None:
    report = check_gradients(planted, X)
    assert objections(report) == seen, report
    assert "rules checked: ruled (ruled.py:" in report.note


def test_rules_in_loops_and_branches_are_taken_out() -> None:
    program = jax.make_jaxpr(in_loops(wrong_vjp))(X)
    assert len(list(calls_of_rules(program))) == 2
    plain = jax.make_jaxpr(lambda x: without_rules(program, [x], lambda rule: True)[0])(X)
    assert not list(calls_of_rules(plain))

    def loss(x: Any) -> Any:
        [result] = without_rules(program, [x], lambda rule: True)
        return jnp.sum(result)

    expected = jax.grad(lambda x: jnp.sum(in_loops(jnp.sin)(x)))(X)
    np.testing.assert_allclose(jax.grad(loss)(X), expected, rtol=1e-6)


def test_a_rule_that_returns_another_value_is_seen() -> None:
    @jax.custom_vjp
    def shifted(x: Any) -> Any:
        return jnp.sin(x)

    shifted.defvjp(lambda x: (jnp.sin(x) + 1e-6, x), lambda x, adjoint: (adjoint * jnp.cos(x),))
    assert objections(check_gradients(shifted, X)) == {"value"}


def test_a_rule_that_is_wrong_under_vmap_alone_is_seen() -> None:
    @jax.custom_batching.custom_vmap
    def slope(x: Any) -> Any:
        return jnp.cos(x)

    slope.def_vmap(lambda size, batched, x: (jnp.cos(x) * x.shape[0], True))
    report = check_gradients(with_vjp(lambda x, adjoint: adjoint * slope(x)), X, thorough=True)
    assert {"vmap"} <= objections(report) <= {"vmap", "second"}, report


def test_a_right_rule_passes_at_the_edge_of_its_domain() -> None:
    """The gradients over a batch and in a loop are also computed next to the point, where this is NaN."""

    @jax.custom_vjp
    def root(x: Any) -> Any:
        return jnp.sqrt(x - 1)

    root.defvjp(lambda x: (root(x), x), lambda x, adjoint: (adjoint / (2 * jnp.sqrt(x - 1)),))
    report = check_gradients(root, np.array([1.0005, 1.5]), thorough=True)
    assert report.ok, report


@pytest.mark.parametrize("wrong", [None, "w"])
def test_each_leaf_of_a_pytree_is_judged(wrong: str | None) -> None:
    @jax.custom_vjp
    def affine(params: Any, x: Any, n: Any) -> Any:
        return {"y": x @ params["w"] + n * params["b"][0], "count": n}

    def backward(residual: Any, adjoint: Any) -> Any:
        params, x, n = residual
        dw = jnp.outer(x, adjoint["y"]) * (2 if wrong else 1)
        return {"w": dw, "b": [n * adjoint["y"]], "none": None}, params["w"] @ adjoint["y"], None

    affine.defvjp(lambda *args: (affine(*args), args), backward)
    params = {"w": np.ones((3, 2), np.float32), "b": [np.zeros(2, np.float32)], "none": None}
    report = check_gradients(affine, params, X, 3)
    assert [check.name for check in report.checks] == ["params['b'][0]", "params['w']", "x"]
    assert [check.ok for check in report.checks] == [True, not wrong, True], report


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda x, g: (g * jnp.cos(x)).astype(jnp.bfloat16), "gradient bfloat16[3] by an input float32[3]"),
        (lambda x, g: jnp.ones(2), "type float32[2] corresponding to an input of type float32[3]"),
        (lambda x, g: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_rule_returns_is_checked(backward: Any, message: str) -> None:
    report = check_gradients(with_vjp(backward), X)
    assert not report.ok and message in str(report)


def test_a_rule_with_a_value_of_another_shape_is_named() -> None:
    @jax.custom_vjp
    def reshaped(x: Any) -> Any:
        return jnp.sin(x)

    reshaped.defvjp(lambda x: (jnp.ones(4, x.dtype), x), lambda x, adjoint: (jnp.cos(x),))
    report = check_gradients(reshaped, X)
    assert "reshaped (test_functions.py" in report.checks[0].problem
    assert "had shapes/dtypes of: float32[4] while" in report.checks[0].problem


def iterated(x: Any) -> Any:
    """The sine applied three times, in a loop that JAX cannot reverse."""
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]


def slope_of_iterated(x: Any, g: Any) -> Any:
    return g * jnp.cos(jnp.sin(jnp.sin(x))) * jnp.cos(jnp.sin(x)) * jnp.cos(x)


def test_without_jaxs_own_derivative_differences_remain() -> None:
    report = check_gradients(with_vjp(slope_of_iterated, iterated), X)
    assert report.ok and "jax" not in report.checks[0].differences
    assert "not compared with JAX's own derivative: ValueError: Reverse-mode" in report.note
    wrong = with_vjp(lambda x, g: 1.001 * slope_of_iterated(x, g), iterated)
    assert objections(check_gradients(wrong, X)) == {"differences"}


def test_a_function_may_have_forward_mode_alone() -> None:
    def forward(x: Any, tangent: Any) -> Any:
        slope = slope_of_iterated(x, jnp.ones_like(x))
        return jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, -c[1]), (0, slope * tangent))[1]

    report = check_gradients(with_jvp(forward, iterated), X)
    assert report.ok and {"differences", "forward"} <= report.checks[0].differences.keys(), report
    assert "forward mode only" in report.note
    assert not check_gradients(with_jvp(lambda x, t: 2 * forward(x, t), iterated), X).ok


def test_a_rule_must_reverse_where_the_function_does() -> None:
    report = check_gradients(with_jvp(lambda x, tangent: jnp.sin(tangent)), X)
    assert report.checks[0].problem.startswith("no reverse mode, which the function without the rule has")


def test_jaxs_own_derivative_is_no_witness_where_it_is_wrong() -> None:
    def product(x: Any) -> Any:
        return jnp.where(x == 0, 0.0, x * 3.0)

    report = check_gradients(with_vjp(lambda x, g: 3.0 * g, product), np.zeros(2))
    assert report.ok and "by x differences refute it here" in report.note
    assert not check_gradients(with_vjp(lambda x, g: 3.1 * g, product), np.zeros(2)).ok

    def root(x: Any) -> Any:
        return jnp.sqrt(x * x * x * x)

    report = check_gradients(with_vjp(lambda x, g: 2 * x * g, root), np.array([0.0, 1.0]))
    assert report.ok and "by x it is not finite here" in report.note


def test_rules_of_jax_are_kept_unless_they_are_the_subject() -> None:
    def both(x: Any) -> Any:
        return right_vjp(jax.nn.relu(x))

    report = check_gradients(both, X)
    assert "rules checked: ruled (" in report.note and "rules kept as they are: relu (jax)" in report.note
    assert "rules checked: relu (jax)" in check_gradients(both, X, only="relu").note
    assert "rules checked: relu (jax)" in check_gradients(jax.nn.relu, X).note
    assert "no custom rules" in check_gradients(jnp.sin, X).note
    with pytest.raises(ArgumentError, match="calls no custom rule 'gelu'; it calls relu, ruled") as unknown:
        check_gradients(both, X, only=["gelu"])
    assert f"at {__file__}:" in str(unknown.value), "the user's line, not one of functools"


def test_a_rule_chooses_a_subgradient_at_a_kink() -> None:
    report = check_gradients(jax.nn.relu, np.array([0.0, 1.0, -1.0]), thorough=True)
    assert report.ok and report.checks[0].kinks, report


def test_custom_gradient_is_a_rule_of_the_user() -> None:
    @jax.custom_gradient
    def wrong(x: Any) -> Any:
        return jax.nn.relu(x) ** 2, lambda adjoint: (adjoint * x,)

    report = check_gradients(wrong, X)
    assert objections(report) == {"jax", "differences"}
    assert "(jax.custom_gradient)" in report.note and "rules kept as they are: relu (jax)" in report.note


@pytest.mark.parametrize(
    ("type_", "factor", "seen"), [("float32", 1.01, {"jax", "differences"}), ("bfloat16", 1.3, {"jax"})]
)
def test_limits_are_those_of_the_type_that_is_computed_in(type_: str, factor: float, seen: set[str]) -> None:
    def narrow(x: Any) -> Any:
        return jnp.sin(x.astype(type_))

    right = with_vjp(lambda x, g: (jnp.cos(x.astype(type_)) * g).astype(x.dtype), narrow)
    report = check_gradients(right, X)
    assert report.ok and f"computed in {type_}" in report.note, report
    wrong = with_vjp(lambda x, g: (factor * jnp.cos(x.astype(type_)) * g).astype(x.dtype), narrow)
    assert objections(check_gradients(wrong, X)) == seen


def test_a_function_that_takes_no_float64_is_checked_in_its_own_type() -> None:
    table = np.ones(3, np.float32)
    report = check_gradients(lambda x: jax.lax.add(right_vjp(x), table), X)
    assert report.ok and "does not take float64: TypeError" in report.note, report
    assert not check_gradients(lambda x: jax.lax.add(wrong_vjp(x), table), X).ok


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_rule_that_casts_to_the_type_of_its_argument_is_checked_in_it(factor: float) -> None:
    def cast(x: Any) -> Any:
        return jnp.sin(x).astype(jnp.float32)

    rule = with_vjp(lambda x, g: (factor * g * jnp.cos(x)).astype(jnp.float32), cast)
    report = check_gradients(rule, X)
    assert objections(report) == (set() if factor == 1 else {"jax", "differences"}), report
    assert "gradient float32[3] by an input float64[3]" in report.note
    assert "computed in float32" in report.note


def test_rules_of_optax_are_right() -> None:
    scores = np.array([[0.2, 1.5, -0.3], [0.1, 0.4, 0.9]], np.float32)
    labels = np.array([[0.0, 0.3, 0.7], [1.0, 0.0, 0.0]], np.float32)
    report = check_gradients(optax.losses.safe_softmax_cross_entropy, scores, labels)
    assert report.ok and "rules checked: weighted_logsoftmax (" in report.note, report
    assert "by labels differences refute it here" in report.note
    report = check_gradients(optax.projections.projection_simplex, {"a": X}, 1.5, argnums=0)
    assert report.ok and "rules checked: _projection_unit_simplex (" in report.note, report


def test_the_page_runs() -> None:
    page = (ROOT / "docs" / "gradients-functions.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(check_blocks(blocks, "gradients-functions.md")) >= 5


def test_what_is_not_the_derivative_by_design_is_named() -> None:
    """optax scales only gradients, as the name says: this is no derivative, and the checker says so."""
    report = check_gradients(optax.scale_gradient, X, 0.5, argnums=0)
    assert objections(report) == {"jax", "differences"}
