"""Marian's recurrent decoder."""

from __future__ import annotations

from collections.abc import Sequence

from layers import (
    RNN,
    AttendedContext,
    Dense,
    GlobalAttention,
    StackedCell,
    UnsupportedOptionError,
    find_cell,
)
from layers.cells import State
from mgraph import (
    ArgumentError,
    ExpressionGraph,
    Node,
    concatenate,
    repeat,
    reshape,
    shift,
    transpose,
    weighted_average,
)
from nmt.models.parts import Decoded, DecoderPart, Encoded, Nodes, Step
from nmt.models.s2s.cells import cell, deep_cell


class S2SDecoder(DecoderPart):
    """Recurrent cells with an attention to each source (Bahdanau et al. 2015, Sennrich et al. 2017).

    Parameters: ``{prefix}_ff_state_*`` from the mean contexts to the first state; ``{prefix}_cell1_*``, the
    attention ``{prefix}_*_att`` (``{prefix}_att1_*``, ``{prefix}_att2_*`` for several sources),
    ``{prefix}_cell2_*``, ``{prefix}_l2_cell1_*``, ...; ``{prefix}_ff_logit_l1_*`` from word, state and
    context to the output layer ``{prefix}_ff_logit_l2_*``; and embeddings. Without sources, in a language
    model, the first state is zero and there is no attention. Loops over time are time-major inside.
    Source: Marian, ``DecoderS2S`` in ``models/s2s.h``; options ``dec-cell``, ``dec-depth``,
    ``dec-cell-base-depth``, ``dec-cell-high-depth``, ``skip``.
    """

    @property
    def output_prefix(self) -> str:
        return f"{self.prefix}_ff_logit_l2"

    def prepare(self, graph: ExpressionGraph, encoded: Sequence[Encoded]) -> Nodes:
        state: Nodes = {}
        means = []
        attentions = self._attentions(graph, [context.shape[-1] for context, _ in encoded])
        for suffix, attention, (context, mask) in zip(_SUFFIXES, attentions, encoded, strict=False):
            batch, length, dim = context.shape
            state[f"mask{suffix}"] = mask
            state[f"context{suffix}"] = context
            state[f"mapped_context{suffix}"] = attention.map_context(context)
            mean = weighted_average(context, reshape(mask, (batch, length, 1)), 1)
            means.append(reshape(mean, (batch, dim)))
        if means:
            state["start"] = self._dense(graph, "ff_state", self.options.dim_rnn)(*means)
        return state

    def start(
        self, graph: ExpressionGraph, encoder_state: Nodes, batch: int, beam: int, max_length: int
    ) -> Nodes:
        dim = self.options.dim_rnn
        rows = repeat(reshape(self._first(graph, encoder_state, batch), (batch, 1, dim)), beam, 1)
        first = reshape(rows, (batch * beam, dim))
        states = find_cell(self.options.dec_cell, "dec-cell").states
        return _named([(first,) * states] * self.options.dec_depth)

    def step(
        self,
        graph: ExpressionGraph,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
        *,
        shortlist: Node | None,
        attention: bool,
    ) -> Step:
        embedded = self.previous(graph, words, position)
        decoder = self._rnn(graph, encoder_state, attention)
        done = decoder.step(embedded, _states(decoder, decoder_state))
        contexts, weights = _apart(done.given, attention)
        hidden = self._hidden(graph, embedded, done.output, contexts)
        return Step(self.output(graph)(hidden, shortlist), _named(done.states), weights)

    def decode(
        self, graph: ExpressionGraph, encoder_state: Nodes, target_ids: Node, *, attention: bool
    ) -> Decoded:
        embedded = shift(self.embedding(graph, time_axis=0)(transpose(target_ids)), (1, 0, 0))
        decoder = self._rnn(graph, encoder_state, attention)
        start = self._first(graph, encoder_state, target_ids.shape[0])
        done = decoder(embedded, states=[(start,) * layer.states for layer in decoder.layers])
        contexts, weights = _apart(done.given, attention)
        hidden = self._hidden(graph, embedded, done.output, contexts)
        logits = self.output(graph)(transpose(hidden, (1, 0, 2)))
        return Decoded(logits, None if weights is None else transpose(weights, (1, 0, 2)))

    def _first(self, graph: ExpressionGraph, encoder_state: Nodes, batch: int) -> Node:
        """The first state of every layer, ``(batch, dim_rnn)``."""
        if "start" in encoder_state:
            return encoder_state["start"]
        return graph.zeros((batch, self.options.dim_rnn))

    def _attentions(self, graph: ExpressionGraph, dims: Sequence[int]) -> list[GlobalAttention]:
        """An attention to each source, whose contexts have these features."""
        if len(dims) > len(_SUFFIXES):
            raise UnsupportedOptionError(f"expected at most {len(_SUFFIXES)} sources, got {len(dims)}")
        names = [f"{self.prefix}_att{i}" if len(dims) > 1 else self.prefix for i in range(1, len(dims) + 1)]
        return [
            GlobalAttention(
                graph,
                name,
                self.options.dim_rnn,
                dim,
                layer_normalization=self.options.layer_normalization,
                nematus_normalization=self._nematus,
                dropout=self.setup.dropouts.rnn,
            )
            for name, dim in zip(names, dims, strict=True)
        ]

    def _attended(
        self, graph: ExpressionGraph, encoder_state: Nodes, give_weights: bool
    ) -> list[AttendedContext]:
        """The contexts with their attentions, of which the first can give its weights too."""
        suffixes = [suffix for suffix in _SUFFIXES if f"context{suffix}" in encoder_state]
        contexts = [encoder_state[f"context{suffix}"] for suffix in suffixes]
        attentions = self._attentions(graph, [context.shape[-1] for context in contexts])
        return [
            attention.over(
                context,
                encoder_state[f"mapped_context{suffix}"],
                encoder_state[f"mask{suffix}"],
                give_weights=give_weights and suffix == _SUFFIXES[0],
            )
            for suffix, attention, context in zip(suffixes, attentions, contexts, strict=True)
        ]

    def _rnn(self, graph: ExpressionGraph, encoder_state: Nodes, give_weights: bool) -> RNN:
        """The conditional cell with its attentions, and the layers above it."""
        options = self.options
        attended = self._attended(graph, encoder_state, give_weights)
        if give_weights and not attended:
            raise ArgumentError(f"a model of type {options.type} reads no source, so it has no attention")
        width = sum(context.dim_output for context in attended)
        transitions = [
            cell(self, graph, "dec-cell", f"{self.prefix}_cell{i}", width if i == 2 else 0, final=True)
            for i in range(2, options.dec_cell_base_depth + 1)
        ]
        first = cell(self, graph, "dec-cell", f"{self.prefix}_cell1", options.dim_emb)
        conditional = StackedCell(first, [*attended, *transitions])
        upper = []
        for layer in range(2, options.dec_depth + 1):
            names = [f"{self.prefix}_l{layer}_cell{i}" for i in range(1, options.dec_cell_high_depth + 1)]
            upper.append(deep_cell(self, graph, "dec-cell", names, options.dim_rnn))
        return RNN(graph, [conditional, *upper], skip=options.skip)

    def _hidden(self, graph: ExpressionGraph, embedded: Node, state: Node, contexts: Sequence[Node]) -> Node:
        """The layer below the output layer: ``tanh(word W0 + state W1 + contexts W2 + b)``."""
        beside = [concatenate(contexts, -1)] if contexts else []
        return self._dense(graph, "ff_logit_l1", self.options.dim_emb)(embedded, state, *beside)

    def _dense(self, graph: ExpressionGraph, name: str, dim: int) -> Dense:
        return Dense(
            graph,
            f"{self.prefix}_{name}",
            dim,
            activation="tanh",
            layer_normalization=self.options.layer_normalization,
            nematus_normalization=self._nematus,
        )

    @property
    def _nematus(self) -> bool:
        """Whether layers outside of cells are normalized as in Nematus; cells are where they are of its
        kind."""
        return self.options.type == "nematus"


_SUFFIXES = ("", "_enc2", "_enc3", "_enc4")
"""What tells the states of the sources apart."""


def _apart(given: Sequence[Node], weights: bool) -> tuple[list[Node], Node | None]:
    """The contexts that the attentions gave, and the first one's weights if it gave them."""
    contexts = list(given)
    return contexts, contexts.pop(1) if weights else None


def _named(states: Sequence[State]) -> Nodes:
    """States of layers as a flat dictionary."""
    return {f"l{i}_{j}": node for i, state in enumerate(states, 1) for j, node in enumerate(state)}


def _states(decoder: RNN, named: Nodes) -> list[State]:
    """The inverse of ``_named``."""
    return [
        tuple(named[f"l{i}_{j}"] for j in range(layer.states)) for i, layer in enumerate(decoder.layers, 1)
    ]
