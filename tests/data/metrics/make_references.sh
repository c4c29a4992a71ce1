#!/bin/bash
# Makes small metric models, and what Marian's evaluate and embed print for them.
#
# usage: make_references.sh, with this project importable by python and pymarian 1.12.42 on the path
# writes the other files of this folder. At mini-batch 1, because Marian's comet-mix-norm counts padding.
set -euo pipefail
cd "$(dirname "$0")"
numbers=../../../nmt/numbers/model
vocab=$numbers/vocab.spm
quiet="--cpu-threads 1 -w 200 --quiet --mini-batch 1"

python make_models.py .
python - > text.tsv <<'END'
print("three", "drei", "drei", sep="\t")
print("one hundred forty-two", "hundertzweiundvierzig", "einhundertzweiundvierzig", sep="\t")
print("two thousand " * 24, "zwei", "zweitausend " * 30, sep="\t")
print("", "", "", sep="\t")
print("nine", "achttausend", "neun", sep="\t")
END
cut -f 1,2 text.tsv > pairs.tsv
cut -f 2,3 text.tsv > references.tsv
cut -f 1 text.tsv > source.txt

# comet-qe is trained by Marian itself, on three lines.
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
printf '0.0\n0.5\n1.0\n' > "$work/classes.txt"
printf '1.0\tthree\tdrei\n0.5\tfour\tzwei\n0.0\ttwo hundred\tneun\n' > "$work/train.tsv"
pymarian train --task comet-qe --input-types class sequence sequence --tsv --tsv-fields 3 -t "$work/train.tsv" \
    -v "$work/classes.txt" $vocab $vocab -m "$work/comet-qe.npz" --dim-emb 8 --enc-depth 1 --transformer-heads 2 \
    --transformer-dim-ffn 8 --comet-pooler-ffn 6 4 --max-length 64 --cost-type ce-mean --after 20u --mini-batch 3 \
    --learn-rate 0.02 --lr-warmup 0 --seed 3 --cpu-threads 1 -w 200 --quiet
cp "$work/comet-qe.npz" comet-qe.npz

evaluate() {
    name=$1 like=$2 text=$3; shift 3
    pymarian evaluate -m $name.npz --like $like --max-length 64 $quiet --width 6 "$@" < $text > $name.txt
}
evaluate comet-qe comet-qe pairs.tsv -v $vocab $vocab --average
evaluate comet-cls comet-qe pairs.tsv -v $vocab $vocab --average only
evaluate comet comet text.tsv -v $vocab $vocab $vocab
evaluate comet-max comet text.tsv -v $vocab $vocab $vocab
evaluate unified comet text.tsv -v $vocab $vocab $vocab
evaluate bleurt bleurt references.tsv -v $vocab $vocab

for name in comet-qe comet comet-max; do
    pymarian embed -m $name.npz --like roberta --max-length 64 $quiet -v $vocab < source.txt > $name.vectors.txt
done
pymarian embed -m $numbers/model.npz $quiet -v $vocab -t source.txt > numbers.vectors.txt
pymarian embed -m ../s2s-numbers/model.npz $quiet -v $vocab -t source.txt > s2s.vectors.txt
pymarian embed -m $numbers/model.npz $quiet -v $vocab -t pairs.tsv --tsv --tsv-fields 2 --compute-similarity > cosines.txt
