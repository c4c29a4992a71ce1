"""Products of int8 and rounding that gradients pass straight through."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, Node, affine, affine_int8, fake_quantize, square
from mgraph import sum as total
from mgraph.gradcheck.check import check_gradients
from mgraph.ops.quantized import AffineInt8NodeOp, FakeQuantizeNodeOp
from tests.helpers.leaves import constant, param

RANDOM = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def int8(*shape: int) -> np.ndarray:
    return RANDOM.integers(-127, 128, shape).astype(np.int8)


def product(*arrays: Any, **fields: Any) -> np.ndarray:
    """``affine_int8`` of arrays; ``None`` stands for a missing child."""
    graph = ExpressionGraph(inference=True)
    children = [None if a is None else constant(graph, a, str(a.dtype)) for a in arrays]
    y = affine_int8(*children, **fields)
    graph.forward()
    return np.asarray(y.val())


def by_numpy(x: np.ndarray, values: np.ndarray, scales: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    """The formula, with ``values`` (..., k, n), in float64."""
    step = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    integers = np.rint(x / np.where(step > 0, step, 1)).astype(np.int64)
    return np.matmul(integers, values.astype(np.int64)) * step.astype(np.float64) * scales + bias


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("columns", [1, 2, 7])
def test_it_is_the_formula_for_any_number_of_rows_and_columns(rows: int, columns: int) -> None:
    x, values, scales, bias = real(rows, 33), int8(33, columns), abs(real(1, columns)), real(1, columns)
    np.testing.assert_allclose(
        product(x, values, scales, bias), by_numpy(x, values, scales, bias), rtol=2e-5, atol=1e-4
    )
    transposed = product(x, values.T.copy(), scales.T.copy(), bias, trans_b=True)
    np.testing.assert_array_equal(transposed, product(x, values, scales, bias))


def test_batches_of_matrices_are_multiplied_one_by_one() -> None:
    x, values, scales = real(3, 4, 16), int8(3, 16, 5), abs(real(3, 1, 5))
    found = product(x, values, scales)
    for i in range(3):
        np.testing.assert_array_equal(found[i], product(x[i], values[i], scales[i]))
    flipped = product(x, values.swapaxes(1, 2).copy(), scales.swapaxes(1, 2).copy(), trans_b=True)
    np.testing.assert_array_equal(found, flipped)


def test_a_row_does_not_depend_on_other_rows() -> None:
    x, values, scales = real(65, 64), int8(64, 48), abs(real(1, 48))
    x[7] *= 1000
    whole = product(x, values, scales)
    for start, stop in ((0, 1), (3, 5), (7, 8), (10, 65)):
        np.testing.assert_array_equal(product(x[start:stop], values, scales), whole[start:stop])


def test_rows_of_zeros_of_tiny_and_of_odd_numbers() -> None:
    x = np.array([[0, 0], [1e-38, -1e-38], [np.nan, 1], [3e38, -3e38]], np.float32)
    values, scales = np.array([[127, 1], [1, 1]], np.int8), np.array([[0.5, 0.25]], np.float32)
    found = product(x, values, scales)
    np.testing.assert_array_equal(found[0], 0)
    assert np.isfinite(found[1]).all()
    assert np.isnan(found[2]).all()
    assert found[3, 1] == 0


def test_a_multiplier_rounds_all_rows_alike_and_cuts() -> None:
    x, values, scales = real(4, 8), int8(8, 3), abs(real(1, 3))
    multiplier = np.array([100.0], np.float32)
    integers = np.clip(np.rint(x * multiplier), -127, 127)
    assert (np.abs(integers) == 127).any()
    expected = integers @ values.astype(np.float64) / 100 * scales
    np.testing.assert_allclose(product(x, values, scales, None, multiplier), expected, rtol=2e-5, atol=1e-4)


def test_16_bits_are_rounded_and_scaled_in_float32() -> None:
    x, values, scales = real(4, 32).astype(np.float16), int8(32, 3), abs(real(1, 3)).astype(np.float16)
    expected = by_numpy(x.astype(np.float32), values, scales.astype(np.float32))
    np.testing.assert_allclose(product(x, values, scales), expected, rtol=2e-3)


@pytest.mark.parametrize(
    ("shapes", "fields", "message"),
    [
        (((3, 4), (5, 2), (1, 2)), {}, "equal inner sizes, got 4 and 5"),
        (((3, 4), (4, 2), (2, 1)), {}, "a scale for each column"),
        (((3, 4), (2, 4), (1, 2)), {"trans_b": True}, "a scale for each column"),
        (((3, 4), (2, 4, 2), (2, 1, 2)), {}, "equal batches"),
        (((3, 4), (4,), (1, 2)), {}, "expected rows and a matrix"),
        (((3, 4), (4, 2), (1, 2), (1, 3)), {}, "a bias of shape"),
        (((3, 4), (4, 2), (1, 2), (1, 2), (2,)), {}, "one number as multiplier"),
    ],
)
def test_what_does_not_fit_is_an_error(shapes: Any, fields: Any, message: str) -> None:
    arrays = [int8(*s) if i == 1 else real(*s) for i, s in enumerate(shapes)]
    with pytest.raises(mgraph.ShapeError, match=message):
        product(*arrays, **fields)


def test_only_int8_is_taken_and_only_2_to_16_bits() -> None:
    with pytest.raises(mgraph.ElementTypeError, match="int8, got float32 and int32"):
        product(real(2, 3), int8(3, 2).astype(np.int32), real(1, 2))
    graph = ExpressionGraph()
    with pytest.raises(mgraph.ArgumentError, match="2 to 16 bits, got 1"):
        fake_quantize(param(graph, real(2, 3), "x"), 1)


def test_fake_quantize_keeps_what_is_on_its_grid() -> None:
    graph = ExpressionGraph()
    x = param(graph, np.float32([[0.1, -1.0, 0.49], [2.0, 0.01, 0.0]]), "x")
    by_row, whole = fake_quantize(x, 3, axis=1), fake_quantize(x, 3)
    again = fake_quantize(fake_quantize(x, axis=0), axis=0)
    once = fake_quantize(x, axis=0)
    graph.forward()
    np.testing.assert_allclose(by_row.val(), [[0, -1, 1 / 3], [2, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(whole.val(), [[0, -4 / 3, 2 / 3], [2, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(again.val(), once.val(), rtol=1e-6)


def packed(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weight as int8, and a scale for each column."""
    scales = np.abs(weight).max(0, keepdims=True) / np.float32(127)
    return np.rint(weight / scales).astype(np.int8), scales


def test_training_with_fake_quantize_is_for_the_product_of_int8() -> None:
    x, weight, bias = real(6, 32), real(32, 8), real(1, 8)
    graph = ExpressionGraph()
    nodes = [param(graph, a, name) for a, name in ((x, "x"), (weight, "w"), (bias, "b"))]
    y = affine(fake_quantize(nodes[0], axis=-1), fake_quantize(nodes[1], axis=0), nodes[2])
    total(total(square(y), -1), 0)
    graph.forward()
    graph.backward()
    values, scales = packed(weight)
    np.testing.assert_allclose(y.val(), product(x, values, scales, bias), rtol=1e-4, atol=1e-4)
    # Straight through: the gradients of the float product with the rounded weight.
    adjoint = 2 * np.asarray(y.val())
    np.testing.assert_allclose(nodes[0].grad(), adjoint @ (values * scales).T, rtol=1e-4, atol=1e-3)
    rounded = np.asarray(fake_quantized_rows(x))
    np.testing.assert_allclose(nodes[1].grad(), rounded.T @ adjoint, rtol=1e-4, atol=1e-3)


def fake_quantized_rows(x: np.ndarray) -> np.ndarray:
    step = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    return np.rint(x / step) * step


# ---------------------------------------------------------------- the checker


class _ForgetsTheScale(AffineInt8NodeOp):
    type = "forgets_the_scale"

    def backward_ops(self, adj: Any, val: Any, x: Any, values: Any, scales: Any, *others: Any) -> Any:
        _, *rest = super().backward_ops(adj, val, x, values, scales, *others)
        return super().backward_ops(adj, val, x, values, jnp.ones_like(scales), *others)[0], *rest


class _CutsTheGradient(FakeQuantizeNodeOp):
    type = "cuts_the_gradient"

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (jnp.where(jnp.abs(x) < jnp.max(jnp.abs(x)), adj, 0),)


class _ClaimsToBeADerivative(FakeQuantizeNodeOp):
    type = "claims_to_be_a_derivative"
    surrogate_ops = None


class _SurrogateOfAnother(FakeQuantizeNodeOp):
    type = "surrogate_of_another"

    def surrogate_ops(self, x: Any) -> Any:
        return 2 * x


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(_ForgetsTheScale, marks=pytest.mark.slow),
        _CutsTheGradient,
        _ClaimsToBeADerivative,
        _SurrogateOfAnother,
    ],
)
def test_a_planted_wrong_rule_is_caught(wrong: Any) -> None:
    report = check_gradients(wrong, thorough=True)
    seen = {w for check in report.checks for w in check.objections}
    assert {"jax", "differences"} <= seen, report


@pytest.mark.parametrize("right", [AffineInt8NodeOp, FakeQuantizeNodeOp])
def test_the_report_says_that_a_rule_is_straight_through(right: Any) -> None:
    report = check_gradients(right)
    assert report.ok, report
    assert f"straight through, as derivatives of surrogates: {right.type}" in str(report)


def test_a_graph_with_rounding_inside_is_checked_as_a_whole() -> None:
    graph = ExpressionGraph()
    x, w = param(graph, real(3, 5), "x"), param(graph, real(5, 4), "w")
    hidden = mgraph.tanh(affine(fake_quantize(x, axis=-1), fake_quantize(w), param(graph, real(1, 4), "b")))
    values, scales = packed(real(4, 6))
    top: Node = affine_int8(hidden, constant(graph, values, "int8"), param(graph, scales, "s"))
    report = check_gradients(top, thorough=True)
    assert report.ok, report
    assert "affine_int8, fake_quantize" in report.note


def test_jax_itself_sees_a_staircase() -> None:
    graph = ExpressionGraph(derivatives="jax")
    x = param(graph, real(2, 3), "x")
    total(total(fake_quantize(x), -1), 0)
    graph.forward()
    graph.backward()
    # The step size depends on the largest number, and on nothing else.
    assert np.count_nonzero(np.asarray(x.grad())) <= 1


def test_training_with_rounding_beats_rounding_after_training() -> None:
    """The float model is exact; rounded to 4 bits it is not, unless it is trained with the rounding."""
    random = np.random.default_rng(5)
    x, first, second = (random.standard_normal(s).astype(np.float32) for s in ((256, 8), (8, 16), (16, 2)))
    target = np.tanh(x @ first) @ second
    graph = ExpressionGraph()
    weights = [param(graph, w, name) for w, name in ((first, "first"), (second, "second"))]
    hidden, output = (fake_quantize(w, 4, axis=0) for w in weights)
    y = mgraph.dot(mgraph.tanh(mgraph.dot(constant(graph, x), hidden)), output)
    loss = total(total(square(y - constant(graph, target)), -1), 0)
    function = graph.function(loss)
    descend = jax.jit(jax.value_and_grad(lambda p: function.pure(p)[0, 0]))
    params = {"first": jnp.asarray(first), "second": jnp.asarray(second)}
    rounded, _ = descend(params)
    best = rounded
    for _ in range(100):
        value, slopes = descend(params)
        best = min(best, value)
        params = {name: w - 5e-6 * slopes[name] for name, w in params.items()}
    assert best < 0.5 * rounded
