#!/bin/sh
# Train small models with factored vocabularies, score and translate with them.
#
# usage: make_references.sh
# reads source.fsv and source.txt of this folder and ../options, writes the other files; pymarian 1.12.42 made
# them. On CPUs Marian has no gradient of factored embeddings, hence --embedding-fix-src and -trg.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
texts=../options

marian() {
    what=$1
    shift
    pymarian "$what" -m "$work/model.npz" "$@" --maxi-batch 1 --cpu-threads 1 -w 200 --quiet
}
train() {
    name=$1 source=$2 target=$3 vocabs=$4
    shift 4
    # shellcheck disable=SC2086
    {
        marian train -t "$source" "$target" -v $vocabs "$@" --embedding-fix-src --embedding-fix-trg \
            --dim-emb 8 --mini-batch 8 --after-batches 20 --learn-rate 0.03 --seed 7
        marian score -t "$source" "$target" -v $vocabs --word-scores > "$name.scores"
        marian decode -i "$source" -v $vocabs -b 3 --mini-batch 1 --quiet-translation > "$name.output"
        mv "$work/model.npz" "$name.npz"
        rm "$work"/*
    }
}
transformer() {
    train "$@" --type transformer --transformer-heads 2 --transformer-dim-ffn 12 --enc-depth 1 --dec-depth 1
}
transformer source source.txt $texts/target.txt "source.fsv $texts/target.yml"
train recurrent source.txt $texts/target.txt "source.fsv $texts/target.yml" --type s2s --dim-rnn 6
transformer target $texts/source.txt source.txt "$texts/source.yml source.fsv" --label-smoothing 0.1
transformer both source.txt source.txt "source.fsv source.fsv" --tied-embeddings-all
