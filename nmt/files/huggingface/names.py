"""The map between the names of Marian's transformer and HuggingFace's MarianMT, as a table.

Marian keeps the matrix of ``x W`` as ``(in, out)`` and vectors as ``(1, out)``; PyTorch keeps the matrix
as ``(out, in)`` and vectors as ``(out,)``. Tables of embeddings lie the same way round in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np


class Kind(Enum):
    """What becomes of an array on the way, either way."""

    MATRIX = "transposed"
    VECTOR = "(1, n) to (n)"
    SAME = "as it is"

    def to_huggingface(self, array: np.ndarray) -> np.ndarray:
        """Marian's ``array`` as HuggingFace keeps it."""
        if self is Kind.VECTOR:
            return array.reshape(-1)
        return np.ascontiguousarray(array.T) if self is Kind.MATRIX else array

    def to_marian(self, array: np.ndarray) -> np.ndarray:
        """HuggingFace's ``array`` as Marian keeps it."""
        if self is Kind.VECTOR:
            return array.reshape(1, -1)
        return np.ascontiguousarray(array.T) if self is Kind.MATRIX else array


class Name(NamedTuple):
    """A parameter's name in Marian and in HuggingFace."""

    marian: str
    huggingface: str
    kind: Kind


def _attention(marian: str, huggingface: str) -> tuple[Name, ...]:
    projections = (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj"))
    return (
        *(Name(f"{marian}_W{x}", f"{huggingface}.{y}.weight", Kind.MATRIX) for x, y in projections),
        *(Name(f"{marian}_b{x}", f"{huggingface}.{y}.bias", Kind.VECTOR) for x, y in projections),
        Name(f"{marian}_Wo_ln_scale", f"{huggingface}_layer_norm.weight", Kind.VECTOR),
        Name(f"{marian}_Wo_ln_bias", f"{huggingface}_layer_norm.bias", Kind.VECTOR),
    )


SELF_ATTENTION = _attention("self", "self_attn")
CROSS_ATTENTION = _attention("context", "encoder_attn")
FEED_FORWARD = (
    Name("ffn_W1", "fc1.weight", Kind.MATRIX),
    Name("ffn_b1", "fc1.bias", Kind.VECTOR),
    Name("ffn_W2", "fc2.weight", Kind.MATRIX),
    Name("ffn_b2", "fc2.bias", Kind.VECTOR),
    Name("ffn_ffn_ln_scale", "final_layer_norm.weight", Kind.VECTOR),
    Name("ffn_ffn_ln_bias", "final_layer_norm.bias", Kind.VECTOR),
)
LAYERS = {
    "encoder": (*SELF_ATTENTION, *FEED_FORWARD),
    "decoder": (*SELF_ATTENTION, *CROSS_ATTENTION, *FEED_FORWARD),
}
"""The parameters of one layer. Marian counts layers from 1, HuggingFace from 0."""

SHARED = "model.shared.weight"
TABLES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
MARIAN_SHARED = "Wemb"
MARIAN_TABLES = ("encoder_Wemb", "decoder_Wemb")
MARIAN_OUTPUT, MARIAN_BIAS = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_b"
MARIAN_OLD_OUTPUT = "decoder_ff_logit_out_W"
"""The output's matrix in files of old versions of Marian: transposed."""


def layer_names(stack: str, depth: int) -> Iterator[Name]:
    """The parameters of the layers of ``stack``, ``encoder`` or ``decoder``, with their full names."""
    for number in range(depth):
        for name in LAYERS[stack]:
            yield Name(
                f"{stack}_l{number + 1}_{name.marian}",
                f"model.{stack}.layers.{number}.{name.huggingface}",
                name.kind,
            )


def markdown() -> str:
    """The map as the table of ``docs/huggingface.md``."""
    rows = [
        ("`Wemb` (tied-embeddings-all, -src)", f"`{SHARED}`, `{TABLES[0]}`, `{TABLES[1]}`", Kind.SAME),
        (f"`{MARIAN_TABLES[0]}`", f"`{TABLES[0]}`", Kind.SAME),
        (f"`{MARIAN_TABLES[1]}`", f"`{TABLES[1]}`", Kind.SAME),
        (f"`{MARIAN_OUTPUT}`; tied: the target's table", f"`{OUTPUT}`", Kind.SAME),
        (f"`{MARIAN_OLD_OUTPUT}` (old files)", f"`{OUTPUT}`", Kind.MATRIX),
        (f"`{MARIAN_BIAS}`", f"`{BIAS}`", Kind.SAME),
        ("none: computed", f"`{POSITIONS[0]}`, `{POSITIONS[1]}`", Kind.SAME),
    ]
    for stack, names in LAYERS.items():
        for name in names:
            other = f"`model.{stack}.layers.N-1.{name.huggingface}`"
            rows.append((f"`{stack}_lN_{name.marian}`", other, name.kind))
    lines = [f"| {marian} | {other} | {kind.value} |" for marian, other, kind in rows]
    return "\n".join(["| Marian | HuggingFace | array |", "| --- | --- | --- |", *lines]) + "\n"
