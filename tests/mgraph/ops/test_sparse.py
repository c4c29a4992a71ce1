"""Products with sparse matrices: compared with dense products, and cases that Marian leaves out."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import ElementTypeError, ExpressionGraph, Node, ShapeError, check_gradients
from mgraph.ops.sparse import csr_dot, dot_csr
from tests.helpers.leaves import constant, gradient, param, value

SHAPE = (4, 5)
VALUES = np.array([2.0, -1.0, 0.5, 3.0, 1.5, 4.0])
INDICES = np.array([4, 0, 1, 1, 3, 1], np.uint32)
OFFSETS = np.array([0, 2, 2, 5, 6], np.uint32)
"""Row 0 is out of order, row 1 is empty, row 2 has two entries at one place."""

DENSE = np.array([[-1, 0, 0, 0, 2], [0, 0, 0, 0, 0], [0, 3.5, 0, 1.5, 0], [0, 4, 0, 0, 0]])


def sparse(graph: ExpressionGraph, type: str = "float32") -> tuple[Node, Node, Node]:
    """Values, indices and offsets of ``DENSE``."""
    indices, offsets = constant(graph, INDICES, "uint32"), constant(graph, OFFSETS, "uint32")
    return param(graph, VALUES, "values", type), indices, offsets


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape)


@pytest.mark.parametrize("rest", [(3,), (2, 3), ()])
def test_a_sparse_matrix_from_the_left(graph: ExpressionGraph, rest: tuple[int, ...]) -> None:
    parts = sparse(graph)
    for transposed, matrix in ((False, DENSE), (True, DENSE.T)):
        b = random(matrix.shape[1], *rest)
        found = csr_dot(SHAPE, *parts, constant(graph, b.astype(np.float32)), trans_a=transposed)
        assert found.type == "csr_dot" and found.shape == (matrix.shape[0], *rest)
        np.testing.assert_allclose(value(found), np.tensordot(matrix, b, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rest", [(3,), (2, 3), ()])
def test_a_sparse_matrix_from_the_right(graph: ExpressionGraph, rest: tuple[int, ...]) -> None:
    parts = sparse(graph)
    for transposed, matrix in ((False, DENSE), (True, DENSE.T)):
        a = random(*rest, matrix.shape[0])
        found = dot_csr(constant(graph, a.astype(np.float32)), SHAPE, *parts, trans_b=transposed)
        assert found.shape == (*rest, matrix.shape[1])
        np.testing.assert_allclose(value(found), a @ matrix, rtol=1e-5, atol=1e-6)


def test_gradients_by_matrix_and_by_values(graph: ExpressionGraph) -> None:
    values, indices, offsets = sparse(graph)
    b = param(graph, random(5, 3), "b")
    y = csr_dot(SHAPE, values, indices, offsets, b)
    assert check_gradients(y).ok
    np.testing.assert_allclose(gradient(y, b), DENSE.sum(0)[:, None] * np.ones((1, 3)), rtol=1e-6)
    rows_of_b = np.asarray(b.leaf_value())[INDICES]
    np.testing.assert_allclose(gradient(y, values), rows_of_b.sum(1), rtol=1e-5)


@pytest.mark.parametrize("swap", [False, True])
def test_second_order_and_vmap(graph: ExpressionGraph, swap: bool) -> None:
    parts = sparse(graph, "float64")
    d = param(graph, random(3, 4) if swap else random(5, 3), "d", "float64")
    y = dot_csr(d, SHAPE, *parts) if swap else csr_dot(SHAPE, *parts, d)
    function = graph.function(y * y * y, [parts[0], d])

    def dense_loss(values: Any, d: Any) -> Any:
        rows = np.repeat(np.arange(4), np.diff(OFFSETS.astype(int)))
        matrix = jnp.zeros(SHAPE).at[rows, INDICES].add(values)
        return jnp.sum((d @ matrix if swap else matrix @ d) ** 3)

    def loss(values: Any, d: Any) -> Any:
        return jnp.sum(function.pure({}, [values, d]))

    def curvature(f: Any) -> Any:
        return jax.grad(lambda v, d: sum(jnp.vdot(g, g) for g in jax.grad(f, (0, 1))(v, d)), (0, 1))

    with jax.enable_x64(True):
        many = jnp.asarray(np.stack([VALUES, VALUES[::-1]]))
        found = jax.jit(jax.vmap(curvature(loss), (0, None)))(many, d.leaf_value())
        expected = jax.vmap(curvature(dense_loss), (0, None))(many, d.leaf_value())
        chex.assert_trees_all_close(found, expected, rtol=1e-12)


@pytest.mark.parametrize("outside", [5, -1])
def test_padding_counts_for_nothing(graph: ExpressionGraph, outside: int) -> None:
    """One entry is after the last offset, one in a column out of range."""
    values = param(graph, [*VALUES, 7.0, 7.0], "values")
    indices = constant(graph, np.array([*INDICES, outside, 0], np.int32), "int32")
    offsets = constant(graph, OFFSETS + np.uint32([0, 0, 0, 0, 1]), "uint32")
    for transposed in (False, True):
        b = param(graph, random(4 if transposed else 5, 3), f"b{transposed}")
        y = csr_dot(SHAPE, values, indices, offsets, b, transposed)
        matrix = DENSE.T if transposed else DENSE
        np.testing.assert_allclose(value(y), matrix @ np.asarray(b.leaf_value()), rtol=1e-5, atol=1e-6)
        assert gradient(y, values)[6:].tolist() == [0, 0]


def test_nothing_is_made_dense(graph: ExpressionGraph) -> None:
    """A million rows and columns would take four terabytes if made dense."""
    n = 1_000_000
    values = param(graph, VALUES, "values")
    indices = constant(graph, INDICES, "uint32")
    offsets = constant(graph, np.minimum(np.arange(n + 1), 6).astype(np.uint32), "uint32")
    b = param(graph, np.arange(n)[:, None], "b")
    y = csr_dot((n, n), values, indices, offsets, b)
    assert value(y)[:7, 0].tolist() == [*(VALUES * INDICES), 0]
    assert gradient(y, values).tolist() == INDICES.tolist()
    assert gradient(y, b)[:6, 0].tolist() == [-1, 7.5, 0, 1.5, 2, 0]


@pytest.mark.parametrize("element_type", ["float16", "bfloat16"])
def test_sums_of_short_types_are_kept_in_float32(graph: ExpressionGraph, element_type: str) -> None:
    """3000 ones in one row: a float16 sum of ones would stop at 2048, a bfloat16 one at 256."""
    n = 3000
    ones = param(graph, np.ones(n), "ones", element_type)
    zeros, offsets = graph.indices([0] * n), graph.indices([0, n])
    b = param(graph, np.ones((1, 1)), "b", element_type)
    y = csr_dot((1, 1), ones, zeros, offsets, b)
    assert y.value_type == element_type
    assert float(value(y)[0, 0]) == pytest.approx(n, rel=4e-3)
    assert float(gradient(y, b)[0, 0]) == pytest.approx(n, rel=4e-3)


def test_errors(graph: ExpressionGraph) -> None:
    values, indices, offsets = sparse(graph)
    b = param(graph, random(5, 3), "b")
    with pytest.raises(ShapeError, match=r"equal inner sizes, got 4 and axis 0 of \(5, 3\)"):
        csr_dot(SHAPE, values, indices, offsets, b, trans_a=True)
    with pytest.raises(ShapeError, match=r"equal inner sizes, got 4 and axis -1 of \(5, 3\)"):
        dot_csr(b, SHAPE, values, indices, offsets)
    with pytest.raises(ShapeError, match="expected 6 offsets for 5 rows, got 5"):
        csr_dot((5, 5), values, indices, offsets, b)
    with pytest.raises(ShapeError, match="two axes"):
        csr_dot((4, 5, 1), values, indices, offsets, b)
    with pytest.raises(ShapeError, match="one shape"):
        csr_dot(SHAPE, values, offsets, offsets, b)
    with pytest.raises(ElementTypeError, match="child 1 holds indices, expected integers, got float32"):
        csr_dot(SHAPE, values, values, offsets, b)
    half = param(graph, VALUES, "half", "float16")
    with pytest.raises(ElementTypeError, match="differ in element type, float16 and float32"):
        csr_dot(SHAPE, half, indices, offsets, b)
    with pytest.raises(ElementTypeError, match="csr_dot: expected a node"):
        csr_dot(SHAPE, VALUES, indices, offsets, b)
