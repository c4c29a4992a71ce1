#!/bin/sh
# Make the reference outputs of this folder with Marian.
#
# usage: make_references.sh TRANSFORMER.npz S2S.npz VOCAB.spm FOLDER
# reads FOLDER/input.en, writes the n-best lists of FOLDER
set -eu
transformer=$1 s2s=$2 vocab=$3
cd "$4"

decode() {
    pymarian decode -v "$vocab" "$vocab" -i input.en --n-best --word-scores \
        --mini-batch 1 --maxi-batch 1 --cpu-threads 1 --quiet "$@"
}

decode -m "$transformer" "$s2s" --weights 0.6 1.2 -b 3 -n 0.6 > ensemble.nbest
decode -m "$s2s" -b 5 -n 1 --word-penalty 0.5 --max-length-factor 0.2 > cut.nbest
