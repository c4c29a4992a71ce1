"""Small metric models with random parameters, under Marian's names and in Marian's layout.

usage: python make_models.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from mgraph.files.items import MODEL_YML, with_model_yml, write_npz
from nmt.models.metrics import MetricModel, metric_names
from nmt.settings.metric_options import MetricOptions, metric_options
from nmt.settings.model_options import parse_model_options

WORDS = 200
COMMON = """
dim-emb: 8
dim-vocabs:
  - 200
enc-depth: 2
tied-embeddings-all: true
transformer-dim-ffn: 12
transformer-ffn-depth: 2
transformer-heads: 2
comet-pooler-ffn:
  - 6
  - 5
comet-prepend-zero: true
version: v1.12.42
"""
POST = """
transformer-ffn-activation: gelu
transformer-postprocess: dan
transformer-postprocess-emb: nd
transformer-train-position-embeddings: true
"""
PRE = """
transformer-ffn-activation: relu
transformer-preprocess: n
transformer-postprocess: da
transformer-postprocess-top: n
transformer-postprocess-emb: d
transformer-train-position-embeddings: false
"""
MIXED = "comet-mix: true\ncomet-mix-norm: true\ncomet-mix-transformation: sparsemax\n"
JOINED = "input-join-fields: true\n"
MODELS = {
    "comet": f"type: comet\n{POST}{MIXED}comet-final-sigmoid: false\n",
    "comet-max": f"type: comet\n{PRE}comet-pool: max\ncomet-mix: true\ncomet-final-sigmoid: true\n",
    "comet-cls": f"type: comet-qe\n{POST}comet-pool: cls\ncomet-final-sigmoid: true\n",
    "unified": f"type: comet-unified\n{POST}{JOINED}{MIXED}comet-use-separator: true\n"
    "comet-final-sigmoid: true\nseparator-symbol: und\n",
    "bleurt": f"type: bleurt\n{POST}{JOINED}transformer-dim-model: 12\nbert-type-vocab-size: 4\n",
}


def make(name: str, folder: Path) -> None:
    """Write one model."""
    text = MODELS[name] + COMMON
    options = parse_model_options(text, name)
    metric = metric_options(options, MetricOptions())
    rng = np.random.default_rng(len(text))
    blank = {"Wemb": np.zeros((WORDS, options.dim_emb), np.float32)}
    if options.transformer_train_position_embeddings:
        blank["encoder_Wpos"] = np.zeros((64, options.dim_emb), np.float32)
    declared = MetricModel(options, metric, blank, separator=0).declared()
    params = {
        parameter: rng.normal(0, 0.5, tuple(map(int, one.shape))).astype(np.float32)
        for parameter, one in sorted(declared.items())
    }
    items = metric_names(options.type).in_file(params, options)
    write_npz(folder / f"{name}.npz", {**items, MODEL_YML: with_model_yml(text)})


for name in MODELS:
    make(name, Path(sys.argv[1]))
