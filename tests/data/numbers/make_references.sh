#!/bin/sh
# Make the reference outputs of one model with Marian.
#
# usage: make_references.sh MODEL.npz VOCAB.spm FOLDER
# reads FOLDER/input.en, input.de and invalid-utf8.en, writes the other text files of FOLDER
set -eu
model=$1 vocab=$2
cd "$3"

decode() {
    pymarian decode -m "$model" -v "$vocab" "$vocab" \
        --mini-batch 1 --maxi-batch 1 --max-length 1000 --cpu-threads 1 --quiet "$@"
}
score() {
    pymarian score -m "$model" -v "$vocab" "$vocab" -t input.en input.de \
        --mini-batch 1 --maxi-batch 1 --max-length 1000 --cpu-threads 1 --quiet "$@"
}

decode -i input.en -b 1 > beam1.txt
decode -i input.en -b 4 --normalize 0.6 > beam4.txt
decode -i input.en -b 4 --normalize 0.6 --n-best --word-scores > beam4.nbest
decode -i input.en > beam12.txt
decode -i invalid-utf8.en -b 4 --normalize 0.6 > invalid-utf8.beam4.txt
score > scores.txt
score --word-scores > word-scores.txt
