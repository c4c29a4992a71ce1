#!/bin/sh
# Align a small text with fast_align and atools, and count its words with extract_lex.
#
# usage: make_references.sh FAST_ALIGN_BUILD EXTRACT_LEX VOCAB.spm FOLDER
# reads FOLDER/text.{en,de}, writes the other files of FOLDER
set -eu
build=$1 extract_lex=$2 vocab=$3
cd "$4"
export OMP_NUM_THREADS=1 # several threads of fast_align lose counts
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
paste -d ' ' text.en /dev/null /dev/null text.de | sed 's/   / ||| /' > "$work/pairs"

align() {
    name=$1
    shift
    "$build/fast_align" -i "$work/pairs" "$@" 2> /dev/null > "$name.align"
}
align forward -d -o -v
align reverse -d -o -v -r
align shares -d -o
align uniform
align fixed -d -v -T 2 -q 0.3 -a 0.1 -I 3
align linked -d -o -v -N
for heuristic in intersect union grow-diag grow-diag-final grow-diag-final-and; do
    "$build/atools" -i forward.align -j reverse.align -c "$heuristic" > "$heuristic.align"
done
"$extract_lex" text.de text.en grow-diag.align "$work/s2t" "$work/t2s" 2> /dev/null
LC_ALL=C sort "$work/s2t" > lex.s2t
LC_ALL=C sort "$work/t2s" > lex.t2s
pymarian convert --shortlist lex.s2t 10 5 0 --dump-shortlist lex.bin --vocabs "$vocab" "$vocab" > /dev/null 2>&1
