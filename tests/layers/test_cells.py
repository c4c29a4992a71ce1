"""Every recurrent cell: Marian's scores, gradients by three witnesses, masks, dropout, names, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import layers
import mgraph
from layers.cells import CELLS, Cell, State
from mgraph import ArgumentError, ExpressionGraph, GraphError, Node, ShapeError, inits
from nmt.search.scoring import score
from nmt.text.sentences import LineEncoder
from nmt.text.vocabs.loading import load_vocabs
from tests.helpers.cell_models import DATA, ROWS, TEXTS, VOCABS, make
from tests.helpers.leaves import constant

KEEPING = ("gru", "gru-nematus", "mgru")
"""Cells that keep the old state where the mask is 0; others, except ``lstm`` and ``mlstm``, erase it."""
NEVER = ("sru", "mlstm", "mgru")
"""Cells that never drop the last of their projected inputs."""


def draw(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def param(graph: ExpressionGraph, name: str, *shape: int) -> Node:
    return graph.param(name, shape, inits.from_tensor(draw(*shape, seed=len(name))))


def vary(graph: ExpressionGraph) -> None:
    """Move every parameter away from its initial value, biases and gains too."""
    for i, node in enumerate(graph.params().values()):
        node.set_value(np.asarray(node.val()) + 0.5 * draw(*node.shape, seed=i))


def state_of(graph: ExpressionGraph, cell: Cell | layers.StackedCell, batch: int, dim: int) -> State:
    return tuple(param(graph, "start" + i * "+", batch, dim) for i in range(cell.states))


# ---------------------------------------------------------------- Marian's numbers


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.sampled("gru-nematus", "sru-ssru")
def test_scores_are_marians(row: str) -> None:
    """We score all pairs in one padded batch; Marian scored them one by one."""
    model = make(row)
    encoder = LineEncoder(load_vocabs([str(path) for path in VOCABS], model.dim_vocabs), 100, False)
    lines = zip(*(path.read_bytes().splitlines() for path in TEXTS), strict=True)
    pairs = [encoder.sentence(i, pair).sequences for i, pair in enumerate(lines)]
    reference = (DATA / "cells" / f"{row}.txt").read_text().splitlines()
    for (_, found, _), line in zip(score(model, pairs), reference, strict=True):
        expected = [float(word) for word in line.split("WordScores=")[1].split()]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("full", [False, True], ids=["bare", "full"])
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.sampled("gru-full", "lstm-bare")
def test_gradients(name: str, full: bool) -> None:
    """Over several steps; ``full`` runs backward, with layer normalization, dropout and a mask."""
    graph = ExpressionGraph()
    cell = CELLS[name]("c", 3, 3, layer_normalization=full, dropout=0.3 if full else 0.0, in_encoder=True)
    rnn = layers.RNN([cell], direction="backward" if full else "forward")
    mask = constant(graph, np.array([[1, 1], [1, 0]], np.float32).reshape(2, 2, 1)) if full else None
    done = rnn(param(graph, "x", 2, 2, 3), mask, [state_of(graph, cell, 2, 3)])
    vary(graph)
    check(graph, (done.output, *done.states[0]))


@pytest.mark.parametrize(
    "name, in_encoder",
    [("gru", False), ("gru-nematus", True), ("gru-nematus", False), ("lstm", False), ("relu", False)],
)
@pytest.mark.sampled(every=3)
def test_gradients_of_a_transition_cell(name: str, in_encoder: bool) -> None:
    graph = ExpressionGraph()
    cell = CELLS[name]("c", 0, 3, layer_normalization=True, final=not in_encoder, in_encoder=in_encoder)
    after = cell.apply_state((), state_of(graph, cell, 2, 3))
    vary(graph)
    check(graph, after)


def check(graph: ExpressionGraph, nodes: tuple[Node, ...]) -> None:
    report = mgraph.check_gradients(mgraph.concatenate([mgraph.flatten(node) for node in nodes]))
    assert report.ok, report
    assert len(report.checks) == len(graph.params())


# ---------------------------------------------------------------- masks and padding


@pytest.mark.parametrize("name", CELLS)
def test_where_the_mask_is_0(name: str) -> None:
    graph = ExpressionGraph(inference=True)
    cell = CELLS[name]("c", 4, 4)
    states = state_of(graph, cell, 2, 4)
    inputs = cell.apply_input(constant(graph, draw(2, 4)))
    free = cell.apply_state(inputs, states)
    masked = cell.apply_state(inputs, states, constant(graph, np.array([[1], [0]], np.float32)))
    vary(graph)
    graph.forward()
    for before, after, now in zip(states, free, masked, strict=True):
        np.testing.assert_allclose(now.val()[0], after.val()[0], rtol=1e-6)
        if name in KEEPING:
            np.testing.assert_array_equal(now.val()[1], before.val()[1])
        elif "lstm" not in name:
            np.testing.assert_array_equal(now.val()[1], np.zeros(4))
    if "lstm" in name:
        np.testing.assert_array_equal(masked[1].val()[1], states[1].val()[1])
        assert (masked[0].val()[1] != free[0].val()[1]).all(), "the output is that of the old cell"


def test_padding_changes_nothing() -> None:
    """A shorter sequence has the same output alone and in a batch with a longer one, in both directions."""
    graph = ExpressionGraph(inference=True)
    x, mask = draw(5, 2, 4), np.ones((5, 2, 1), np.float32)
    mask[3:, 1] = 0
    pairs = []
    for name, kind in CELLS.items():
        rnn = layers.RNN(kind, f"encoder_{name}", 4, 4, depth=2, direction="alternating-backward")
        padded = rnn(constant(graph, x), constant(graph, mask)).output
        pairs.append((padded, rnn(constant(graph, np.ascontiguousarray(x[:3, 1:]))).output))
    vary(graph)
    graph.forward()
    for padded, alone in pairs:
        np.testing.assert_allclose(padded.val()[:3, 1:], alone.val(), rtol=0, atol=1e-6)


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("norm", [False, True])
def test_dropout_is_one_mask_for_all_steps(norm: bool) -> None:
    graph = ExpressionGraph()
    x = constant(graph, np.ascontiguousarray(np.broadcast_to(draw(1, 20), (3, 2, 20))))
    pairs = []
    for name, kind in CELLS.items():
        cells = [kind(name, 20, 20, layer_normalization=norm, dropout=p) for p in (0.5, 0.0)]
        parts = list(zip(*(cell.apply_input(x) for cell in cells), strict=True))
        pairs += [(name, *pair) for pair in (parts[:-1] if name in NEVER else parts)]
    graph.forward()
    for name, dropped, whole in pairs:
        assert (dropped.val() == dropped.val()[:1, :1]).all() and (dropped.val() != whole.val()).any(), name


@pytest.mark.parametrize("norm", [False, True])
def test_a_state_is_dropped_where_a_product_reads_it(norm: bool) -> None:
    graph = ExpressionGraph()
    x, state = constant(graph, draw(2, 20)), constant(graph, draw(2, 20, seed=2))
    pairs = []
    for name, kind in CELLS.items():
        cells = [kind(name, 20, 20, layer_normalization=norm, dropout=p) for p in (0.5, 0.0)]
        inputs = cells[1].apply_input(x)
        pairs.append((name, *(cell.apply_state(inputs, (state,) * cell.states)[0] for cell in cells)))
    graph.forward()
    for name, dropped, whole in pairs:
        assert (dropped.val() != whole.val()).any() == (name not in ("sru", "ssru")), name


def test_what_is_never_dropped() -> None:
    """The input that SRU's highway carries, and the factors in multiplicative cells."""
    graph = ExpressionGraph()
    x, s = constant(graph, draw(2, 5)), constant(graph, draw(2, 5, seed=2))
    pairs = []
    for name in NEVER:
        cell, whole = (CELLS[name](name, 5, 5, dropout=p) for p in (0.5, 0.0))
        parts = [c.apply_input(x)[-1] for c in (cell, whole)]
        if isinstance(cell, layers.MGRU | layers.MLSTM):
            parts = [cell.multiplier(part, s) for part in parts]
        pairs.append(parts)
    graph.forward()
    for dropped, never in pairs:
        np.testing.assert_array_equal(dropped.val(), never.val())


def test_every_cell_draws_two_masks_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a cell that never drops its state, so that later draws do not depend on the kind of cell."""
    graph, shapes = ExpressionGraph(), []
    draw_mask = graph.dropout_mask
    monkeypatch.setattr(graph, "dropout_mask", lambda p, shape: shapes.append(shape) or draw_mask(p, shape))
    cells = [layers.SSRU("a", 3, 3, dropout=0.5), layers.GRU("b", 3, 4, dropout=0.5)]
    layers.RNN(cells)(graph.ones((5, 2, 3)))
    assert shapes == [(1, 3), (1, 3), (1, 3), (1, 4)]


@pytest.mark.parametrize("first", [False, True])
def test_inference_within_a_recording_drops_nothing(first: bool) -> None:
    graph = ExpressionGraph()
    x = constant(graph, draw(2, 20))
    cell, whole = layers.GRU("c", 20, 4, dropout=0.5), layers.GRU("c", 20, 4)
    found = {}
    for inference in (first, not first):
        graph.set_inference(inference)
        found[inference] = cell.apply_input(x)[0]
    never = whole.apply_input(x)[0]
    graph.forward()
    assert (found[True].val() == never.val()).all() and (found[False].val() != never.val()).any()


# ---------------------------------------------------------------- parameters, inputs, states


def test_parameters() -> None:
    graph = ExpressionGraph()
    for kind in (layers.Tanh, layers.ReLU):
        for parameter in kind(kind.__name__, 2, 4, layer_normalization=True).parameters():
            assert parameter.layer == kind.__name__ and parameter.on(graph).shape == parameter.shape
    params = graph.params()
    assert params["Tanh_gamma1"].shape == params["Tanh_gamma2"].shape == (1, 12), "as Marian saves them"
    assert params["ReLU_gamma1"].shape == params["ReLU_gamma2"].shape == (1, 4)
    np.testing.assert_array_equal(params["ReLU_U"].val(), np.eye(4))


def test_several_inputs_stand_side_by_side() -> None:
    graph = ExpressionGraph(inference=True)
    parts = [constant(graph, draw(2, n, seed=n)) for n in (1, 3)]
    pairs = []
    for name, kind in CELLS.items():
        cell = kind(name, 4, 4)
        pairs += zip(cell.apply_input(*parts), cell.apply_input(mgraph.concatenate(parts, -1)), strict=True)
    graph.forward()
    for apart, together in pairs:
        np.testing.assert_array_equal(apart.val(), together.val())


def test_a_cell_of_a_stack_keeps_what_it_has_not() -> None:
    graph = ExpressionGraph(inference=True)
    stack = layers.StackedCell(layers.LSTM("a", 3, 4), [layers.GRU("b", 0, 4)])
    assert stack.states == 2 and layers.StackedCell(layers.GRU("c", 3, 4)).states == 1
    inputs, start = stack.apply_input(constant(graph, draw(2, 3))), stack.start(graph, 2)
    alone = stack.first.apply_state(inputs, start)
    (output, cell), _ = stack.step(inputs, start)
    assert cell is alone[1] and output is not alone[0]


def test_refusals() -> None:
    graph = ExpressionGraph()
    for name in ("mlstm", "mgru", "sru", "ssru"):
        with pytest.raises(
            GraphError, match=f"cell 'c': {CELLS[name].__name__} needs an input and cannot be"
        ):
            CELLS[name]("c", 0, 4)
    for kind in (layers.SRU, layers.SSRU):
        with pytest.raises(ShapeError, match=r"'d': S?SRU needs an input with as many .* got 3 and 4"):
            kind("d", 3, 4)
    cell = layers.LSTM("e", 3, 4)
    with pytest.raises(GraphError, match="'e' has an input of 3 features, got none"):
        cell.apply_input()
    with pytest.raises(ShapeError, match=r"'e': expected an input of 3 features, got \(2, 4\)"):
        cell.apply_input(graph.ones((2, 4)))


# ---------------------------------------------------------------- networks of one kind, attention


def test_an_rnn_of_a_kind_is_the_rnn_of_its_layers() -> None:
    graph = ExpressionGraph(inference=True)
    x = constant(graph, draw(3, 2, 5))
    rnn = layers.RNN(
        layers.LSTM, "encoder_bi", 5, 4, depth=2, skip=True, layer_normalization=True, dropout=0.3
    )
    assert [layer.first.state_mask.p for layer in rnn.layers] == [0.3, 0.3]
    stack = [
        layers.LSTM(prefix, size, 4, layer_normalization=True)
        for prefix, size in (("encoder_bi", 5), ("encoder_bi_l2_cell1", 4))
    ]
    assert {p.name for p in rnn.parameters()} == {p.name for layer in stack for p in layer.parameters()}
    one, other = rnn(x).output, layers.RNN(stack, skip=True)(x).output
    graph.forward()
    np.testing.assert_array_equal(one.val(), other.val())


def test_an_rnn_of_something_else_is_refused() -> None:
    for wrong in ((layers.Dense, "p", 2, 3), (ExpressionGraph(), []), ()):
        with pytest.raises(ArgumentError, match=r"expected RNN\(cell, prefix, dim_input, dim_state"):
            layers.RNN(*wrong)
    with pytest.raises(ArgumentError, match="depth of RNN 'p': expected an int from 1, got 0"):
        layers.RNN(layers.GRU, "p", 2, 3, depth=0)
    with pytest.raises(layers.UnsupportedOptionError, match="direction: 'down' is unknown"):
        layers.RNN(layers.GRU, "p", 2, 3, direction="down")


def test_states_of_the_wrong_number_are_refused() -> None:
    graph = ExpressionGraph()
    rnn, x = layers.RNN(layers.LSTM, "p", 2, 3, depth=2), graph.ones((5, 1, 2))
    output, _ = rnn.layers[0].start(graph, 1)
    for wrong in ([(output,)] * 2, [(output, output)]):
        with pytest.raises(ArgumentError, match=r"states of \[2, 2\] nodes got states of \[(1, 1|2)\] nodes"):
            rnn(x, states=wrong)
        with pytest.raises(ArgumentError, match=r"states of \[2, 2\] nodes got"):
            rnn.step(x[0], wrong)


def test_attention_normalised_as_in_nematus() -> None:
    graph = ExpressionGraph(inference=True)
    context, state = draw(2, 4, 5), draw(2, 3)
    attention = layers.GlobalAttention("d", 3, 5, layer_normalization=True, nematus_normalization=True)
    mapped = attention.map_context(constant(graph, context)), attention.map_state(constant(graph, state))
    vary(graph)
    graph.forward()
    p = {name: np.asarray(node.val(), np.float64) for name, node in graph.params().items()}

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
        return p[f"d_{name}_lns"] * x + p[f"d_{name}_lnb"]

    expected = (
        normed(context @ p["d_Wc_att"] + p["d_b_att"], "Wc_att"),
        normed(state @ p["d_W_comb_att"], "W_comb_att"),
    )
    for found, numbers in zip(mapped, expected, strict=True):
        np.testing.assert_allclose(found.val(), numbers, rtol=2e-5, atol=2e-6)
    assert not any("gamma" in name for name in p)
