"""What the transformer does before and after each sub-layer, spelled as strings of operations."""

from __future__ import annotations

from mgraph import ExpressionGraph, Node, highway
from mgraph.inits import Initializer

from .choices import UnsupportedOptionError
from .dense import Affine
from .dropping import drop_features
from .norm import MARIAN_NORM, LayerNorm, Norm, NormConfig, RMSNorm

NORMS: dict[str, type[Norm]] = {"n": LayerNorm, "r": RMSNorm}
"""Normalizations by their letter."""


class PreProcess:
    """The operations in front of a sub-layer, applied in the order of the letters.

    ``d`` drops features, ``n`` is ``LayerNorm``, ``r`` ``RMSNorm``; names ``{prefix}_ln_scale_pre`` and so
    on. Source: Marian's ``transformer-preprocess`` and ``transformer-postprocess-emb``.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        prefix: str,
        operations: str,
        *,
        dropout: float = 0.0,
        norm: NormConfig = MARIAN_NORM,
        option: str = "transformer-preprocess",
    ) -> None:
        _check(option, operations, "d" + "".join(NORMS))
        self.graph, self.prefix, self.operations = graph, prefix, operations
        self.dropout, self.norm = dropout, norm

    def __call__(self, x: Node) -> Node:
        for letter in self.operations:
            if letter == "d":
                x = drop_features(x, self.dropout)
            else:
                x = NORMS[letter](self.graph, self.prefix, "_pre", self.norm)(x)
        return x


class PostProcess:
    """The operations after a sub-layer, applied in the order of the letters.

    ``d``, ``n``, ``r`` as in ``PreProcess``, without the suffix ``_pre``; ``a`` adds the sub-layer's input
    ``before``; ``h`` is a highway ``g * x + (1 - g) * before`` with the gate
    ``g = sigmoid(before Wh + bh)``, parameters ``{prefix}_Wh``, ``{prefix}_bh``.
    Source: Marian's ``transformer-postprocess`` and ``transformer-postprocess-top``.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        prefix: str,
        operations: str,
        *,
        dropout: float = 0.0,
        init: Initializer | None = None,
        norm: NormConfig = MARIAN_NORM,
        option: str = "transformer-postprocess",
    ) -> None:
        _check(option, operations, "dah" + "".join(NORMS))
        self.graph, self.prefix, self.operations = graph, prefix, operations
        self.dropout, self.init, self.norm = dropout, init, norm

    def __call__(self, x: Node, before: Node) -> Node:
        for letter in self.operations:
            if letter == "d":
                x = drop_features(x, self.dropout)
            elif letter == "a":
                x = x + before
            elif letter == "h":
                gate = Affine(self.graph, self.prefix, x.shape[-1], "h", init=self.init)
                x = highway(x, before, gate(before))
            else:
                x = NORMS[letter](self.graph, self.prefix, config=self.norm)(x)
        return x


def _check(option: str, operations: str, known: str) -> None:
    unknown = [letter for letter in operations if letter not in known]
    if unknown:
        raise UnsupportedOptionError(
            f"{option}: {operations!r} has the unknown operation {unknown[0]!r}; there is {', '.join(known)}"
        )
