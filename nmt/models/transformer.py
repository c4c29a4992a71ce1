"""Marian's model type ``transformer``."""

from __future__ import annotations

from dataclasses import replace

from layers import (
    Context,
    DecoderLayer,
    EncoderLayer,
    PositionEmbedding,
    PostProcess,
    PreProcess,
    TransformerConfig,
    UnsupportedOptionError,
    log_mask,
)
from mgraph import ExpressionGraph, Node, inits, le, reshape, shift
from nmt.model_options import ModelOptions
from nmt.models.model import Model, Nodes

ENCODER, DECODER = 0, 1


class Transformer(Model):
    """Encoder and decoder of self-attention (Vaswani et al. 2017).

    Parameters: ``encoder_l1_self_*``, ``encoder_l1_ffn_*``, ..., ``decoder_l1_self_*``,
    ``decoder_l1_context_*``, ``decoder_l1_ffn_*``, ..., ``decoder_ff_logit_out_*`` and embeddings. The
    decoder is causal, so the padding of targets needs no mask. In single steps too, keys and values are
    pre-processed as queries are; Marian leaves that out there (``transformer-preprocess``).
    Source: Marian, ``models/transformer.h``.
    """

    type = "transformer"
    output_prefix = "decoder_ff_logit_out"

    def encode(self, graph: ExpressionGraph, source_ids: Node, source_mask: Node) -> Nodes:
        batch, length = source_ids.shape
        stack = _Stack(graph, "encoder", self.options)
        embedded = stack.positions(self.embedding(graph, ENCODER)(source_ids))
        mask = log_mask(reshape(source_mask, (batch, 1, 1, length)))
        x = stack.bottom(embedded)
        for depth in range(1, self.options.enc_depth + 1):
            x = EncoderLayer(graph, f"encoder_l{depth}", stack.config, depth)(x, mask)
        context = stack.top(x, embedded)
        state = {"mask": source_mask}
        for layer in _DecoderStack(graph, self.options).layers:
            (block,) = layer.cross
            state[f"{layer.prefix}_context_keys"] = block.attention.keys(context)
            state[f"{layer.prefix}_context_values"] = block.attention.values(context)
        return state

    def start(self, graph: ExpressionGraph, encoder_state: Nodes, beam: int, max_length: int) -> Nodes:
        rows = encoder_state["mask"].shape[0] * beam
        state = {}
        for depth, layer in enumerate(_DecoderStack(graph, self.options).layers, 1):
            for part, node in layer.autoregression.start(rows, max_length).items():
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
    ) -> tuple[Node, Nodes]:
        stack = _DecoderStack(graph, self.options)
        (rows,) = words.shape
        embedded = self.previous(graph, words, position)
        embedded = reshape(embedded, (rows // beam, beam, self.options.dim_emb))
        embedded = stack.positions.at(embedded, position)
        x = stack.bottom(embedded)
        after = {}
        for depth, layer in enumerate(stack.layers, 1):
            prefix = f"l{depth}_"
            cache = {k.removeprefix(prefix): n for k, n in decoder_state.items() if k.startswith(prefix)}
            x, cache = layer.step(x, cache, position, [_context(layer, encoder_state)])
            after.update({prefix + part: node for part, node in cache.items()})
        x = reshape(stack.top(x, embedded), (rows, self.options.dim_emb))
        return self.output(graph)(x), after

    def logits(self, graph: ExpressionGraph, encoder_state: Nodes, target_ids: Node) -> Node:
        length = target_ids.shape[1]
        stack = _DecoderStack(graph, self.options)
        words = self.embedding(graph, DECODER)(target_ids)
        embedded = stack.positions(shift(words, (0, 1, 0)))
        places = graph.constant((1, length), inits.range(0, length))
        mask = log_mask(le(places, reshape(places, (length, 1))))
        x = stack.bottom(embedded)
        for layer in stack.layers:
            x = layer(x, mask, [_context(layer, encoder_state)])
        return self.output(graph)(stack.top(x, embedded))


class _Stack:
    """What encoder and decoder have in common around their layers."""

    def __init__(self, graph: ExpressionGraph, prefix: str, options: ModelOptions) -> None:
        self.config = TransformerConfig(
            dim=options.dim_emb,
            heads=options.transformer_heads,
            dim_ffn=options.transformer_dim_ffn,
            ffn_depth=options.transformer_ffn_depth,
            ffn_activation=options.transformer_ffn_activation,
            preprocess=options.transformer_preprocess,
            postprocess=options.transformer_postprocess,
            projection=not options.transformer_no_projection,
            decoder_autoreg=options.transformer_decoder_autoreg,
        )
        self.positions = PositionEmbedding(graph, options.dim_emb)
        self.bottom = PreProcess(
            graph,
            f"{prefix}_emb",
            options.transformer_postprocess_emb,
            dropout=self.config.dropout,
            option="transformer-postprocess-emb",
        )
        self.top = PostProcess(
            graph,
            f"{prefix}_top",
            options.transformer_postprocess_top,
            dropout=self.config.dropout,
            option="transformer-postprocess-top",
        )


class _DecoderStack(_Stack):
    """The decoder's layers; tied layers share a prefix, and so their parameters."""

    def __init__(self, graph: ExpressionGraph, options: ModelOptions) -> None:
        super().__init__(graph, "decoder", options)
        self.config = replace(
            self.config,
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
            DecoderLayer(graph, f"decoder_l{number}", self.config, depth)
            for depth, number in zip(depths, numbers, strict=True)
        ]


def _context(layer: DecoderLayer, encoder_state: Nodes) -> Context:
    """What a decoder layer attends to, out of an encoder state."""
    mask = encoder_state["mask"]
    return Context(
        encoder_state[f"{layer.prefix}_context_keys"],
        encoder_state[f"{layer.prefix}_context_values"],
        log_mask(reshape(mask, (mask.shape[0], 1, 1, mask.shape[1]))),
    )
