"""Marian's transformer encoder and decoder, also of ``transformer-new``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from layers import (
    Columns,
    Context,
    DecoderLayer,
    EncoderLayer,
    Layer,
    NoPositionEmbedding,
    NormConfig,
    PackedWords,
    PositionEmbedding,
    Positions,
    PostProcess,
    PreProcess,
    TrainedPositionEmbedding,
    TransformerConfig,
    UnsupportedOptionError,
    at_positions,
    log_mask,
)
from layers.transformer import Now, no_ancestors, places_of, with_ancestors
from mgraph import ArgumentError, Node, Type, cast, eq, gt, inits, le, narrow, reshape, shift
from mgraph.tape import Graph
from nmt.models.parts import (
    TRAINING,
    Decoded,
    DecoderPart,
    Encoded,
    EncoderPart,
    ModelPart,
    Nodes,
    PackedSource,
    PackedText,
    Setup,
    Source,
    Step,
)
from nmt.settings.model_options import ModelOptions

_ACTIVATIONS = ("relu", "swish", "gelu", "sigmoid")
_ONLY_OLD, _ONLY_NEW = "", "tanh"
"""Activations of all types but ``transformer-new``, and of ``transformer-new`` only."""


def encoder_config(setup: Setup) -> TransformerConfig:
    """Sizes and options of the encoder's layers."""
    options, dropouts = setup.options, setup.dropouts
    _check_activation(options, "transformer-ffn-activation")
    if options.dim_emb % options.transformer_heads:
        raise UnsupportedOptionError(
            f"transformer-heads: expected a divisor of dim-emb, {options.dim_emb}, got"
            f" {options.transformer_heads}"
        )
    config = TransformerConfig(
        dim=options.dim_emb,
        heads=options.transformer_heads,
        dim_ffn=options.transformer_dim_ffn,
        ffn_depth=options.transformer_ffn_depth,
        ffn_activation=options.transformer_ffn_activation,
        preprocess=options.transformer_preprocess,
        postprocess=options.transformer_postprocess,
        projection=not options.transformer_no_projection,
        depth_scaling=options.extra.get("transformer-depth-scaling") is True,
        dropout=dropouts.transformer,
        dropout_attention=dropouts.transformer_attention,
        dropout_ffn=dropouts.transformer_ffn,
    )
    return _renewed(config, options) if is_new(options) else config


def decoder_config(setup: Setup) -> TransformerConfig:
    """Sizes and options of the decoder's layers."""
    options = setup.options
    if options.transformer_decoder_autoreg == "average-attention":
        _check_activation(options, "transformer-aan-activation")
    config = replace(
        encoder_config(setup),
        dim_ffn=options.transformer_decoder_dim_ffn or options.transformer_dim_ffn,
        ffn_depth=options.transformer_decoder_ffn_depth or options.transformer_ffn_depth,
        decoder_autoreg=options.transformer_decoder_autoreg,
        dim_aan=options.transformer_dim_aan,
        aan_depth=options.transformer_aan_depth,
        aan_activation=options.transformer_aan_activation,
        aan_gate=not options.transformer_aan_nogate,
        dec_cell=options.dec_cell,
        layer_normalization=options.layer_normalization,
        rnn_projection=options.transformer_rnn_projection,
        dropout_rnn=setup.dropouts.rnn,
        pool=options.transformer_pool,
        marian_exact=setup.marian_exact,
    )
    return _renewed(config, options) if is_new(options) else config


def _renewed(config: TransformerConfig, options: ModelOptions) -> TransformerConfig:
    """The layers of ``transformer-new``: other normalizations, at least two feed-forward layers, SSRU without
    normalization and dropout as the only cell, and steps that agree with training."""
    check_new(options)
    return replace(
        config,
        norm=NormConfig(eps=1e-5, rms_bias=True),
        bias=not options.transformer_no_bias,
        projection=True,
        ffn_depth=max(config.ffn_depth, 2),
        dec_cell="ssru",
        layer_normalization=False,
        dropout_rnn=0.0,
        pool=False,
        marian_exact=False,
    )


def layer_numbers(options: ModelOptions) -> tuple[int, ...]:
    """The number of each layer of the decoder, from 1; tied layers have one number
    (``transformer-tied-layers``)."""
    depth, numbers = options.dec_depth, options.transformer_tied_layers
    if numbers and len(numbers) != depth:
        raise UnsupportedOptionError(
            f"transformer-tied-layers: expected a number for each of the {depth} decoder layers, got"
            f" {list(numbers)}"
        )
    if is_new(options) and any(number > place for place, number in enumerate(numbers, 1)):
        raise UnsupportedOptionError(
            "transformer-tied-layers: transformer-new cannot tie a layer to one above it, got"
            f" {list(numbers)}"
        )
    return numbers or tuple(range(1, depth + 1))


def _check_activation(options: ModelOptions, name: str) -> None:
    """``UnsupportedOptionError`` for an activation that Marian rejects for this type."""
    known = (*_ACTIVATIONS, _ONLY_NEW if is_new(options) else _ONLY_OLD)
    if options[name] not in known:
        raise UnsupportedOptionError(
            f"{name}: {options[name]!r} is unknown; expected {', '.join(map(repr, known))}"
        )


def is_new(options: ModelOptions) -> bool:
    """Whether a model is of the type ``transformer-new``."""
    return options.type == "transformer-new"


def check_new(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for options that ``transformer-new`` does not support."""
    if options.transformer_decoder_autoreg not in ("self-attention", "rnn"):
        raise _refusal("transformer-decoder-autoreg", options, "'self-attention' and 'rnn'")
    if options.transformer_no_affine:
        raise _refusal("transformer-no-affine", options, "False: Marian on CPU ends with an error")
    if options.transformer_no_bias and options.transformer_decoder_autoreg == "rnn":
        raise _refusal("transformer-no-bias", options, "False where transformer-decoder-autoreg is 'rnn'")
    for name in ("preprocess", "postprocess-emb", "postprocess", "postprocess-top"):
        operations = str(options[f"transformer-{name}"])
        if (
            "h" in operations
            or operations.count("d") > 1
            or operations.count("n") + operations.count("r") > 1
        ):
            raise _refusal(f"transformer-{name}", options, "each of d and a, and n or r, once at most")


def _refusal(name: str, options: ModelOptions, allowed: str) -> UnsupportedOptionError:
    return UnsupportedOptionError(f"{name}: type transformer-new has {allowed}; got {options[name]!r}")


class Stack(Layer):
    """Positions, and the operations before the first of ``depth`` layers and after the last."""

    def __init__(self, part: ModelPart, config: TransformerConfig, depth: int) -> None:
        options, dim = part.options, config.dim
        self.positions = positions(part)
        self.bottom = PreProcess(
            f"{part.prefix}_emb",
            dim,
            options.transformer_postprocess_emb,
            dropout=config.dropout,
            norm=config.norm,
            option="transformer-postprocess-emb",
        )
        self.top = PostProcess(
            f"{part.prefix}_top",
            dim,
            options.transformer_postprocess_top,
            dropout=config.dropout,
            init=config.init(depth),
            norm=config.norm,
            option="transformer-postprocess-top",
        )


def positions(part: ModelPart) -> Positions:
    """Sinusoidal, trained, or no positions, by the model's options.

    ``transformer`` reads ``transformer-train-positions``, which Marian's command line no longer sets, and has
    one table ``Wpos`` for all sides; ``transformer-new`` has one for each.
    """
    options, dim = part.options, part.options.dim_emb
    new = is_new(options)
    if options.transformer_disable_position_embeddings:
        return NoPositionEmbedding(math.sqrt(dim) if new else 1.0)
    old = options.extra.get("transformer-train-positions") is True
    if not (options.transformer_train_position_embeddings if new else old):
        return PositionEmbedding(dim)
    name = f"{part.prefix}_Wpos" if new else "Wpos"
    rows, *_ = part.setup.shapes.get(name) or (_max_length(options),)
    return TrainedPositionEmbedding(name, rows, dim)


def _max_length(options: ModelOptions) -> int:
    """The rows of a new table: Marian's ``max-length`` in training."""
    value = options.extra.get("max-length")
    return value if isinstance(value, int) else TRAINING["max-length"]


class TransformerEncoder(EncoderPart):
    """Layers of self-attention and feed-forward (Vaswani et al. 2017).

    Parameters: ``{prefix}_l1_self_*``, ``{prefix}_l1_ffn_*``, ... and embeddings.
    Source: Marian, ``EncoderTransformer`` in ``models/transformer.h``.
    """

    def __init__(self, setup: Setup, prefix: str, stream: int) -> None:
        super().__init__(setup, prefix, stream)
        config, depths = encoder_config(setup), range(1, self.options.enc_depth + 1)
        self.stack = Stack(self, config, len(depths))
        self.layers = [EncoderLayer(f"{prefix}_l{depth}", config, depth) for depth in depths]

    @property
    def dim_context(self) -> int:
        return self.options.dim_emb

    def encode(self, source: Source | PackedText) -> Encoded:
        batch, length = source.mask.shape
        mask = log_mask(reshape(source.mask, (batch, 1, 1, length)))
        packing = source.packing if isinstance(source, PackedText) else None
        words, positions = self.embedding(source.ids, packing=packing), self.stack.positions
        embedded = positions(words) if packing is None else positions.packed(words, packing)
        return Encoded(self._context(embedded, mask, packing), source.mask, packing)

    def encode_packed(self, source: PackedSource) -> Encoded:
        bins, width = source.ids.shape
        embedded = self.embedding(source.ids)
        words = reshape(embedded, (bins * width, 1, embedded.shape[-1]))
        placed = self.stack.positions.at(words, reshape(source.positions, (bins * width, 1, 1)))
        sentences = cast(source.sentences)
        together = eq(reshape(sentences, (bins, 1, width, 1)), reshape(sentences, (bins, 1, 1, width)))
        mask = log_mask(cast(together, embedded.value_type))
        context = self._context(reshape(placed, embedded.shape), mask)
        return Encoded(context, source.mask, PackedWords(source.places))

    def _context(self, embedded: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        return self.states(embedded, mask, packing)[-1]

    def states(self, embedded: Node, mask: Node, packing: PackedWords | None = None) -> list[Node]:
        """The input of the first layer, from words with positions, and the output of each layer; that of the
        last layer after the operations at the top."""
        states = [self.stack.bottom(embedded, packing)]
        for layer in self.layers:
            states.append(layer(states[-1], mask, packing))
        return [*states[:-1], self.stack.top(states[-1], embedded, packing)]


class TransformerDecoder(DecoderPart):
    """Layers of autoregression, attention to each source, and feed-forward (Vaswani et al. 2017).

    Parameters: ``{prefix}_l1_self_*`` (``{prefix}_l1_aan_*``, ``{prefix}_l1_rnn_*``),
    ``{prefix}_l1_context_*`` (``{prefix}_l1_context_enc2_*`` for the second source), ``{prefix}_l1_ffn_*``,
    ..., ``{prefix}_ff_logit_out_*`` and embeddings. The decoder is causal, so target padding needs no mask.
    Its attention is that of the first head of the layer ``transformer-guided-alignment-layer``.

    Single steps pre-process keys and values like queries (``transformer-preprocess``); Marian does not, and
    ``marian_exact`` repeats that.
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
        """Tied layers are the same object."""
        self.remembers = config.decoder_autoreg == "self-attention"
        """Whether previous words stay in the state; hypotheses then share it."""

    @property
    def attends(self) -> bool:
        return self.stream > 0 and not self.pooled

    def prepare(self, encoded: Sequence[Encoded]) -> Nodes:
        return self._arranged(self.project(encoded), [source.packing for source in encoded])

    def project(self, encoded: Sequence[Encoded]) -> Nodes:
        state = {f"mask{i}": source.mask for i, source in enumerate(encoded)}
        packings = ((i, source.packing) for i, source in enumerate(encoded))
        state |= {f"places{i}": packing.places for i, packing in packings if packing is not None}
        for layer in dict.fromkeys(self.layers):
            for block, source in zip(layer.cross, encoded, strict=True):
                parts = block.project(source.context)
                state |= {f"{block.prefix}:{part}": node for part, node in parts.items()}
        return state

    def arrange(self, projected: Nodes) -> Nodes:
        places = (projected.get(f"places{i}") for i in range(self.stream))
        return self._arranged(projected, [None if node is None else PackedWords(node) for node in places])

    def _arranged(self, projected: Nodes, packings: Sequence[PackedWords | None]) -> Nodes:
        state = {name: node for name, node in projected.items() if name.startswith("mask")}
        for layer in dict.fromkeys(self.layers):
            for block, packing in zip(layer.cross, packings, strict=True):
                parts = block.arrange(_under(block.prefix, projected), packing)
                state |= {f"{block.prefix}:{part}": node for part, node in parts.items()}
        return state

    @property
    def starts_blank(self) -> bool:
        return self.remembers

    def start(
        self, graph: Graph, encoder_state: Nodes, batch: int, beam: int, places: Sequence[int]
    ) -> Nodes:
        state = {}
        for depth, layer in enumerate(self.layers, 1):
            for part, node in layer.autoregression.start(graph, batch, beam, places).items():
                state[f"l{depth}:{part}"] = node
        if self.remembers:
            state[ANCESTORS] = no_ancestors(graph, batch, beam, places)
        return state

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
        (rows,) = words.shape
        embedded = self.previous(words, position)
        embedded = reshape(embedded, (rows // beam, beam, self.options.dim_emb))
        after: Nodes = {}
        now, full = Now(position), None
        if self.remembers:
            before, kind = decoder_state[ANCESTORS], embedded.value_type
            parts = places_of(_under("l1", decoder_state))
            after[ANCESTORS], now, full = with_ancestors(before, position, beam, parts, kind)
        embedded = self.stack.positions.at(embedded, now.place)
        x = self.stack.bottom(embedded)
        aligned = self._attention_depth() if attention else None
        weights = None
        for depth, layer in enumerate(self.layers, 1):
            cache = _under(f"l{depth}", decoder_state)
            x, cache = layer.autoregression.step(x, cache, now)
            x, found = layer.after_autoregression(x, _contexts(layer, encoder_state), depth == aligned)
            after |= {f"l{depth}:{part}": node for part, node in cache.items()}
            weights = found if depth == aligned else weights
        x = reshape(self.stack.top(x, embedded), (rows, self.options.dim_emb))
        alignment = None
        if attention:
            alignment = self._attention(weights)
            alignment = reshape(alignment, (rows, alignment.shape[-1]))
        return Step(self.output(x, shortlist), after, alignment, full)

    def decode(self, encoder_state: Nodes, target: Node | PackedText, *, attention: bool) -> Decoded:
        packing = target.packing if isinstance(target, PackedText) else None
        embedded = self._embedded(target)
        length = embedded.shape[1] if packing is None else packing.length
        # In float32, because 16 bits cannot number all places.
        places = embedded.graph.constant((1, length), inits.range(0, length), Type.float32)
        mask = log_mask(cast(le(places, reshape(places, (length, 1))), embedded.value_type))
        x = self.stack.bottom(embedded, packing)
        aligned = self._attention_depth() if attention else None
        weights = None
        for depth, layer in enumerate(self.layers, 1):
            x = layer.autoregression(x, mask, packing)
            contexts = _contexts(layer, encoder_state)
            x, found = layer.after_autoregression(x, contexts, depth == aligned, packing)
            weights = found if depth == aligned else weights
        alignment = self._attention(weights) if attention else None
        return Decoded(self.stack.top(x, embedded, packing), self.output, alignment)

    def _embedded(self, target: Node | PackedText) -> Node:
        """The embeddings of the words before those of the target, zeros before the first, with positions."""
        if not isinstance(target, PackedText):
            return self.stack.positions(shift(self.embedding(target), (0, 1, 0)))
        packing, (rows, width) = target.packing, target.ids.shape
        words = self.embedding(target.ids, packing=packing)
        before = reshape(shift(reshape(words, (rows * width, words.shape[-1])), (1, 0)), words.shape)
        # No word comes before the first word of a sentence.
        follows = before.graph.constant((packing.length, 1), inits.range(0, packing.length))
        known = at_positions(cast(gt(follows, 0), before.value_type), packing)
        return self.stack.positions.packed(before * known, packing)

    def _attention(self, weights: Node | None) -> Node:
        """The first head ``(batch, time, source)`` of the weights ``(batch, heads, time, source)``."""
        if weights is None:
            problem = (
                "reads its sources without attention (transformer-pool)" if self.stream else "reads no source"
            )
            raise ArgumentError(f"a model of type {self.options.type} {problem}, so it has no attention")
        batch, _, time, source = weights.shape
        return reshape(narrow(weights, 1, 0, 1), (batch, time, source))

    def _attention_depth(self) -> int:
        """The number, from 1, of the layer whose attention is returned."""
        layer, depth = self.options.transformer_guided_alignment_layer, self.options.dec_depth
        if layer == "last":
            return depth
        if not (layer.isascii() and layer.isdigit() and 1 <= int(layer) <= depth):
            raise UnsupportedOptionError(
                f"transformer-guided-alignment-layer: expected 'last' or a number from 1 to {depth}, got"
                f" {layer!r}"
            )
        return int(layer)


ANCESTORS = "ancestors"


def _contexts(layer: DecoderLayer, encoder_state: Nodes) -> list[Context]:
    """The contexts of a decoder layer, from an encoder state."""
    contexts = []
    for i, block in enumerate(layer.cross):
        mask = encoder_state[f"mask{i}"]
        log = log_mask(reshape(mask, (mask.shape[0], 1, 1, mask.shape[1])))
        contexts.append(Context(_under(block.prefix, encoder_state), log))
    return contexts


def _under(prefix: str, state: Nodes) -> Nodes:
    """The part of a state whose names begin with ``{prefix}:``, which is removed."""
    start = f"{prefix}:"
    return {name.removeprefix(start): node for name, node in state.items() if name.startswith(start)}
