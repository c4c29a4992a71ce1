"""The checker on shapes of all kinds: broadcast, empty, single, large; and on a node that is given twice."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import mgraph
from mgraph import NaryNodeOp, check_gradients

BINARY = (
    lambda x, y: x + y,
    lambda x, y: x * mgraph.exp(y),
    lambda x, y: x / (y * y + 2.0),
    mgraph.maximum,
    mgraph.logaddexp,
)
UNARY = (
    mgraph.tanh,
    mgraph.softmax,
    lambda x: mgraph.sum(x, -1),
    lambda x: mgraph.cumsum(x, 0),
)


def distinct(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.linspace(-1, 1, int(np.prod(shape)))).reshape(shape)


@settings(max_examples=7)
@example(shapes=[(3, 1, 5), (4, 1)], function=BINARY[2])
@example(shapes=[(0, 2), (1, 1)], function=BINARY[1])
@given(
    mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=3, min_side=0, max_side=4).map(
        lambda found: list(found.input_shapes)
    ),
    st.sampled_from(BINARY),
)
def test_children_of_all_shapes_that_fit(shapes: list[tuple[int, ...]], function: Any) -> None:
    values = [distinct(shape, i) + 0.01 * i for i, shape in enumerate(shapes)]
    report = check_gradients(function, values=values)
    assert report.ok, report
    assert [check.shape for check in report.checks] == shapes


@settings(max_examples=5)
@given(st.sampled_from(BINARY), st.sampled_from([(3,), (2, 1, 2), (1,)]))
def test_one_node_given_twice_gets_the_sum(function: Any, shape: tuple[int, ...]) -> None:
    report = check_gradients(lambda x: function(x, x), values=[distinct(shape, 0) + 0.3])
    assert report.ok, report
    assert len(report.checks) == 1


@settings(max_examples=5)
@example(function=UNARY[0], shape=(0, 3))
@example(function=UNARY[1], shape=(1,))
@example(function=UNARY[3], shape=(60, 50))
@given(st.sampled_from(UNARY), st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple))
def test_inputs_of_all_sizes(function: Any, shape: tuple[int, ...]) -> None:
    report = check_gradients(function, values=[distinct(shape, 0)])
    assert report.ok, report


class SumsTwo(NaryNodeOp):
    """Forgets one of its children if both are the same node."""

    type = "sums two"

    def forward_ops(self, a, b):
        return a * jnp.sin(b)

    def backward_ops(self, adj, val, a, b):
        both = adj * jnp.sin(b), adj * a * jnp.cos(b)
        return (both[0], None) if a is b else both


def test_a_rule_that_forgets_a_child_given_twice_is_seen() -> None:
    assert check_gradients(SumsTwo, (3,), (3,)).ok
    report = check_gradients(lambda x: SumsTwo(x, x), (3,))
    assert not report.ok, report


class LastColumnForgotten(NaryNodeOp):
    type = "last column forgotten"

    def forward_ops(self, a, b):
        return a * b

    def backward_ops(self, adj, val, a, b):
        return adj * b, (adj * a).at[..., 1000:].set(0.0)


def test_an_error_beyond_the_thousandth_column_is_seen() -> None:
    assert check_gradients(LastColumnForgotten, (2, 1000), (1, 1000)).ok
    assert not check_gradients(LastColumnForgotten, (2, 1001), (1, 1001)).ok
