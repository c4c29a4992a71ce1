"""The checker itself: right rules pass, planted wrong ones are caught."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, NaryNodeOp, UnaryNodeOp, check_gradients, inits


class Product(NaryNodeOp):
    """a * b with a right rule, to be broken below."""

    type = "product"

    def forward_ops(self, a, b):
        return jnp.sin(a) * b

    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), adj * jnp.sin(a)


class OnePercentOff(Product):
    def backward_ops(self, adj, val, a, b):
        return 1.01 * adj * b * jnp.cos(a), adj * jnp.sin(a)


class WrongShape(Product):
    def backward_ops(self, adj, val, a, b):
        return jnp.sum(adj * b * jnp.cos(a)), adj * jnp.sin(a)


class WrongOrder(Product):
    def backward_ops(self, adj, val, a, b):
        return adj * jnp.sin(a), adj * b * jnp.cos(a)


class ForgottenChild(Product):
    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), None


class MissingChild(Product):
    def backward_ops(self, adj, val, a, b):
        return (adj * b * jnp.cos(a),)


class MissingBroadcastSum(Product):
    """Takes the first row instead of the sum over the rows that b was stretched to."""

    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), (adj * jnp.sin(a))[:1]


class WrongSign(Product):
    def backward_ops(self, adj, val, a, b):
        return -adj * b * jnp.cos(a), adj * jnp.sin(a)


class AdjointIgnored(Product):
    def backward_ops(self, adj, val, a, b):
        return b * jnp.cos(a), adj * jnp.sin(a)


class NotFinite(Product):
    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a) / (0 * a), adj * jnp.sin(a)


class MeanForSum(Product):
    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), jnp.mean(adj * jnp.sin(a), 0, keepdims=True)


def test_a_right_rule_passes() -> None:
    report = check_gradients(Product, (3, 4), (1, 4))
    assert report.ok, report
    assert [c.name for c in report.checks] == ["child 0", "child 1"]
    assert all(c.jax_difference < 1e-13 and c.finite_difference < 1e-8 for c in report.checks)


@pytest.mark.parametrize(
    "wrong",
    [
        OnePercentOff,
        WrongShape,
        WrongOrder,
        ForgottenChild,
        MissingChild,
        MissingBroadcastSum,
        WrongSign,
        AdjointIgnored,
        NotFinite,
        MeanForSum,
    ],
)
def test_planted_wrong_rules_are_caught(wrong: type[NaryNodeOp]) -> None:
    report = check_gradients(wrong, (3, 4), (1, 4))
    assert not report.ok
    with pytest.raises(mgraph.GradientError, match="wrong gradients"):
        report.raise_if_wrong()


def test_the_report_shows_which_gradient_is_off_and_by_how_much() -> None:
    report = check_gradients(OnePercentOff, (3, 4), (1, 4))
    first, second = report.checks
    assert not first.ok and second.ok
    assert first.jax_difference == pytest.approx(0.01, rel=1e-6)
    assert first.finite_difference == pytest.approx(0.01, rel=1e-4)
    lines = str(report).splitlines()
    assert "child 0" in lines[2] and "1.0e-02" in lines[2] and lines[2].endswith("WRONG")
    assert lines[3].endswith("ok")


def test_a_rule_that_raises_is_reported() -> None:
    report = check_gradients(WrongShape, (3, 4), (1, 4))
    assert "WrongShape.backward_ops: the gradient of child 0: expected shape (3, 4)" in str(report)


def test_a_forward_that_disagrees_with_itself_needs_differences() -> None:
    """JAX's derivative is no witness where the forward hides its input from JAX."""

    class Hidden(UnaryNodeOp):
        type = "hidden"

        def forward_ops(self, x):
            return jax.lax.stop_gradient(x) ** 2

        def backward_ops(self, adj, val, x):
            return (2 * x * adj,)

    (check,) = check_gradients(Hidden, (3,)).checks
    assert check.jax_difference > 0.1


def test_a_node_is_checked_by_its_trainable_leaves() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (3, 2), inits.normal())
    frozen = graph.param("frozen", (1, 2), inits.normal(), fixed=True)
    x = graph.constant((4, 3), inits.normal())
    loss = mgraph.sum(mgraph.flatten(mgraph.tanh(mgraph.affine(x, w, frozen))))
    report = check_gradients(loss)
    assert report.ok, report
    assert [c.name for c in report.checks] == ["w"]
    assert check_gradients(graph).checks == report.checks


def test_larger_inputs_are_moved_along_random_directions() -> None:
    assert check_gradients(mgraph.square, (20, 30)).ok

    class LastElementWrong(UnaryNodeOp):
        type = "last"

        def forward_ops(self, x):
            return x * x

        def backward_ops(self, adj, val, x):
            gradient = 2 * x * adj
            return (gradient.at[-1, -1].mul(1.5),)

    assert not check_gradients(LastElementWrong, (20, 30)).ok


def test_integer_children_and_fields() -> None:
    values = [np.random.default_rng(1).standard_normal((4, 3)), np.array([3, 0, 3], np.uint32)]
    report = check_gradients(lambda x, i: mgraph.rows(x, i), values=values)
    assert report.ok and len(report.checks) == 1
    assert check_gradients(mgraph.clip, (5,), fields={"c": 0.7}).ok


def test_functions_of_nodes_can_be_checked() -> None:
    def gated(x: mgraph.Node, y: mgraph.Node) -> mgraph.Node:
        return mgraph.sigmoid(x) * y + x

    assert check_gradients(gated, (2, 3), (1, 3)).ok


def test_dropout_is_checked_with_one_mask() -> None:
    assert check_gradients(lambda x: mgraph.dropout(x, 0.4), (6, 5)).ok


def test_a_class_without_cases_needs_shapes() -> None:
    with pytest.raises(mgraph.GraphError, match="Product declares no cases"):
        check_gradients(Product)


def test_a_masked_loss_is_checked_in_float64_throughout() -> None:
    graph = ExpressionGraph()
    logits = graph.param("logits", (4, 5), inits.normal())
    loss = mgraph.cross_entropy(logits, graph.indices([0, 4, 2, 2]), 0.1)
    masked = mgraph.sum(loss * graph.constant((4, 1), inits.from_vector([1, 1, 0, 1])))
    assert loss.value_type == "float32"
    report = check_gradients(masked)
    assert report.ok, report


def test_casts_do_not_blur_the_differences() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (3, 4), inits.normal(), "bfloat16")
    xs = graph.constant((5, 4), inits.normal(), "bfloat16")

    def step(total: mgraph.Node, x: mgraph.Node) -> tuple[mgraph.Node, tuple[()]]:
        return total + mgraph.cast(mgraph.tanh(w * x), "float32"), ()

    total, _ = mgraph.scan(step, graph.zeros((3, 4)), xs)
    report = check_gradients(mgraph.sum(mgraph.flatten(total * mgraph.cast(w, "float32"))))
    assert report.ok, report
