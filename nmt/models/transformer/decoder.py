"""Marian's transformer decoder."""

from __future__ import annotations

from collections.abc import Sequence

from layers import Context, DecoderLayer, UnsupportedOptionError, log_mask
from mgraph import ArgumentError, Node, inits, le, narrow, reshape, shift
from mgraph.tape import Graph
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

    def __init__(self, setup: Setup, prefix: str, contexts: Sequence[int]) -> None:
        super().__init__(setup, prefix, contexts, f"{prefix}_ff_logit_out")
        config, numbers = decoder_config(setup), layer_numbers(setup.options)
        self.pooled = config.pool
        self.stack = Stack(self, config, len(numbers))
        made: dict[int, DecoderLayer] = {}
        for depth, number in enumerate(numbers, 1):
            if number not in made:
                made[number] = DecoderLayer(f"{prefix}_l{number}", config, depth, len(contexts))
        self.layers = [made[number] for number in numbers]
        """Tied layers are one."""

    @property
    def attends(self) -> bool:
        return self.stream > 0 and not self.pooled

    def prepare(self, encoded: Sequence[Encoded]) -> Nodes:
        state = {f"mask{i}": mask for i, (_, mask) in enumerate(encoded)}
        for layer in dict.fromkeys(self.layers):
            for block, (context, _) in zip(layer.cross, encoded, strict=True):
                prepared = block.prepare(context)
                state |= {f"{block.prefix}:{part}": node for part, node in prepared.items()}
        return state

    def start(self, graph: Graph, encoder_state: Nodes, batch: int, beam: int, max_length: int) -> Nodes:
        state = {}
        for depth, layer in enumerate(self.layers, 1):
            for part, node in layer.autoregression.start(graph, batch * beam, max_length).items():
                state[f"l{depth}:{part}"] = node
        return state

    def step(
        self,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
        *,
        shortlist: Node | None,
        attention: bool,
    ) -> Step:
        (rows,) = words.shape
        embedded = self.previous(words, position)
        embedded = reshape(embedded, (rows // beam, beam, self.options.dim_emb))
        embedded = self.stack.positions.at(embedded, position)
        x = self.stack.bottom(embedded)
        after: Nodes = {}
        aligned = self._attention_depth() if attention else None
        weights = None
        for depth, layer in enumerate(self.layers, 1):
            cache = _under(f"l{depth}", decoder_state)
            x, cache = layer.autoregression.step(x, cache, position)
            x, found = layer.after_autoregression(x, _contexts(layer, encoder_state), depth == aligned)
            after |= {f"l{depth}:{part}": node for part, node in cache.items()}
            weights = found if depth == aligned else weights
        x = reshape(self.stack.top(x, embedded), (rows, self.options.dim_emb))
        alignment = None
        if attention:
            alignment = self._attention(weights)
            alignment = reshape(alignment, (rows, alignment.shape[-1]))
        return Step(self.output(x, shortlist), after, alignment)

    def decode(self, encoder_state: Nodes, target_ids: Node, *, attention: bool) -> Decoded:
        length = target_ids.shape[1]
        embedded = self.stack.positions(shift(self.embedding(target_ids), (0, 1, 0)))
        places = target_ids.graph.constant((1, length), inits.range(0, length))
        mask = log_mask(le(places, reshape(places, (length, 1))))
        x = self.stack.bottom(embedded)
        aligned = self._attention_depth() if attention else None
        weights = None
        for depth, layer in enumerate(self.layers, 1):
            x = layer.autoregression(x, mask)
            x, found = layer.after_autoregression(x, _contexts(layer, encoder_state), depth == aligned)
            weights = found if depth == aligned else weights
        alignment = self._attention(weights) if attention else None
        return Decoded(self.output(self.stack.top(x, embedded)), alignment)

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
