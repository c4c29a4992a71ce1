#!/bin/sh
# Train two small models with a class as second source and as target, score and translate with them.
#
# usage: make_references.sh
# reads the texts of ../options, writes the files of this folder; pymarian 1.12.42 made them
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
texts=../options

awk '{ print NR % 2 ? "formal" : "loose" }' $texts/source.txt > class.txt
printf 'formal: 0\nloose: 1\n' > class.yml

marian() {
    what=$1 name=$2
    shift 2
    pymarian "$what" -m "$work/$name.npz" "$@" --mini-batch 8 --maxi-batch 1 --cpu-threads 1 -w 200 --quiet
}
train() {
    marian train "$@" --dim-emb 8 --transformer-heads 2 --transformer-dim-ffn 12 --enc-depth 1 --dec-depth 1 \
        --after-batches 20 --learn-rate 0.03 --seed 7
    cp "$work/$1.npz" "$1.npz"
}
source="-t $texts/source.txt class.txt $texts/target.txt -v $texts/source.yml class.yml $texts/target.yml"
target="-t $texts/source.txt class.txt -v $texts/source.yml class.yml"
# shellcheck disable=SC2086
{
    train source $source --type multi-transformer --input-types sequence class sequence
    train target $target --type transformer --input-types sequence class
    marian score source $source --word-scores > source.scores
    marian score target $target --word-scores > target.scores
    marian decode source -i $texts/source.txt class.txt -v $texts/source.yml class.yml $texts/target.yml -b 2 \
        --quiet-translation > source.output
}
