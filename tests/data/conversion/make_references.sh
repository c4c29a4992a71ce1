#!/bin/sh
# Train small transformers with Marian, make checkpoints with HuggingFace, and let each score what the other made.
#
# usage: make_references.sh
# needs pymarian (made with 1.12.42) and a Python with mgraph, torch, transformers and safetensors; reads the texts
# and vocabularies of ../options, writes the other files of this folder
set -eu
cd "$(dirname "$0")"
texts=../options
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
run="--mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 200 --quiet"

train() {
    name=$1 source=$texts/$2 target=$texts/$3
    shift 3
    mkdir "$work/$name"
    pymarian train -t $texts/source.txt $texts/target.txt -v "$source" "$target" -m "$work/$name/model.npz" "$@" \
        --type transformer --transformer-heads 2 --transformer-dim-ffn 24 --enc-depth 2 --dec-depth 1 \
        --dim-emb 16 --after-batches 40 --learn-rate 0.03 --mini-batch 8 --seed 7 --cpu-threads 1 -w 200 --quiet
    cp "$work/$name/model.npz" "$name.npz"
    pymarian score -m "$name.npz" -v "$source" "$target" -t $texts/source.txt $texts/target.txt --word-scores \
        $run > "$name.txt"
}
train all joint.yml joint.yml --tied-embeddings-all
train source joint.yml joint.yml --tied-embeddings-src --output-omit-bias
train target source.yml target.yml --tied-embeddings --transformer-ffn-activation relu
train separate source.yml target.yml --transformer-ffn-activation gelu --transformer-decoder-dim-ffn 12

python make_checkpoints.py "$work"
for name in hf-all hf-source hf-target hf-separate; do
    pymarian score -m "$work/$name.npz" -v "$work/$name.src" "$work/$name.trg" --word-scores $run \
        -t "$work/$name.source" "$work/$name.target" > "$name.txt"
done

for type in intgemm8 intgemm8ssse3 intgemm8avx2 intgemm8avx512 intgemm16 intgemm16sse2 intgemm16avx2 \
    intgemm16avx512 float32; do
    pymarian convert -f ../../../nmt/numbers/model/model.npz -t "$work/$type.bin" -g $type > "$work/log" 2>&1
    (cd "$work" && sha256sum $type.bin)
done > numbers.sha256
pymarian convert -f ../../../nmt/numbers/model/model.npz -t "$work/float32.npz" > "$work/log" 2>&1
(cd "$work" && sha256sum float32.npz) >> numbers.sha256
