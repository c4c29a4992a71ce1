#!/bin/sh
# Make the models and reference outputs of this folder with Marian.
#
# usage: make_references.sh TRANSFORMER.npz S2S.npz VOCAB.spm OPTIONS FOLDER
# reads FOLDER/input.en, prefix.de, lexicon.txt, words.txt, prefix.txt, words.lexicon and OPTIONS/{source,target}.{txt,yml},
# writes the other files of FOLDER
set -eu
transformer=$1 s2s=$2 vocab=$3 options=$4
cd "$5"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
once="--mini-batch 1 --maxi-batch 1 --cpu-threads 1 --quiet"

# shellcheck disable=SC2086
decode() {
    pymarian decode -v "$vocab" "$vocab" $once "$@"
}
numbers() {
    decode -i input.en --n-best --word-scores "$@"
}

numbers -m "$transformer" "$s2s" --weights 0.6 1.2 -b 3 -n 0.6 > ensemble.nbest
numbers -m "$s2s" -b 5 -n 1 --word-penalty 0.5 --max-length-factor 0.2 > cut.nbest
for kind in transformer s2s; do
    eval "model=\$$kind"
    numbers -m "$model" -b 2 --alignment soft > "$kind.soft.nbest"
    numbers -m "$model" -b 2 --alignment 0.2 > "$kind.threshold.nbest"
done
numbers -m "$s2s" -b 3 --shortlist lexicon.txt 20 5 0.02 > s2s.shortlist.nbest
decode -i input.en prefix.de -m "$s2s" -b 3 --n-best --word-scores --force-decode > s2s.prefix.nbest
decode -i input.en prefix.de -m "$transformer" -b 1 --force-decode --alignment --word-scores > transformer.prefix.txt

pymarian convert --shortlist lexicon.txt 20 5 0 --dump-shortlist lexicon.bin --vocabs "$vocab" "$vocab"

# Models of other kinds, of the corpus of OPTIONS; its source with words in reverse is the second source.
awk '{ for (i = NF; i > 1; --i) printf "%s ", $i; print $1 }' "$options/source.txt" > "$work/second.txt"
awk '{ for (i = NF; i > 1; --i) printf "%s ", $i; print $1 }' words.txt > second.txt
source=$options/source.yml target=$options/target.yml

train() {
    name=$1
    shift
    mkdir "$work/$name"
    pymarian train -m "$work/$name/model.npz" "$@" --dim-emb 8 --dim-rnn 8 --transformer-heads 2 \
        --transformer-dim-ffn 12 --after-batches 120 --learn-rate 0.02 --mini-batch 8 --seed 7 \
        --cpu-threads 1 -w 200 --quiet
    cp "$work/$name/model.npz" "$name.npz"
}
# shellcheck disable=SC2086
words() {
    pymarian decode -i words.txt -v "$source" "$target" $once --n-best --word-scores -b 3 "$@"
}
train right-left -t "$options/source.txt" "$options/target.txt" -v "$source" "$target" --type s2s --right-left
train right-left-transformer -t "$options/source.txt" "$options/target.txt" -v "$source" "$target" \
    --type transformer --enc-depth 1 --dec-depth 1 --right-left
train left-right -t "$options/source.txt" "$options/target.txt" -v "$source" "$target" --type s2s
train lm -t "$options/target.txt" -v "$target" --type lm
train multi -t "$options/source.txt" "$work/second.txt" "$options/target.txt" \
    -v "$source" "$source" "$target" --type multi-s2s

words -m right-left.npz right-left-transformer.npz --alignment soft --shortlist words.lexicon 3 2 > right-left.nbest
# shellcheck disable=SC2086
pymarian decode -i words.txt prefix.txt -v "$source" "$target" $once --n-best --word-scores -b 3 \
    -m right-left.npz --force-decode > right-left.prefix.nbest
words -m left-right.npz lm.npz --weights 1 0.3 > lm.nbest
words -m lm.npz > lm-alone.nbest
words -m left-right.npz --skip-cost > skip-cost.nbest
# shellcheck disable=SC2086
pymarian decode -i words.txt second.txt -v "$source" "$source" "$target" $once --n-best --word-scores -b 3 \
    --alignment soft -m multi.npz left-right.npz > multi.nbest
