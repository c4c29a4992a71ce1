#!/bin/sh
# Make Marian's outputs for edges.de with the two Europarl models.
#
# usage: make_references.sh FIXTURES FOLDER
# FIXTURES holds marian/ and data/; FOLDER holds edges.de and gets the results
set -eu
fixtures=$1
cd "$2"

decode() {
    model=$1 source=$2 target=$3
    shift 3
    pymarian decode -m "$fixtures/marian/$model/model.npz" \
        -v "$fixtures/data/$source" "$fixtures/data/$target" -i edges.de \
        --mini-batch 1 --maxi-batch 1 --cpu-threads 1 --quiet "$@"
}

for model in "s2s-gru v.de.yml v.en.yml" "transformer-joint v.joint.yml v.joint.yml"; do
    # shellcheck disable=SC2086
    set -- $model
    decode "$@" -b 4 --n-best --word-scores > "$1.nbest"
    decode "$@" -b 3 -n 0.6 --word-penalty 0.3 --n-best > "$1.penalty.nbest"
    decode "$@" -b 1 --word-scores > "$1.words.txt"
    decode "$@" -b 2 --max-length 4 --max-length-crop > "$1.crop.txt"
done
