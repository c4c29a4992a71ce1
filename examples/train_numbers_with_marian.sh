#!/bin/sh
# Train the number-words model that ships in nmt/numbers/model, with Marian itself.
#
# Needs this package and `pip install pymarian` (Marian v1.12.42 made the shipped model).
# Two CPU cores take about five minutes. Two runs give equally good models, but not identical bytes.
#
# usage: examples/train_numbers_with_marian.sh FOLDER
set -eu
: "${1:?usage: $0 FOLDER}"
mkdir -p "$1"
cd "$1"

# The data: 120,000 training lines, and 10,000 lines of numbers that are not among them.
python -m nmt.numbers train 120000 --output train
python -m nmt.numbers heldout 10000 --output heldout
python -m nmt.numbers vocab train.en train.de --output vocab.spm --size 200

pymarian train \
    --model model.npz --train-sets train.en train.de --vocabs vocab.spm vocab.spm \
    --type transformer --dim-emb 64 --tied-embeddings-all \
    --enc-depth 2 --dec-depth 2 --transformer-heads 4 \
    --transformer-dim-ffn 256 --transformer-ffn-activation relu \
    --transformer-postprocess-emb d --transformer-postprocess dan \
    --optimizer adam --optimizer-params 0.9 0.98 1e-09 --clip-norm 1 \
    --learn-rate 0.003 --lr-warmup 400 --lr-decay-inv-sqrt 400 \
    --transformer-dropout 0.1 --label-smoothing 0.1 --exponential-smoothing 0.001 \
    --mini-batch 128 --maxi-batch 50 --max-length 50 --after 8000u \
    --beam-size 4 --normalize 0.6 --relative-paths \
    --overwrite --seed 1 --cpu-threads 2 --sync-sgd --disp-freq 500
# Marian writes the vocabularies' paths relative to the model file, with one "../" too many.
sed 's|\.\./||' model.npz.decoder.yml > decoder.yml

# The share of held-out numbers that come out right, letter for letter.
pymarian decode --config decoder.yml --input heldout.en --max-length 1000 \
    --cpu-threads 2 --quiet > heldout.out
paste heldout.de heldout.out |
    awk -F '\t' '$1 == $2 { right++ } END { print right " of " NR " held-out numbers right" }'
