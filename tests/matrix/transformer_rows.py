"""The rows of transformers: types, processing around layers, and autoregression in the decoder."""

from __future__ import annotations

from .row import AVERAGE, DEEP, PRENORM, SSRU, table

TRANSFORMER = "--dim-emb 16 --transformer-heads 2 --transformer-dim-ffn 24"

TRANSFORMERS = (
    *table(
        "",
        f"""
        transformer: --type transformer {TRANSFORMER}
        multi-transformer: --type multi-transformer {TRANSFORMER} {DEEP}
        multi-transformer-prenorm: --type multi-transformer {TRANSFORMER} {PRENORM}
        shared-multi-transformer: --type shared-multi-transformer {TRANSFORMER} --tied-embeddings-all
        lm-transformer: --type lm-transformer {TRANSFORMER} --dec-depth 2
        lm-transformer-tied: --type lm-transformer {TRANSFORMER} --tied-embeddings-all
            --transformer-preprocess n --transformer-postprocess da
        transformer_s2s: --type transformer_s2s {TRANSFORMER} --dim-rnn 16
        transformer-new: --type transformer-new {TRANSFORMER} {DEEP}
        transformer-new-ssru: --type transformer-new {TRANSFORMER} {DEEP} {SSRU}
        transformer-new-prenorm: --type transformer-new {TRANSFORMER} {DEEP} {PRENORM}
        multi-transformer-ssru: --type multi-transformer {TRANSFORMER} {DEEP} {SSRU} --tied-embeddings-all
        multi-transformer-aan: --type multi-transformer {TRANSFORMER} {AVERAGE} --transformer-dim-aan 16
            --right-left
        multi-transformer-pool: --type multi-transformer {TRANSFORMER} --transformer-pool
        transformer_s2s-deep: --type transformer_s2s {TRANSFORMER} --dim-rnn 24 --enc-depth 2 --dec-depth 2
            --dec-cell lstm --layer-normalization --tied-embeddings-all
        transformer-new-relu: --type transformer-new {TRANSFORMER} {DEEP} --transformer-ffn-activation relu
            --tied-embeddings-all --transformer-heads 4
        transformer-new-gelu: --type transformer-new {TRANSFORMER} {DEEP} --transformer-ffn-activation gelu
            --output-omit-bias
        transformer-new-no-bias: --type transformer-new {TRANSFORMER} {DEEP} --transformer-no-bias
        transformer-new-no-affine: --type transformer-new {TRANSFORMER} {DEEP} --transformer-no-affine
        transformer-new-rms: --type transformer-new {TRANSFORMER} {DEEP} --transformer-postprocess dar
        transformer-new-positions: --type transformer-new {TRANSFORMER} {DEEP}
            --transformer-train-position-embeddings
        transformer-new-no-positions: --type transformer-new {TRANSFORMER} {DEEP}
            --transformer-disable-position-embeddings
        transformer-new-alibi: --type transformer-new {TRANSFORMER} {DEEP}
            --transformer-attention-mask alibi
        transformer-new-aan: --type transformer-new {TRANSFORMER} {DEEP} {AVERAGE} --transformer-dim-aan 16
        transformer-new-tied-layers: --type transformer-new {TRANSFORMER} {DEEP}
            --transformer-tied-layers 1 1
        transformer-new-tied-twice: --type transformer-new {TRANSFORMER} --dec-depth 3
            --transformer-tied-layers 1 1 2
        transformer-new-tied-gap: --type transformer-new {TRANSFORMER} --dec-depth 4
            --transformer-tied-layers 1 2 2 4
        transformer-new-tied-ahead: --type transformer-new {TRANSFORMER} --dec-depth 2
            --transformer-tied-layers 2 2
        transformer-new-pool: --type transformer-new {TRANSFORMER} {DEEP} --transformer-pool
        transformer-new-depth-scaling: --type transformer-new {TRANSFORMER} {DEEP} --transformer-depth-scaling
        transformer-new-right-left: --type transformer-new {TRANSFORMER} {DEEP} --right-left
            --tied-embeddings-src
        transformer-new-heads: --type transformer-new {TRANSFORMER} --transformer-heads 8 --dim-vocabs 20 18
        transformer-new-ffn: --type transformer-new {TRANSFORMER} {DEEP} --transformer-ffn-depth 3
            --transformer-decoder-dim-ffn 40
        transformer-new-ssru-projection: --type transformer-new {TRANSFORMER} {DEEP} {SSRU}
            --transformer-rnn-projection
        transformer-new-guided: --type transformer-new {TRANSFORMER} {DEEP} --guided-alignment-weight 1
        bert: --type bert {TRANSFORMER}
        bert-classifier: --type bert-classifier {TRANSFORMER}
        """,
    ),
    *table(
        f"--type transformer {TRANSFORMER}",
        f"""
        transformer-deep: {DEEP}
        prenorm: {DEEP} {PRENORM}
        prenorm-dropout: {DEEP} --transformer-preprocess dn --transformer-postprocess a
            --transformer-postprocess-top n --transformer-dropout 0.1
        process-n-dan: {DEEP} --transformer-preprocess n --transformer-postprocess dan
        process-highway: {DEEP} --transformer-postprocess dhn
        process-highway-only: {DEEP} --transformer-postprocess dh --transformer-postprocess-top n
        process-rms: {DEEP} --transformer-postprocess dar
        process-rms-pre: {DEEP} --transformer-preprocess r --transformer-postprocess da
            --transformer-postprocess-top r --transformer-postprocess-emb r
        process-emb: {DEEP} --transformer-postprocess-emb nd
        process-top: {DEEP} --transformer-postprocess-top dan
        process-top-a: --transformer-postprocess-top a
        process-none: --transformer-postprocess d --transformer-postprocess-emb ""
        process-a: --transformer-postprocess a
        heads: {DEEP} --transformer-heads 4
        heads-1: --transformer-heads 1
        ffn-depth-1: {DEEP} --transformer-ffn-depth 1
        ffn-depth-3: {DEEP} --transformer-ffn-depth 3
        decoder-dim-ffn: {DEEP} --transformer-decoder-dim-ffn 40
        decoder-ffn-depth: {DEEP} --transformer-decoder-ffn-depth 3
        decoder-ffn-depth-1: {DEEP} --transformer-decoder-ffn-depth 1 --transformer-decoder-dim-ffn 32
        activation-relu: {DEEP} --transformer-ffn-activation relu
        activation-gelu: {DEEP} --transformer-ffn-activation gelu
        activation-swish: {DEEP} --transformer-ffn-activation swish
        activation-sigmoid: {DEEP} --transformer-ffn-activation sigmoid
        activation-none: {DEEP} --transformer-ffn-activation ""
        activation-tanh: {DEEP} --transformer-ffn-activation tanh
        transformer-tied-embeddings: {DEEP} --tied-embeddings
        transformer-tied-embeddings-src: {DEEP} --tied-embeddings-src
        transformer-tied-embeddings-all: {DEEP} --tied-embeddings-all
        transformer-output-omit-bias: {DEEP} --tied-embeddings-all --output-omit-bias
        transformer-right-left: {DEEP} --right-left
        tied-layers: --enc-depth 2 --dec-depth 4 --transformer-tied-layers 1 1 2 2
        process-nda: {DEEP} --transformer-postprocess nda
        process-dn: {DEEP} --transformer-postprocess dn --transformer-preprocess d
        process-emb-n: {DEEP} --transformer-postprocess-emb n --transformer-postprocess-top n
        process-top-h: {DEEP} --transformer-postprocess-top h
        prenorm-nogate-ffn-1: {DEEP} --transformer-preprocess n --transformer-postprocess da
            --transformer-ffn-depth 1 --tied-embeddings-all
        transformer-dim-vocabs: --dim-vocabs 20 18
        heads-unequal: --transformer-heads 3
        tied-layers-1: --enc-depth 1 --dec-depth 3 --transformer-tied-layers 1 1 1
        depth-scaling: {DEEP} --transformer-depth-scaling
        no-projection: {DEEP} --transformer-no-projection
        pool: {DEEP} --transformer-pool
        pool-no-projection: {DEEP} --transformer-pool --transformer-no-projection
        guided: {DEEP} --guided-alignment-weight 1
        guided-layer-1: {DEEP} --transformer-guided-alignment-layer 1 --guided-alignment-weight 1
        train-position-embeddings: {DEEP} --transformer-train-position-embeddings
        disable-position-embeddings: {DEEP} --transformer-disable-position-embeddings
        no-bias: {DEEP} --transformer-no-bias
        no-affine: {DEEP} --transformer-no-affine
        alibi: {DEEP} --transformer-attention-mask alibi
        transformer-dropout: {DEEP} --transformer-dropout 0.1 --transformer-dropout-attention 0.1
            --transformer-dropout-ffn 0.1 --dropout-src 0.1 --dropout-trg 0.1
        layer-normalization: {DEEP} --layer-normalization
        """,
    ),
    *table(
        f"--type transformer {TRANSFORMER} {DEEP} {AVERAGE}",
        f"""
        average-attention: --transformer-dim-aan 16
        average-attention-wide: --transformer-dim-aan 40
        aan-depth-1: --transformer-dim-aan 16 --transformer-aan-depth 1
        aan-depth-1-wide: --transformer-dim-aan 40 --transformer-aan-depth 1
        aan-depth-3: --transformer-dim-aan 40 --transformer-aan-depth 3
        aan-depth-3-even: --transformer-dim-aan 16 --transformer-aan-depth 3
        aan-activation: --transformer-dim-aan 40 --transformer-aan-activation relu
        aan-nogate: --transformer-dim-aan 40 --transformer-aan-nogate
        aan-prenorm: --transformer-dim-aan 16 {PRENORM}
        aan-dropout: --transformer-dim-aan 16 --transformer-dropout-ffn 0.1 --transformer-dropout 0.1
        aan-highway: --transformer-dim-aan 16 --transformer-postprocess dhn
        """,
    ),
    *table(
        f"--type transformer {TRANSFORMER} {DEEP} {SSRU}",
        f"""
        rnn-ssru: --tied-embeddings-all
        rnn-ssru-projection: --transformer-rnn-projection
        rnn-ssru-prenorm: {PRENORM}
        rnn-ssru-layer-normalization: --layer-normalization
        rnn-ssru-dropout: --dropout-rnn 0.1 --transformer-dropout 0.1
        rnn-student: --dec-depth 2 --transformer-tied-layers 1 1 --transformer-ffn-activation relu
            --tied-embeddings-all
        """,
    ),
    *table(
        f"--type transformer {TRANSFORMER} {DEEP} --transformer-decoder-autoreg rnn",
        f"""
        rnn-gru: --dec-cell gru
        rnn-gru-projection: --dec-cell gru --transformer-rnn-projection --layer-normalization
        rnn-gru-nematus: --dec-cell gru-nematus
        rnn-lstm: --dec-cell lstm
        rnn-lstm-prenorm: --dec-cell lstm {PRENORM}
        rnn-mlstm: --dec-cell mlstm
        rnn-mgru: --dec-cell mgru
        rnn-tanh: --dec-cell tanh
        rnn-relu: --dec-cell relu
        rnn-sru: --dec-cell sru
        """,
    ),
    *table(
        f"--type lm-transformer {TRANSFORMER} --dec-depth 2",
        f"""
        lm-transformer-aan: {AVERAGE} --transformer-dim-aan 16
        lm-transformer-ssru: {SSRU}
        """,
    ),
)
