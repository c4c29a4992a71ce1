#!/bin/sh
# Train one small model per group of options with Marian and score the corpus with each.
#
# usage: make_references.sh
# reads source.txt and target.txt of this folder, writes its other files; pymarian 1.12.42 made them
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

pymarian vocab < source.txt > source.yml
pymarian vocab < target.txt > target.yml
cat source.txt target.txt | pymarian vocab > joint.yml

train() {
    name=$1 source=$2 target=$3
    shift 3
    mkdir "$work/$name"
    pymarian train -t source.txt target.txt -v "$source" "$target" -m "$work/$name/model.npz" "$@" \
        --dim-emb 8 --after-batches 20 --learn-rate 0.03 --mini-batch 8 --seed 7 --cpu-threads 1 -w 200 --quiet
    cp "$work/$name/model.npz" "$name.npz"
    pymarian score -m "$name.npz" -v "$source" "$target" -t source.txt target.txt --word-scores \
        --mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 200 --quiet > "$name.txt"
}
transformer() {
    train "$@" --type transformer --transformer-heads 2 --transformer-dim-ffn 12 --enc-depth 2 --dec-depth 2
}
s2s() {
    train "$@" --type s2s --dim-rnn 6
}

transformer prenorm source.yml target.yml --transformer-preprocess n --transformer-postprocess da \
    --transformer-postprocess-top n --transformer-postprocess-emb dn --transformer-ffn-activation gelu \
    --transformer-decoder-dim-ffn 6 --transformer-decoder-ffn-depth 3
transformer highway joint.yml joint.yml --transformer-preprocess r --transformer-postprocess dhr \
    --transformer-postprocess-top a --transformer-ffn-activation relu --tied-embeddings-all
transformer tied-layers joint.yml joint.yml --transformer-tied-layers 1 1 --transformer-no-projection \
    --transformer-depth-scaling --transformer-ffn-depth 1 --output-omit-bias --tied-embeddings-src
s2s deep joint.yml joint.yml --enc-depth 2 --enc-cell-depth 2 --dec-depth 2 --dec-cell-base-depth 3 \
    --dec-cell-high-depth 2 --skip --layer-normalization --tied-embeddings-all
s2s alternating source.yml target.yml --enc-type alternating --enc-depth 2 --skip --tied-embeddings
s2s bi-unidirectional source.yml target.yml --enc-type bi-unidirectional --enc-depth 3 --enc-cell-depth 2 \
    --dec-cell-base-depth 1 --output-omit-bias --layer-normalization
