#!/bin/sh
# Train one small model per row with Marian, score the corpus and translate it with each.
#
# usage: make_references.sh
# reads source.txt and target.txt of ../options and second.txt; writes the other files; pymarian 1.12.42 made them
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
text=../options
one="--mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 64 --max-length 50 --quiet"

cat "$text/source.txt" "$text/target.txt" second.txt | pymarian vocab > words.yml

# train NAME "SOURCE ..." OPTION...
train() {
    name=$1 sources=$2
    shift 2
    vocabs=words.yml files=
    for file in $sources; do
        vocabs="$vocabs words.yml" files="$files $file"
    done
    mkdir "$work/$name"
    # The lists of files and options are meant to be split.
    pymarian train -t $files "$text/target.txt" -v $vocabs -m "$work/$name/model.npz" "$@" --dim-emb 8 \
        --transformer-dim-ffn 12 --after-batches 20 --learn-rate 0.05 --mini-batch 8 --seed 7 --cpu-threads 1 \
        -w 64 --quiet
    cp "$work/$name/model.npz" "$name.npz"
    alignment="--alignment soft"
    case $name in pool | lm-*) alignment= ;; esac
    pymarian score -m "$name.npz" -v $vocabs -t $files "$text/target.txt" --word-scores $alignment $one \
        > "$name.scores"
    case $name in
        prenorm | multi) pymarian decode -m "$name.npz" -v $vocabs -i $files -b 2 --word-scores $alignment $one \
            > "$name.best" ;;
        lm-*) ;;
        *) pymarian decode -m "$name.npz" -v $vocabs -i $files -b 2 --word-scores $one > "$name.best" ;;
    esac
}
two="--transformer-heads 2"
prenorm="--transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n"
deep="--enc-depth 1 --dec-depth 2"
aan="--transformer-decoder-autoreg average-attention"
rnn="--transformer-decoder-autoreg rnn"
source=$text/source.txt

train prenorm $source --type transformer $two $deep $prenorm
train rms $source --type transformer --transformer-preprocess dr --transformer-postprocess har --tied-embeddings-all \
    --transformer-ffn-depth 1 --transformer-heads 4
train aan $source --type transformer $two $aan --transformer-dim-aan 12 --transformer-aan-depth 3 \
    --transformer-aan-activation relu
train aan-even $source --type transformer $two $aan --transformer-dim-aan 8 --transformer-aan-nogate $prenorm
train aan-shallow $source --type transformer $two $aan --transformer-dim-aan 12 --transformer-aan-depth 1
train student $source --type transformer $two $deep $rnn --dec-cell ssru --transformer-tied-layers 1 1 \
    --tied-embeddings-all --transformer-ffn-activation relu --transformer-disable-position-embeddings
train ssru $source --type transformer $two $rnn --dec-cell ssru --transformer-rnn-projection --layer-normalization $prenorm
train lstm $source --type transformer $two $rnn --dec-cell lstm --transformer-guided-alignment-layer 1 $deep
train multi "$source second.txt" --type multi-transformer $two $prenorm
train pool $source --type transformer $two --transformer-pool
train lm-aan "" --type lm-transformer $two --transformer-dim-aan 8 $aan
train new $source --type transformer-new $two $deep $prenorm --transformer-train-position-embeddings \
    --transformer-ffn-activation gelu
train new-rms $source --type transformer-new $two --transformer-postprocess dar --transformer-no-bias \
    --transformer-ffn-depth 1 --transformer-ffn-activation relu --transformer-disable-position-embeddings
train new-ssru $source --type transformer-new $two $rnn --dec-cell ssru --transformer-rnn-projection \
    --transformer-decoder-dim-ffn 16 --transformer-ffn-depth 3
