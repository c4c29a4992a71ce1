#!/bin/bash
# Runs the scripts with Marian's Python bindings (pip install pymarian) and keeps what they print.
set -e
cd "$(dirname "$0")"
numbers=../../../nmt/numbers/model
options=../options
python translate.py $numbers/model.npz $numbers/vocab.spm > translate.txt
python override.py $numbers/model.npz $numbers/vocab.spm > override.txt
python train.py $options/source.txt $options/target.txt $options/source.yml $options/target.yml \
    "$(mktemp -d)/model.npz" > train.txt
metrics=../metrics
python evaluate.py $metrics/comet-qe.npz $numbers/vocab.spm $metrics/pairs.tsv > evaluate.txt
# The class that pymarian 1.12.42 wraps around this one ends with an AttributeError.
python <(sed 's/from pymarian import/from _pymarian import/' embed.py) $numbers/model.npz $numbers/vocab.spm $metrics/source.txt "$(mktemp)" \
    > embed.txt
