"""The errors of layers that are used wrongly: they say what was expected and what was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import layers
import mgraph
from layers.transformer import Now
from mgraph import ArgumentError, ElementTypeError, ExpressionGraph, MGraphError, Node, inits


def ones(graph: ExpressionGraph, *shape: int, kind: str = "float32") -> Node:
    return graph.constant(shape, inits.from_tensor(np.ones(shape, kind)), kind)


def gru(graph: ExpressionGraph, dim_input: int = 3) -> layers.GRU:
    return layers.GRU(f"gru{dim_input}", dim_input, 4)


def attended(graph: ExpressionGraph, mask: tuple[int, ...] = (2, 9)) -> layers.AttendedContext:
    context = ones(graph, 2, 9, 6)
    attention = layers.GlobalAttention("att", 4, 6)
    return attention.over(context, attention.map_context(context), ones(graph, *mask))


SMALL = layers.TransformerConfig(8, heads=2, dim_ffn=6, depth_scaling=True)
FACTORED = layers.FactorGroups((2, 3), ((), (1,)))
MISTAKES: list[tuple[Callable[[ExpressionGraph], Any], str]] = [
    (lambda g: layers.Dense("h", [], 4), "'h': expected the sizes of at least one input, got none"),
    (lambda g: layers.Dense("h", 2, 4)(), r"'h': expected 1 input\(s\), got 0"),
    (lambda g: layers.MultiHeadAttention("m", 8, 0), "heads of 'm': expected an int from 1, got 0"),
    (lambda g: layers.log_mask(ones(g, 2, 3, kind="int32")), "a mask of floating point, got int32"),
    (
        lambda g: layers.Embedding("E", 8, 4, dropout=0.5)(g.indices([1, 2])),
        "Embedding with 'E': axis 1 does not exist in a node with 1 axes",
    ),
    (lambda g: layers.PositionEmbedding(8)(ones(g, 2, 3, 6)), r"of 8 features for .* \(2, 3, 6\)"),
    (lambda g: layers.PositionEmbedding(8)(ones(g, 8)), r"of 8 features for .* \(8,\)"),
    (
        lambda g: layers.TrainedPositionEmbedding("p", 9, 5)(ones(g, 2, 3, 1)),
        r"embeddings 'p' of 5 features for .* \(2, 3, 1\)",
    ),
    (
        lambda g: layers.TrainedPositionEmbedding("p", 9, 5).at(ones(g, 2, 3, 1), g.indices([1])),
        r"embeddings 'p' of 5 features for .* \(2, 3, 1\)",
    ),
    (
        lambda g: layers.PositionEmbedding(5).at(ones(g, 2, 3, 1), g.indices([1])),
        r"of 5 features for .* \(2, 3, 1\)",
    ),
    (
        lambda g: layers.Output("o", 4, 11, omit_bias=True, tied=layers.Embedding("E", 10, 4).table),
        r"'o': expected a tied table of shape \(11, 4\), got 'E' of shape \(10, 4\)",
    ),
    (
        lambda g: layers.RNN(layers.GRU, "r", 1, 6, skip=True, skip_first=True),
        "layer 1 of the RNN adds .* 'r' has an input of 1 features, and a state of 6",
    ),
    (
        lambda g: layers.EncoderLayer("e", replace(SMALL, postprocess=None), 1),
        "transformer-postprocess: expected a string of the operations d, a, h, n, r, got None",
    ),
    (lambda g: layers.LayerNorm("n", 8, "", 1e-6), "config of 'n': expected a NormConfig, got 1e-06"),
    (lambda g: layers.EncoderLayer("e", 16, 1), "config of 'e.*': expected a TransformerConfig, got 16"),
    (lambda g: layers.DecoderLayer("d", 16, 1), "config of 'd': expected a TransformerConfig, got 16"),
    (lambda g: layers.PoolingBlock("p", 16, 1), "config of 'p': expected a TransformerConfig, got 16"),
    (lambda g: layers.Recurrence("r", 16, 1), "config of 'r.*': expected a TransformerConfig, got 16"),
    (lambda g: layers.StackedCell([gru(g)]), r"first cell of a StackedCell: expected a Cell, got \["),
    (lambda g: layers.FactoredEmbedding("f", 9, 4), "groups of 'f': expected a FactorGroups, got 9"),
    (lambda g: layers.FactoredOutput("f", 4, 9), "groups of 'f': expected a FactorGroups, got 9"),
    (lambda g: layers.split_heads(ones(g, 2, 8), 2), r"expected \(batch, time, 2 \* depth\), got \(2, 8\)"),
    (lambda g: layers.split_heads(ones(g, 2, 5, 8), 3), r"\(batch, time, 3 \* depth\), got \(2, 5, 8\)"),
    (lambda g: layers.join_heads(ones(g, 2, 8)), r"\(batch, heads, time, depth\), got \(2, 8\)"),
    (lambda g: layers.GRU("r", -4, 4), "dim_input of cell 'r': expected an int from 0, got -4"),
    (lambda g: layers.GRU("r", 4, 0), "dim_state of cell 'r': expected an int from 1, got 0"),
    (
        lambda g: layers.RNN(layers.GRU, "r", 4, 4, depth=1.5),
        "depth of RNN 'r': expected an int from 1, got 1.5",
    ),
    (lambda g: layers.Dense("h", 4.0, 5), "rows of 'h_W': expected an int from 1, got 4.0"),
    (lambda g: layers.Dense("h", True, 5), "rows of 'h_W': expected an int from 1, got True"),
    (lambda g: layers.Dense("h", "4", 5), "rows of 'h_W': expected an int from 1, got '4'"),
    (lambda g: layers.LayerNorm("n", 0), "columns of 'n_ln_scale': expected an int from 1, got 0"),
    (lambda g: layers.PositionEmbedding(2), "position embeddings: expected an int from 3, got 2"),
    (lambda g: layers.EncoderLayer("l", SMALL, 0), "depth of a layer: expected an int from 1, got 0"),
    (lambda g: layers.DecoderLayer("l", SMALL, 1, -1), "encoders of 'l': expected an int from 0, got -1"),
    (
        lambda g: layers.Dense("h", 4, 5, activation=mgraph.tanh),
        "activation: expected one of '', .* got <function",
    ),
    (lambda g: layers.Dense("h", 4, 5, activation=None), "activation: expected one of '', .* got None"),
    (
        lambda g: layers.Output("o", 4, 10, tied=layers.Embedding("E", 10, 4)),
        r"'o': expected a tied table, embedding.table, got Embedding\(E \[10, 4\]\)",
    ),
    (lambda g: layers.RNN(gru(g), g), r"expected RNN\(cell, prefix, .* got GRU, ExpressionGraph"),
    (lambda g: layers.RNN(layers.GRU, "r", 4, 6, dropuot=0.1), r"expected RNN\(.* did you mean dropout\?"),
    (lambda g: layers.RNN([gru(g)], skp=True), r"got list, skp; did you mean skip\?"),
    (lambda g: layers.RNN(layers.GRU, "r", 4), r"expected RNN\(.* got class GRU, str, int$"),
    (
        lambda g: layers.RNN([gru(g)])(ones(g, 5, 2, 3), None, [ones(g, 2, 4)]),
        "states of an RNN are a tuple of nodes for each layer, got ConstantNode",
    ),
    (
        lambda g: layers.RNN([gru(g)])(ones(g, 5, 2, 3), None, ones(g, 2, 4)),
        "states of an RNN are a tuple of nodes for each layer, got ConstantNode",
    ),
    (
        lambda g: layers.RNN([gru(g)])(ones(g, 5, 2, 3), None, [(ones(g, 1, 2, 4),)]),
        r"state of layer 1 of an RNN: expected \(batch, dim_state\), \(2, 4\), got \(1, 2, 4\)",
    ),
    (
        lambda g: layers.RNN([gru(g)]).step(ones(g, 2, 3), [(ones(g, 1, 4),)]),
        r"state of layer 1 of an RNN: expected \(batch, dim_state\), \(2, 4\), got \(1, 4\)",
    ),
    (
        lambda g: layers.EncoderLayer("l", SMALL, 1)(ones(g, 3, 8), ones(g, 1, 1, 1, 3)),
        r"MultiHeadAttention with 'l_self_Wq': expected \(batch, time, 8\), got \(3, 8\)",
    ),
    (
        lambda g: layers.DecoderLayer("l", SMALL, 1).cross[0].prepare(ones(g, 1, 2, 3, 8)),
        r"MultiHeadAttention with 'l_context_Wq': expected \(batch, time, 8\), got \(1, 2, 3, 8\)",
    ),
    (lambda g: layers.RNN(gru(g)), "a list of cells and stacks of cells, got GRU"),
    (lambda g: layers.RNN([gru(g), "gru"]), "a list of cells and stacks of cells, got "),
    (lambda g: layers.RNN([]), "at least one layer"),
    (lambda g: layers.RNN([gru(g)])(ones(g, 5, 3)), r"\(time, batch, features\), got \(5, 3\)"),
    (
        lambda g: layers.RNN([gru(g)]).step(ones(g, 5, 2, 3), [(ones(g, 2, 4),)]),
        r"a step of an RNN is over \(batch, features\), got \(5, 2, 3\)",
    ),
    (
        lambda g: layers.RNN([gru(g)])(ones(g, 5, 4, 3), ones(g, 5, 4)),
        r"mask of an RNN: expected \(time, batch, 1\), \(5, 4, 1\) for .* got \(5, 4\)",
    ),
    (
        lambda g: layers.RNN([gru(g)])(ones(g, 5, 4, 3), ones(g, 4, 5, 1)),
        r"mask of an RNN: .* got \(4, 5, 1\)",
    ),
    (
        lambda g: attended(g, (9, 2)),
        r"mask of GlobalAttention with 'att_Wc_att': expected .*, \(2, 9\) for .* got \(9, 2\)",
    ),
    (
        lambda g: layers.GlobalAttention("att", 4, 6).over(ones(g, 9, 6), ones(g, 9, 6), ones(g, 9, 6)),
        r"'att_Wc_att': expected a context \(batch, source, dim_context\), got \(9, 6\)",
    ),
    (lambda g: layers.StackedCell(gru(g), [gru(g, 6)]), "'gru6' has an input of 6 features, and gets 0"),
    (lambda g: layers.StackedCell(gru(g), [attended(g), gru(g, 0)]), "input of 0 features, and gets 6"),
    (
        lambda g: layers.Output("o", 4, 5)(ones(g, 3, 4), ones(g, 2, 2, kind="uint32")),
        r"got \(3, 4\) and \(2, 2\)",
    ),
    (
        lambda g: layers.Output("o", 4, 5)(ones(g, 3, 4), g.zeros((0, 2), "uint32")),
        r"got \(3, 4\) and \(0, 2\)",
    ),
    (
        lambda g: layers.DecoderLayer("l", SMALL, 1)(ones(g, 2, 3, 8), ones(g, 1, 1, 1, 1), []),
        "sees 1 encoders, got 0 contexts",
    ),
    (
        lambda g: layers.DecoderLayer("l", SMALL, 1)(ones(g, 2, 3, 8), ones(g, 1, 1), [ones(g, 2, 3, 8)]),
        "contexts of a decoder layer: expected a Context, got ConstantNode",
    ),
    (
        lambda g: layers.DecoderLayer("l", SMALL, 1)(
            ones(g, 2, 3, 8), ones(g, 1, 1, 1, 1), [layers.Context({}, ones(g, 1, 1, 1, 1))]
        ),
        r"l_context: expected a context of what this block prepared, with 'keys', got \[\]",
    ),
    (
        lambda g: layers.StackedCell(gru(g), gru(g)),  # type: ignore[arg-type]
        "expected a list of cells and of inputs of cells, got GRU",
    ),
    (
        lambda g: layers.StackedCell(gru(g), ["x"]),  # type: ignore[list-item]
        r"expected a list of cells and of inputs of cells, got \['x'\]",
    ),
    (
        lambda g: layers.FactorGroups([2], ((), ())),  # type: ignore[arg-type]
        "expected a tuple of sizes, and a tuple of groups for each lemma, got",
    ),
    (
        lambda g: layers.FactorGroups((2, 3), ((), [1])),  # type: ignore[arg-type]
        "expected a tuple of sizes, and a tuple of groups for each lemma, got",
    ),
    (lambda g: layers.FactorGroups((1, -1), ((),)), "size of a group: expected an int from 0, got -1"),
    (lambda g: layers.FactorGroups((2, 3), ((),)), "expected the groups of 2 lemmas, got 1"),
    (lambda g: layers.FactorGroups((1, 3), ((2,),)), r"expected groups of \[1\] for a lemma, .* got \(2,\)"),
    (
        lambda g: layers.FactorGroups((1, 2, 2), ((2, 1),)),
        r"for a lemma, in this order, got \(2, 1\)",
    ),
    (
        lambda g: layers.packing.laid_out(ones(g, 2, 3), layers.PackedWords(g.indices([0]))),
        r"laid_out: expected words of three axes, the last their features, got \(2, 3\)",
    ),
    (
        lambda g: layers.packing.taken_up(ones(g, 2, 3), layers.PackedWords(*[g.indices([0])] * 2)),
        r"taken_up: expected words of three axes, the last their features, got \(2, 3\)",
    ),
    (
        lambda g: layers.FactoredOutput("f", 4, FACTORED)(ones(g, 2, 4), g.indices([0])),
        "factored words take no shortlist",
    ),
    (
        lambda g: layers.FactoredOutput("f", 4, FACTORED).of_listed(g.indices([0])),
        "factored words take no shortlist",
    ),
    (
        lambda g: layers.DecoderLayer("l", SMALL, 1).step(
            ones(g, 1, 1, 8), {}, Now(g.zeros((), "int32")), []
        ),
        "a step of self-attention needs Now.used and Now.parts for its words",
    ),
    (lambda g: layers.TransformerConfig(8, ffn_depth=0), "ffn_depth: expected an int from 1, got 0"),
    (lambda g: layers.TransformerConfig(8, dropout_ffn=1.0), "dropout_ffn expects .* 0 <= p < 1, got 1.0"),
]


@pytest.mark.parametrize("mistake, message", MISTAKES)
def test_a_mistake_is_explained(mistake: Callable[[ExpressionGraph], Any], message: str) -> None:
    with pytest.raises(MGraphError, match=message):
        mistake(ExpressionGraph())


@pytest.mark.parametrize(
    "made",
    [
        lambda p: layers.Embedding("p", 4, 4, dropout=p),
        lambda p: layers.FactoredEmbedding("p", layers.FactorGroups((1,), ((),)), 4, dropout=p),
        lambda p: layers.MultiHeadAttention("p", 4, 2, dropout=p),
        lambda p: layers.GlobalAttention("p", 4, 4, dropout=p),
        lambda p: layers.PreProcess("p", 4, "d", dropout=p),
        lambda p: layers.PostProcess("p", 4, "d", dropout=p),
        lambda p: layers.GRU("p", 4, 4, dropout=p),
    ],
)
@pytest.mark.parametrize("p", [1.0, -0.1, "half", float("nan")])
def test_what_is_no_probability_is_refused_at_once(made: Callable[[Any], Any], p: object) -> None:
    with pytest.raises(ArgumentError, match=f"'p' expects a probability 0 <= p < 1, got {p!r}"):
        made(p)


ARRAY = np.ones((2, 3, 8), np.float32)


@pytest.mark.parametrize(
    "layer, name",
    [
        (layers.Dense("h", 8, 4), "Affine with 'h_W'"),
        (layers.Dense("h", 8, 4, layer_normalization=True), "Affine with 'h_W'"),
        (layers.Output("o", 8, 4), "Output with 'o_Wt'"),
        (layers.Embedding("E", 8, 4), "flatten"),
        (layers.LayerNorm("n", 8), "LayerNorm with 'n_ln_scale'"),
        (layers.RMSNorm("n", 8), "RMSNorm with 'n_rms_scale'"),
        (layers.PositionEmbedding(8), "position embeddings"),
        (layers.TrainedPositionEmbedding("p", 9, 8), "position embeddings 'p'"),
        (layers.PreProcess("p", 8, "d"), "dropout"),
        (layers.RNN([layers.GRU("r", 8, 4)]), "RNN"),
        (lambda x: layers.RNN([layers.GRU("r", 8, 4)]).step(x, []), "RNN"),
        (layers.GlobalAttention("a", 4, 8).map_context, "GlobalAttention with 'a_Wc_att'"),
        (layers.GlobalAttention("a", 8, 4).map_state, "GlobalAttention with 'a_W_comb_att'"),
        (layers.log_mask, "log_mask"),
    ],
)
def test_an_array_is_no_node(layer: Callable[..., Any], name: str) -> None:
    with pytest.raises(
        ElementTypeError, match=rf"^{name}: expected a node, got an array of shape \(2, 3, 8\)"
    ):
        layer(ARRAY)


def test_sizes_of_numpy_are_sizes() -> None:
    four, graph = np.int64(4), ExpressionGraph()
    assert layers.Dense("h", four, four)(ones(graph, 2, 4)).shape == (2, 4)
    assert layers.RNN(layers.GRU, "r", four, four)(ones(graph, 3, 2, 4)).output.shape == (3, 2, 4)
    assert layers.MultiHeadAttention("m", four, np.int32(2)).query.weight.shape == (4, 4)


def test_what_comes_before_a_cell_of_a_stack_is_its_input() -> None:
    graph = ExpressionGraph(inference=True)
    stack = layers.StackedCell(gru(graph), [attended(graph), gru(graph, 6), gru(graph, 0)])
    assert layers.RNN([stack])(ones(graph, 5, 2, 3)).output.shape == (5, 2, 4)


class Square(layers.Layer):
    def __init__(self, init: Any = None) -> None:
        self.w = self.param("square_W", 3, 3, init)


@pytest.mark.parametrize("init", [np.ones((3, 3)), 0, "zeros"])
def test_what_is_no_initializer_is_refused_where_the_parameter_is_declared(init: Any) -> None:
    with pytest.raises(ArgumentError, match="expected an initializer from mgraph.inits"):
        Square(init)


def test_the_name_of_a_parameter_is_a_text() -> None:
    with pytest.raises(ArgumentError, match="the name of a parameter must be a string, got 3"):
        layers.Embedding(3, 3, 4)  # type: ignore[arg-type]


def test_a_parameter_in_the_place_of_its_node_and_a_node_in_that_of_a_graph() -> None:
    graph, square = ExpressionGraph(), Square()
    x = graph.ones((2, 3))
    with pytest.raises(ElementTypeError, match=r"parameter.on\(x.graph\)"):
        mgraph.dot(x, square.w)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="'square_W': expected a graph, got a node; its graph is x.graph"):
        square.w.on(x)  # type: ignore[arg-type]


class NodeForState(layers.GRU):
    def apply_state(self, inputs: Any, state: Any, mask: Any = None) -> Any:
        return super().apply_state(inputs, state, mask)[0]


class NodeForInput(layers.GRU):
    def map_input(self, x: Any) -> Any:
        return super().map_input(x)[0]


class WithoutMask(layers.GRU):
    def apply_state(self, inputs: Any, state: Any) -> Any:  # type: ignore[override]
        return super().apply_state(inputs, state)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            WithoutMask,
            r"'own': expected WithoutMask.apply_state\(self, inputs, state, mask=None\), "
            r"got apply_state\(self, inputs, state\)$",
        ),
        (NodeForState, "NodeForState.apply_state must return a tuple of 1 nodes, the next state, got"),
        (NodeForInput, "NodeForInput.map_input must return a tuple of nodes, got"),
    ],
)
def test_a_cell_with_another_step_is_refused(cell: type[layers.Cell], message: str) -> None:
    """Nodes can be indexed: without the check, the state would be that of the first sentence."""
    graph = ExpressionGraph()
    with pytest.raises(ArgumentError, match=message):
        layers.RNN(cell, "own", 3, 5)(graph.ones((4, 2, 3)))
