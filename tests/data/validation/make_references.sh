#!/bin/sh
# Train small models with Marian, and let it validate them.
#
# usage: make_references.sh
# reads source.txt, target.txt and both.tsv of this folder, writes its other files; pymarian 1.12.42 and
# sentencepiece 0.2.3 made them
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

pymarian vocab < source.txt > source.yml
head -n 12 target.txt | pymarian vocab > target.yml # the other lines have unknown words
python3 -c "
import sentencepiece
sentencepiece.SentencePieceTrainer.train(
    input='source.txt,target.txt', model_prefix='$work/vocab', vocab_size=160, hard_vocab_limit=False,
    bos_id=-1, eos_id=0, unk_id=1, normalization_rule_name='identity', character_coverage=1.0, num_threads=1)
"
mv "$work/vocab.model" vocab.spm

marian() {
    pymarian train -m "$work/out.npz" --shuffle none --mini-batch 16 --clip-norm 1 --cpu-threads 1 -w 200 --seed 5 "$@"
}
words() {
    marian --type s2s --dim-emb 16 --dim-rnn 16 -v source.yml target.yml "$@"
}
pieces() {
    marian --type transformer --dim-emb 16 --enc-depth 1 --dec-depth 1 --transformer-heads 2 \
        --transformer-dim-ffn 24 --tied-embeddings-all -v vocab.spm vocab.spm "$@"
}
right_left() {
    marian --type s2s --dim-emb 12 --dim-rnn 12 --right-left -v vocab.spm vocab.spm "$@"
}

# What training says of validation, without times.
said() {
    "$@" 2>&1 | sed -n 's/^\[[^]]*\] \(\[valid\]\|Translating\|Best\)/\1/p'
    sed -n '/^stalled/p; /^validator/,/^reset/p' "$work/out.npz.progress.yml" | grep -v reset > stalled.yml
    rm "$work"/out.npz*
}

train() {
    name=$1
    shift
    "$@" --quiet -t source.txt target.txt
    mv "$work/out.npz" "$name.npz"
    rm "$work"/out.npz*
}

train words words --learn-rate 0.02 --after-batches 26
train pieces pieces --learn-rate 0.02 --after-batches 60
train right-left right_left --learn-rate 0.02 --after-batches 40

# One update that changes nothing, and then a validation by every metric.
all="cross-entropy ce-mean ce-mean-words ce-sum perplexity bleu bleu-detok bleu-segmented chrf"
validate() {
    name=$1
    shift
    # shellcheck disable=SC2086
    said "$@" --pretrained-model "${name%.*}.npz" --after-batches 1 --learn-rate 0 --valid-freq 1u \
        --valid-mini-batch 1 --valid-metrics $all > "$name.log"
}
parallel="-t source.txt target.txt --valid-sets source.txt target.txt"
# shellcheck disable=SC2086
{
    validate words.beam words $parallel -b 3 -n 0.6
    validate words.cut words $parallel -b 2 --valid-max-length 5 --max-length-factor 1.5 --word-penalty 0.1 \
        --allow-unk --word-scores --valid-translation-output words.cut.txt
    validate pieces.beam pieces $parallel -b 3 -n 1
    validate right-left.tsv right_left --tsv -t both.tsv --valid-sets both.tsv -b 1 --quiet-validation
}

# Validations that bring something, too little, or nothing; and what is remembered of them.
# shellcheck disable=SC2086
said words $parallel --learn-rate 0.03 --after-batches 44 --valid-freq 2u --quiet-translation --quiet-validation \
    -b 1 --valid-mini-batch 1 --valid-metrics ce-mean-words perplexity chrf --early-stopping 0 \
    --early-stopping-epsilon 0.3 0 1 > stalled.log

# Accuracy: the share of target words that are the most probable ones; a batch of one sentence has no padding.
accuracy() {
    name=$1
    shift
    said "$@" --pretrained-model "$name.npz" --after-batches 1 --learn-rate 0 --valid-freq 1u \
        --valid-mini-batch 1 --valid-metrics accuracy >> accuracy.log
}
rm -f accuracy.log
# shellcheck disable=SC2086
{
    accuracy words words $parallel
    accuracy words words $parallel --valid-max-length 5
    accuracy pieces pieces $parallel
    accuracy right-left right_left --tsv -t both.tsv --valid-sets both.tsv
}
