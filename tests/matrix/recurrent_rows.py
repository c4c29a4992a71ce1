"""The rows of recurrent models: types, cells, depths."""

from __future__ import annotations

from .row import DEEP, NEMATUS, table

RNN = "--dim-emb 16 --dim-rnn 24"
# SRU and SSRU add their input to their state, or scale it: both must have the same size.
EVEN = "--dim-emb 16 --dim-rnn 16"

RECURRENT = (
    *table(
        "",
        f"""
        amun: --type amun {RNN}
        amun-tied: --type amun {RNN} --tied-embeddings
        amun-layer-normalization: --type amun {RNN} --layer-normalization
        nematus: --type nematus {RNN} {NEMATUS}
        nematus-layer-normalization: --type nematus {RNN} {NEMATUS} --layer-normalization
        nematus-deep: --type nematus {RNN} {NEMATUS} --layer-normalization --enc-cell-depth 2
            --dec-cell-base-depth 4
        s2s: --type s2s {RNN}
        multi-s2s: --type multi-s2s {RNN}
        multi-s2s-layer-normalization: --type multi-s2s {RNN} --layer-normalization --enc-cell lstm
            --dec-cell lstm
        shared-multi-s2s: --type shared-multi-s2s {RNN}
        lm: --type lm {RNN}
        lm-deep: --type lm {RNN} --dec-depth 2 --dec-cell lstm --layer-normalization --tied-embeddings
        multi-s2s-deep: --type multi-s2s {RNN} {DEEP} --skip --enc-type alternating --dec-cell-base-depth 3
            --tied-embeddings
        multi-s2s-nematus: --type multi-s2s {RNN} {NEMATUS} --layer-normalization
        shared-multi-s2s-deep: --type shared-multi-s2s {RNN} {DEEP} --enc-type bi-unidirectional
            --layer-normalization --tied-embeddings-all
        amun-tied-all: --type amun {RNN} --tied-embeddings-all
        amun-tied-src: --type amun {RNN} --tied-embeddings-src
        amun-lstm: --type amun {RNN} --enc-cell lstm --dec-cell lstm
        amun-deep: --type amun {RNN} {DEEP}
        nematus-gru: --type nematus {RNN}
        nematus-alternating: --type nematus {RNN} {NEMATUS} --enc-type alternating
        nematus-depth: --type nematus {RNN} {DEEP} {NEMATUS}
        nematus-tied: --type nematus {RNN} {NEMATUS} --tied-embeddings --dropout-rnn 0.1 --right-left
        nematus-tied-all: --type nematus {RNN} {NEMATUS} --tied-embeddings-all
        lm-skip: --type lm {RNN} --dec-depth 3 --skip --dec-cell-high-depth 2 --dec-cell-base-depth 3
        lm-right-left: --type lm {RNN} --right-left
        lm-ssru: --type lm {EVEN} --dec-cell ssru --dec-cell-base-depth 1
        char-s2s: --type char-s2s {RNN}
        """,
    ),
    *table(
        "--type s2s",
        f"""
        gru-nematus: {RNN} {NEMATUS}
        lstm: {RNN} --enc-cell lstm --dec-cell lstm
        mlstm: {RNN} --enc-cell mlstm --dec-cell mlstm
        mgru: {RNN} --enc-cell mgru --dec-cell mgru
        tanh: {RNN} --enc-cell tanh --dec-cell tanh
        relu: {RNN} --enc-cell relu --dec-cell relu
        sru: {EVEN} --enc-cell sru --dec-cell sru
        sru-encoder: {EVEN} --enc-cell sru --dec-cell gru
        sru-decoder: {EVEN} --enc-cell gru --dec-cell sru --dec-cell-base-depth 1
        ssru: {EVEN} --enc-cell ssru --dec-cell ssru
        ssru-encoder: {EVEN} --enc-cell ssru --dec-cell gru
        ssru-decoder: {EVEN} --enc-cell gru --dec-cell ssru --dec-cell-base-depth 1
        gru-lstm: {RNN} --enc-cell gru --dec-cell lstm --dec-depth 2 --skip
        lstm-gru: {RNN} --enc-cell lstm --dec-cell gru --enc-depth 2
        gru-layer-normalization: {RNN} --layer-normalization
        lstm-layer-normalization: {RNN} --enc-cell lstm --dec-cell lstm --layer-normalization
        mlstm-layer-normalization: {RNN} --enc-cell mlstm --dec-cell mlstm --layer-normalization
        mgru-layer-normalization: {RNN} --enc-cell mgru --dec-cell mgru --layer-normalization
        tanh-layer-normalization: {RNN} --enc-cell tanh --dec-cell tanh --layer-normalization
        relu-layer-normalization: {RNN} --enc-cell relu --dec-cell relu --layer-normalization
        sru-deep: {EVEN} --enc-cell sru --dec-cell gru --enc-depth 2 --skip
        sru-layer-normalization: {EVEN} --enc-cell sru --dec-cell gru --layer-normalization
        ssru-layer-normalization: {EVEN} --enc-cell ssru --dec-cell gru --layer-normalization
        gru-nematus-layer-normalization: {RNN} {NEMATUS} --layer-normalization
        """,
    ),
    *table(
        f"--type s2s {RNN}",
        f"""
        bi-unidirectional: --enc-type bi-unidirectional --enc-depth 3
        alternating: --enc-type alternating --enc-depth 3
        bidirectional: --enc-type bidirectional --enc-depth 2 --dec-depth 3
        skip: --enc-type bidirectional {DEEP} --skip
        skip-alternating: --enc-type alternating --enc-depth 3 --dec-depth 2 --skip --enc-cell-depth 2
        skip-bi-unidirectional: --enc-type bi-unidirectional --enc-depth 3 --dec-depth 2 --skip
            --enc-cell lstm
        best-deep: --best-deep
        enc-cell-depth: --enc-cell-depth 3
        enc-cell-depth-lstm: --enc-cell-depth 2 --enc-cell lstm --dec-cell lstm --dec-cell-base-depth 3
            --dec-cell-high-depth 2 --dec-depth 2
        dec-cell-base-depth-1: --dec-cell-base-depth 1
        dec-cell-base-depth: --dec-cell-base-depth 4
        dec-cell-high-depth: --dec-cell-high-depth 3 --dec-depth 2
        dec-cell-depth-mlstm: --dec-cell mlstm --dec-cell-base-depth 3 --dec-cell-high-depth 2 --dec-depth 2
            --layer-normalization
        dec-cell-depth-tanh: --dec-cell tanh --dec-cell-base-depth 3 --dec-cell-high-depth 2 --dec-depth 2
        s2s-tied-embeddings: --tied-embeddings
        s2s-tied-embeddings-src: --tied-embeddings-src
        s2s-tied-embeddings-src-trg: --tied-embeddings-src --tied-embeddings
        s2s-tied-embeddings-all: --tied-embeddings-all
        s2s-output-omit-bias: --output-omit-bias
        s2s-right-left: --right-left
        s2s-dropout: --dropout-rnn 0.2 --dropout-src 0.1 --dropout-trg 0.1 --label-smoothing 0.1
        s2s-dropout-layer-normalization: --dropout-rnn 0.2 --layer-normalization {DEEP} --skip
            --enc-cell lstm --dec-cell lstm
        s2s-smoothing: --exponential-smoothing 0.01 --optimizer-params 0.9 0.98 1e-9
        s2s-guided: --guided-alignment-weight 1
        dim-vocabs: --dim-vocabs 20 18
        enc-cell-depth-mgru: --enc-cell mgru --enc-cell-depth 2
        enc-cell-depth-relu: --enc-cell relu --enc-cell-depth 2 --dec-cell relu --dec-cell-base-depth 1
            --layer-normalization
        enc-cell-depth-nematus: --enc-cell gru-nematus --enc-cell-depth 2 --layer-normalization
            --dec-cell gru-nematus --dec-cell-base-depth 3 --dec-cell-high-depth 2 --dec-depth 2
        dropout-lstm: --enc-cell lstm --dec-cell lstm --dropout-rnn 0.1 --enc-depth 2 --enc-type alternating
        """,
    ),
)
