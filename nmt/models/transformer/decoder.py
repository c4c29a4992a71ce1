"""Marian's transformer decoder."""

from __future__ import annotations

from collections.abc import Sequence

from layers import AttentionBlock, Context, DecoderLayer, UnsupportedOptionError, log_mask
from mgraph import ExpressionGraph, Node, inits, le, reshape, shift
from nmt.models.parts import Decoded, Decoder, Encoded, Nodes, Part, Step
from nmt.models.transformer.stack import Stack


class TransformerDecoder(Decoder):
    """Layers of autoregression, attention to each source, and feed-forward (Vaswani et al. 2017).

    Parameters: ``{prefix}_l1_self_*``, ``{prefix}_l1_context_*`` (``{prefix}_l1_context_enc2_*`` for the
    second source), ``{prefix}_l1_ffn_*``, ..., ``{prefix}_ff_logit_out_*`` and embeddings. The decoder is
    causal, so the padding of targets needs no mask. In single steps too, keys and values are pre-processed
    as queries are; Marian leaves that out there (``transformer-preprocess``).
    Source: Marian, ``DecoderTransformer`` in ``models/transformer.h``.
    """

    @property
    def output_prefix(self) -> str:  # type: ignore[override]
        return f"{self.prefix}_ff_logit_out"

    def prepare(self, graph: ExpressionGraph, encoded: Sequence[Encoded]) -> Nodes:
        state = {f"mask{i}": mask for i, (_, mask) in enumerate(encoded)}
        for layer in _DecoderStack(graph, self, len(encoded)).layers:
            for block, (context, _) in zip(layer.cross, encoded, strict=True):
                state[f"{block.prefix}_keys"] = block.attention.keys(context)
                state[f"{block.prefix}_values"] = block.attention.values(context)
        return state

    def start(
        self, graph: ExpressionGraph, encoder_state: Nodes, batch: int, beam: int, max_length: int
    ) -> Nodes:
        state = {}
        for depth, layer in enumerate(_DecoderStack(graph, self, self.stream).layers, 1):
            for part, node in layer.autoregression.start(batch * beam, max_length).items():
                state[f"l{depth}_{part}"] = node
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
        after = {}
        for depth, layer in enumerate(stack.layers, 1):
            prefix = f"l{depth}_"
            cache = {k.removeprefix(prefix): n for k, n in decoder_state.items() if k.startswith(prefix)}
            x, cache = layer.step(x, cache, position, _contexts(layer, encoder_state))
            after.update({prefix + part: node for part, node in cache.items()})
        x = reshape(stack.top(x, embedded), (rows, self.options.dim_emb))
        return Step(self.output(graph)(x), after)

    def decode(
        self, graph: ExpressionGraph, encoder_state: Nodes, target_ids: Node, *, attention: bool
    ) -> Decoded:
        length = target_ids.shape[1]
        stack = _DecoderStack(graph, self, self.stream)
        embedded = stack.positions(shift(self.embedding(graph)(target_ids), (0, 1, 0)))
        places = graph.constant((1, length), inits.range(0, length))
        mask = log_mask(le(places, reshape(places, (length, 1))))
        x = stack.bottom(embedded)
        for layer in stack.layers:
            x = layer(x, mask, _contexts(layer, encoder_state))
        return Decoded(self.output(graph)(stack.top(x, embedded)))


class _DecoderStack(Stack):
    """The decoder's layers; tied layers share a prefix, and so their parameters."""

    def __init__(self, graph: ExpressionGraph, part: Part, sources: int) -> None:
        options = part.options
        super().__init__(
            graph,
            part,
            dim_ffn=options.transformer_decoder_dim_ffn or options.transformer_dim_ffn,
            ffn_depth=options.transformer_decoder_ffn_depth or options.transformer_ffn_depth,
        )
        depths = range(1, options.dec_depth + 1)
        numbers = options.transformer_tied_layers or depths
        if len(numbers) != len(depths):
            raise UnsupportedOptionError(
                f"transformer-tied-layers: expected a number for each of the {len(depths)} layers of the "
                f"decoder, got {list(numbers)}"
            )
        self.layers = [
            DecoderLayer(graph, f"{part.prefix}_l{number}", self.config, depth, sources)
            for depth, number in zip(depths, numbers, strict=True)
        ]


def _contexts(layer: DecoderLayer, encoder_state: Nodes) -> list[Context]:
    """What a decoder layer attends to, out of an encoder state."""
    return [_context(block, encoder_state, f"mask{i}") for i, block in enumerate(layer.cross)]


def _context(block: AttentionBlock, encoder_state: Nodes, mask_name: str) -> Context:
    mask = encoder_state[mask_name]
    return Context(
        encoder_state[f"{block.prefix}_keys"],
        encoder_state[f"{block.prefix}_values"],
        log_mask(reshape(mask, (mask.shape[0], 1, 1, mask.shape[1]))),
    )
