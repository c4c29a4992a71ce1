"""Operators that Marian composes of others, or that are whole layers: they equal their compositions."""

from __future__ import annotations

import numpy as np
import pytest

import mgraph
from mgraph import ElementTypeError, ExpressionGraph, Node, ShapeError, Type
from tests.helpers.leaves import constant, gradient, param, value

RANDOM = np.random.default_rng(11)


# ---------------------------------------------------------------- sparsemax


def composed_sparsemax(z: Node) -> Node:
    """Marian's composition, for a node of one axis."""
    size = z.shape[0]
    falling, _ = mgraph.sort(z, 0)
    sums = mgraph.cumsum(falling, 0)
    k = z.graph.constant((size,), mgraph.inits.range(1, size + 1))
    count = mgraph.max(mgraph.gt(1 + k * falling, sums) * k, 0)
    threshold = (mgraph.index_select(sums, 0, mgraph.cast(count - 1, "uint32")) - 1) / count
    return mgraph.maximum(z - threshold, 0)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_sparsemax_is_marians_composition(graph: ExpressionGraph, scale: float) -> None:
    z = param(graph, scale * RANDOM.normal(size=9))
    weights = constant(graph, RANDOM.normal(size=9))
    one, composed = mgraph.sparsemax(z), composed_sparsemax(z)
    np.testing.assert_allclose(value(one), value(composed), atol=2e-6)
    np.testing.assert_allclose(gradient(one * weights, z), gradient(composed * weights, z), atol=2e-6)


def test_sparsemax_along_any_axis(graph: ExpressionGraph) -> None:
    x = param(graph, RANDOM.normal(size=(2, 5, 3)))
    along = mgraph.sparsemax(x, 1)
    moved = mgraph.swap_axes(mgraph.sparsemax(mgraph.swap_axes(x, 1, 2)), 1, 2)
    graph.forward()
    found = np.asarray(along.val())
    np.testing.assert_allclose(found, moved.val(), atol=1e-7)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    assert 0 < (found == 0).sum() < found.size
    with pytest.raises(ShapeError, match="axis 3"):
        mgraph.sparsemax(x, 3)


# ---------------------------------------------------------------- softmax_cross_entropy


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_labels_for_every_class_are_smoothed_classes(graph: ExpressionGraph, alpha: float) -> None:
    logits = param(graph, 3 * RANDOM.normal(size=(2, 3, 5)))
    classes = RANDOM.integers(5, size=6)
    labels = constant(graph, ((1 - alpha) * np.eye(5)[classes] + alpha / 5).reshape(2, 3, 5), "float32")
    one, other = (
        mgraph.softmax_cross_entropy(logits, labels),
        mgraph.cross_entropy(logits, graph.indices(classes), alpha),
    )
    assert one.shape == (2, 3, 1)
    np.testing.assert_allclose(value(one), value(other), 1e-6, 1e-6)
    np.testing.assert_allclose(gradient(one * one, logits), gradient(other * other, logits), 1e-5, 1e-6)


def test_one_distribution_for_all_rows(graph: ExpressionGraph) -> None:
    x, labels = RANDOM.normal(size=(2, 3, 5)), RANDOM.random(5)
    logits, shares = param(graph, x), param(graph, labels, "labels")
    loss = mgraph.softmax_cross_entropy(logits, shares)
    surprisal = np.log(np.exp(x).sum(-1, keepdims=True)) - x
    np.testing.assert_allclose(value(loss), (labels * surprisal).sum(-1, keepdims=True), 1e-5)
    np.testing.assert_allclose(gradient(loss, shares), surprisal.sum((0, 1)), 1e-5)


def test_labels_that_do_not_fit_the_classes(graph: ExpressionGraph) -> None:
    logits = param(graph, RANDOM.normal(size=(2, 5)))
    for shape in ((2, 1), (2, 4), ()):
        with pytest.raises(ShapeError, match="a label for each class"):
            mgraph.softmax_cross_entropy(logits, constant(graph, np.ones(shape), "float32"))
    with pytest.raises(ElementTypeError, match="cast"):
        mgraph.softmax_cross_entropy(logits, graph.indices([0, 1, 2, 3, 4]))
    with pytest.raises(ElementTypeError, match="expected nodes"):
        mgraph.softmax_cross_entropy(logits, 1.0)


# ---------------------------------------------------------------- unlikelihood


def composed_unlikelihood(logits: Node, labels: list[int]) -> Node:
    """Marian's composition, for labels in the order (time, batch)."""
    time, batch = logits.shape[-3:-1]
    lead = logits.shape[:-3] or (1,)
    x = mgraph.reshape(logits, (*lead, time, batch, logits.shape[-1]))
    indices = logits.graph.constant((1, time, batch, 1), mgraph.inits.from_vector(labels), "uint32")
    return -mgraph.log(mgraph.gather(1 - mgraph.softmax(x), -1, indices))


@pytest.mark.parametrize("lead", [(), (1,), (2,)])
def test_unlikelihood_is_marians_composition(graph: ExpressionGraph, lead: tuple[int, ...]) -> None:
    logits = param(graph, RANDOM.normal(size=(*lead, 2, 3, 5)))
    labels = [4, 0, 1, 2, 2, 3]
    one = mgraph.unlikelihood(logits, graph.indices(labels))
    composed = composed_unlikelihood(logits, labels)
    assert one.shape == (*lead, 2, 3, 1)
    np.testing.assert_allclose(value(one), value(composed).reshape(one.shape), rtol=2e-5)
    np.testing.assert_allclose(gradient(one, logits), gradient(composed, logits), rtol=2e-5, atol=1e-7)


def test_unlikelihood_where_the_composition_fails(graph: ExpressionGraph) -> None:
    logits = param(graph, [[[40.0, 1.0, 0.0]]])
    assert np.isinf(value(composed_unlikelihood(logits, [0])))
    loss = mgraph.unlikelihood(logits, graph.indices([0]))
    np.testing.assert_allclose(value(loss), [[[40 - np.log(np.e + 1)]]], rtol=1e-6)
    share = np.e / (1 + np.e)
    np.testing.assert_allclose(gradient(loss, logits), [[[1, -share, share - 1]]], rtol=1e-6)


def test_unlikelihood_of_labels_that_do_not_fit(graph: ExpressionGraph) -> None:
    logits = param(graph, np.zeros((2, 2, 3, 5)))
    with pytest.raises(ShapeError, match="got 4 for 12 rows"):
        mgraph.unlikelihood(logits, graph.indices([0] * 4))
    with pytest.raises(ElementTypeError, match="holds indices"):
        mgraph.unlikelihood(logits, constant(graph, np.zeros(12)))
    outside = mgraph.unlikelihood(logits, graph.indices([0, 1, 2, 3, 4, 5]))
    assert np.isnan(value(outside)).ravel().tolist() == ([False] * 5 + [True]) * 2
    assert mgraph.unlikelihood(mgraph.cast(logits, "float16"), graph.indices([0] * 6)).value_type == "float32"


# ---------------------------------------------------------------- bdot_legacy


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (False, True), (True, False), (True, True)])
def test_bdot_legacy_counts_through_the_batches(graph: ExpressionGraph, trans_a: bool, trans_b: bool) -> None:
    """Six matrices, for instance a beam of 3 over 2 sentences, are multiplied by two in turn."""
    a = param(graph, RANDOM.normal(size=(3, 2, 5, 4) if trans_a else (3, 2, 4, 5)), "a")
    b = param(graph, RANDOM.normal(size=(2, 3, 5) if trans_b else (2, 5, 3)), "b")
    y = mgraph.bdot_legacy(a, b, trans_a, trans_b, 0.5)
    same = mgraph.bdot(a, b, trans_a, trans_b, 0.5)
    assert y.type == "bdot_legacy" and y.shape == (3, 2, 4, 3)
    np.testing.assert_allclose(value(y), value(same), atol=1e-6)
    for leaf in (a, b):
        np.testing.assert_allclose(gradient(y * y, leaf), gradient(same * same, leaf), rtol=1e-5, atol=1e-5)


def test_bdot_legacy_of_batches_that_bdot_refuses(graph: ExpressionGraph) -> None:
    a, b = param(graph, RANDOM.normal(size=(5, 2, 3)), "a"), param(graph, RANDOM.normal(size=(2, 3, 4)), "b")
    expected = np.stack([np.asarray(a.val())[i] @ np.asarray(b.val())[i % 2] for i in range(5)])
    np.testing.assert_allclose(value(mgraph.bdot_legacy(a, b)), expected, atol=1e-6)
    with pytest.raises(ShapeError, match="do not fit"):
        mgraph.bdot(a, b)
    with pytest.raises(ShapeError, match="got 5 for 2"):
        mgraph.bdot_legacy(b, constant(graph, np.zeros((5, 4, 2))))


# ---------------------------------------------------------------- highway


def test_the_highway_layer(graph: ExpressionGraph) -> None:
    x = param(graph, RANDOM.normal(size=(2, 3, 4)))
    y = mgraph.highway("enc", x)
    gate, inner = (f"enc_highway_{part}" for part in ("d1", "d2"))
    assert {n: p.shape for n, p in graph.params().items() if n != "x"} == {
        f"{gate}_W": (4, 4), f"{gate}_b": (1, 4), f"{inner}_W": (4, 4), f"{inner}_b": (1, 4),
    }  # fmt: skip
    assert y.shape == x.shape
    g = mgraph.sigmoid(mgraph.affine(x, graph.get(f"{gate}_W"), graph.get(f"{gate}_b")))
    h = mgraph.relu(mgraph.affine(x, graph.get(f"{inner}_W"), graph.get(f"{inner}_b")))
    composed = g * h + (1 - g) * x
    assert mgraph.highway("enc", x) is y
    np.testing.assert_allclose(value(y), value(composed), atol=1e-6)
    for leaf in (x, graph.get(f"{gate}_W"), graph.get(f"{inner}_b")):
        np.testing.assert_allclose(gradient(y, leaf), gradient(composed, leaf), atol=2e-6)
    with pytest.raises(ElementTypeError, match="highway: expected a node, got None"):
        mgraph.highway(x, x)


# ---------------------------------------------------------------- compositions of 16-bit numbers


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_unequal_types_are_refused_in_compositions_too(graph: ExpressionGraph, kind: str) -> None:
    x, other = param(graph, np.ones((2, 3)), type=kind), constant(graph, np.ones((2, 3)))
    for composition in (mgraph.softmax, mgraph.weighted_average):
        with pytest.raises(ElementTypeError, match="differ in element type"):
            composition(x, other)
        assert composition(x, mgraph.cast(other, kind)).value_type is Type(kind)


def test_an_average_of_many_in_float16(graph: ExpressionGraph) -> None:
    """Neither the sum of the products nor that of the weights fits float16."""
    x = param(graph, np.full((1, 1000), 300.0), type="float16")
    weights = constant(graph, np.full((1, 1000), 100.0), "float16")
    assert value(mgraph.weighted_average(x, weights, 1)).tolist() == [[300]]
