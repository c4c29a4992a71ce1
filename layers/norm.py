"""Normalization layers of the transformer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mgraph import ExpressionGraph, Node, inits, layer_norm, rms_norm


@dataclass(frozen=True)
class NormConfig:
    """What all normalizations of a model have in common.

    eps: added to the variance. rms_bias: whether ``RMSNorm`` too has a bias.
    The defaults are those of Marian's ``transformer``.
    """

    eps: float = 1e-6
    rms_bias: bool = False


MARIAN_NORM = NormConfig()
"""That of Marian's ``transformer``."""


class Norm(ABC):
    """Base of normalizations over the last axis of ``x (..., dim)``; their parameters begin with ``prefix``
    and end with ``suffix``."""

    def __init__(
        self, graph: ExpressionGraph, prefix: str, suffix: str = "", config: NormConfig = MARIAN_NORM
    ) -> None:
        self.graph, self.prefix, self.suffix, self.config = graph, prefix, suffix, config

    @abstractmethod
    def __call__(self, x: Node) -> Node: ...


class LayerNorm(Norm):
    """``y = scale * (x - mean) / sqrt(var + eps) + bias`` over the last axis.

    ``x`` has the shape ``(..., dim)``. Parameters: ``{prefix}_ln_scale{suffix}``,
    ``{prefix}_ln_bias{suffix}``, both ``(1, dim)``. Source: Ba et al. 2016; Marian's operation ``n``.
    """

    def __call__(self, x: Node) -> Node:
        shape = (1, x.shape[-1])
        scale = self.graph.param(f"{self.prefix}_ln_scale{self.suffix}", shape, inits.ones())
        bias = self.graph.param(f"{self.prefix}_ln_bias{self.suffix}", shape, inits.zeros())
        return layer_norm(x, scale, bias, self.config.eps)


class RMSNorm(Norm):
    """``y = scale * x / sqrt(mean(x^2) + eps)`` over the last axis, ``+ bias`` if it has one.

    ``x`` has the shape ``(..., dim)``. Parameters: ``{prefix}_rms_scale{suffix} (1, dim)`` and, with
    ``rms_bias``, ``{prefix}_rms_bias{suffix} (1, dim)``.
    Source: Zhang and Sennrich 2019; Marian's operation ``r``, which has a bias in models of the type
    ``transformer-new``.
    """

    def __call__(self, x: Node) -> Node:
        shape = (1, x.shape[-1])
        scale = self.graph.param(f"{self.prefix}_rms_scale{self.suffix}", shape, inits.ones())
        bias: Node | None = None
        if self.config.rms_bias:
            bias = self.graph.param(f"{self.prefix}_rms_bias{self.suffix}", shape, inits.zeros())
        return rms_norm(x, scale, bias, self.config.eps)
