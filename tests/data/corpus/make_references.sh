#!/bin/sh
# Write down which batches Marian makes of a small corpus, by the cost of each.
#
# usage: make_references.sh
# reads options.txt of this folder, writes its other files; pymarian 1.12.42 made them
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

python3 - << 'PYTHON'
import random

dice = random.Random(5)
with open("source.txt", "w") as source, open("target.txt", "w") as target, open("weights.txt", "w") as weights:
    for _ in range(400):
        length = min(24, 1 + int(dice.expovariate(1 / 6)))
        words = [f"w{int(dice.paretovariate(0.7)) % 90}" for _ in range(length)]
        print(*words, file=source)
        words = words[dice.randrange(2) :][::-1]
        print(*words, file=target)
        print(*(dice.choice((0.5, 1, 2)) for _ in range(max(1, len(words) + dice.randrange(2)))), file=weights)
PYTHON
cat source.txt target.txt | pymarian vocab > words.yml

while read -r name options; do
    # The learning rate is so small that every cost is that of the first parameters.
    # shellcheck disable=SC2086
    pymarian train -t source.txt target.txt -v words.yml words.yml -m "$work/$name.npz" $options \
        --type transformer --dim-emb 8 --transformer-heads 2 --transformer-dim-ffn 8 --enc-depth 1 --dec-depth 1 \
        --tied-embeddings-all --optimizer sgd --learn-rate 1e-30 --disp-freq 1 --seed 7 --cpu-threads 1 -w 200 \
        --log "$work/$name.log" --quiet
    sed -n 's/.*\(Ep\. .*\) : Time.*/\1/p' "$work/$name.log" > "$name.trace.txt"
done < options.txt
pymarian score -m "$work/by-target.npz" -v words.yml words.yml -t source.txt target.txt --max-length 1000 \
    --mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 200 --word-scores --quiet > scores.txt
grep '^seed-' "$work/data.npz.progress.yml" > data.progress.yml
