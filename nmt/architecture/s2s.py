"""Marian's recurrent encoder and decoder."""

from __future__ import annotations

from .cells import CELL
from .conditions import Above, Is
from .dense import DENSE, EMBEDDING, NEMATUS, NORMED, OUTPUT
from .notation import ONES, ZEROS, Block, Each, Either, Row

# ---------------------------------------------------------------- encoder

_UNIDIRECTIONAL = Is("enc-type", "bi-unidirectional")
_UPPER_LAYERS = Each("layer", 2, "enc-depth")
_TRANSITIONS = Each("cell", 2, "enc-cell-depth")

ENCODER_FIRST = Block(
    "s2s encoder, first layer",
    "a cell for the words, and cells without input after it",
    parts=(
        CELL.at(kind="enc-cell", input="dim-emb", state="dim-rnn"),
        CELL.at("cell{cell}", each=_TRANSITIONS, kind="enc-cell", input=0, state="dim-rnn"),
    ),
)

ENCODER_UPPER = Block(
    "s2s encoder, upper layer",
    "a cell for the layer below, and cells without input after it",
    parts=(
        CELL.at("cell1", kind="enc-cell", input="below", state="dim-rnn"),
        CELL.at("cell{cell}", each=_TRANSITIONS, kind="enc-cell", input=0, state="dim-rnn"),
    ),
)

ENCODER = Block(
    "s2s encoder",
    "recurrent cells over the source in both directions; `words` is the size of its vocabulary",
    parts=(
        EMBEDDING.at(),
        ENCODER_FIRST.at("bi"),
        ENCODER_FIRST.at("bi_r"),
        ENCODER_UPPER.at("bi_l{layer}", each=_UPPER_LAYERS, when=~_UNIDIRECTIONAL, below="dim-rnn"),
        ENCODER_UPPER.at("bi_r_l{layer}", each=_UPPER_LAYERS, when=~_UNIDIRECTIONAL, below="dim-rnn"),
        ENCODER_UPPER.at(
            "l{layer}",
            each=_UPPER_LAYERS,
            when=_UNIDIRECTIONAL,
            below=Either(Is("layer", 2), "2 * dim-rnn", "dim-rnn"),
        ),
    ),
)

CONTEXT = Either(_UNIDIRECTIONAL & Above("enc-depth", 1), "dim-rnn", "2 * dim-rnn")
"""The features of a word's context."""

# ---------------------------------------------------------------- decoder

_SEVERAL = Above("sources", 1)

ATTENTION = Block(
    "attention",
    "the attention of a recurrent decoder (Bahdanau et al. 2015)",
    rows=(
        Row("W_comb_att", ("dim-rnn", "context")),
        Row("Wc_att", ("context", "context")),
        Row("U_att", ("context", 1)),
        Row("b_att", (1, "context"), ZEROS),
        Row("att_gamma1", (1, "context"), ONES, NORMED & ~NEMATUS),
        Row("att_gamma2", (1, "context"), ONES, NORMED & ~NEMATUS),
        Row("Wc_att_lns", (1, "context"), ONES, NORMED & NEMATUS),
        Row("Wc_att_lnb", (1, "context"), ZEROS, NORMED & NEMATUS),
        Row("W_comb_att_lns", (1, "context"), ONES, NORMED & NEMATUS),
        Row("W_comb_att_lnb", (1, "context"), ZEROS, NORMED & NEMATUS),
    ),
)

DECODER_UPPER = Block(
    "s2s decoder, upper layer",
    "a cell for the layer below, and cells without input after it",
    parts=(
        CELL.at("cell1", kind="dec-cell", input="dim-rnn", state="dim-rnn"),
        CELL.at(
            "cell{cell}",
            each=Each("cell", 2, "dec-cell-high-depth"),
            kind="dec-cell",
            input=0,
            state="dim-rnn",
        ),
    ),
)

HIDDEN = Block(
    "s2s decoder, hidden layer",
    "what the output layer sees: a sum over word, state and contexts",
    parts=(
        DENSE.at(suffix="0", input="dim-emb", dim="dim-emb"),
        DENSE.at(suffix="1", input="dim-rnn", dim="dim-emb"),
        DENSE.at(suffix="2", when=Above("sources", 0), input="sources * context", dim="dim-emb"),
    ),
)

DECODER = Block(
    "s2s decoder",
    "recurrent cells, an attention to each of `sources` sources, 0 to `last`, with `context` features",
    parts=(
        EMBEDDING.at(words="dim-vocabs[-1]"),
        DENSE.at("ff_state", when=Is("sources", 1), input="context", dim="dim-rnn"),
        DENSE.at(
            "ff_state",
            suffix="{source}",
            each=Each("source", 0, "last"),
            when=_SEVERAL,
            input="context",
            dim="dim-rnn",
        ),
        CELL.at("cell1", kind="dec-cell", input="dim-emb", state="dim-rnn"),
        ATTENTION.at(when=Is("sources", 1)),
        ATTENTION.at("att{source}", each=Each("source", 1, "sources"), when=_SEVERAL),
        CELL.at(
            "cell{cell}",
            each=Each("cell", 2, "dec-cell-base-depth"),
            kind="dec-cell",
            input=Either(Is("cell", 2), "sources * context", 0),
            state="dim-rnn",
        ),
        DECODER_UPPER.at("l{layer}", each=Each("layer", 2, "dec-depth")),
        HIDDEN.at("ff_logit_l1"),
        OUTPUT.at("ff_logit_l2"),
    ),
)
