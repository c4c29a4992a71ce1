"""Initializers: formulas, statistics, errors."""

from __future__ import annotations

import copy
import math
import pickle
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, ShapeError, inits
from mgraph.places import place


def value(init: inits.Initializer, shape: tuple[int, ...], type_: str = "float32") -> np.ndarray:
    graph = ExpressionGraph(seed=11)
    return np.asarray(graph.param("p", shape, init, type_).val())


def test_fixed_values() -> None:
    np.testing.assert_array_equal(value(inits.zeros(), (2,)), [0, 0])
    np.testing.assert_array_equal(value(inits.ones(), (2,)), [1, 1])
    np.testing.assert_array_equal(value(inits.from_value(2.5), (1, 2)), [[2.5, 2.5]])
    np.testing.assert_array_equal(value(inits.eye(3), (2, 2)), [[3, 0], [0, 3]])
    np.testing.assert_array_equal(value(inits.range(1, 7, 2), (3,)), [1, 3, 5])
    np.testing.assert_array_equal(value(inits.from_vector([1, 2, 3, 4]), (2, 2)), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(value(inits.dummy(), (2, 3)), np.zeros((2, 3)))
    table = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(value(inits.from_tensor(table), (2, 3)), table)
    np.testing.assert_array_equal(value(inits.from_item(table), (2, 3)), table)
    np.testing.assert_array_equal(value(inits.from_vector(jnp.array([1, -2], "int4")), (2,)), [1, -2])


@pytest.mark.parametrize(
    "init",
    [
        inits.zeros(),
        inits.ones(),
        inits.from_value(2.5),
        inits.eye(3),
        inits.from_vector(np.arange(16)),
        inits.from_sparse_vector([0, 3], [1, 2]),
        inits.from_tensor(np.arange(16.0).reshape(4, 4)),
        inits.from_item(np.arange(16.0).reshape(4, 4)),
        inits.from_lambda(np.ones, "float16"),
        inits.range(1, 17),
        inits.sinusoidal_position_embeddings(3),
        inits.uniform(-1, 3),
        inits.glorot_uniform(),
    ],
)
def test_initializers_are_pickled_and_copied(init: inits.Initializer) -> None:
    def drawn(init: inits.Initializer) -> np.ndarray:
        graph = ExpressionGraph(seed=3)
        shown = graph.constant((4, 4), init) * 1.0
        graph.forward()
        return np.asarray(shown.val())

    expected = drawn(init)
    for other in (pickle.loads(pickle.dumps(init)), copy.deepcopy(init)):
        np.testing.assert_array_equal(value(other, (4, 4)), value(init, (4, 4)))
        np.testing.assert_array_equal(drawn(other), expected)
        if isinstance(init, inits.Random):
            assert other.generic == init.generic  # the key of its programs


def test_lambdas_may_work_in_another_type() -> None:
    seen = []

    def thirds(shape, dtype):
        seen.append(dtype)
        return np.full(shape, 1 / 3, dtype)

    result = value(inits.from_lambda(thirds, "float16"), (2,))
    assert seen == [np.float16] and result.dtype == np.float32
    np.testing.assert_array_equal(result, np.float32(np.float16(1 / 3)))


def test_a_later_change_of_the_users_array_changes_nothing() -> None:
    source = np.ones((64, 64), np.float32)
    graph = ExpressionGraph()
    constant = graph.constant(source.shape, inits.from_tensor(source))
    param = graph.param("p", source.shape, inits.from_tensor(source))
    doubled = constant * 2.0 + param
    source[:] = 7
    graph.forward()
    np.testing.assert_array_equal(doubled.val(), np.full((64, 64), 3.0))


def test_sinusoids_are_halves_not_interleaved() -> None:
    table = value(inits.sinusoidal_position_embeddings(3), (5, 8))
    positions = np.arange(3, 8)[:, None]
    angle = positions * 10000.0 ** (-np.arange(4) / 3)
    np.testing.assert_allclose(table, np.concatenate([np.sin(angle), np.cos(angle)], 1), atol=1e-6)


@pytest.mark.parametrize("p", [-0.5, 2, math.nan])
def test_a_probability_is_from_0_to_1(p: float) -> None:
    for made in (inits.bernoulli, inits.dropout):
        with pytest.raises(mgraph.ArgumentError, match="expects a probability 0 <= p"):
            made(p)


def test_numbers_that_are_not_given() -> None:
    assert inits.uniform() == inits.uniform(0, 1) and inits.normal() == inits.normal(0, 1)
    assert inits.bernoulli(0.5) == inits.bernoulli(0.5, 1, 0) and inits.gumbel() == inits.gumbel(1e-5)
    assert inits.glorot_uniform() == inits.glorot_uniform(False, False, 1)
    assert inits.glorot_normal() == inits.glorot_normal(False, False, 1)
    np.testing.assert_array_equal(value(inits.eye(), (2, 2)), np.eye(2))
    np.testing.assert_array_equal(value(inits.range(0, 2), (2,)), [0, 1])
    first = value(inits.sinusoidal_position_embeddings(), (1, 4))
    np.testing.assert_array_equal(first, [[0, 0, 1, 1]])


@pytest.mark.parametrize(
    ("init", "mean", "std", "low", "high"),
    [
        (inits.uniform(-1, 3), 1, 4 / math.sqrt(12), -1, 3),
        (inits.normal(0.5, 2), 0.5, 2, -20, 20),
        (inits.bernoulli(0.3, 2, -1), -0.4, 2 * math.sqrt(0.21), -1, 1),
        (inits.dropout(0.2), 1, 1.25 * math.sqrt(0.16), 0, 1.25),
        (inits.gumbel(), 0.5772, math.pi / math.sqrt(6), -5, 20),
        (inits.glorot_uniform(), 0, math.sqrt(2 / 500), -math.sqrt(6 / 500), math.sqrt(6 / 500)),
        (inits.glorot_uniform(True, False), 0, math.sqrt(1 / 200), -math.sqrt(3 / 200), math.sqrt(3 / 200)),
        (inits.glorot_uniform(False, True), 0, math.sqrt(1 / 300), -0.1, 0.1),
        (inits.glorot_uniform(True, True, 0.5), 0, 0.5 * math.sqrt(2 / 500), -0.06, 0.06),
        (inits.glorot_normal(), 0, math.sqrt(2 / 500), -1, 1),
        (inits.glorot_normal(True), 0, math.sqrt(1 / 200), -1, 1),
        (inits.glorot_normal(False, True, 2), 0, 2 * math.sqrt(1 / 300), -1, 1),
    ],
)
@pytest.mark.sampled(every=3)
def test_random_values(init, mean, std, low, high) -> None:
    """Both sources, numpy for parameters and JAX inside programs, follow the distribution."""
    graph = ExpressionGraph(seed=2)
    constant = graph.constant((200, 300), init)
    shown = constant * 1.0
    graph.forward()
    for sample in (value(init, (200, 300)), np.asarray(shown.val())):
        assert sample.mean() == pytest.approx(mean, abs=6 * std / math.sqrt(sample.size))
        assert sample.std() == pytest.approx(std, rel=0.03)
        assert low - 1e-6 <= sample.min() and sample.max() <= high + 1e-6


def test_mistakes_say_what_fits(graph: ExpressionGraph) -> None:
    with pytest.raises(ShapeError, match="3 values for a node of shape"):
        graph.constant((2, 2), inits.from_vector([1, 2, 3]))
    with pytest.raises(ShapeError, match="square matrix"):
        graph.constant((2, 3), inits.eye())
    with pytest.raises(ShapeError, match="has 4 values"):
        graph.constant((3,), inits.range(0, 4))
    with pytest.raises(ShapeError, match="at least two axes"):
        graph.param("v", (3,)).val()
    with pytest.raises(ValueError, match="0 <= p < 1"):
        inits.dropout(1.0)
    with pytest.raises(TypeError, match="an initializer from mgraph.inits"):
        graph.constant((2,), 3.0)
    with pytest.raises(mgraph.ElementTypeError, match="expected an element type"):
        graph.zeros((2,), "float31")
    with pytest.raises(ShapeError, match="cannot have negative sizes"):
        graph.zeros((2, -1))


@pytest.mark.parametrize(
    ("init", "type_", "message"),
    [
        (inits.from_value(0.5), "int32", "int32 cannot hold 0.5"),
        (inits.from_value(math.nan), "int32", "int32 cannot hold nan"),
        (inits.from_value(300), "uint8", "uint8 cannot hold 300"),
        (inits.from_value(-1), "uint32", "uint32 cannot hold -1"),
        (inits.from_vector([1, 2**70]), "int64", f"int64 cannot hold {2**70}"),
        (inits.from_lambda(lambda shape, _: np.full(shape, 0.5)), "int32", "int32 cannot hold 0.5"),
        (inits.from_value(1j), "float32", "real numbers, got complex128"),
        (inits.from_tensor(np.array([1, 1j])), "float32", "real numbers, got complex128"),
        (inits.from_sparse_vector([0], [1j]), "float32", "real numbers, got complex128"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit(
    graph: ExpressionGraph, init: inits.Initializer, type_: str, message: str
) -> None:
    """A constant refuses them when it is made, a parameter when it is read; both name the node's line."""
    with pytest.raises(mgraph.ElementTypeError, match=f"constant: .*{message}" + r"(.|\n)*test_inits\.py"):
        graph.constant((2,), init, type_)
    x = graph.param("x", (2,), init, type_)
    with pytest.raises(mgraph.ElementTypeError, match=f"parameter 'x': .*{message}") as caught:
        x.val()
    assert str(caught.value).endswith(f"test_inits.py:{line_of(x)}")


@pytest.mark.parametrize("values", [[1, None], ["1", "2"], [{}, 1], np.array([1, 2], "datetime64[s]")])
def test_what_is_no_number_is_refused(graph: ExpressionGraph, values) -> None:
    for type_ in ("float32", "int32"):
        with pytest.raises(mgraph.ElementTypeError, match="from_vector: expected real numbers, got"):
            graph.constant((2,), inits.from_vector(values), type_)


def test_arguments_that_give_no_values_are_refused(graph: ExpressionGraph) -> None:
    for make in (
        lambda: inits.range(0, 4, 0),
        lambda: inits.range(0, math.nan),
        lambda: inits.from_value([1, 2]),
        lambda: inits.from_lambda(None),
        lambda: inits.from_word2vec(1),
        lambda: inits.from_word2vec("v.txt", seed=-1),
    ):
        with pytest.raises(mgraph.ArgumentError):
            make()
    for shape in ((), (4, 2)):
        with pytest.raises(ShapeError, match="at least 3 features"):
            graph.constant(shape, inits.sinusoidal_position_embeddings())


def test_a_value_of_another_shape_names_the_parameter(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2, 3), inits.from_tensor(np.ones((3, 3))))
    with pytest.raises(ShapeError, match=r"parameter 'x': .*shape \(3, 3\) for a node of \(2, 3\)") as caught:
        graph.forward()
    assert str(caught.value).endswith(f"test_inits.py:{line_of(x)}")


def line_of(node: mgraph.Node) -> str:
    return place(node.where).rsplit(":", 1)[1]


def test_sparse_vectors() -> None:
    sparse = inits.from_sparse_vector([4, 1], [2.0, -1.0])
    np.testing.assert_allclose(value(sparse, (2, 3)), [[1e-6, -1, 1e-6], [1e-6, 2, 1e-6]], rtol=1e-6)
    for indices, values in (([0], [1.0, 2.0]), ([6], [1.0]), ([-1], [1.0]), ([0.5], [1.0])):
        with pytest.raises(ShapeError, match="one value for each index from 0 to 5"):
            value(inits.from_sparse_vector(indices, values), (2, 3))


def test_word_vectors(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\n2 0.5 -1\n0 3 4\n99 1 1\n")
    table = value(inits.from_word2vec(path), (3, 2))
    np.testing.assert_array_equal(table[[0, 2]], [[3, 4], [0.5, -1]])
    assert table[1].any() and np.array_equal(table, value(inits.from_word2vec(path), (3, 2)))
    assert np.linalg.norm(value(inits.from_word2vec(path, normalize=True), (3, 2))) == pytest.approx(1)
    with pytest.raises(mgraph.WordVectorsError, match=r"txt:1: vectors of length 2, but dim-emb is 4"):
        value(inits.from_word2vec(path), (3, 4))
    with pytest.raises(ShapeError, match="a matrix"):
        value(inits.from_word2vec(path), (3,))


def test_a_range_of_another_length_is_refused_before_it_is_made(graph: ExpressionGraph) -> None:
    for end, count in ((1e30, "9223372036854775807"), (-5, "0"), (6.5, "7")):
        with pytest.raises(
            ShapeError, match=rf"inits\.range\(0, {re.escape(str(end))}, 1\) has {count} values"
        ):
            graph.constant((2, 3), inits.range(0, end))


def test_a_function_that_gives_no_numbers_is_told(graph: ExpressionGraph) -> None:
    for kind in (None, "int32"):
        with pytest.raises(mgraph.ElementTypeError, match="from_lambda: expected real numbers, got <U1"):
            graph.constant((2,), inits.from_lambda(lambda shape, dtype: ["a", "b"], kind))
