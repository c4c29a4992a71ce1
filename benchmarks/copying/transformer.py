"""Parameters with which a transformer copies its source, whatever its size, and ends by itself.

The usual random parameters stay, with these changes. A few features, ``places``, hold sinusoids of the
position and nothing else: embeddings are 0 there, and so is what sub-layers add, which is small everywhere
else. One more, ``zero``, holds the slowest sine, which is nearly 0, and so shows what layer normalization
subtracted from all. The last attention to the source compares places, so the decoder attends to the source
word at its own position; that word's embedding goes through values and projection to the output layer.
``STOP`` has the embedding of ``</s>`` and is never output itself.

The weights of the output layer leave other words some probability, so that a beam has something to do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.copying.text import EOS, STOP, UNK

Params = dict[str, np.ndarray]

CONTENT = 2.0
"""The size of an embedding's features, relative to the sinusoids, whose size is 1."""
ADDED = 0.05
"""By how much outputs of sub-layers are scaled down."""
ATTENDED = 8.0
"""The size of the attended word, relative to the previous word."""
SHARPNESS = 12.0
"""How much higher the right position's energy is than any other's."""
POSITIONS = 128
"""How many positions must be distinguishable."""
MARGIN = 1.5
"""By how much the right word's logit exceeds the logarithm of the number of words."""
NEVER = -100.0
"""The output layer's bias of words that are never output."""
_ADDS = re.compile(r"_(self|context)_Wo$|_ffn_W2$|_rnn_W$")
_TABLES = ("Wemb", "encoder_Wemb", "decoder_Wemb")
_OUTPUT = "decoder_ff_logit_out_Wt"


def copying(params: Mapping[str, Any], *, heads: int, layers: int, seed: int = 1) -> Params:
    """The parameters that make a new post-norm transformer a copier.

    params: as initialized. heads: of each attention. layers: of the decoder.
    """
    made = {name: np.array(value, np.float32) for name, value in params.items()}
    words, dim = made[next(name for name in _TABLES if name in made)].shape
    places, frequencies = _places(dim, dim // heads)
    for name, value in made.items():
        if _ADDS.search(name):
            value *= ADDED
            value[:, [*places, _zero(dim)]] = 0
    table = _table(words, dim, places, seed)
    for name in (*_TABLES, _OUTPUT):
        if name in made:
            made[name] = table
    _attend(made, f"decoder_l{layers}_context", heads, places, frequencies)
    size = _size(dim, places)
    gain = (math.log(words) + MARGIN) / (CONTENT * size * math.sqrt(dim) * (1 - len(places) / dim))
    made[f"decoder_l{layers}_ffn_ffn_ln_scale"] = np.full((1, dim), gain, np.float32)
    made["decoder_ff_logit_out_b"][0, [UNK, STOP]] = NEVER
    return made


def _places(dim: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The features that hold positions: sines, then cosines, at most as many as a head has; and the angles
    per position of the sines. They are the fastest ones, with gaps between them in wide models."""
    half, number = dim // 2, min(width // 2, 16)
    chosen = np.arange(number) * max(1, min(half // number, dim // 256))
    angles = np.exp(-chosen * math.log(10000.0) / (half - 1))
    return np.concatenate([chosen, half + chosen]), angles


def _zero(dim: int) -> int:
    """The feature of the slowest sine."""
    return dim // 2 - 1


def _table(words: int, dim: int, places: np.ndarray, seed: int) -> np.ndarray:
    """Embeddings: random and of one length, so that layer normalization scales all alike; 0 in ``places``
    and ``zero``."""
    table = np.random.default_rng(seed).standard_normal((words, dim), np.float32)
    table[:, [*places, _zero(dim)]] = 0
    table[STOP] = table[EOS]
    length = CONTENT * math.sqrt(1 - len(places) / dim)
    return table * (length / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)


def _size(dim: int, places: np.ndarray) -> float:
    """The size that layer normalization gives to content: content and sinusoids together have the size 1."""
    content = CONTENT**2 * (1 - len(places) / dim)
    return CONTENT / math.sqrt(content + 0.5)


def _attend(made: Params, prefix: str, heads: int, places: np.ndarray, angles: np.ndarray) -> None:
    """Let every head attend to the decoder's own position, and pass on all that it finds there."""
    dim = len(made[f"{prefix}_Wq"])
    width = dim // heads
    others = np.arange(1, POSITIONS)
    least = np.min(np.sum(1 - np.cos(np.outer(others, angles)), 1))
    position = _size(dim, places) / CONTENT
    weight = math.sqrt(SHARPNESS / least * math.sqrt(width)) / position
    compared = np.zeros((dim, dim), np.float32)
    for head in range(heads):
        columns = head * width + np.arange(len(places))
        compared[places, columns] = weight
        compared[_zero(dim), columns] = -weight
    made[f"{prefix}_Wq"] = made[f"{prefix}_Wk"] = compared
    made[f"{prefix}_Wv"] = np.eye(dim, dtype=np.float32)
    made[f"{prefix}_Wo"] = np.eye(dim, dtype=np.float32) * ATTENDED
