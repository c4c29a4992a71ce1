"""Models and checkpoints that tests and their reference makers share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nmt.text.vocabs.loading import load_vocab
from tests.helpers.places import DATA

OPTIONS = DATA / "options"

MODELS = {"all": "joint", "source": "joint", "target": "", "separate": ""}
"""Models that Marian trained, and the vocabulary that both sides share, if they do."""
RANDOM = {"hf-all": (23, 23), "hf-source": (23, 23), "hf-target": (26, 23), "hf-separate": (20, 20)}
"""Checkpoints that HuggingFace made, and the vocabulary sizes that they have as Marian's models."""


def vocabs_of(name: str) -> list[Path]:
    """The vocabularies of a model that Marian trained."""
    joint = MODELS[name]
    return [OPTIONS / f"{joint or side}.yml" for side in ("source", "target")]


def pairs_of(name: str) -> list[list[list[int]]]:
    """The lines that the model was trained with, as ids."""
    sides = []
    for path, text in zip(vocabs_of(name), ("source.txt", "target.txt"), strict=True):
        vocab = load_vocab(path)
        sides.append([vocab.encode(line) for line in (OPTIONS / text).read_text().splitlines()])
    return [list(pair) for pair in zip(*sides, strict=True)]


def marian_positions(count: int, dim: int) -> np.ndarray:
    """Marian's table of positions, from its formula."""
    half = dim // 2
    angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(half) / (half - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of the names, shapes and numbers of arrays, without positions, which rounding may change."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        if "embed_positions" not in name:
            found.update(f"{name} {arrays[name].shape} {arrays[name].dtype}\n".encode())
            found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()
