"""The transformer's operations before and after each sub-layer, as strings of letters."""

from __future__ import annotations

from mgraph import Node, highway
from mgraph.inits import Initializer

from .choices import UnsupportedOptionError
from .dense import Affine
from .dropping import drop_features, probability
from .layer import Layer
from .norm import MARIAN_NORM, LayerNorm, Norm, NormConfig, RMSNorm
from .packing import PackedWords

NORMS: dict[str, type[Norm]] = {"n": LayerNorm, "r": RMSNorm}
"""Normalizations by their letter."""


class PreProcess(Layer):
    """The operations before a sub-layer, on ``x (..., time, dim)`` or on packed sentences
    ``(rows, width, dim)``, in the order of the letters.

    ``d`` drops features, ``n`` is ``LayerNorm``, ``r`` ``RMSNorm``, with the parameters
    ``{prefix}_ln_scale_pre (1, dim)`` and so on. ``UnsupportedOptionError``, which names ``option``, for
    another letter, ``ArgumentError`` unless ``0 <= dropout < 1``.
    Source: Marian's ``transformer-preprocess`` and ``transformer-postprocess-emb``.
    """

    def __init__(
        self,
        prefix: str,
        dim: int,
        operations: str,
        *,
        dropout: float = 0.0,
        norm: NormConfig = MARIAN_NORM,
        option: str = "transformer-preprocess",
    ) -> None:
        _check(option, operations, "d" + "".join(NORMS))
        self.dropout = probability(f"dropout of {prefix!r}", dropout)
        self.operations = [
            None if letter == "d" else NORMS[letter](prefix, dim, "_pre", norm) for letter in operations
        ]

    def __call__(self, x: Node, packing: PackedWords | None = None) -> Node:
        for norm in self.operations:
            x = drop_features(x, self.dropout, packing) if norm is None else norm(x)
        return x


class PostProcess(Layer):
    """The operations after a sub-layer, on its result ``x (..., time, dim)`` or on packed sentences
    ``(rows, width, dim)``, in the order of the letters.

    ``d``, ``n``, ``r`` are those of ``PreProcess``, with parameter names that lack the suffix ``_pre``; ``a``
    adds the sub-layer's input ``before``; ``h`` is a highway ``g * x + (1 - g) * before`` with the gate
    ``g = sigmoid(before Wh + bh)``, parameters ``{prefix}_Wh (dim, dim)``, ``{prefix}_bh (1, dim)``.
    ``UnsupportedOptionError``, which names ``option``, for another letter, ``ArgumentError`` unless
    ``0 <= dropout < 1``.
    Source: Marian's ``transformer-postprocess`` and ``transformer-postprocess-top``.
    """

    def __init__(
        self,
        prefix: str,
        dim: int,
        operations: str,
        *,
        dropout: float = 0.0,
        init: Initializer | None = None,
        norm: NormConfig = MARIAN_NORM,
        option: str = "transformer-postprocess",
    ) -> None:
        _check(option, operations, "dah" + "".join(NORMS))
        self.operations, self.dropout = operations, probability(f"dropout of {prefix!r}", dropout)
        self.layers: list[Layer | None] = [
            Affine(prefix, dim, dim, "h", init=init)
            if letter == "h"
            else NORMS[letter](prefix, dim, config=norm)
            if letter in NORMS
            else None
            for letter in operations
        ]

    def __call__(self, x: Node, before: Node, packing: PackedWords | None = None) -> Node:
        for letter, layer in zip(self.operations, self.layers, strict=True):
            if letter == "d":
                x = drop_features(x, self.dropout, packing)
            elif letter == "a":
                x = x + before
            elif isinstance(layer, Affine):
                x = highway(x, before, layer(before))
            elif isinstance(layer, Norm):
                x = layer(x)
        return x


def _check(option: str, operations: str, known: str) -> None:
    if not isinstance(operations, str):
        raise UnsupportedOptionError(
            f"{option}: expected a string of the operations {', '.join(known)}, got {operations!r}"
        )
    unknown = [letter for letter in operations if letter not in known]
    if unknown:
        raise UnsupportedOptionError(
            f"{option}: {operations!r} has the unknown operation {unknown[0]!r}; expected {', '.join(known)}"
        )
