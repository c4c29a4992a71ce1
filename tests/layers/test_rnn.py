"""Recurrent networks and their attention against formulas in NumPy, and steps against sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import layers
import mgraph
from mgraph import ExpressionGraph, inits
from tests.helpers.formulas import close, draws, normed, random_params, sigmoid, softmax
from tests.helpers.leaves import constant

draw = draws(3)


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


@pytest.mark.parametrize("kind, norm", [(layers.MGRU, False), (layers.MLSTM, True)])
def test_multiplicative_cells_go_on_from_a_product(
    kind: type[layers.MGRU | layers.MLSTM], norm: bool
) -> None:
    """Normalized numbers are small, so that eps matters."""
    graph, scale = ExpressionGraph(inference=True), 1e-3 if norm else 1.0
    x, s = scale * draw(3, 4), scale * draw(3, 5)
    cell = kind("c", 4, 5, layer_normalization=norm)
    *inputs, factor = cell.apply_input(constant(graph, x))
    product, states = cell.multiplier(factor, constant(graph, s)), (constant(graph, s),) * cell.states
    found = cell.apply_state((*inputs, factor), states)[0]
    base = super(kind, cell).apply_state(tuple(inputs), (product, *states[1:]))[0]
    p = random_params(graph)
    for name in ("bm", "bwm"):
        p[f"c_{name}"] *= scale
        graph.params()[f"c_{name}"].set_value(p[f"c_{name}"])
    graph.forward()
    factors = x @ p["c_Wm"] + p["c_bwm"], s @ p["c_Um"] + p["c_bm"]
    if norm:
        gains = p["c_gamma1m"], p["c_gamma2m"]
        factors = tuple(normed(part, gain, 0, 1e-9) for part, gain in zip(factors, gains, strict=True))
    close(product, factors[0] * factors[1])
    close(found, np.asarray(base.val()))


def test_a_cell_without_input_refuses_one() -> None:
    graph = ExpressionGraph()
    with pytest.raises(mgraph.GraphError, match="'c' has no input"):
        layers.GRU("c", 0, 5).apply_input(graph.ones((1, 4)))


def test_cells_that_there_are_not_are_refused_by_name() -> None:
    with pytest.raises(
        layers.UnsupportedOptionError,
        match="enc-cell: 'gruu' is unknown; expected 'gru', .*; did you mean 'gru'\\?",
    ):
        layers.find_cell("gruu", "enc-cell")
    with pytest.raises(layers.UnsupportedOptionError, match="^cell: 'gruu' is unknown"):
        layers.find_cell("gruu")


@pytest.mark.parametrize("direction", ["forward", "backward", "alternating-forward", "alternating-backward"])
def test_rnn_of_three_layers_with_skip_and_mask(direction: str) -> None:
    graph = ExpressionGraph(inference=True)
    x, mask = draw(5, 2, 3), np.ones((5, 2, 1), np.float32)
    mask[3:, 1] = 0
    cells = [
        layers.GRU("a", 3, 4),
        layers.StackedCell(layers.GRU("b", 4, 4), [layers.GRU("c", 0, 4)]),
        layers.GRU("d", 4, 4),
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
    second = layer(first, ["b", "c"], bool(backward[1])) + first
    close(done.output, layer(second, ["d"], bool(backward[0])) + second)


def test_an_rnn_step_by_step_is_the_rnn_over_the_sequence() -> None:
    """In training, too: all steps share the masks of dropout."""
    graph = ExpressionGraph()
    x, context, start = draw(4, 2, 3), draw(2, 6, 5), draw(2, 4)
    source_mask = np.array([[1] * 6, [1] * 4 + [0] * 2], np.float32)
    attention = layers.GlobalAttention("att", 4, 5, dropout=0.3)
    nodes = constant(graph, context), constant(graph, source_mask)
    attended = attention.over(nodes[0], attention.map_context(nodes[0]), nodes[1])
    first, second = layers.GRU("a", 3, 4, dropout=0.3), layers.GRU("b", 5, 4, final=True, dropout=0.3)
    rnn = layers.RNN([layers.StackedCell(first, [attended, second]), layers.GRU("c", 4, 4)], skip=True)
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


def test_an_rnn_over_packed_sentences() -> None:
    """Rows of 5 words: one has sentences of 2 and 3 words, the other a sentence of 4."""
    graph = ExpressionGraph(inference=True)
    packing = layers.PackedWords(graph.zeros((3, 4), "int32"))
    positions = constant(graph, [[0, 1, 0, 1, 2], [0, 1, 2, 3, 0]], "int32")
    carried = layers.carried_states(packing._replace(positions=positions), mgraph.Type.float32)
    network = layers.RNN(layers.LSTM, "r", 3, 4, depth=2, direction="alternating-backward")
    x = draw(5, 2, 3)
    whole = network(constant(graph, x), carried=carried).output
    alone = [
        network(constant(graph, x[first:last, row : row + 1])).output
        for row, first, last in ((0, 0, 2), (0, 2, 5), (1, 0, 4))
    ]
    random_params(graph)
    graph.forward()
    found = np.asarray(whole.val())
    close(alone[0], found[:2, :1])
    close(alone[1], found[2:, :1])
    close(alone[2], found[:4, 1:])
    with pytest.raises(mgraph.ArgumentError, match="takes no mask"):
        network(constant(graph, x), graph.ones((5, 2, 1)), carried=carried)
    with pytest.raises(mgraph.ArgumentError, match=r"PackedWords\.positions is None"):
        layers.carried_states(packing, mgraph.Type.float32)


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


@pytest.mark.parametrize("nematus", [False, True])
def test_attention_of_rnns_normalizes_contexts_and_states(nematus: bool) -> None:
    """Numbers are small, so that eps matters."""
    graph = ExpressionGraph(inference=True)
    context, state = 0.01 * draw(2, 4, 5), 0.01 * draw(6, 3)
    attention = layers.GlobalAttention("d", 3, 5, layer_normalization=True, nematus_normalization=nematus)
    keys, query = attention.map_context(constant(graph, context)), attention.map_state(constant(graph, state))
    p = random_params(graph)
    p["d_b_att"] = 0.01 * p["d_b_att"]
    graph.params()["d_b_att"].set_value(p["d_b_att"])
    graph.forward()
    mapped, projected, bias = context @ p["d_Wc_att"], state @ p["d_W_comb_att"], p["d_b_att"]
    if nematus:
        close(keys, normed(mapped + bias, p["d_Wc_att_lns"], p["d_Wc_att_lnb"], 1e-5))
        close(query, normed(projected, p["d_W_comb_att_lns"], p["d_W_comb_att_lnb"], 1e-5))
    else:
        close(keys, normed(mapped, p["d_att_gamma1"], bias, 1e-9))
        close(query, normed(projected, p["d_att_gamma2"], 0, 1e-9))


def test_attention_of_rnns_reads_tiers_of_sentences_as_it_reads_all() -> None:
    """Three sentences: one of 5 words, and two of at most 3; two rows for each."""
    graph = ExpressionGraph(inference=True)
    mask = np.arange(5) < np.array([5, 3, 2])[:, None]
    packing = layers.PackedWords(graph.zeros((3, 5), "int32"), tiers=((1, 5), (2, 3)))
    attention = layers.GlobalAttention("d", 3, 4)
    context, state = constant(graph, draw(3, 5, 4)), (constant(graph, draw(6, 3)),)
    mapped = attention.map_context(context)
    tiers = list(zip(*(layers.in_tiers(x, packing) for x in (context, mapped)), strict=True))
    assert [tier.shape for tier, _ in tiers] == [(1, 5, 4), (2, 3, 4)]
    given = context, mapped, constant(graph, mask.astype(np.float32))
    aligned, weights = attention.over(*given, give_weights=True).apply(state)
    by_tier, own_weights = attention.over(*given, tiers=tiers, give_weights=True).apply(state)
    random_params(graph)
    graph.forward()
    close(by_tier, aligned.val())
    close(own_weights, weights.val())


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


def test_an_attention_drops_features_of_states() -> None:
    graph = ExpressionGraph()
    context, state = constant(graph, draw(2, 4, 5)), (constant(graph, draw(2, 30)),)
    attention = layers.GlobalAttention("d", 30, 5, dropout=0.5)
    attended = attention.over(context, attention.map_context(context), graph.ones((2, 4)))
    assert attended.state_mask is not None and attended.state_mask.shape == (1, 30)
    dropped, whole = attended.weights(state), replace(attended, state_mask=None).weights(state)
    graph.forward()
    assert (dropped.val() != whole.val()).any()


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
