"""Marian's transformer encoder and decoder, those of ``transformer-new`` too."""

from __future__ import annotations

from .cells import CELL
from .conditions import Above, Divides, Given, Has, Is, Same
from .dense import EMBEDDING, OUTPUT
from .notation import FAN_OUT, ONES, SCALED, ZEROS, Block, Each, Either, Row

NEW = Is("type", "transformer-new")
_BIASED = ~(NEW & Given("transformer-no-bias"))
"""The older class takes no notice of this option, the newer of some others."""
_PROJECTED = NEW | ~Given("transformer-no-projection")
_POOLED = Given("transformer-pool") & ~NEW

# ---------------------------------------------------------------- frames of sub-layers

LAYER_NORM = Block(
    "layer norm",
    "the operation `n`",
    rows=(
        Row("ln_scale", (1, "dim-emb"), ONES),
        Row("ln_bias", (1, "dim-emb"), ZEROS),
    ),
)

RMS_NORM = Block(
    "rms norm",
    "the operation `r`",
    rows=(Row("rms_scale", (1, "dim-emb"), ONES), Row("rms_bias", (1, "dim-emb"), ZEROS, NEW)),
)

HIGHWAY = Block(
    "highway",
    "the gate of the operation `h`",
    rows=(Row("Wh", ("dim-emb", "dim-emb"), SCALED), Row("bh", (1, "dim-emb"), ZEROS)),
)

BEFORE = Block(
    "before",
    "operations on the input of a sub-layer",
    parts=(
        LAYER_NORM.at(suffix="_pre", when=Has("operations", "n")),
        RMS_NORM.at(suffix="_pre", when=Has("operations", "r")),
    ),
)

AFTER = Block(
    "after",
    "operations on the result of a sub-layer",
    parts=(
        LAYER_NORM.at(when=Has("operations", "n")),
        RMS_NORM.at(when=Has("operations", "r")),
        HIGHWAY.at(when=Has("operations", "h")),
    ),
)


# ---------------------------------------------------------------- sub-layers

AFFINE = Block(
    "affine",
    "`x W + b`",
    rows=(Row("W", ("input", "dim"), SCALED), Row("b", (1, "dim"), ZEROS, _BIASED)),
)

SQUARE = Block(
    "square affine",
    "`x W + b`, which keeps the size",
    rows=(Row("W", ("dim-emb", "dim-emb"), SCALED), Row("b", (1, "dim-emb"), ZEROS, _BIASED)),
)

MULTI_HEAD = Block(
    "multi-head attention",
    "queries, keys and values of all heads side by side, and the projection of the result",
    needs=Divides("transformer-heads", "dim-emb"),
    parts=(
        SQUARE.at(suffix="q"),
        SQUARE.at(suffix="k"),
        SQUARE.at(suffix="v"),
        SQUARE.at(suffix="o", when=_PROJECTED),
        BEFORE.at("Wo", operations="transformer-preprocess"),
        AFTER.at("Wo", operations="transformer-postprocess"),
    ),
)

POOLING = Block(
    "pooling",
    "what stands for the attention to a source with `transformer-pool`",
    parts=(
        SQUARE.at(suffix="o", when=_PROJECTED),
        AFTER.at("Wo", operations="transformer-postprocess"),
    ),
)

FEED_FORWARD = Block(
    "feed-forward",
    "`depth` affine layers with `inner` features between them",
    parts=(
        AFFINE.at(
            suffix="{number}",
            each=Each("number", 1, "depth"),
            input=Either(Is("number", 1), "dim-emb", "inner"),
            dim=Either(Same("number", "depth"), "dim-emb", "inner"),
        ),
        BEFORE.at("ffn", operations="transformer-preprocess"),
        AFTER.at("ffn", operations="transformer-postprocess"),
    ),
)

_DEEP = Above("transformer-aan-depth", 1)
_LAST = Same("number", "transformer-aan-depth")
_GATED = ~Given("transformer-aan-nogate")

AVERAGE_ATTENTION = Block(
    "average attention",
    "the mean of all words so far through affine layers, the last only if it changes the size; two gates",
    parts=(
        AFFINE.at(
            suffix="{number}",
            each=Each("number", 1, "transformer-aan-depth"),
            when=_DEEP & (~_LAST | ~Same("transformer-dim-aan", "dim-emb")),
            input=Either(Is("number", 1), "dim-emb", "transformer-dim-aan"),
            dim=Either(_LAST, "dim-emb", "transformer-dim-aan"),
        ),
        SQUARE.at(suffix="i", when=_GATED),
        SQUARE.at(suffix="f", when=_GATED),
        BEFORE.at("ffn", operations="transformer-preprocess"),
        AFTER.at("ffn", operations="transformer-postprocess"),
    ),
)

NEW_SSRU = Block(
    "new ssru",
    "the cell `ssru` of `transformer-new`, which has no other cell and none with layer normalization",
    rows=(
        Row("W", ("dim-emb", "dim-emb")),
        Row("Wf", ("dim-emb", "dim-emb")),
        Row("bf", (1, "dim-emb"), ZEROS, _BIASED),
    ),
)

RECURRENCE = Block(
    "recurrence",
    "a recurrent cell, and a projection of its output",
    parts=(
        CELL.at(when=~NEW, kind="dec-cell", input="dim-emb", state="dim-emb"),
        NEW_SSRU.at(when=NEW),
        SQUARE.at(suffix="o", when=Given("transformer-rnn-projection")),
        BEFORE.at(operations="transformer-preprocess"),
        AFTER.at("ffn", operations="transformer-postprocess"),
    ),
)

# ---------------------------------------------------------------- stacks

POSITION_TABLE = Block(
    "position table",
    "the vectors of positions; `max-length` is that of training",
    rows=(Row("Wpos", ("max-length", "dim-emb"), FAN_OUT),),
)

_POSITIONED = ~Given("transformer-disable-position-embeddings")

POSITIONS = Block(
    "positions",
    "trained embeddings of positions, shared by all sides or, with `transformer-new`, for each",
    parts=(
        POSITION_TABLE.at(when=_POSITIONED & ~NEW & Given("transformer-train-positions"), rooted=True),
        POSITION_TABLE.at(when=_POSITIONED & NEW & Given("transformer-train-position-embeddings")),
    ),
)


def _at_least_two(depth: str) -> Either:
    """``depth`` but for ``transformer-new``, which has at least two layers."""
    return Either(NEW & ~Above(depth, 1), 2, depth)


ENCODER_LAYER = Block(
    "transformer encoder, layer",
    "self-attention, then feed-forward",
    parts=(
        MULTI_HEAD.at("self"),
        FEED_FORWARD.at("ffn", inner="transformer-dim-ffn", depth=_at_least_two("transformer-ffn-depth")),
    ),
)

ENCODER = Block(
    "transformer encoder",
    "layers between embeddings and a top; `words` is the size of its vocabulary",
    parts=(
        EMBEDDING.at(),
        POSITIONS.at(),
        BEFORE.at("emb", operations="transformer-postprocess-emb"),
        ENCODER_LAYER.at("l{layer}", each=Each("layer", 1, "enc-depth")),
        AFTER.at("top", layer="enc-depth", operations="transformer-postprocess-top"),
    ),
)

_OTHER_SOURCES = Each("source", 2, "sources")

DECODER_LAYER = Block(
    "transformer decoder, layer",
    "the autoregression, attention to each of `sources` sources, feed-forward",
    parts=(
        MULTI_HEAD.at("self", when=Is("transformer-decoder-autoreg", "self-attention")),
        AVERAGE_ATTENTION.at("aan", when=Is("transformer-decoder-autoreg", "average-attention")),
        RECURRENCE.at("rnn", when=Is("transformer-decoder-autoreg", "rnn")),
        MULTI_HEAD.at("context", when=Above("sources", 0) & ~_POOLED),
        MULTI_HEAD.at("context_enc{source}", each=_OTHER_SOURCES, when=~_POOLED),
        POOLING.at("context", when=Above("sources", 0) & _POOLED),
        POOLING.at("context_enc{source}", each=_OTHER_SOURCES, when=_POOLED),
        FEED_FORWARD.at(
            "ffn",
            inner=Either(
                Given("transformer-decoder-dim-ffn"), "transformer-decoder-dim-ffn", "transformer-dim-ffn"
            ),
            depth=Either(
                Given("transformer-decoder-ffn-depth"),
                _at_least_two("transformer-decoder-ffn-depth"),
                _at_least_two("transformer-ffn-depth"),
            ),
        ),
    ),
)

DECODER = Block(
    "transformer decoder",
    "layers between embeddings and a top, then the output layer",
    parts=(
        EMBEDDING.at(words="dim-vocabs[-1]"),
        POSITIONS.at(),
        BEFORE.at("emb", operations="transformer-postprocess-emb"),
        DECODER_LAYER.at("l{layer}", each=Each("layer", 1, "dec-depth", tied="transformer-tied-layers")),
        AFTER.at("top", layer="dec-depth", operations="transformer-postprocess-top"),
        OUTPUT.at("ff_logit_out"),
    ),
)
