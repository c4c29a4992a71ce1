"""Models that Marian runs but cannot train: a similar model is trained, and its parameters are used.

- SRU and SSRU cells in the encoder of ``s2s`` models: training ends with "There are more (3) than one top
  most nodes", because nothing uses the last cell state of such an encoder. GRU cells are trained instead; the
  encoder's parameters are then drawn.
- RMS normalization in transformers: its gradient is wrong on a CPU, and the model learns nothing but word
  frequencies. Layer normalization is trained instead; its scales are kept.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from mgraph.files.items import MODEL_YML, model_yml, read_npz, with_model_yml, write_npz
from nmt.files import create_model
from nmt.settings.model_options import parse_model_options

UNTRAINED_CELLS = ("sru", "ssru")
PROCESSING = (
    "--transformer-preprocess",
    "--transformer-postprocess",
    "--transformer-postprocess-emb",
    "--transformer-postprocess-top",
)


def trained_options(options: str) -> str:
    """The options of the model to train: those of the row itself, or what stands in for them."""
    words = options.split()
    legacy = "transformer-new" not in words
    for place in range(1, len(words)):
        if words[place - 1] == "--enc-cell" and words[place] in UNTRAINED_CELLS:
            words[place] = "gru"
        if words[place - 1] in PROCESSING and legacy:
            words[place] = words[place].replace("r", "n")
    return " ".join(words)


def transplant(path: Path, options: str) -> None:
    """Turn a model of ``trained_options(options)`` into one of ``options``."""
    items = read_npz(path)
    text = model_yml(items) or ""
    wanted, trained = options.split(), trained_options(options).split()
    for place, word in enumerate(wanted):
        if word != trained[place]:
            name = wanted[place - 1].removeprefix("--")
            text = re.sub(rf"(?m)^{name}: .*$", f"{name}: {word}", text)
    fresh = create_model(parse_model_options(text, str(path))).params
    params = {}
    for name, value in sorted(fresh.items()):
        known = items.get(name, items.get(name.replace("_rms_", "_ln_")))
        params[name] = np.asarray(value) if known is None or known.shape != value.shape else known
    write_npz(path, {**params, MODEL_YML: with_model_yml(text)})
