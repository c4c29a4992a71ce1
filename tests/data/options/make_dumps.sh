#!/bin/sh
# Train a model for a moment with Marian, and let Marian print its options for each row of dumps/rows.txt.
#
# usage: make_dumps.sh
# reads what make_references.sh wrote and given.yml, writes dumps and trained; pymarian 1.12.42 made them
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

mkdir -p trained
# shellcheck disable=SC2046
pymarian train $(cat trained.txt) -m "$work/model.npz" --quiet
for name in model.npz model.npz.yml model.npz.decoder.yml; do
    cp "$work/$name" "trained/$name"
done
sed -i "s|$work|trained|" trained/*.yml
sed -i 's/^quiet: true/quiet: false/' trained/model.npz.yml

# The first line of each names the time and the version.
while read -r name words; do
    eval "pymarian $words" | tail -n +2 > "dumps/$name.yml"
done < dumps/rows.txt
