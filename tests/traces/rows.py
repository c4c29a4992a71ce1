"""The trainings that are compared with Marian's, and the models that they start from."""

from __future__ import annotations

from .row import Row, Start, entries

DEEP = "--enc-depth 2 --dec-depth 2"
RNN = "--dim-emb 8 --dim-rnn 10"
TRANSFORMER = "--dim-emb 8 --transformer-heads 2 --transformer-dim-ffn 12"
PRENORM = "--transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n"
SSRU = "--transformer-decoder-autoreg rnn --dec-cell ssru"
AVERAGE = "--transformer-decoder-autoreg average-attention --transformer-dim-aan 12"
# Marian's results for encoders of MGRU cells and for `transformer-new` depend on the padding of a batch.
ONE = "--mini-batch 1 --maxi-batch 1 --optimizer sgd --learn-rate 0.02"

STARTS = {
    name: Start(name, options)
    for name, options in entries(f"""
    s2s: --type s2s {RNN}
    s2s-no-embeddings: --type s2s {RNN}
    s2s-deep: --type s2s {RNN} --enc-type alternating --enc-depth 2 --dec-depth 4 --enc-cell lstm
        --dec-cell lstm --skip --layer-normalization
    s2s-transitions: --type s2s {RNN} --enc-type alternating --enc-depth 2 --enc-cell-depth 2 --dec-depth 2
        --dec-cell-base-depth 4 --dec-cell-high-depth 2 --enc-cell lstm --dec-cell lstm
    s2s-right-left: --type s2s {RNN} --right-left --tied-embeddings-src --tied-embeddings
        --enc-type bi-unidirectional {DEEP} --dec-cell mlstm
    amun: --type amun {RNN} --tied-embeddings
    nematus: --type nematus --dim-emb 8 --dim-rnn 8 --enc-cell gru-nematus --dec-cell gru-nematus
        --layer-normalization
    multi-s2s: --type multi-s2s {RNN}
    lm: --type lm {RNN} --dec-depth 2 --layer-normalization
    transformer: --type transformer {TRANSFORMER} {DEEP} --tied-embeddings-all
    transformer-plain: --type transformer {TRANSFORMER} --transformer-ffn-activation relu
    transformer-pieces: --type transformer {TRANSFORMER} --tied-embeddings-all --output-omit-bias
    prenorm: --type transformer {TRANSFORMER} {DEEP} {PRENORM} --tied-embeddings
        --transformer-train-position-embeddings
    ssru: --type transformer {TRANSFORMER} {SSRU} {DEEP} --tied-embeddings-all --transformer-tied-layers 1 1
    aan: --type transformer {TRANSFORMER} {AVERAGE}
    highway: --type transformer {TRANSFORMER} --transformer-postprocess dhn --transformer-decoder-autoreg rnn
        --dec-cell gru --transformer-ffn-activation gelu
    multi-transformer: --type multi-transformer {TRANSFORMER}
    lm-transformer: --type lm-transformer {TRANSFORMER}
    transformer-new: --type transformer-new {TRANSFORMER}
    transformer_s2s: --type transformer_s2s {TRANSFORMER} --dim-rnn 10
    s2s-mgru: --type s2s {RNN} --enc-cell mgru --dec-cell tanh
    """)
}


def _table(common: str, lines: str) -> tuple[Row, ...]:
    """One row per line: its name, the name of its start model, and options in addition to the common ones."""
    rows = ((name, *text.partition(" ")[::2]) for name, text in entries(lines))
    return tuple(Row(name, STARTS[start], f"{common} {options}") for name, start, options in rows)


ROWS = _table(
    "",
    f"""
    s2s-adam: s2s --clip-norm 1
    s2s-adagrad: s2s --optimizer adagrad --learn-rate 0.05 --clip-norm 0 --cost-type ce-mean
    s2s-sgd: s2s --optimizer sgd --learn-rate 0.05 --cost-type perplexity --clip-norm 1
    s2s-sgd-unclipped: s2s --optimizer sgd --learn-rate 0.001 --clip-norm 0 --disp-label-counts false
        --cost-type ce-sum
    s2s-normalized: s2s --optimizer sgd --learn-rate 0.5 --normalize-gradient --clip-norm 0.1
    s2s-ratio: s2s --optimizer sgd --learn-rate 0.001 --normalize-gradient-by-ratio --clip-norm 0
    s2s-sum: s2s --cost-type ce-sum --mini-batch-words 150 --mini-batch-words-ref 120 --clip-norm 0
    s2s-delay: s2s --optimizer-delay 2 --clip-norm 0.1 --lr-decay 0.5 --lr-decay-strategy epoch
        --lr-decay-start 2 --optimizer-params 0.8 0.99 1e-6 0.01
    s2s-delay-half: s2s --optimizer-delay 0.5 --maxi-batch-sort src --label-smoothing 0.1
    s2s-reset: s2s --lr-decay 0.7 --lr-decay-strategy batches --lr-decay-freq 10 --lr-decay-start 10
        --lr-decay-reset-optimizer --lr-decay-repeat-warmup --lr-warmup 8
    s2s-sentence-weights: s2s --data-weighting train.sentence-weight --data-weighting-type sentence
        --maxi-batch-sort none
    s2s-word-weights: s2s --data-weighting train.word-weight --data-weighting-type word
    s2s-guided-mean: s2s --guided-alignment train.alignment --multi-loss-type mean
    s2s-guided-scaled: s2s --guided-alignment train.alignment --multi-loss-type scaled --cost-type ce-sum
    s2s-guided: s2s --guided-alignment train.alignment --guided-alignment-weight 0.3
    s2s-tsv: s2s --tsv --tsv-fields 4 --guided-alignment 2 --data-weighting 3 --data-weighting-type sentence
    s2s-short: s2s --max-length 9 --disp-first 3 --disp-freq 5 --cost-type ce-sum
    s2s-crop: s2s --max-length 9 --max-length-crop
    s2s-fixed: s2s --embedding-fix-src --embedding-fix-trg --clip-norm 0
    s2s-vectors: s2s-no-embeddings --embedding-vectors vectors.english vectors.german
        --embedding-normalization
    s2s-smoothing: s2s --exponential-smoothing 0.1 --mini-batch-words-ref 60
        --exponential-smoothing-replace-freq 20
    s2s-rates: s2s --lr-warmup 600t --lr-warmup-start-rate 0.001 --lr-decay-inv-sqrt 900t 500t
        --logical-epoch 10u 2 --disp-freq 300t
    s2s-cycle: s2s --lr-warmup 15 --lr-warmup-cycle --optimizer sgd --learn-rate 0.1
    s2s-dynamic: s2s --dynamic-gradient-scaling 0.5 log --gradient-norm-average-window 10 --clip-norm 0
    s2s-one-by-one: s2s --maxi-batch 1 --mini-batch 1 --optimizer sgd --learn-rate 0.02
    s2s-quantized: s2s --quantize-bits 6 --sync-sgd
    s2s-quantized-logs: s2s --quantize-bits 4 --quantize-log-based --quantize-biases --sync-sgd
    s2s-unlikely: s2s --data-weighting train.choice --data-weighting-type word --unlikelihood-loss
    s2s-shuffled: s2s --shuffle data
    s2s-batches: s2s --shuffle batches --maxi-batch 3
    s2s-growing: s2s --mini-batch-warmup 30u --maxi-batch 8
    s2s-growing-delay: s2s --mini-batch-warmup 30u --maxi-batch 8 --optimizer-delay 2.5
    s2s-growing-words-delay: s2s --mini-batch-warmup 400t --mini-batch-words 120 --optimizer-delay 2
    deep-adam: s2s-deep --clip-norm 1 --learn-rate 0.002
    transitions: s2s-transitions --clip-norm 0 --lr-warmup 10
    deep-sgd: s2s-deep --optimizer sgd --learn-rate 0.05 --label-smoothing 0.2
    right-left: s2s-right-left --optimizer adagrad --learn-rate 0.02 --clip-norm 1
    right-left-weights: s2s-right-left --data-weighting train.word-weight --data-weighting-type word
    amun: amun --clip-norm 0.1 --optimizer-params 0.9 0.98 1e-9
    nematus: nematus --exponential-smoothing
    multi-s2s: multi-s2s --label-smoothing 0.1
    lm: lm --optimizer adagrad --learn-rate 0.02
    transformer-adam: transformer --clip-norm 0 --optimizer-params 0.9 0.98 1e-9 --lr-warmup 16
        --lr-decay-inv-sqrt 20 --label-smoothing 0.1 --exponential-smoothing 0.05
    transformer-adagrad: transformer --optimizer adagrad --learn-rate 0.01 --clip-norm 1
    transformer-sgd: transformer --optimizer sgd --learn-rate 0.1 --clip-norm 1
    transformer-guided: transformer-plain --guided-alignment train.alignment --label-smoothing 0.1
        --transformer-guided-alignment-layer 1
    transformer-pieces: transformer-pieces --mini-batch-words 200 --clip-norm 1
    pieces-cased: transformer-pieces --all-caps-every 3 --english-title-case-every 5
    prenorm: prenorm --clip-norm 1 --optimizer-params 0.9 0.98 1e-9
    prenorm-sgd: prenorm --optimizer sgd --learn-rate 0.1 --cost-type ce-mean
    ssru: ssru --clip-norm 0 --lr-warmup 16 --lr-decay-inv-sqrt 16 --label-smoothing 0.1
        --exponential-smoothing 0.01 --mini-batch-words-ref 100
    aan: aan --clip-norm 1
    highway: highway --clip-norm 1
    multi-transformer: multi-transformer --clip-norm 1 --optimizer-delay 1.5
    lm-transformer: lm-transformer --clip-norm 1 --optimizer adagrad --learn-rate 0.05
    transformer-new: transformer-new {ONE}
    transformer_s2s: transformer_s2s --clip-norm 1
    mgru: s2s-mgru {ONE} --label-smoothing 0.1
    """,
)

# The rows of the tests: all batches of a row have the same shape, so that one program is compiled.
SMALL = _table(
    "--mini-batch 20 --maxi-batch 1 --after-batches 25",
    """
    s2s-adam: s2s --clip-norm 1 --label-smoothing 0.1 --cost-type ce-sum --optimizer-params 0.9 0.98 1e-9 0.01
    deep-adagrad: s2s-deep --optimizer adagrad --learn-rate 0.005 --clip-norm 0 --cost-type ce-mean
    transformer-adam: transformer --clip-norm 0 --lr-warmup 8 --lr-decay-inv-sqrt 10 --label-smoothing 0.1
        --exponential-smoothing 0.05 --mini-batch-words-ref 100
    prenorm-sgd: prenorm --optimizer sgd --learn-rate 0.1 --clip-norm 0.5 --cost-type perplexity
    ssru-adam: ssru --clip-norm 1 --exponential-smoothing 0.01 --lr-decay 0.5 --lr-decay-strategy epoch
        --lr-decay-start 2 --lr-decay-reset-optimizer
    amun-normalized: amun --optimizer sgd --learn-rate 0.5 --normalize-gradient --clip-norm 0.1
    multi-transformer-delay: multi-transformer --optimizer-delay 2
    lm-word-weights: lm --data-weighting train.word-weight --data-weighting-type word --shuffle data
    s2s-tsv: s2s --tsv --tsv-fields 4 --guided-alignment 2 --data-weighting 3 --data-weighting-type sentence
    right-left-fixed: s2s-right-left --embedding-fix-src --max-length 7 --max-length-crop
    """,
)
