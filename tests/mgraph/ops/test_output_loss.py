"""The loss of an output layer, computed in chunks of classes, is the loss of all its logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgraph
from mgraph import ArgumentError, ExpressionGraph, Node, ShapeError, inits


def nodes(
    graph: ExpressionGraph, rows: int, classes: int, *, trans_b: bool = False, biased: bool = True
) -> tuple[Node, Node, Node, Node | None]:
    """Rows of three features, a matrix, labels and a bias."""
    dice = np.random.default_rng(rows * classes)

    def param(name: str, *shape: int) -> Node:
        return graph.param(name, shape, inits.from_tensor(3 * dice.standard_normal(shape)))

    x, matrix = param("x", rows, 3), param("matrix", *((classes, 3) if trans_b else (3, classes)))
    labels = graph.indices(dice.integers(classes, size=rows).tolist())
    return x, matrix, labels, param("bias", 1, classes) if biased else None


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 4),
    classes=st.integers(1, 9),
    chunk=st.integers(1, 10),
    trans_b=st.booleans(),
    biased=st.booleans(),
    parts=st.sampled_from([1, 2, 3]),
)
def test_the_loss_and_its_gradients_are_those_of_all_logits(
    rows: int, classes: int, chunk: int, trans_b: bool, biased: bool, parts: int
) -> None:
    classes *= parts
    found = []
    for chunked in (True, False):
        graph = ExpressionGraph()
        x, matrix, labels, bias = nodes(graph, rows, classes, trans_b=trans_b, biased=biased)
        if chunked:
            sizes = {"chunk": chunk, "parts": parts}
            loss = mgraph.affine_cross_entropy(x, matrix, labels, bias, 0.1, trans_b, **sizes)
        else:
            logits = mgraph.dot(x, matrix, False, trans_b)
            loss = mgraph.cross_entropy(logits if bias is None else logits + bias, labels, 0.1)
        mgraph.sum(mgraph.flatten(loss * loss))
        graph.backprop()
        params = [x, matrix] if bias is None else [x, matrix, bias]
        found.append([np.asarray(loss.val()), *(np.asarray(node.grad()) for node in params)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(other).max())))


@pytest.mark.parametrize(("platform", "chunk"), [("cpu", 1 << 15), ("gpu", 1 << 19)])
def test_gpus_compute_more_logits_at_a_time(
    monkeypatch: pytest.MonkeyPatch, platform: str, chunk: int
) -> None:
    monkeypatch.setattr("mgraph.ops.output_loss.platform_of", lambda device: platform)
    graph = ExpressionGraph()
    x, matrix, labels, _ = nodes(graph, 128, 16)
    loss = mgraph.affine_cross_entropy(x, matrix, labels)
    assert loss.children[0].chunk == chunk


def test_all_logits_are_never_held() -> None:
    rows, classes = 64, 16_384
    needed = {}
    for chunk in (256, classes):
        graph = ExpressionGraph()
        x, matrix, labels, bias = nodes(graph, rows, classes, trans_b=True)
        loss = mgraph.affine_cross_entropy(x, matrix, labels, bias, 0.1, True, chunk=chunk)
        mgraph.sum(mgraph.flatten(loss))
        needed[chunk] = graph.memory().temporaries
    logits = 4 * rows * classes
    assert needed[classes] > logits > 2 * needed[256]


def test_a_label_that_does_not_exist_gives_nan() -> None:
    graph = ExpressionGraph()
    x, matrix, _, bias = nodes(graph, 2, 5)
    loss = mgraph.affine_cross_entropy(x, matrix, graph.indices([4, 5]), bias, chunk=2)
    graph.forward()
    assert np.isnan(loss.val()[1]) and np.isfinite(loss.val()[0])


def test_sixteen_bits_are_summed_in_float32() -> None:
    """The logits in between are not rounded to 16 bits, either."""
    dice = np.random.default_rng(0)
    x, matrix = dice.standard_normal((4, 8)), dice.standard_normal((8, 50))
    narrow = [jnp.asarray(a, jnp.bfloat16) for a in (x, matrix)]
    labels = dice.integers(50, size=4)
    graph = ExpressionGraph()
    a, b = (graph.constant(v.shape, inits.from_tensor(np.asarray(v, np.float32)), "bfloat16") for v in narrow)
    loss = mgraph.affine_cross_entropy(a, b, graph.indices(labels.tolist()), chunk=16)
    graph.forward()
    assert loss.value_type is mgraph.Type.float32
    logits = np.asarray(narrow[0], np.float64) @ np.asarray(narrow[1], np.float64)
    expected = -jax.nn.log_softmax(logits)[np.arange(4), labels]
    np.testing.assert_allclose(np.asarray(loss.val())[:, 0], expected, rtol=1e-5)


def test_errors_name_what_is_wrong() -> None:
    graph = ExpressionGraph()
    x, matrix, labels, bias = nodes(graph, 2, 5)
    with pytest.raises(ShapeError, match="equal inner sizes, got 3 and 5"):
        mgraph.affine_cross_entropy(x, matrix, labels, bias, trans_b=True)
    with pytest.raises(ShapeError, match="expected one label per row, got 1 for 2 rows"):
        mgraph.affine_cross_entropy(x, matrix, graph.indices([1]), bias)
    with pytest.raises(ShapeError, match=r"bias of shape \(1, 5\), got \(2, 3\)"):
        mgraph.affine_cross_entropy(x, matrix, labels, x)
    with pytest.raises(ArgumentError, match="label smoothing from 0 to 1, got 2"):
        mgraph.affine_cross_entropy(x, matrix, labels, bias, 2)
    with pytest.raises(ArgumentError, match="at least 1 class in a chunk, got 0"):
        mgraph.affine_cross_entropy(x, matrix, labels, bias, chunk=0)
    with pytest.raises(ArgumentError, match="at least 1 part, got 0"):
        mgraph.affine_cross_entropy(x, matrix, labels, bias, parts=0)
    with pytest.raises(ShapeError, match="classes in 4 ranges of as many, got 5"):
        mgraph.affine_cross_entropy(x, matrix, labels, bias, parts=4)
