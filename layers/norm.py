"""Normalisation layers of the transformer."""

from __future__ import annotations

from mgraph import ExpressionGraph, Node, inits, layer_norm, rms_norm

EPS = 1e-6


class LayerNorm:
    """``y = scale * (x - mean) / sqrt(var + 1e-6) + bias`` over the last axis.

    ``x`` has the shape ``(..., dim)``. Parameters: ``{prefix}_ln_scale{suffix}``,
    ``{prefix}_ln_bias{suffix}``, both ``(1, dim)``. Source: Ba et al. 2016; Marian's operation ``n``.
    """

    def __init__(self, graph: ExpressionGraph, prefix: str, suffix: str = "") -> None:
        self.graph, self.prefix, self.suffix = graph, prefix, suffix

    def __call__(self, x: Node) -> Node:
        shape = (1, x.shape[-1])
        scale = self.graph.param(f"{self.prefix}_ln_scale{self.suffix}", shape, inits.ones())
        bias = self.graph.param(f"{self.prefix}_ln_bias{self.suffix}", shape, inits.zeros())
        return layer_norm(x, scale, bias, EPS)


class RMSNorm:
    """``y = scale * x / sqrt(mean(x^2) + 1e-6)`` over the last axis.

    ``x`` has the shape ``(..., dim)``. Parameter: ``{prefix}_rms_scale{suffix} (1, dim)``.
    Source: Zhang and Sennrich 2019; Marian's operation ``r``.
    """

    def __init__(self, graph: ExpressionGraph, prefix: str, suffix: str = "") -> None:
        self.graph, self.prefix, self.suffix = graph, prefix, suffix

    def __call__(self, x: Node) -> Node:
        name = f"{self.prefix}_rms_scale{self.suffix}"
        return rms_norm(x, self.graph.param(name, (1, x.shape[-1]), inits.ones()), eps=EPS)
