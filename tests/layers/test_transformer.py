"""The transformer's layers against formulas in NumPy, and steps against sequences."""

from __future__ import annotations

import numpy as np
import pytest

import layers
import mgraph
from layers.transformer import SelfAttention, no_ancestors, with_ancestors
from mgraph import ExpressionGraph, ShapeError, inits
from tests.helpers.formulas import close, draws, normed, random_params, sigmoid, softmax
from tests.helpers.leaves import constant

draw = draws(3)


def multi_head(p, prefix, x, keys, values, mask, heads):
    """Multi-head attention by its formula; mask is (batch, time, places)."""

    def part(value: np.ndarray, letter: str) -> list[np.ndarray]:
        return np.split(value @ p[f"{prefix}_W{letter}"] + p[f"{prefix}_b{letter}"], heads, -1)

    out = []
    for q, k, v in zip(part(x, "q"), part(keys, "k"), part(values, "v"), strict=True):
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        out.append(softmax(np.where(mask > 0, scores, -np.inf)) @ v)
    return np.concatenate(out, -1) @ p[f"{prefix}_Wo"] + p[f"{prefix}_bo"]


def test_multi_head_attention() -> None:
    graph = ExpressionGraph(inference=True)
    x, context = draw(2, 3, 8), draw(2, 5, 8)
    mask = np.array([[1] * 5, [1] * 3 + [0] * 2], np.float32)
    log_mask = layers.log_mask(constant(graph, mask.reshape(2, 1, 1, 5)))
    attention = layers.MultiHeadAttention("s", 8, 4)
    y = attention(constant(graph, x), constant(graph, context), constant(graph, context), log_mask)
    p = random_params(graph)
    graph.forward()
    close(y, multi_head(p, "s", x, context, context, mask[:, None, :], 4))
    assert sorted(p) == [f"s_{kind}{part}" for kind in "Wb" for part in "koqv"]


def test_heads_that_do_not_divide_the_features_are_an_error() -> None:
    with pytest.raises(ShapeError, match="3 heads do not divide 8 features"):
        layers.MultiHeadAttention("s", 8, 3)


@pytest.mark.parametrize("operations", ["dan", "dr", "dhn", "", "na"])
def test_post_process(operations: str) -> None:
    graph = ExpressionGraph(inference=True)
    x, before = draw(2, 3, 4), draw(2, 3, 4)
    process = layers.PostProcess("p", 4, operations, dropout=0.5)
    y = process(constant(graph, x), constant(graph, before))
    p = random_params(graph)
    graph.forward()
    for letter in operations:
        if letter == "a":
            x = x + before
        elif letter == "h":
            gate = sigmoid(before @ p["p_Wh"] + p["p_bh"])
            x = gate * x + (1 - gate) * before
        elif letter == "n":
            x = normed(x, p["p_ln_scale"], p["p_ln_bias"], 1e-6)
        elif letter == "r":
            x = p["p_rms_scale"] * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    close(y, x)


def test_unknown_operations_are_refused_by_name() -> None:
    with pytest.raises(
        layers.UnsupportedOptionError, match=r"transformer-preprocess: 'dan' .* operation 'a'"
    ):
        layers.PreProcess("p", 4, "dan")
    with pytest.raises(
        layers.UnsupportedOptionError, match=r"transformer-postprocess: 'dax' .* operation 'x'"
    ):
        layers.PostProcess("p", 4, "dax")


def test_an_encoder_layer_is_its_formula() -> None:
    graph = ExpressionGraph(inference=True)
    x, mask = draw(2, 3, 8), np.array([[1, 1, 1], [1, 1, 0]], np.float32)
    config = layers.TransformerConfig(8, heads=2, dim_ffn=5, ffn_activation="relu")
    layer = layers.EncoderLayer("l", config, 1)
    y = layer(constant(graph, x), layers.log_mask(constant(graph, mask.reshape(2, 1, 1, 3))))
    p = random_params(graph)
    graph.forward()
    a = multi_head(p, "l_self", x, x, x, mask[:, None, :], 2) + x
    a = normed(a, p["l_self_Wo_ln_scale"], p["l_self_Wo_ln_bias"], 1e-6)
    f = np.maximum(a @ p["l_ffn_W1"] + p["l_ffn_b1"], 0) @ p["l_ffn_W2"] + p["l_ffn_b2"] + a
    close(y, normed(f, p["l_ffn_ffn_ln_scale"], p["l_ffn_ffn_ln_bias"], 1e-6))


@pytest.mark.parametrize("preprocess, postprocess", [("", "dan"), ("n", "da")])
@pytest.mark.sampled("n-da")
def test_a_decoder_step_by_step_is_the_decoder_over_the_sequence(preprocess: str, postprocess: str) -> None:
    graph = ExpressionGraph(inference=True)
    batch, beam, length, dim = 2, 3, 4, 8
    x, context = draw(batch, beam, length, dim), draw(batch, 5, dim)
    config = layers.TransformerConfig(
        dim, heads=2, dim_ffn=6, preprocess=preprocess, postprocess=postprocess, ffn_activation="gelu"
    )
    layer = layers.DecoderLayer("l", config, 1)
    (cross,) = layer.cross
    mask = layers.log_mask(
        constant(graph, np.array([[1] * 5, [1] * 3 + [0] * 2], np.float32).reshape(2, 1, 1, 5))
    )
    node = constant(graph, context)
    attended = [layers.Context(cross.prepare(node), mask)]
    triangle = layers.log_mask(constant(graph, np.tril(np.ones((length, length), np.float32))))
    whole = [layer(constant(graph, x[:, b]), triangle, attended) for b in range(beam)]
    places = [3, (length + 1) * beam - 3]
    cache, steps = layer.autoregression.start(graph, batch, beam, places), []
    ancestors = no_ancestors(graph, batch, beam, places)
    for t in range(length):
        position = graph.constant((), inits.from_value(t), "int32")
        ancestors, now, _full = with_ancestors(ancestors, position, beam, places, mgraph.Type.float32)
        y, cache = layer.step(constant(graph, x[:, :, t]), cache, now, attended)
        steps.append(y)
    random_params(graph)
    graph.forward()
    got = np.stack([step.val() for step in steps], 2)
    np.testing.assert_allclose(got, np.stack([w.val() for w in whole], 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kind, pool", [("self-attention", False), ("average-attention", False), ("rnn", True)]
)
def test_a_decoder_over_packed_sentences_is_the_decoder_over_each(kind: str, pool: bool) -> None:
    """A row holds sentences of 2 and of 3 words, and padding."""
    graph = ExpressionGraph(inference=True)
    x = draw(2, 3, 4)
    packed = np.concatenate([x[0, :2], x[1], draw(1, 4)])[None]
    places, origins, positions = (
        constant(graph, value, "int32")
        for value in ([[0, 1, 9], [2, 3, 4]], [[0, 1, 3, 4, 5, 9]], [[0, 1, 0, 1, 2, 0]])
    )
    config = layers.TransformerConfig(4, heads=2, dim_ffn=3, decoder_autoreg=kind, dim_aan=3, pool=pool)
    layer = layers.DecoderLayer("l", config, 1)
    source = constant(graph, draw(2, 2, 4))
    contexts = [layers.Context(layer.cross[0].prepare(source), graph.zeros((1, 1, 1, 2)))]
    triangle = layers.log_mask(constant(graph, np.tril(np.ones((3, 3), np.float32))))
    packing = layers.PackedWords(places, origins, positions)
    whole = layer(constant(graph, x), triangle, contexts)
    found = layer(constant(graph, packed), triangle, contexts, packing)
    random_params(graph)
    graph.forward()
    first, second = np.asarray(whole.val())
    np.testing.assert_allclose(found.val()[0, :5], np.concatenate([first[:2], second]), rtol=1e-4, atol=1e-5)


def test_marians_steps_attend_to_words_that_are_not_normalized() -> None:
    """From the second step on; queries and the first word's own keys are normalized."""
    graph = ExpressionGraph(inference=True)
    x, places = 3 + draw(1, 2, 4), [2]
    config = layers.TransformerConfig(4, heads=2, preprocess="n", postprocess="da", marian_exact=True)
    layer = SelfAttention("l", config, 1)
    block, cache, ancestors = layer.block, layer.start(graph, 1, 1, places), no_ancestors(graph, 1, 1, places)
    pairs = []
    for t in range(2):
        position = graph.constant((), inits.from_value(t), "int32")
        ancestors, now, _full = with_ancestors(ancestors, position, 1, places, mgraph.Type.float32)
        word = constant(graph, np.ascontiguousarray(x[:, t : t + 1]))
        y, cache = layer.step(word, cache, now)
        query = block.before(word)
        seen = constant(graph, np.ascontiguousarray(x[:, : t + 1])) if t else query
        attended = block.attention(query, seen, seen, graph.zeros((1, 1, 1, t + 1)))
        pairs.append((y, block.after(attended, word)))
    random_params(graph)
    graph.forward()
    assert {"l_self_Wo_ln_scale_pre", "l_self_Wo_ln_bias_pre"} <= graph.params().keys()
    for step, expected in pairs:
        np.testing.assert_allclose(step.val(), expected.val(), rtol=1e-4, atol=1e-5)


def test_depth_scaling_and_several_encoders() -> None:
    graph = ExpressionGraph()
    config = layers.TransformerConfig(8, heads=2, dim_ffn=6, depth_scaling=True)
    layer = layers.DecoderLayer("l", config, 4, encoders=2)
    x, mask = graph.ones((1, 2, 8)), graph.zeros((1, 1, 1, 2))
    contexts = [layers.Context(block.prepare(x), mask) for block in layer.cross]
    layer(x, mask, contexts)
    never, weights = (layer.after_autoregression(x, contexts, give)[1] for give in (False, True))
    assert never is None and weights is not None and weights.shape == (1, 2, 2, 2)
    params = graph.params()
    assert "l_context_Wq" in params and "l_context_enc2_Wq" in params
    limit = np.sqrt(6 / 16) / 2  # Glorot's bound divided by the square root of the depth
    largest = np.abs(params["l_self_Wq"].val()).max()
    assert 0.9 * limit < largest <= limit
    unscaled = layers.TransformerConfig(8).init(4)
    assert (
        unscaled
        == layers.TransformerConfig(8, depth_scaling=True).init(1)
        == inits.glorot_uniform(True, True)
    )


@pytest.mark.parametrize("kind", ["self-attention", "average-attention", "rnn"])
def test_depth_scales_every_matrix_of_a_block_and_none_of_a_cell(kind: str) -> None:
    """Without ``bias``, only highways and cells have biases."""
    options = {"postprocess": "h", "decoder_autoreg": kind, "rnn_projection": True, "pool": kind == "rnn"}
    config = layers.TransformerConfig(8, heads=2, bias=False, depth_scaling=True, **options)
    found = list(layers.DecoderLayer("l", config, 4).parameters())
    matrices = {parameter.name for parameter in found if parameter.shape[0] > 1}
    scaled = {parameter.name for parameter in found if parameter.init == config.init(4)}
    assert scaled == matrices - {"l_rnn_W", "l_rnn_Wf"}
    rows = {parameter.name for parameter in found} - matrices
    assert all(name.endswith("_bh") or name == "l_rnn_bf" for name in rows), rows


def test_an_autoregression_that_there_is_not_is_refused_by_name() -> None:
    config = layers.TransformerConfig(8, heads=2, decoder_autoreg="convolution")
    with pytest.raises(
        layers.UnsupportedOptionError, match="transformer-decoder-autoreg: 'convolution' is unknown"
    ):
        layers.DecoderLayer("l", config, 1)


def test_a_pooling_block_has_the_biases_and_norms_of_the_stack() -> None:
    norm = layers.NormConfig(rms_bias=True)
    config = layers.TransformerConfig(8, postprocess="r", bias=False, norm=norm, pool=True)
    (block,) = layers.DecoderLayer("l", config, 1).cross
    assert isinstance(block, layers.PoolingBlock)
    names = [parameter.name.removeprefix("l_context_") for parameter in block.parameters()]
    assert names == ["Wo", "Wo_rms_scale", "Wo_rms_bias"]


def test_the_norms_of_a_recurrence_have_marians_names() -> None:
    config = layers.TransformerConfig(4, preprocess="n", postprocess="dan", decoder_autoreg="rnn")
    names = [parameter.name for parameter in layers.Recurrence("l", config, 1).parameters()]
    before, after = ([f"l_rnn{part}_ln_{kind}" for kind in ("scale", "bias")] for part in ("", "_ffn"))
    assert [name for name in names if "_ln_" in name] == [*(f"{name}_pre" for name in before), *after]


def test_dropout_masks_are_shared_as_in_marian() -> None:
    graph = ExpressionGraph()
    x = graph.ones((64, 3, 50))
    features = layers.PostProcess("p", 50, "d", dropout=0.25)(x, x)
    ids = graph.zeros((64, 50), "uint32")
    embedding = layers.Embedding("E", 2, 3, dropout=0.25)
    found = embedding(ids), embedding(ids, time_axis=-1)
    graph.params()["E"].set_value(np.ones((2, 3)))
    graph.forward()
    features = np.asarray(features.val())
    assert set(np.unique(features)) == {0, np.float32(1 / 0.75)}
    assert (features == features[:1]).all(), "one mask serves all sentences"
    for words in (np.asarray(node.val()) for node in found):
        assert (words == words[:1, :, :1]).all(), "whole words drop, the same in all sentences"
        assert 0 < (words[0, :, 0] == 0).mean() < 0.6


def test_nothing_drops_in_inference() -> None:
    graph = ExpressionGraph(inference=True)
    config = layers.TransformerConfig(
        8, heads=2, dim_ffn=6, dropout=0.9, dropout_attention=0.9, dropout_ffn=0.9
    )
    x, mask = graph.ones((1, 2, 8)), graph.zeros((1, 1, 1, 2))
    y = layers.EncoderLayer("l", config, 1)(x, mask)
    z = layers.EncoderLayer("l", layers.TransformerConfig(8, heads=2, dim_ffn=6), 1)(x, mask)
    graph.forward()
    np.testing.assert_array_equal(y.val(), z.val())
    assert layers.GRU("c", 4, 5, dropout=0.5).input_mask.on(graph) is None


@pytest.mark.slow
def test_gradients_of_a_decoder_layer_of_the_transformer() -> None:
    graph = ExpressionGraph()
    config = layers.TransformerConfig(4, heads=2, dim_ffn=3, preprocess="n", postprocess="ha")
    layer = layers.DecoderLayer("l", config, 1)
    x = graph.param("x", (2, 3, 4), inits.normal())
    context = graph.param("context", (2, 2, 4), inits.normal())
    mask = layers.log_mask(constant(graph, np.array([[1, 1], [1, 0]], np.float32).reshape(2, 1, 1, 2)))
    triangle = layers.log_mask(constant(graph, np.tril(np.ones((3, 3), np.float32))))
    y = layer(x, triangle, [layers.Context(layer.cross[0].prepare(context), mask)])
    report = mgraph.check_gradients(y)
    assert report.ok, report


def test_self_attention_keeps_fixed_buffers() -> None:
    graph = ExpressionGraph(inference=True)
    config = layers.TransformerConfig(8, heads=2)
    cache = SelfAttention("l", config, 1).start(graph, batch=2, beam=3, places=[9, 18])
    assert {name: node.shape for name, node in cache.items()} == {
        "keys": (2, 2, 9, 4),
        "values": (2, 2, 9, 4),
        "keys1": (2, 2, 18, 4),
        "values1": (2, 2, 18, 4),
    }
