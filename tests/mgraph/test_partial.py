"""Partial shapes, and functions that are recorded for each size that they get."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import jax
import numpy as np
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ElementTypeError,
    ExpressionGraph,
    GraphError,
    Node,
    PartialFunction,
    PartialShape,
    ShapeError,
    inits,
)
from tests.helpers.leaves import drawn


def test_partial_shapes_fit_or_contradict() -> None:
    shape = PartialShape((None, 3, -1))
    assert shape == (-1, 3, -1) and shape.rank == 3 and not shape.is_static
    assert shape.compatible((5, 3, 7)) and shape.compatible((5, -1, 7)) and not shape.compatible((5, 4, 7))
    assert not shape.compatible((3, 3))
    assert shape.merge((2, -1, -1)) == (2, 3, -1) and shape.merge((2, 3, 4)).to_shape() == (2, 3, 4)
    for refused in (lambda: shape.merge((1, 4, 1)), shape.to_shape, lambda: PartialShape((-2,))):
        with pytest.raises(ShapeError):
            refused()
    with pytest.raises(ShapeError, match=r"graph\.partial_function takes unknown sizes"):
        ExpressionGraph().input("x", (-1, 3))


def mean_of_affine(graph: ExpressionGraph) -> PartialFunction:
    def build(x: Node, y: Node) -> list[Node]:
        hidden = mgraph.affine(x, graph.param("W", (3, 2)), graph.param("b", (1, 2), inits.ones()))
        return [hidden, mgraph.mean(hidden * y, (0, 1))]

    return graph.partial_function(build, {"x": (-1, 3), "y": (-1, 2)})


def test_an_input_of_known_sizes_may_be_a_number(graph: ExpressionGraph) -> None:
    f = graph.partial_function(lambda x, factor: x * factor, {"x": (-1,), "factor": ()})
    x = np.float32([1, 2])
    assert f(x, 3.0).tolist() == f(x, factor=3).tolist() == f.pure({}, [x, 3.0]).tolist() == [3, 6]
    with pytest.raises(ArgumentError, match="'x' of unknown sizes takes an array, got 3.0"):
        f(3.0, 3.0)
    with pytest.raises(GraphError, match=r"expected the inputs \['x', 'factor'\], got \['x', 'factr'\]"):
        f(x, factr=3.0)


def test_one_function_takes_many_sizes(graph: ExpressionGraph) -> None:
    f = mean_of_affine(graph)
    for rows in (1, 4, 2, 4):
        x, y = drawn(rows, 3), drawn(rows, 2, seed=1)
        hidden, mean = f(x, y=y)
        w, b = (np.asarray(graph.params()[name].val()) for name in ("W", "b"))
        np.testing.assert_allclose(hidden, x @ w + b, rtol=1e-5)
        np.testing.assert_allclose(mean, np.mean((x @ w + b) * y, keepdims=True), rtol=1e-5)
        params = graph.params().vals()
        slope = jax.grad(lambda p, x=x, y=y: f.pure(p, [x, y])[1][0, 0])(params)["W"]
        np.testing.assert_allclose(slope, x.T @ y / (2 * rows), rtol=1e-5)
    before = mgraph.compile_stats()
    f(drawn(2, 3), drawn(2, 2))
    assert (mgraph.compile_stats() - before).misses == 0
    assert "3 combinations" in repr(f)


def test_a_size_that_is_known_follows_the_graphs_settings(graph: ExpressionGraph) -> None:
    def build(x: Node) -> Node:
        return mgraph.sum(x * graph.param("W", (3,), inits.ones()), -1) * (1 if graph.is_inference() else 2)

    f = graph.partial_function(build, {"x": (-1, 3)})
    for inference, expected in ((False, 6), (True, 3), (False, 6)):
        graph.set_inference(inference)
        np.testing.assert_array_equal(f(np.ones((2, 3), np.float32)), np.full((2, 1), expected))
    graph.set_strict_broadcasting()
    with pytest.raises(ShapeError, match="does not broadcast"):
        f(np.ones((2, 3), np.float32))
    assert "1 combinations" in repr(f)


def test_the_graph_goes_on_as_if_nothing_had_been_recorded(graph: ExpressionGraph) -> None:
    w = graph.param("W", (3, 2))
    loss = mgraph.sum(w * w, (0, 1))
    graph.forward()
    f = mean_of_affine(graph)
    f(drawn(4, 3), drawn(4, 2))
    nodes = len(graph.tape.nodes)
    twice = loss * mgraph.sum(w, (0, 1))
    assert len(graph.tape.nodes) > nodes and w.id == 0
    graph.forward()
    graph.backward()
    value = np.asarray(w.val(), np.float64)
    expected = 2 * value * value.sum() + (value**2).sum()
    np.testing.assert_allclose(w.grad(), expected, rtol=1e-5)
    assert twice.scalar() == pytest.approx((value**2).sum() * value.sum(), rel=1e-5)
    graph.clear()
    f(drawn(6, 3), drawn(6, 2))
    b = graph.get("b")
    assert b is not None
    top = b * 2
    graph.forward()
    assert np.asarray(top.val()).tolist() == [[2, 2]]


def test_what_builds_no_function_of_these_inputs_is_refused(graph: ExpressionGraph) -> None:
    for build in (lambda y: y, lambda: graph.ones((2, 2)), lambda x, y: x):
        with pytest.raises(ArgumentError, match=r"other arguments than \['x'\]: (.|\n)*test_partial"):
            graph.partial_function(build, {"x": (-1, 3)})
    outside = graph.ones((1, 3))
    uses = graph.partial_function(lambda x: x + outside, {"x": (-1, 3)})
    with pytest.raises(
        GraphError, match="of the graph is used in a partial function; make it one of its arg"
    ):
        uses(drawn(2, 3))
    nothing = graph.partial_function(lambda x: None, {"x": (-1, 3)})
    with pytest.raises(ArgumentError, match="the outputs of a function are nodes, got None"):
        nothing(drawn(2, 3))
    assert repr(nothing) == "PartialFunction((x: float32[-1, 3]); recorded for 0 combinations of sizes)"


def test_arguments_that_do_not_fit(graph: ExpressionGraph) -> None:
    f = mean_of_affine(graph)
    with pytest.raises(ShapeError, match=r"input 'x' has shape \(-1, 3\), got \(2, 4\)"):
        f(drawn(2, 4), drawn(2, 2))
    with pytest.raises(ShapeError, match=r"(?s)children do not fit.*test_partial"):
        f(drawn(2, 3), drawn(5, 2))
    with pytest.raises(GraphError, match=r"expected the inputs \['x', 'y'\], got \['x'\]"):
        f(drawn(2, 3))
    with pytest.raises(ElementTypeError):
        f(drawn(2, 3).astype(np.float64), drawn(2, 2))
    with pytest.raises(ArgumentError, match="takes an array"):
        f(drawn(2, 3), [[1.0, 2.0]])
    whole = graph.partial_function(lambda i: mgraph.one_hot(i, 3), {"i": ((None,), "uint32")})
    assert whole(np.array([2, 0], np.uint32)).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_threads_record_one_after_the_other(graph: ExpressionGraph) -> None:
    w, both = graph.param("w", (1, 3), inits.ones()), Barrier(2, timeout=0.2)

    def build(x: Node) -> Node:
        with suppress(BrokenBarrierError):
            both.wait()  # passes if another thread records at the same time
        return mgraph.sum(x * w, (0, 1))

    f = graph.partial_function(build, {"x": (-1, 3)})
    with ThreadPoolExecutor(2) as pool:
        sums = list(pool.map(lambda rows: f(np.ones((rows, 3), np.float32)).item(), (1, 2)))
    assert sums == [3, 6]


def test_an_output_of_another_recording_is_told(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2, 3), inits.ones())
    outside = mgraph.sin(w)
    partial = graph.partial_function(lambda x: outside, {"x": (-1, 3)})
    with pytest.raises(GraphError, match="output sin made at .* is not of this partial function"):
        partial(np.ones((2, 3), np.float32))
    with pytest.raises(GraphError, match="output argument made at .* is of a loop's body"):
        mgraph.scan(lambda state, part: (state, graph.function(part)), w[0], w)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="output sin made at .* belongs to another graph"):
        ExpressionGraph().function(outside)
