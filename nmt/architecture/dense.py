"""Blocks that all models share: embeddings, dense layers, the output layer."""

from __future__ import annotations

from .conditions import Given, InFile, Is
from .notation import FAN_IN, FAN_OUT, ONES, ZEROS, Block, Row

NORMED = Given("layer-normalization")
NEMATUS = Is("type", "nematus")
"""Nematus normalizes each product by itself, with a gain and a bias."""

TABLE = Block(
    "embedding table",
    "the vectors of words",
    rows=(Row("Wemb", ("words", "dim-emb"), FAN_OUT),),
)

_ALL, _SRC = Given("tied-embeddings-all"), Given("tied-embeddings-src")

EMBEDDING = Block(
    "embedding",
    "word embeddings, from a table of its own or one for all sides",
    parts=(
        TABLE.at(when=~_ALL & ~_SRC),
        TABLE.at(when=_ALL | _SRC, rooted=True),
    ),
)

DENSE = Block(
    "dense",
    "`act(x W + b)`, or one term of a sum of such; with layer normalization `LN(x W)` has the bias `b`",
    rows=(
        Row("W", ("input", "dim")),
        Row("b", (1, "dim"), ZEROS),
        Row("gamma", (1, "dim"), ONES, NORMED & ~NEMATUS),
        Row("ln_s", (1, "dim"), ONES, NORMED & NEMATUS),
        Row("ln_b", (1, "dim"), ZEROS, NORMED & NEMATUS),
    ),
)

_UNTIED = ~Given("tied-embeddings") & ~_ALL

OUTPUT = Block(
    "output",
    "logits over the target vocabulary; a tied one multiplies by the embedding table",
    rows=(
        Row("Wt", ("dim-vocabs[-1]", "dim-emb"), FAN_OUT, _UNTIED & ~InFile("W")),
        Row("W", ("dim-emb", "dim-vocabs[-1]"), FAN_IN, _UNTIED & InFile("W")),
        Row("b", (1, "dim-vocabs[-1]"), ZEROS, ~Given("output-omit-bias")),
    ),
)
