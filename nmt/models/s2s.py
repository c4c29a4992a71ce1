"""Marian's recurrent encoder and decoder (``s2s``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, takewhile

from layers import (
    RNN,
    Cell,
    Columns,
    Dense,
    GlobalAttention,
    StackedCell,
    UnsupportedOptionError,
    carried_states,
    choose,
    find_cell,
    in_tiers,
    laid_out,
    taken_up,
)
from layers.cells import State
from mgraph import ArgumentError, Node, concatenate, repeat, reshape, shift, transpose, weighted_average
from mgraph.tape import Graph
from nmt.models.parts import (
    Decoded,
    DecoderPart,
    Encoded,
    EncoderPart,
    ModelPart,
    Nodes,
    PackedText,
    Setup,
    Source,
    Step,
)


def cell(part: ModelPart, option: str, prefix: str, dim_input: int, *, final: bool = False) -> Cell:
    """The cell that ``option`` (``enc-cell`` or ``dec-cell``) names, with ``dim-rnn`` features."""
    options = part.options
    return find_cell(str(options[option]), option)(
        prefix,
        dim_input,
        options.dim_rnn,
        layer_normalization=options.layer_normalization,
        dropout=part.setup.dropouts.rnn,
        final=final,
        in_encoder=isinstance(part, EncoderPart),
    )


def deep_cell(part: ModelPart, option: str, prefixes: Sequence[str], dim_input: int) -> StackedCell:
    """A stack of cells; only the first has an input."""
    first, *rest = prefixes
    return StackedCell(
        cell(part, option, first, dim_input), [cell(part, option, prefix, 0) for prefix in rest]
    )


DIRECTIONS = {"bidirectional": "", "bi-unidirectional": "", "alternating": "alternating-"}
"""The direction of the layers of both stacks, by Marian's option ``enc-type``."""


class S2SEncoder(EncoderPart):
    """Recurrent cells over the source in both directions (Bahdanau et al. 2015).

    The outputs of both directions are concatenated: a context has ``2 dim-rnn`` features. With
    ``enc-type bi-unidirectional`` both have one layer, further layers run forward over their outputs, and a
    context has ``dim-rnn`` features.

    Parameters: ``{prefix}_bi_*`` forward, ``{prefix}_bi_r_*`` backward, ``{prefix}_bi_l2_cell1_*`` and so on
    for further layers (``{prefix}_l2_cell1_*`` with ``bi-unidirectional``), and embeddings. Loops over time
    are time-major inside.
    Source: Marian, ``EncoderS2S`` in ``models/s2s.h``; options ``enc-type``, ``enc-cell``, ``enc-depth``,
    ``enc-cell-depth``, ``skip``.
    """

    def __init__(self, setup: Setup, prefix: str, stream: int) -> None:
        super().__init__(setup, prefix, stream)
        options = self.options
        kind = choose("enc-type", options.enc_type, DIRECTIONS)
        upper = range(2, options.enc_depth + 1)
        only_forward = options.enc_type == "bi-unidirectional"
        self.two_ways = []
        for stem, direction in ((f"{prefix}_bi", "forward"), (f"{prefix}_bi_r", "backward")):
            layers = [self._layer(stem, options.dim_emb, first=stem)]
            if not only_forward:
                layers += [self._layer(f"{stem}_l{i}", options.dim_rnn) for i in upper]
            self.two_ways.append(RNN(layers, direction=kind + direction, skip=options.skip))
        self.forward: RNN | None = None
        if only_forward and upper:
            sizes = [2 * options.dim_rnn, *[options.dim_rnn] * (len(upper) - 1)]
            layers = [self._layer(f"{prefix}_l{i}", size) for i, size in zip(upper, sizes, strict=True)]
            self.forward = RNN(layers, skip=options.skip)

    @property
    def dim_context(self) -> int:
        return 2 * self.options.dim_rnn if self.forward is None else self.options.dim_rnn

    def encode(self, source: Source | PackedText) -> Encoded:
        packing = source.packing if isinstance(source, PackedText) else None
        mask = carried = None
        if packing is None:
            words = self.embedding(transpose(source.ids), time_axis=0)
            mask = reshape(transpose(source.mask), (*words.shape[:2], 1))
        else:
            words = transpose(self.embedding(source.ids, packing=packing), (1, 0, 2))
            carried = carried_states(packing, words.value_type)
        ways = [network(words, mask, carried=carried).output for network in self.two_ways]
        hidden = concatenate(ways, -1)
        if self.forward is not None:
            hidden = self.forward(hidden, carried=carried).output
        return Encoded(transpose(hidden, (1, 0, 2)), source.mask, packing)

    def _layer(self, stem: str, dim_input: int, *, first: str = "") -> StackedCell:
        """The cells of one layer."""
        names = [f"{stem}_cell{i}" for i in range(1, self.options.enc_cell_depth + 1)]
        names[0] = first or names[0]
        return deep_cell(self, "enc-cell", names, dim_input)


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

    def __init__(self, setup: Setup, prefix: str, contexts: Sequence[int]) -> None:
        super().__init__(setup, prefix, contexts, f"{prefix}_ff_logit_l2")
        options, sources = self.options, len(contexts)
        if sources > len(_SUFFIXES):
            raise UnsupportedOptionError(f"expected at most {len(_SUFFIXES)} sources, got {sources}")
        # Nematus normalizes these layers differently; its cells have their own classes.
        nematus = options.type == "nematus"
        normalized = {"layer_normalization": options.layer_normalization, "nematus_normalization": nematus}
        names = [f"{prefix}_att{i}" for i in range(1, sources + 1)] if sources > 1 else [prefix]
        self.attentions = [
            GlobalAttention(name, options.dim_rnn, dim, dropout=setup.dropouts.rnn, **normalized)
            for name, dim in zip(names, contexts, strict=False)
        ]
        self.first_state: Dense | None = None
        if contexts:
            self.first_state = Dense(
                f"{prefix}_ff_state", contexts, options.dim_rnn, activation="tanh", **normalized
            )
        width = sum(contexts)
        self.transitions = [
            cell(self, "dec-cell", f"{prefix}_cell{i}", width if i == 2 else 0, final=True)
            for i in range(2, options.dec_cell_base_depth + 1)
        ]
        self.conditional = cell(self, "dec-cell", f"{prefix}_cell1", options.dim_emb)
        self.upper = []
        for layer in range(2, options.dec_depth + 1):
            cells = [f"{prefix}_l{layer}_cell{i}" for i in range(1, options.dec_cell_high_depth + 1)]
            self.upper.append(deep_cell(self, "dec-cell", cells, options.dim_rnn))
        inputs = [options.dim_emb, options.dim_rnn, *([width] if contexts else [])]
        self.hidden = Dense(f"{prefix}_ff_logit_l1", inputs, options.dim_emb, activation="tanh", **normalized)
        """The layer below the output layer: ``tanh(word W0 + state W1 + contexts W2 + b)``."""

    @property
    def recurrent(self) -> bool:
        return True

    def prepare(self, encoded: Sequence[Encoded]) -> Nodes:
        state: Nodes = {}
        means = []
        for suffix, attention, (found, mask, packing) in zip(
            _SUFFIXES, self.attentions, encoded, strict=False
        ):
            context = laid_out(found, packing)
            batch, length, dim = context.shape
            state[f"mask{suffix}"] = mask
            state[f"context{suffix}"] = context
            state[f"mapped_context{suffix}"] = laid_out(attention.map_context(found), packing)
            if packing is not None:
                for name in (f"context{suffix}", f"mapped_context{suffix}"):
                    tiers = in_tiers(state[name], packing)
                    state |= {f"{name}_tier{i}": tier for i, tier in enumerate(tiers)}
            mean = weighted_average(context, reshape(mask, (batch, length, 1)), 1)
            means.append(reshape(mean, (batch, dim)))
        if self.first_state is not None:
            state["start"] = self.first_state(*means)
        return state

    def start(
        self, graph: Graph, encoder_state: Nodes, batch: int, beam: int, places: Sequence[int]
    ) -> Nodes:
        dim = self.options.dim_rnn
        rows = repeat(reshape(self._first(graph, encoder_state, batch), (batch, 1, dim)), beam, 1)
        first = reshape(rows, (batch * beam, dim))
        return _named([(first,) * self.conditional.states] * self.options.dec_depth)

    def step(
        self,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
        *,
        shortlist: Node | Columns | None,
        attention: bool,
    ) -> Step:
        embedded = self.previous(words, position)
        decoder = self._rnn(encoder_state, attention)
        done = decoder.step(embedded, _states(decoder, decoder_state))
        contexts, weights = _apart(done.given, attention)
        hidden = self._hidden(embedded, done.output, contexts)
        return Step(self.output(hidden, shortlist), _named(done.states), weights)

    def decode(self, encoder_state: Nodes, target: Node | PackedText, *, attention: bool) -> Decoded:
        if isinstance(target, PackedText):
            packing = target.packing
            batch = packing.places.shape[0]
            words = transpose(laid_out(self.embedding(target.ids, packing=packing), packing), (1, 0, 2))
        else:
            packing, batch = None, target.shape[0]
            words = self.embedding(transpose(target), time_axis=0)
        embedded = shift(words, (1, 0, 0))
        decoder = self._rnn(encoder_state, attention)
        start = self._first(words.graph, encoder_state, batch)
        done = decoder(embedded, states=[(start,) * layer.states for layer in decoder.layers])
        contexts, weights = _apart(done.given, attention)
        hidden = transpose(self._hidden(embedded, done.output, contexts), (1, 0, 2))
        aligned = None if weights is None else transpose(weights, (1, 0, 2))
        return Decoded(taken_up(hidden, packing), self.output, aligned)

    def _first(self, graph: Graph, encoder_state: Nodes, batch: int) -> Node:
        """The first state of every layer, ``(batch, dim_rnn)``."""
        if "start" in encoder_state:
            return encoder_state["start"]
        zeros: Node = graph.zeros((batch, self.options.dim_rnn))
        return zeros

    def _rnn(self, encoder_state: Nodes, give_weights: bool) -> RNN:
        """The conditional cell with attention to the contexts of an encoder state, and the layers above it;
        the first attention can also return its weights."""
        if give_weights and not self.attentions:
            raise ArgumentError(
                f"a model of type {self.options.type} reads no source, so it has no attention"
            )
        attended = [
            attention.over(
                encoder_state[f"context{suffix}"],
                encoder_state[f"mapped_context{suffix}"],
                encoder_state[f"mask{suffix}"],
                tiers=_tiers(encoder_state, suffix),
                give_weights=give_weights and suffix == _SUFFIXES[0],
            )
            for suffix, attention in zip(_SUFFIXES, self.attentions, strict=False)
        ]
        conditional = StackedCell(self.conditional, [*attended, *self.transitions])
        return RNN([conditional, *self.upper], skip=self.options.skip)

    def _hidden(self, embedded: Node, state: Node, contexts: Sequence[Node]) -> Node:
        return self.hidden(embedded, state, *([concatenate(contexts, -1)] if contexts else []))


_SUFFIXES = ("", "_enc2", "_enc3", "_enc4")
"""Suffixes of the states of each source."""


def _tiers(encoder_state: Nodes, suffix: str) -> list[tuple[Node, Node]]:
    """The contexts of a source and their mapped contexts, in tiers, if there are any."""
    names = ((f"context{suffix}_tier{i}", f"mapped_context{suffix}_tier{i}") for i in count())
    known = takewhile(lambda pair: pair[0] in encoder_state, names)
    return [(encoder_state[context], encoder_state[mapped]) for context, mapped in known]


def _apart(given: Sequence[Node], weights: bool) -> tuple[list[Node], Node | None]:
    """Separate the contexts of all attentions from the weights of the first, if given."""
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
