"""Dense layers, embeddings, norms and outputs against formulas in NumPy."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import layers
from mgraph import ExpressionGraph, Node, inits
from tests.helpers.formulas import close, draws, normed, random_params
from tests.helpers.leaves import constant

draw = draws(3)


def test_dense_with_one_and_with_several_inputs() -> None:
    graph = ExpressionGraph(inference=True)
    a, b = draw(2, 3, 4), draw(2, 3, 5)
    one = layers.Dense("one", 4, 6, activation="relu")(constant(graph, a))
    two = layers.Dense("two", [4, 5], 6, activation="tanh")(constant(graph, a), constant(graph, b))
    p = random_params(graph)
    graph.forward()
    assert sorted(p) == ["one_W", "one_b", "two_W0", "two_W1", "two_b0", "two_b1"]
    close(one, np.maximum(a @ p["one_W"] + p["one_b"], 0))
    close(two, np.tanh(a @ p["two_W0"] + p["two_b0"] + b @ p["two_W1"] + p["two_b1"]))


@pytest.mark.parametrize("nematus", [False, True])
def test_dense_with_layer_normalization(nematus: bool) -> None:
    graph = ExpressionGraph(inference=True)
    x = draw(3, 4)
    dense = layers.Dense("p", 4, 5, layer_normalization=True, nematus_normalization=nematus)
    y = dense(constant(graph, x))
    p = random_params(graph)
    graph.forward()
    if nematus:
        close(y, normed(x @ p["p_W"] + p["p_b"], p["p_ln_s"], p["p_ln_b"], 1e-5))
    else:
        close(y, normed(x @ p["p_W"], p["p_gamma"], p["p_b"], 1e-9))


def repickled(layer: layers.Layer) -> layers.Layer:
    return pickle.loads(pickle.dumps(layer))


@pytest.mark.parametrize("copied", [repickled, copy.deepcopy])
@pytest.mark.parametrize(
    "layer",
    [
        layers.Dense("d", 4, 4, activation="tanh", layer_normalization=True),
        layers.RNN(layers.GRU, "r", 4, 4, dropout=0.5),
        layers.PositionEmbedding(4),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_are_pickled_and_copied(
    layer: layers.Layer, copied: Callable[[layers.Layer], layers.Layer]
) -> None:
    def recorded(layer: layers.Layer) -> list[np.ndarray]:
        graph = ExpressionGraph(seed=3)
        found = layer(constant(graph, np.ones((5, 2, 4), np.float32)))
        output = getattr(found, "output", found)
        graph.forward()
        return [np.asarray(node.val()) for node in (output, *graph.params().values())]

    expected = recorded(layer)
    for one, other in zip(expected, recorded(copied(layer)), strict=True):
        np.testing.assert_array_equal(one, other)


class Held(layers.Layer):
    """Holds sublayers in all ways that a layer may."""

    def __init__(self, graph: ExpressionGraph) -> None:
        self.named = {"a": layers.Dense("a", 2, 3), "b": [layers.Embedding("b", 4, 2)]}
        context, attention = graph.ones((1, 5, 3)), layers.GlobalAttention("c", 2, 3)
        attended = attention.over(context, attention.map_context(context), graph.ones((1, 5)))
        self.stack = layers.RNN([layers.StackedCell(layers.GRU("d", 2, 2), [attended])])


def test_all_parameters_of_sublayers_are_listed() -> None:
    found = [parameter.name for parameter in Held(ExpressionGraph(inference=True)).parameters()]
    cell = [parameter.name for parameter in layers.GRU("d", 2, 2).parameters()]
    assert found == ["a_W", "a_b", "b", *cell, "c_W_comb_att", "c_Wc_att", "c_U_att", "c_b_att"]


def test_gains_start_as_ones_and_biases_as_zeros() -> None:
    norm, config = {"layer_normalization": True}, layers.NormConfig(rms_bias=True)
    made = [
        layers.Output("o", 2, 3),
        layers.LayerNorm("n", 2),
        layers.RMSNorm("n", 2, config=config),
        *(layers.Dense("d", 2, 2, nematus_normalization=nematus, **norm) for nematus in (False, True)),
        *(
            layers.GlobalAttention("a", 2, 2, nematus_normalization=nematus, **norm)
            for nematus in (False, True)
        ),
        *(kind("c", 2, 2, **norm) for kind in layers.cells.CELLS.values()),
    ]
    for row in (p for layer in made for p in layer.parameters() if p.shape[0] == 1):
        gain = any(part in row.name for part in ("gamma", "scale", "_lns", "_ln_s"))
        assert repr(row.init) == ("inits.ones" if gain else "inits.zeros"), row


def test_an_unknown_activation_is_refused_by_name() -> None:
    with pytest.raises(layers.UnsupportedOptionError, match="activation: 'mish' is unknown; expected"):
        layers.Dense("p", 3, 2, activation="mish")


def test_embedding_selects_rows() -> None:
    graph = ExpressionGraph(inference=True)
    ids = np.array([[3, 1, 0], [2, 2, 3]], np.uint32)
    y = layers.Embedding("Wemb", 4, 5)(graph.constant((2, 3), inits.from_tensor(ids), "uint32"))
    p = random_params(graph)
    graph.forward()
    close(y, p["Wemb"][ids])


def test_positions_step_by_step_are_those_of_the_sequence() -> None:
    graph = ExpressionGraph(inference=True)
    x = draw(300, 8)
    layer = layers.PositionEmbedding(8)
    whole = layer(constant(graph, x))
    steps = [
        layer.at(constant(graph, x[i]), graph.constant((), inits.from_value(i), "int32")) for i in (0, 1, 299)
    ]
    graph.forward()
    angles = np.arange(300)[:, None] * 10000.0 ** (-np.arange(4) / 3)
    close(whole, x * np.sqrt(8) + np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32))
    for i, step in zip((0, 1, 299), steps, strict=True):
        np.testing.assert_allclose(step.val(), whole.val()[i], atol=1e-6)


def test_words_without_positions_are_scaled_alike() -> None:
    graph = ExpressionGraph(inference=True)
    x = draw(2, 3, 4)
    layer, words = layers.NoPositionEmbedding(2.5), constant(graph, x)
    packing = layers.PackedWords(graph.zeros((2, 3), "int32"))
    found = layer(words), layer.packed(words, packing), layer.at(words, graph.zeros((), "int32"))
    graph.forward()
    for node in found:
        close(node, 2.5 * x)


def test_norms_of_the_transformer() -> None:
    graph = ExpressionGraph(inference=True)
    x = 0.01 * draw(2, 3, 6)
    layer_norm = layers.LayerNorm("a", 6, "_pre")(constant(graph, x))
    rms_norm = layers.RMSNorm("a", 6)(constant(graph, x))
    biased = layers.RMSNorm("b", 6, "_pre", layers.NormConfig(0.1, rms_bias=True))(constant(graph, x))
    p = random_params(graph)
    graph.forward()
    close(layer_norm, normed(x, p["a_ln_scale_pre"], p["a_ln_bias_pre"], 1e-6))
    square = (x**2).mean(-1, keepdims=True)
    close(rms_norm, p["a_rms_scale"] * x / np.sqrt(square + 1e-6))
    close(biased, p["b_rms_scale_pre"] * x / np.sqrt(square + 0.1) + p["b_rms_bias_pre"])


def test_output_tied_plain_and_of_old_files() -> None:
    graph = ExpressionGraph(inference=True)
    x = draw(2, 3, 4)
    table = layers.Embedding("Wemb", 7, 4).table
    plain = layers.Output("plain", 4, 7)(constant(graph, x))
    tied = layers.Output("tied", 4, 7, tied=table, omit_bias=True)(constant(graph, x))
    old = layers.Output("old", 4, 7, transposed=False)(constant(graph, x))
    p = random_params(graph)
    graph.forward()
    assert sorted(p) == ["Wemb", "old_W", "old_b", "plain_Wt", "plain_b"]
    close(plain, x @ p["plain_Wt"].T + p["plain_b"])
    close(tied, x @ p["Wemb"].T)
    close(old, x @ p["old_W"] + p["old_b"])


def output_of(kind: str) -> layers.Output:
    """An output layer that maps 4 features to the logits of 7 words."""
    table = layers.Embedding("Wemb", 7, 4).table if kind == "tied" else None
    return layers.Output("o", 4, 7, tied=table, omit_bias=kind == "bare", transposed=kind != "old")


def integers(graph: ExpressionGraph, array: np.ndarray) -> Node:
    return graph.constant(array.shape, inits.from_tensor(array), "int32")


@pytest.mark.parametrize("kind", ["plain", "tied", "old", "bare"])
def test_logits_of_a_shortlist_are_those_of_its_words(kind: str) -> None:
    graph = ExpressionGraph(inference=True)
    x = constant(graph, draw(6, 4))
    ids = np.array([[0, 1, 5, 3, 6], [2, 1, 0, 4, 4]], np.int32)
    output = output_of(kind)
    whole = output(x)
    chosen = output(x, integers(graph, ids))
    random_params(graph)
    graph.forward()
    expected = np.asarray(whole.val()).reshape(2, 3, 7)
    close(chosen, np.take_along_axis(expected, ids[:, None, :], -1).reshape(6, 5))


@pytest.mark.parametrize("kind", ["plain", "tied", "old", "bare"])
@pytest.mark.parametrize("listed", [[0, 2, 3, 5, 6], [*range(7)]], ids=["some", "all"])
def test_logits_in_columns_are_those_of_the_listed_words(kind: str, listed: list[int]) -> None:
    x, columns = draw(6, 4), np.array([[0, 1, 4], [3, 1, 0]], np.int32)
    output, graph, other = output_of(kind), ExpressionGraph(inference=True), ExpressionGraph(inference=True)
    whole = output(constant(graph, x))
    rows = output.of_listed(integers(graph, np.array(listed, np.int32)))
    random_params(graph)
    graph.forward()
    chosen = output(constant(other, x), layers.Columns(integers(other, columns), len(listed)))
    assert (rows.keys() <= other.params().keys()) == (len(listed) < 7), "all words need no copy"
    for name in other.params():
        node, known = other.get(name), rows.get(name, graph.get(name))
        assert node is not None and known is not None
        node.set_value(known.val())
    other.forward()
    expected = np.asarray(whole.val()).reshape(2, 3, 7)[:, :, listed]
    close(chosen, np.take_along_axis(expected, columns[:, None, :], -1).reshape(6, 3))


@pytest.mark.parametrize("fixed", [False, True])
def test_a_table_that_was_loaded_can_be_fixed(fixed: bool) -> None:
    graph = ExpressionGraph()
    graph.param("Wemb", (5, 3))
    ids = graph.constant((1, 2), inits.from_vector([0, 1]), "uint32")
    layers.Embedding("Wemb", 5, 3, fixed=fixed)(ids)
    assert graph.params()["Wemb"].trainable is not fixed
    graph.params()["Wemb"].trainable = False
    layers.Embedding("Wemb", 5, 3)(ids)
    assert not graph.params()["Wemb"].trainable, "as the user has set it"
