"""Operators that compute in a type of their own are checked as if it were float64."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mgraph import ExpressionGraph, NaryNodeOp, Node, UnaryNodeOp, check_gradients, dot, flatten, inits, mean
from mgraph.cases import Case
from mgraph.gradcheck import check_budgets, check_compiled, check_layers, check_loss, check_mutants
from mgraph.gradcheck.shrinking import smallest_failure
from mgraph.gradcheck.survey import check_operator
from mgraph.gradcheck.witnesses.narrow import in_float64

NOTE = "computes in float32: checked as if it were float64"


class Norm(NaryNodeOp):
    """Layer normalization in float32; forward and rule share a constant, which float32 rounds."""

    type = "norm32"
    cases = (Case((2, 3), (3,)),)

    def forward_ops(self, x, g):
        n, _ = self.normal(x)
        return n.astype(x.dtype) * g

    def backward_ops(self, adj, val, x, g):
        n, s = self.normal(x)
        u = (adj * g).astype(jnp.float32)
        d = s * (u - jnp.mean(u, -1, keepdims=True) - n * jnp.mean(u * n, -1, keepdims=True))
        return d.astype(x.dtype), (adj * n).astype(g.dtype)

    def normal(self, x):
        x = x.astype(jnp.float32)
        s = lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5)
        return (x - jnp.mean(x, -1, keepdims=True)) * s, s


class Gelu(UnaryNodeOp):
    """Uses tanh in float32; forward and rule have constants that are rounded differently."""

    type = "gelu32"
    cases = (Case((2, 3)),)
    factor = 1.0

    def forward_ops(self, x):
        y, root = x.astype("float32"), math.sqrt(2 / math.pi)
        return (0.5 * y * (1 + jnp.tanh(root * (y + 0.044715 * y**3)))).astype(x.dtype)

    def backward_ops(self, adj, val, x):
        y, root = x.astype("float32"), math.sqrt(2 / math.pi)
        t = jnp.tanh(root * y + root * 0.044715 * y**3)
        slope = 0.5 * (1 + t) + 0.5 * y * (1 - t * t) * (root + 3 * root * 0.044715 * y * y)
        return ((self.factor * adj * slope).astype(x.dtype),)


class WrongGelu(Gelu):
    type = "wrong-gelu32"
    factor = 1 + 3e-6  # a check with the limits of float32 lets this pass


class Cut(Gelu):
    """Its rule loses digits that its forward keeps."""

    type = "cut32"

    def backward_ops(self, adj, val, x):
        (gradient,) = super().backward_ops(adj, val, x)
        return (gradient.astype(jnp.bfloat16).astype(x.dtype),)


class Running(UnaryNodeOp):
    """A loop in bfloat16, whose rule is a loop in float32."""

    type = "running16"
    cases = (Case((4, 3)),)

    def forward_ops(self, x):
        def step(state, row):
            state = jnp.tanh(state + row)
            return state, 0.5 * state

        return lax.scan(step, jnp.zeros(3, jnp.bfloat16), x.astype(jnp.bfloat16))[1].astype(x.dtype)

    def backward_ops(self, adj, val, x):
        def step(later, rows):
            by, state = rows
            later = (later + 0.5 * by) * (1 - state * state)
            return later, later

        rows = adj.astype(jnp.float32), (2 * val).astype(jnp.float32)
        return (lax.scan(step, jnp.zeros(3, jnp.float32), rows, reverse=True)[1].astype(x.dtype),)


class Sine(UnaryNodeOp):
    type = "sine32"
    cases = (Case((2, 3)),)

    def forward_ops(self, x):
        return jnp.sin(0.1 * x.astype(jnp.float32)).astype(x.dtype)

    def backward_ops(self, adj, val, x):
        return ((adj * 0.1 * jnp.cos(0.1 * x.astype(jnp.float32))).astype(x.dtype),)


class Bits(UnaryNodeOp):
    """Depends on how float32 is stored, through an operation without a gradient."""

    type = "bits32"
    cases = (Case((2, 3)),)

    def forward_ops(self, x):
        y = x.astype(jnp.float32)
        sign = lax.bitcast_convert_type(y, jnp.int32) < 0
        return jnp.where(sign, -y, y).astype(x.dtype)

    def backward_ops(self, adj, val, x):
        return (adj * jnp.sign(x),)


@pytest.mark.parametrize("operator", [Norm, Gelu])
def test_right_rules_in_float32_are_right(operator: type[NaryNodeOp]) -> None:
    row = check_operator(operator)
    assert row.ok and row.verdict == f"ok ({NOTE})"


def test_a_right_rule_in_bfloat16_is_right() -> None:
    report = check_gradients(Running, thorough=True)
    assert report.ok and report.note == "computes in bfloat16: checked as if it were float64"
    # Its numbers are exact in any type, so the limits are those of float64.
    assert report.checks[0].allowed["second"] == 1e-10


def test_a_wrong_rule_in_float32_is_wrong() -> None:
    report = check_gradients(WrongGelu)
    assert not report.ok and {"jax", "differences"} == set(report.checks[0].objections)
    assert report.note == NOTE
    failure = smallest_failure(report)
    assert failure is not None and failure.example.values[0].size == 1


def test_what_depends_on_bits_stays_as_it_is() -> None:
    report = check_gradients(Bits)
    note = (
        "computed in float32, whose rounding is wrong for float64: cast by x.astype(jnp.promote_types(x.dtype"
    )
    assert note in report.note


def loss_of(operator: type[Gelu]) -> Any:
    def record(graph: ExpressionGraph) -> Node:
        x = graph.constant((4, 3), inits.from_vector(np.linspace(-1, 1, 12)))
        w, g = graph.param("w", (3, 3), inits.glorot_uniform()), graph.param("g", (1, 3), inits.ones())
        return mean(flatten(operator(Norm(dot(x, w), g))), axis=0)

    return record


PARAMS = {
    "w": np.random.default_rng(0).normal(size=(3, 3)),
    "g": np.random.default_rng(1).normal(size=(1, 3)),
}


@pytest.mark.thorough
def test_whole_losses_with_float32_inside() -> None:
    assert all(check.ok for check in check_loss(loss_of(Gelu), PARAMS)[1])
    assert check_layers(loss_of(Gelu), PARAMS).ok
    wrong = check_loss(loss_of(WrongGelu), PARAMS)[1]
    assert all("float64" in check.objections for check in wrong)
    report = check_layers(loss_of(WrongGelu), PARAMS)
    assert [node.type for node in report.nodes if not node.ok] == ["wrong-gelu32"]


def test_mutants_of_a_rule_in_float32() -> None:
    report = check_mutants(["sine32"], module=__name__)
    assert report.ok, report


def test_compiled_programs_and_budgets_of_narrow_operators() -> None:
    report = check_compiled(["norm32", "running16"], module=__name__, quick=True, sizes=[100])
    assert report.ok, report
    rows = check_budgets(["running16"], module=__name__, element_types=["bfloat16"]).rows
    assert rows and not any(row.problem for row in rows)


def test_numbers_and_control_flow_in_float64() -> None:
    half = jnp.asarray([0.1, 0.5], jnp.float16)

    def narrow(x: jax.Array, count: jax.Array) -> Any:
        y = x.astype(jnp.float32) * 0.1 + half
        y = lax.cond(jnp.sum(y) > 0, lambda y: y / 3, lambda y: -y, y)
        y = lax.fori_loop(0, 3, lambda _, y: y * jnp.float32(0.7), y)
        y = lax.while_loop(lambda y: jnp.max(y) < 5, lambda y: y * 3, y)
        _, y = lax.scan(lambda c, row: (c + row, jax.jit(jnp.sin)(c)), jnp.float32(0), y)
        return jax.nn.relu(y).astype(jnp.float16), count + jnp.argmax(y), None

    with jax.enable_x64(True):
        x, count = jnp.asarray([0.2, 3.0]), jnp.asarray(2)
        y, place, nothing = in_float64(narrow)(x, count)
    expected = (np.asarray(x) * 0.1 + [0.1, 0.5]) / 3 * 0.7**3
    while expected.max() < 5:
        expected = 3 * expected
    running = np.sin([0.0, expected[0]])
    y, place = np.asarray(y), np.asarray(place)
    assert y.dtype == np.float64 and nothing is None
    np.testing.assert_allclose(y, np.maximum(running, 0), rtol=1e-14)
    assert place == 2 + np.argmax(running) and place.dtype == np.int64
