"""Layers against formulas written out in NumPy, and against themselves where two ways must agree."""

from __future__ import annotations

import numpy as np
import pytest

import layers
import mgraph
from layers.transformer import SelfAttention
from mgraph import ExpressionGraph, Node, ShapeError, inits

RNG = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def constant(graph: ExpressionGraph, value: np.ndarray) -> Node:
    return graph.constant(value.shape, inits.from_tensor(value))


def random_params(graph: ExpressionGraph) -> dict[str, np.ndarray]:
    """Give every parameter a random value, biases and gains too; the values as float64."""
    for node in graph.params().values():
        node.set_value(
            0.5 * draw(*node.shape) + (1.0 if "gamma" in node.name or "scale" in node.name else 0.0)
        )
    return {name: np.asarray(node.val(), np.float64) for name, node in graph.params().items()}


def close(node: Node, expected: np.ndarray) -> None:
    assert node.shape == expected.shape
    np.testing.assert_allclose(node.val(), expected, rtol=2e-5, atol=2e-6)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normed(x: np.ndarray, gain: np.ndarray, bias: np.ndarray | float, eps: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) + bias


# ---------------------------------------------------------------- dense, embedding, norms, output


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


def test_an_unknown_activation_is_refused_by_name() -> None:
    with pytest.raises(layers.UnsupportedOptionError, match="activation: 'mish' is unknown; there is"):
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


def test_norms_of_the_transformer() -> None:
    graph = ExpressionGraph(inference=True)
    x = 0.01 * draw(2, 3, 6)
    layer_norm = layers.LayerNorm("a", 6, "_pre")(constant(graph, x))
    rms_norm = layers.RMSNorm("a", 6)(constant(graph, x))
    p = random_params(graph)
    graph.forward()
    close(layer_norm, normed(x, p["a_ln_scale_pre"], p["a_ln_bias_pre"], 1e-6))
    close(rms_norm, p["a_rms_scale"] * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6))


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


@pytest.mark.parametrize("kind", ["plain", "tied", "old", "bare"])
def test_logits_of_a_shortlist_are_those_of_its_words(kind: str) -> None:
    graph = ExpressionGraph(inference=True)
    x = constant(graph, draw(6, 4))
    ids = np.array([[0, 1, 5, 3, 6], [2, 1, 0, 4, 4]], np.int32)
    output = layers.Output(
        "o",
        4,
        7,
        tied=layers.Embedding("Wemb", 7, 4).table if kind == "tied" else None,
        omit_bias=kind == "bare",
        transposed=kind != "old",
    )
    whole = output(x)
    chosen = output(x, graph.constant(ids.shape, inits.from_tensor(ids), "int32"))
    random_params(graph)
    graph.forward()
    expected = np.asarray(whole.val()).reshape(2, 3, 7)
    close(chosen, np.take_along_axis(expected, ids[:, None, :], -1).reshape(6, 5))


# ---------------------------------------------------------------- recurrent cells and networks


def gru(p, prefix, x, s, *, final=False, mask=None, norm=False):
    """One step of a GRU by its formula."""

    def both(letter: str, value: np.ndarray, gain: str) -> np.ndarray:
        product = value @ np.concatenate([p[f"{prefix}_{letter}"], p[f"{prefix}_{letter}x"]], -1)
        return normed(product, p[f"{prefix}_{gain}"], 0, 1e-9) if norm else product

    d = s.shape[-1]
    su = both("U", s, "gamma2")
    xw = np.zeros_like(su) if x is None else both("W", x, "gamma1")
    gates = sigmoid(xw[..., : 2 * d] + su[..., : 2 * d] + p[f"{prefix}_b"])
    r, z = gates[..., :d], gates[..., d:]
    b, sux, xwx = p[f"{prefix}_bx"], su[..., 2 * d :], xw[..., 2 * d :]
    h = np.tanh(xwx + r * (sux + b)) if final else np.tanh(xwx + r * sux + b)
    after = (1 - z) * h + z * s
    return after if mask is None else mask * after + (1 - mask) * s


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_gru_cell(final: bool, norm: bool) -> None:
    graph = ExpressionGraph(inference=True)
    x, s, mask = draw(3, 4), draw(3, 5), np.array([[1], [0], [1]], np.float32)
    cell = layers.GRU("c", 4, 5, final=final, layer_normalization=norm)
    bare = layers.GRU("t", 0, 5, final=final, layer_normalization=norm)
    (y,) = cell.apply_state(
        cell.apply_input(constant(graph, x)), (constant(graph, s),), constant(graph, mask)
    )
    (t,) = bare.apply_state((), (constant(graph, s),))
    p = random_params(graph)
    graph.forward()
    close(y, gru(p, "c", x, s, final=final, mask=mask, norm=norm))
    close(t, gru(p, "t", None, s, final=final, norm=norm))
    assert {n.removeprefix("t_") for n in p if n.startswith("t_")} == {"U", "Ux", "b", "bx"} | (
        {"gamma2"} if norm else set()
    )


def test_a_cell_without_input_refuses_one() -> None:
    graph = ExpressionGraph()
    with pytest.raises(mgraph.GraphError, match="'c' has no input"):
        layers.GRU("c", 0, 5).apply_input(graph.ones((1, 4)))


def test_cells_that_there_are_not_are_refused_by_name() -> None:
    with pytest.raises(layers.UnsupportedOptionError, match="enc-cell: 'gruu' is unknown; there is 'gru', "):
        layers.find_cell("gruu", "enc-cell")


@pytest.mark.parametrize("direction", ["forward", "backward", "alternating-forward", "alternating-backward"])
def test_rnn_of_two_layers_with_skip_and_mask(direction: str) -> None:
    graph = ExpressionGraph(inference=True)
    x, mask = draw(5, 2, 3), np.ones((5, 2, 1), np.float32)
    mask[3:, 1] = 0
    cells = [
        layers.GRU("a", 3, 4),
        layers.StackedCell(layers.GRU("b", 4, 4), [layers.GRU("c", 0, 4)]),
    ]
    rnn = layers.RNN(cells, direction=direction, skip=True)
    done = rnn(constant(graph, x), constant(graph, mask))
    p = random_params(graph)
    graph.forward()
    backward = {"forward": (0, 0), "backward": (1, 1)}.get(
        direction, (direction == "alternating-backward",) * 2
    )
    if direction.startswith("alternating"):
        backward = (backward[0], not backward[0])

    def layer(inputs: np.ndarray, prefixes: list[str], reverse: bool) -> np.ndarray:
        state, out = np.zeros((2, 4)), np.zeros((5, 2, 4))
        for t in range(5)[:: -1 if reverse else 1]:
            for i, prefix in enumerate(prefixes):
                state = gru(p, prefix, inputs[t] if i == 0 else None, state, mask=mask[t])
            out[t] = state
        return out

    first = layer(x, ["a"], bool(backward[0]))
    close(done.output, layer(first, ["b", "c"], bool(backward[1])) + first)


def test_an_rnn_step_by_step_is_the_rnn_over_the_sequence() -> None:
    graph = ExpressionGraph(inference=True)
    x, context, start = draw(4, 2, 3), draw(2, 6, 5), draw(2, 4)
    source_mask = np.array([[1] * 6, [1] * 4 + [0] * 2], np.float32)
    attention = layers.GlobalAttention("att", 4, 5)
    nodes = constant(graph, context), constant(graph, source_mask)
    attended = attention.over(nodes[0], attention.map_context(nodes[0]), nodes[1])
    conditional = layers.StackedCell(layers.GRU("a", 3, 4), [attended, layers.GRU("b", 5, 4, final=True)])
    rnn = layers.RNN([conditional, layers.GRU("c", 4, 4)], skip=True)
    states = [(constant(graph, start),)] * 2
    whole = rnn(constant(graph, x), states=states)
    outputs, given = [], []
    for t in range(4):
        now = rnn.step(constant(graph, x[t]), states)
        outputs.append(now.output)
        given.append(now.given[0])
        states = now.states
    random_params(graph)
    graph.forward()
    close(whole.output, np.stack([o.val() for o in outputs]))
    close(whole.given[0], np.stack([g.val() for g in given]))
    close(whole.states[1][0], np.asarray(states[1][0].val()))


@pytest.mark.parametrize("norm", [False, True])
def test_attention_of_rnns_for_several_rows_per_sentence(norm: bool) -> None:
    graph = ExpressionGraph(inference=True)
    context, state = draw(2, 4, 5), draw(6, 3)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.float32)
    attention = layers.GlobalAttention("d", 3, 5, layer_normalization=norm)
    nodes = constant(graph, context), constant(graph, mask)
    attended = attention.over(nodes[0], attention.map_context(nodes[0]), nodes[1])
    aligned, weights = (f((constant(graph, state),)) for f in (attended.apply, attended.weights))
    p = random_params(graph)
    graph.forward()
    if norm:
        keys = normed(context @ p["d_Wc_att"], p["d_att_gamma1"], p["d_b_att"], 1e-9)
        query = normed(state @ p["d_W_comb_att"], p["d_att_gamma2"], 0, 1e-9)
    else:
        keys, query = context @ p["d_Wc_att"] + p["d_b_att"], state @ p["d_W_comb_att"]
    expected = np.zeros((6, 5))
    for row in range(6):
        sentence = row // 3
        words = int(mask[sentence].sum())
        energies = np.tanh(keys[sentence] + query[row]) @ p["d_U_att"][:, 0]
        a = softmax(energies[:words])
        np.testing.assert_allclose(weights.val()[sentence, row % 3], [*a, *[0] * (4 - words)], atol=1e-6)
        expected[row] = a @ context[sentence, :words]
    close(aligned, expected)


# ---------------------------------------------------------------- transformer


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
    cache, steps = layer.autoregression.start(graph, batch * beam, length + 2), []
    for t in range(length):
        position = graph.constant((), inits.from_value(t), "int32")
        y, cache = layer.step(constant(graph, x[:, :, t]), cache, position, attended)
        steps.append(y)
    random_params(graph)
    graph.forward()
    got = np.stack([step.val() for step in steps], 2)
    np.testing.assert_allclose(got, np.stack([w.val() for w in whole], 1), rtol=1e-4, atol=1e-5)


def test_depth_scaling_and_several_encoders() -> None:
    graph = ExpressionGraph()
    config = layers.TransformerConfig(8, heads=2, dim_ffn=6, depth_scaling=True)
    layer = layers.DecoderLayer("l", config, 4, encoders=2)
    x, mask = graph.ones((1, 2, 8)), graph.zeros((1, 1, 1, 2))
    contexts = [layers.Context(block.prepare(x), mask) for block in layer.cross]
    layer(x, mask, contexts)
    params = graph.params()
    assert "l_context_Wq" in params and "l_context_enc2_Wq" in params
    limit = np.sqrt(6 / 16) / 2  # Glorot's bound over the root of the depth
    largest = np.abs(params["l_self_Wq"].val()).max()
    assert 0.9 * limit < largest <= limit


def test_an_autoregression_that_there_is_not_is_refused_by_name() -> None:
    config = layers.TransformerConfig(8, heads=2, decoder_autoreg="convolution")
    with pytest.raises(
        layers.UnsupportedOptionError, match="transformer-decoder-autoreg: 'convolution' is unknown"
    ):
        layers.DecoderLayer("l", config, 1)


# ---------------------------------------------------------------- dropout and gradients


def test_dropout_masks_are_shared_as_in_marian() -> None:
    graph = ExpressionGraph()
    x = graph.ones((64, 3, 50))
    features = layers.PostProcess("p", 50, "d", dropout=0.25)(x, x)
    ids = graph.zeros((64, 50), "uint32")
    words = layers.Embedding("E", 2, 3, dropout=0.25)(ids)
    graph.params()["E"].set_value(np.ones((2, 3)))
    graph.forward()
    features, words = np.asarray(features.val()), np.asarray(words.val())
    assert set(np.unique(features)) == {0, np.float32(1 / 0.75)}
    assert (features == features[:1]).all(), "one mask serves all sentences"
    assert (words == words[:1, :, :1]).all(), "whole words drop, the same in all sentences"
    assert 0 < (words[0, :, 0] == 0).mean() < 0.6


def test_an_rnn_drops_the_same_features_at_every_step() -> None:
    graph = ExpressionGraph()
    cell = layers.GRU("c", 40, 6, dropout=0.5)
    for mask, features in ((cell.input_mask, 40), (cell.state_mask, 6)):
        drawn = mask.on(graph)
        assert drawn is not None and drawn.shape == (1, features)
        assert mask.on(graph) is drawn and mask.on(ExpressionGraph()) is not drawn
    x = np.broadcast_to(draw(2, 40), (3, 2, 40))
    (mapped,) = cell.apply_input(constant(graph, np.ascontiguousarray(x)))
    full = mgraph.dot(
        constant(graph, np.ascontiguousarray(x)), mgraph.concatenate([w.on(graph) for w in cell.weights], -1)
    )
    graph.forward()
    np.testing.assert_array_equal(mapped.val()[0], mapped.val()[2])
    assert np.abs(np.asarray(mapped.val()) - np.asarray(full.val())).max() > 0.1


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
def test_gradients_of_a_conditional_gru_over_time() -> None:
    graph = ExpressionGraph()
    context = graph.param("context", (2, 3, 4), inits.normal())
    mask = constant(graph, np.array([[1, 1, 1], [1, 1, 0]], np.float32))
    attention = layers.GlobalAttention("d", 3, 4)
    attended = attention.over(context, attention.map_context(context), mask)
    cell = layers.StackedCell(layers.GRU("a", 2, 3), [attended, layers.GRU("b", 4, 3, final=True)])
    done = layers.RNN([cell])(graph.param("x", (3, 2, 2), inits.normal()))
    report = mgraph.check_gradients(mgraph.concatenate([done.output, done.given[0]], -1))
    assert report.ok, report
    assert len(report.checks) == 18


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
    cache = SelfAttention("l", config, 1).start(graph, rows=6, max_length=9)
    assert {name: node.shape for name, node in cache.items()} == {
        "keys": (6, 2, 9, 4),
        "values": (6, 2, 9, 4),
    }
