"""Marian's model type ``s2s``: recurrent encoder and decoder with attention."""

from __future__ import annotations

from collections.abc import Callable

from layers import RNN, Cell, Dense, GlobalAttention, StackedCell, Transduced, choose, find_cell
from layers.cells import State
from mgraph import (
    ExpressionGraph,
    Node,
    concatenate,
    repeat,
    reshape,
    shift,
    transpose,
    weighted_average,
)
from nmt.models.model import Model, Nodes

ENCODER, DECODER = 0, 1


class S2S(Model):
    """Encoder and decoder of recurrent cells (Bahdanau et al. 2015, Sennrich et al. 2017).

    Parameters: ``encoder_bi_*`` forward, ``encoder_bi_r_*`` backward; ``decoder_ff_state_*`` from the mean
    context to the first state; ``decoder_cell1_*``, the attention ``decoder_*_att``, ``decoder_cell2_*``,
    ``decoder_l2_cell1_*``, ...; ``decoder_ff_logit_l1_*`` from word, state and context to the output layer
    ``decoder_ff_logit_l2_*``; and embeddings. Loops over time are time-major inside.
    Source: Marian, ``models/s2s.h``.
    """

    type = "s2s"
    output_prefix = "decoder_ff_logit_l2"

    def encode(self, graph: ExpressionGraph, source_ids: Node, source_mask: Node) -> Nodes:
        batch, length = source_ids.shape
        build = choose("enc-type", self.options.enc_type, ENCODERS)
        words = self.embedding(graph, ENCODER, time_axis=0)(transpose(source_ids))
        hidden = build(self, graph, words, reshape(transpose(source_mask), (length, batch, 1)))
        context = transpose(hidden, (1, 0, 2))
        mean = weighted_average(context, reshape(source_mask, (batch, length, 1)), 1)
        first = Dense(
            graph,
            "decoder_ff_state",
            self.options.dim_rnn,
            activation="tanh",
            layer_normalization=self.options.layer_normalization,
        )
        return {
            "mask": source_mask,
            "context": context,
            "mapped_context": self._attention(graph, context).map_context(context),
            "start": first(reshape(mean, (batch, context.shape[-1]))),
        }

    def start(self, graph: ExpressionGraph, encoder_state: Nodes, beam: int, max_length: int) -> Nodes:
        batch, dim = encoder_state["start"].shape
        rows = repeat(reshape(encoder_state["start"], (batch, 1, dim)), beam, 1)
        first = reshape(rows, (batch * beam, dim))
        decoder = self._decoder(graph, encoder_state)
        return _named([(first,) * cell.first.states for cell in decoder.layers])

    def step(
        self,
        graph: ExpressionGraph,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
    ) -> tuple[Node, Nodes]:
        embedded = self.previous(graph, words, position)
        decoder = self._decoder(graph, encoder_state)
        done = decoder.step(embedded, _states(decoder, decoder_state))
        return self.output(graph)(self._hidden(graph, embedded, done)), _named(done.states)

    def logits(self, graph: ExpressionGraph, encoder_state: Nodes, target_ids: Node) -> Node:
        embedded = shift(self.embedding(graph, DECODER, time_axis=0)(transpose(target_ids)), (1, 0, 0))
        decoder = self._decoder(graph, encoder_state)
        first = [(encoder_state["start"],) * cell.first.states for cell in decoder.layers]
        hidden = self._hidden(graph, embedded, decoder(embedded, states=first))
        return self.output(graph)(transpose(hidden, (1, 0, 2)))

    def cell(
        self, graph: ExpressionGraph, side: int, prefix: str, dim_input: int, *, final: bool = False
    ) -> Cell:
        """A recurrent cell of the encoder (``side`` 0) or the decoder (1)."""
        name, option = ((self.options.enc_cell, "enc-cell"), (self.options.dec_cell, "dec-cell"))[side]
        return find_cell(name, option)(
            graph,
            prefix,
            dim_input,
            self.options.dim_rnn,
            layer_normalization=self.options.layer_normalization,
            final=final,
        )

    def deep_cell(
        self, graph: ExpressionGraph, side: int, prefixes: list[str], dim_input: int
    ) -> StackedCell:
        """Cells one after another of which only the first has an input."""
        first, *rest = prefixes
        return StackedCell(
            self.cell(graph, side, first, dim_input), [self.cell(graph, side, prefix, 0) for prefix in rest]
        )

    def _attention(self, graph: ExpressionGraph, context: Node) -> GlobalAttention:
        return GlobalAttention(
            graph,
            "decoder",
            self.options.dim_rnn,
            context.shape[-1],
            layer_normalization=self.options.layer_normalization,
        )

    def _decoder(self, graph: ExpressionGraph, encoder_state: Nodes) -> RNN:
        """The conditional cell with its attention, and the layers above it."""
        options = self.options
        context = encoder_state["context"]
        attended = self._attention(graph, context).over(
            context, encoder_state["mapped_context"], encoder_state["mask"]
        )
        transitions = [
            self.cell(graph, DECODER, f"decoder_cell{i}", attended.dim_output if i == 2 else 0, final=True)
            for i in range(2, options.dec_cell_base_depth + 1)
        ]
        first = self.cell(graph, DECODER, "decoder_cell1", options.dim_emb)
        conditional = StackedCell(first, [attended, *transitions])
        upper = []
        for layer in range(2, options.dec_depth + 1):
            names = [f"decoder_l{layer}_cell{i}" for i in range(1, options.dec_cell_high_depth + 1)]
            upper.append(self.deep_cell(graph, DECODER, names, options.dim_rnn))
        return RNN(graph, [conditional, *upper], skip=options.skip)

    def _hidden(self, graph: ExpressionGraph, embedded: Node, done: Transduced) -> Node:
        """The layer below the output layer: ``tanh(word W0 + state W1 + context W2 + b)``."""
        layer = Dense(
            graph,
            "decoder_ff_logit_l1",
            self.options.dim_emb,
            activation="tanh",
            layer_normalization=self.options.layer_normalization,
        )
        return layer(embedded, done.output, *done.given)


def _named(states: list[State] | tuple[State, ...]) -> Nodes:
    """States of layers as a flat dictionary."""
    return {f"l{i}_{j}": node for i, state in enumerate(states, 1) for j, node in enumerate(state)}


def _states(decoder: RNN, named: Nodes) -> list[State]:
    """The inverse of ``_named``."""
    return [
        tuple(named[f"l{i}_{j}"] for j in range(cell.first.states))
        for i, cell in enumerate(decoder.layers, 1)
    ]


def _two_ways(
    model: S2S, graph: ExpressionGraph, words: Node, mask: Node, *, depth: int, alternating: bool = False
) -> Node:
    """A stack of layers in each direction, their outputs side by side: ``(time, batch, 2 dim_rnn)``."""
    outputs = []
    kind = "alternating-" if alternating else ""
    for prefix, direction in (("encoder_bi", "forward"), ("encoder_bi_r", "backward")):
        layers = []
        for layer in range(1, depth + 1):
            stem = prefix if layer == 1 else f"{prefix}_l{layer}"
            cells = [f"{stem}_cell{i}" for i in range(1, model.options.enc_cell_depth + 1)]
            if layer == 1:
                cells[0] = stem
            dim_input = model.options.dim_emb if layer == 1 else model.options.dim_rnn
            layers.append(model.deep_cell(graph, ENCODER, cells, dim_input))
        rnn = RNN(graph, layers, direction=kind + direction, skip=model.options.skip)
        outputs.append(rnn(words, mask).output)
    return concatenate(outputs, -1)


def _bidirectional(model: S2S, graph: ExpressionGraph, words: Node, mask: Node) -> Node:
    return _two_ways(model, graph, words, mask, depth=model.options.enc_depth)


def _alternating(model: S2S, graph: ExpressionGraph, words: Node, mask: Node) -> Node:
    return _two_ways(model, graph, words, mask, depth=model.options.enc_depth, alternating=True)


def _bi_unidirectional(model: S2S, graph: ExpressionGraph, words: Node, mask: Node) -> Node:
    """One layer in both directions, then forward layers over their outputs: ``(time, batch, dim_rnn)``."""
    hidden = _two_ways(model, graph, words, mask, depth=1)
    layers = []
    for layer in range(2, model.options.enc_depth + 1):
        cells = [f"encoder_l{layer}_cell{i}" for i in range(1, model.options.enc_cell_depth + 1)]
        dim_input = 2 * model.options.dim_rnn if layer == 2 else model.options.dim_rnn
        layers.append(model.deep_cell(graph, ENCODER, cells, dim_input))
    return RNN(graph, layers, skip=model.options.skip)(hidden).output if layers else hidden


ENCODERS: dict[str, Callable[[S2S, ExpressionGraph, Node, Node], Node]] = {
    "bidirectional": _bidirectional,
    "bi-unidirectional": _bi_unidirectional,
    "alternating": _alternating,
}
"""Encoders by the value of Marian's option ``enc-type``."""
