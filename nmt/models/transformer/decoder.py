"""Marian's transformer decoder."""

from __future__ import annotations

from collections.abc import Sequence

from layers import Context, DecoderLayer, UnsupportedOptionError, log_mask
from mgraph import ArgumentError, ExpressionGraph, Node, inits, le, narrow, reshape, shift
from nmt.models.parts import Decoded, DecoderPart, Encoded, Nodes, Setup, Step
from nmt.models.transformer.config import decoder_config, layer_numbers
from nmt.models.transformer.stack import Stack


class TransformerDecoder(DecoderPart):
    """Layers of autoregression, attention to each source, and feed-forward (Vaswani et al. 2017).

    Parameters: ``{prefix}_l1_self_*`` (``{prefix}_l1_aan_*``, ``{prefix}_l1_rnn_*``),
    ``{prefix}_l1_context_*`` (``{prefix}_l1_context_enc2_*`` for the second source), ``{prefix}_l1_ffn_*``,
    ..., ``{prefix}_ff_logit_out_*`` and embeddings. The decoder is causal, so the padding of targets needs
    no mask. Its attention is that of the first head of the layer ``transformer-guided-alignment-layer``.

    In single steps too, keys and values are pre-processed as queries are; Marian leaves that out there
    (``transformer-preprocess``), which ``marian_exact`` repeats.
    Source: Marian, ``DecoderTransformer`` in ``models/transformer.h``.
    """

    def __init__(self, setup: Setup, prefix: str, stream: int) -> None:
        super().__init__(setup, prefix, stream)
        self.config = decoder_config(setup)
        self.numbers = layer_numbers(setup.options)

    @property
    def output_prefix(self) -> str:
        return f"{self.prefix}_ff_logit_out"

    @property
    def attends(self) -> bool:
        return self.stream > 0 and not self.config.pool

    def prepare(self, graph: ExpressionGraph, encoded: Sequence[Encoded]) -> Nodes:
        state = {f"mask{i}": mask for i, (_, mask) in enumerate(encoded)}
        for layer in _DecoderStack(graph, self, len(encoded)).distinct:
            for block, (context, _) in zip(layer.cross, encoded, strict=True):
                prepared = block.prepare(context)
                state |= {f"{block.prefix}:{part}": node for part, node in prepared.items()}
        return state

    def start(
        self, graph: ExpressionGraph, encoder_state: Nodes, batch: int, beam: int, max_length: int
    ) -> Nodes:
        state = {}
        for depth, layer in enumerate(_DecoderStack(graph, self, self.stream).layers, 1):
            for part, node in layer.autoregression.start(batch * beam, max_length).items():
                state[f"l{depth}:{part}"] = node
        return state

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
        stack = _DecoderStack(graph, self, self.stream)
        (rows,) = words.shape
        embedded = self.previous(graph, words, position)
        embedded = reshape(embedded, (rows // beam, beam, self.options.dim_emb))
        embedded = stack.positions.at(embedded, position)
        x = stack.bottom(embedded)
        after: Nodes = {}
        aligned = self._attention_depth() if attention else None
        weights = None
        for depth, layer in enumerate(stack.layers, 1):
            cache = _under(f"l{depth}", decoder_state)
            x, cache = layer.autoregression.step(x, cache, position)
            x, found = layer.after_autoregression(x, _contexts(layer, encoder_state), depth == aligned)
            after |= {f"l{depth}:{part}": node for part, node in cache.items()}
            weights = found if depth == aligned else weights
        x = reshape(stack.top(x, embedded), (rows, self.options.dim_emb))
        alignment = None
        if attention:
            alignment = self._attention(weights)
            alignment = reshape(alignment, (rows, alignment.shape[-1]))
        return Step(self.output(graph)(x, shortlist), after, alignment)

    def decode(
        self, graph: ExpressionGraph, encoder_state: Nodes, target_ids: Node, *, attention: bool
    ) -> Decoded:
        length = target_ids.shape[1]
        stack = _DecoderStack(graph, self, self.stream)
        embedded = stack.positions(shift(self.embedding(graph)(target_ids), (0, 1, 0)))
        places = graph.constant((1, length), inits.range(0, length))
        mask = log_mask(le(places, reshape(places, (length, 1))))
        x = stack.bottom(embedded)
        aligned = self._attention_depth() if attention else None
        weights = None
        for depth, layer in enumerate(stack.layers, 1):
            x = layer.autoregression(x, mask)
            x, found = layer.after_autoregression(x, _contexts(layer, encoder_state), depth == aligned)
            weights = found if depth == aligned else weights
        alignment = self._attention(weights) if attention else None
        return Decoded(self.output(graph)(stack.top(x, embedded)), alignment)

    def _attention(self, weights: Node | None) -> Node:
        """The first head's ``(batch, time, source)`` of the weights ``(batch, heads, time, source)`` of the
        layer that the options choose."""
        if weights is None:
            problem = (
                "reads its sources without attention (transformer-pool)" if self.stream else "reads no source"
            )
            raise ArgumentError(f"a model of type {self.options.type} {problem}, so it has no attention")
        batch, _, time, source = weights.shape
        return reshape(narrow(weights, 1, 0, 1), (batch, time, source))

    def _attention_depth(self) -> int:
        """The number of the layer whose attention is the model's, from 1."""
        layer, depth = self.options.transformer_guided_alignment_layer, self.options.dec_depth
        if layer == "last":
            return depth
        if not (layer.isascii() and layer.isdigit() and 1 <= int(layer) <= depth):
            raise UnsupportedOptionError(
                f"transformer-guided-alignment-layer: expected 'last' or a number from 1 to {depth}, got"
                f" {layer!r}"
            )
        return int(layer)


class _DecoderStack(Stack):
    """The decoder's layers; tied layers are one."""

    def __init__(self, graph: ExpressionGraph, decoder: TransformerDecoder, sources: int) -> None:
        super().__init__(graph, decoder, decoder.config, decoder.options.dec_depth)
        made: dict[int, DecoderLayer] = {}
        for depth, number in enumerate(decoder.numbers, 1):
            if number not in made:
                prefix = f"{decoder.prefix}_l{number}"
                made[number] = DecoderLayer(graph, prefix, decoder.config, depth, sources)
        self.distinct = list(made.values())
        self.layers = [made[number] for number in decoder.numbers]


def _contexts(layer: DecoderLayer, encoder_state: Nodes) -> list[Context]:
    """What a decoder layer sees of the encoders, out of an encoder state."""
    contexts = []
    for i, block in enumerate(layer.cross):
        mask = encoder_state[f"mask{i}"]
        log = log_mask(reshape(mask, (mask.shape[0], 1, 1, mask.shape[1])))
        contexts.append(Context(_under(block.prefix, encoder_state), log))
    return contexts


def _under(prefix: str, state: Nodes) -> Nodes:
    """The part of a state whose names begin with ``prefix``, without it."""
    start = f"{prefix}:"
    return {name.removeprefix(start): node for name, node in state.items() if name.startswith(start)}
