"""The rows of the tests: as small as possible, each with several options; all types and cells occur."""

from __future__ import annotations

from .row import AVERAGE, NEMATUS, PRENORM, SSRU, table

RNN = "--dim-emb 8 --dim-rnn 10"
NARROW = "--dim-emb 10 --dim-rnn 8"
EVEN = "--dim-emb 8 --dim-rnn 8"
TRANSFORMER = "--dim-emb 8 --transformer-heads 2 --transformer-dim-ffn 12"

SMALL = table(
    "--after-batches 200",
    f"""
    amun: --type amun {RNN} --tied-embeddings --dropout-rnn 0.1
    nematus: --type nematus {RNN} {NEMATUS} --layer-normalization --dec-cell-base-depth 3
    s2s-alternating: --type s2s {NARROW} --enc-type alternating --enc-depth 2 --enc-cell lstm --dec-cell mlstm
        --layer-normalization
    s2s-deep: --type s2s {RNN} --enc-type bi-unidirectional --enc-depth 2 --enc-cell mgru --dec-depth 2
        --dec-cell-high-depth 2 --skip --right-left
    s2s-simple: --type s2s {RNN} --enc-cell tanh --dec-cell relu --tied-embeddings-src --layer-normalization
    s2s-sru: --type s2s {EVEN} --enc-cell ssru --dec-cell sru --dec-cell-base-depth 1
    multi-s2s: --type multi-s2s {NARROW} --dec-cell lstm --tied-embeddings-all
    lm: --type lm {RNN} --dec-depth 2
    transformer: --type transformer {TRANSFORMER} --dec-depth 2 --transformer-guided-alignment-layer 1
        --transformer-ffn-activation gelu --transformer-decoder-ffn-depth 1
    prenorm: --type transformer {TRANSFORMER} {PRENORM} --tied-embeddings-all --output-omit-bias
    highway: --type transformer {TRANSFORMER} --transformer-postprocess dhn --transformer-postprocess-top r
        --transformer-no-projection
    student: --type transformer {TRANSFORMER} {SSRU} --dec-depth 2 --transformer-tied-layers 1 1
        --transformer-rnn-projection --tied-embeddings-all
    average-attention: --type transformer {TRANSFORMER} {AVERAGE} --transformer-dim-aan 12
        --transformer-aan-activation relu
    multi-transformer: --type multi-transformer {TRANSFORMER} --transformer-decoder-autoreg rnn --dec-cell lstm
    lm-transformer: --type lm-transformer {TRANSFORMER} --tied-embeddings
    transformer_s2s: --type transformer_s2s {TRANSFORMER} --dim-rnn 12
    transformer-new: --type transformer-new {TRANSFORMER} {SSRU} --tied-embeddings-all
    """,
)
