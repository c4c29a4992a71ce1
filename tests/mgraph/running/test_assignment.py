"""Assignment in place: what is computed, what is overwritten, and what is not."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ElementTypeError, ExpressionGraph, GraphError, ParamNode, ShapeError, inits


def pointer(node: ParamNode) -> int:
    """The address of the value, without handing the value out."""
    assert node._value is not None
    return node._value.unsafe_buffer_pointer()


def test_a_loop_of_assignments_allocates_and_compiles_nothing(graph: ExpressionGraph) -> None:
    x = graph.param("x", (256, 256), inits.zeros())
    after = mgraph.tanh(x) + 1
    graph.assign(x, after)
    graph.assign(x, after)
    before, places = mgraph.compile_stats(), set()
    for _ in range(5):
        graph.assign(x, after)
        places.add(pointer(x))
    assert (mgraph.compile_stats() - before).misses == 0 and len(places) == 1
    expected = 0.0
    for _ in range(7):
        expected = np.tanh(expected) + 1
    np.testing.assert_allclose(x.val(), np.full((256, 256), expected), rtol=1e-6)


def test_what_was_read_is_not_written_over(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3,), inits.from_vector([1.0, 2.0, 3.0]))
    double, square = x * 2, mgraph.square(x)
    graph.assign(x, double)
    read = x.val()
    graph.assign(x, double)
    assert np.asarray(read).tolist() == [2, 4, 6]
    graph.forward()
    graph.assign(x, double)
    assert np.asarray(square.val()).tolist() == [16, 64, 144]
    assert np.asarray(x.val()).tolist() == [8, 16, 24]
    for given in (np.ones(3, np.float32), jnp.ones(3)):
        x.set_value(given)
        graph.assign(x, double)
        assert given.tolist() == [1, 1, 1] and np.asarray(x.val()).tolist() == [2, 2, 2]


def test_several_values_at_once_see_the_old_ones(graph: ExpressionGraph) -> None:
    a = graph.param("a", (2,), inits.from_vector([1.0, 2.0]))
    b = graph.param("b", (2,), inits.from_vector([3.0, 4.0]))
    for _ in range(3):
        graph.assign({a: b, b: a})
    assert [np.asarray(n.val()).tolist() for n in (a, b)] == [[3, 4], [1, 2]]
    graph.assign(a, b)
    for _ in range(3):
        graph.assign(a, a + 1)
    assert [np.asarray(n.val()).tolist() for n in (a, b)] == [[4, 5], [1, 2]]
    graph.assign({a: a + 1, b: a + 1})
    graph.assign(a, a + 1)
    assert [np.asarray(n.val()).tolist() for n in (a, b)] == [[6, 7], [5, 6]]


def test_a_training_step_and_a_counter(graph: ExpressionGraph) -> None:
    count = graph.param("count", (1,), inits.zeros(), "int32", fixed=True)
    noise = graph.param("noise", (4,), inits.zeros())
    draws = set()
    for _ in range(3):
        graph.assign({count: count + 1, noise: graph.constant((4,), inits.normal()) * 1})
        draws.add(float(noise.val()[0]))
    assert count.val().tolist() == [3] and len(draws) == 3


def test_errors(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.ones())
    other = ExpressionGraph()
    with pytest.raises(ShapeError, match=r"parameter 'x' has shape \(2,\), got float32\[1\]"):
        graph.assign(x, mgraph.sum(x))
    with pytest.raises(ElementTypeError, match=r"holds float32, got int32; cast\(x, float32\)"):
        graph.assign(x, mgraph.cast(x, "int32"))
    with pytest.raises(ArgumentError, match="parameters of this graph"):
        graph.assign(graph.ones((2,)), x)
    with pytest.raises(ArgumentError, match="parameters of this graph"):
        graph.assign(other.param("x", (2,)), x)
    with pytest.raises(GraphError, match="belongs to another graph"):
        graph.assign(x, other.ones((2,)))
    with pytest.raises(ArgumentError, match="expected assign"):
        graph.assign(x)
    assert np.asarray(x.val()).tolist() == [1, 1]


def test_parts_of_a_parameter_are_assigned(graph: ExpressionGraph) -> None:
    start = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    w = graph.param("w", (3, 4), inits.from_tensor(start))
    graph.assign(w[1:, 2], w[1:, 0] * 10)
    start[1:, 2] = start[1:, 0] * 10
    np.testing.assert_array_equal(w.val(), start)
    graph.assign({mgraph.transpose(w)[-1]: w[0, :3], w[0, ::2]: w[2, ::2], mgraph.reverse(w)[0, 1]: w[1, 1]})
    after = start.copy()
    after[:, -1] = start[0, :3]
    after[0, ::2] = start[2, ::2]
    after[2, 1] = start[1, 1]
    np.testing.assert_array_equal(w.val(), after)


def test_a_part_is_written_in_place(graph: ExpressionGraph) -> None:
    w = graph.param("w", (256, 256), inits.zeros())
    part, value = w[3], w[3] + 1
    graph.assign(part, value)
    places = set()
    for _ in range(4):
        graph.assign(part, value)
        places.add(pointer(w))
    assert len(places) == 1
    assert np.asarray(w.val())[3].tolist() == [5] * 256 and not np.asarray(w.val())[4].any()


def test_assigned_parts_are_no_tops(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2, 2), inits.ones())
    loss = mgraph.sum(w, (0, 1))
    graph.assign(w[0], graph.zeros((2,)))
    graph.backprop()
    assert loss.scalar() == 2 and np.asarray(w.grad()).tolist() == [[1, 1], [1, 1]]


def test_parts_that_cannot_be_assigned(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2, 2), inits.ones())
    with pytest.raises(ArgumentError, match="slices of them"):
        graph.assign((w * 2)[0], w[0])
    with pytest.raises(ShapeError, match=r"this part of a parameter has shape \(2,\)"):
        graph.assign(w[0], w)
    with pytest.raises(ArgumentError, match="both whole and in part"):
        graph.assign({w[0]: w[1], w: w * 2})
    part = w[0]
    graph.clear()
    top = mgraph.sum(w * 2.0, (0, 1))
    with pytest.raises(GraphError, match="graph was cleared"):
        graph.assign(part, graph.zeros((2,)))
    graph.backprop()
    assert top.scalar() == 8
