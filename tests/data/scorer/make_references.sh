#!/bin/sh
# What Marian's scorer prints for n-best lists, fields between tabs, alignments and language models.
#
# usage: make_references.sh
# writes the other files of this folder; pymarian 1.12.42 made them
set -eu
cd "$(dirname "$0")"
vocab=../../../nmt/numbers/model/vocab.spm
text=../s2s-numbers/input
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

score() {
    pymarian score --mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 200 --quiet "$@"
}
recurrent() {
    score -m ../s2s-numbers/model.npz -v $vocab $vocab "$@"
}
transformer() {
    score -m ../../../nmt/numbers/model/model.npz -v $vocab $vocab "$@"
}

head -n 6 $text.en > source.en
head -n 6 $text.de > target.de
paste source.en target.de > both.tsv
printf 'six\n' >> both.tsv
pymarian decode -m ../s2s-numbers/model.npz -v $vocab $vocab -i source.en -b 2 -n 0.6 --n-best --quiet \
    --quiet-translation --cpu-threads 1 -w 200 > list.nbest
# The numbers of a list may leave some out, and words may hold the separator's sign.
printf '7 ||| drei ||| F0= -1 F1= -2 ||| -3\n9 ||| sechs | vier ||| F0= -1 ||| -3\n9 |||  ||| F0= -1 ||| -3\n' > gaps.nbest

recurrent -t source.en list.nbest --n-best > rescored.nbest
recurrent -t source.en list.nbest --n-best --n-best-feature Fwd --normalize --word-scores --alignment hard > rescored-all.nbest
recurrent -t source.en gaps.nbest --n-best > rescored-gaps.nbest
recurrent -t both.tsv --tsv --tsv-fields 2 > tsv.txt
for kind in soft hard 0.2; do
    recurrent -t source.en target.de --alignment $kind --word-scores > recurrent.$kind.txt
    transformer -t source.en target.de --alignment $kind > transformer.$kind.txt
done

pymarian train --type lm -t $text.de -v $vocab -m "$work/model.npz" --dim-emb 8 --dim-rnn 12 --after-batches 20 \
    --learn-rate 0.03 --mini-batch 8 --seed 7 --cpu-threads 1 -w 200 --quiet
cp "$work/model.npz" lm.npz
score -m lm.npz -v $vocab -t target.de --word-scores > lm.txt
