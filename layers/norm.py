"""Normalization layers of the transformer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from mgraph import Node, inits, layer_norm, rms_norm

from .layer import Layer, of_class


@dataclass(frozen=True)
class NormConfig:
    """The settings of all normalizations of a model.

    eps: added to the variance. rms_bias: whether ``RMSNorm`` too has a bias.
    The defaults are those of Marian's ``transformer``.
    """

    eps: float = 1e-6
    rms_bias: bool = False


MARIAN_NORM = NormConfig()
"""The settings of Marian's ``transformer``."""


class Norm(Layer):
    """Base of normalizations over the last axis of ``x (..., dim)``, with parameters named
    ``{prefix}_...{suffix}``."""

    @abstractmethod
    def __init__(self, prefix: str, dim: int, suffix: str = "", config: NormConfig = MARIAN_NORM) -> None: ...

    @abstractmethod
    def __call__(self, x: Node) -> Node: ...


class LayerNorm(Norm):
    """``y = scale * (x - mean) / sqrt(var + eps) + bias`` over the last axis of ``x (..., dim)``.

    Parameters: ``{prefix}_ln_scale{suffix} (1, dim)``, ``{prefix}_ln_bias{suffix} (1, dim)``.
    Source: Ba et al. 2016; Marian's operation ``n``.
    """

    def __init__(self, prefix: str, dim: int, suffix: str = "", config: NormConfig = MARIAN_NORM) -> None:
        self.eps: float = of_class(f"config of {prefix!r}", config, NormConfig).eps
        self.scale = self.param(f"{prefix}_ln_scale{suffix}", 1, dim, inits.ones())
        self.bias = self.param(f"{prefix}_ln_bias{suffix}", 1, dim, inits.zeros())

    def __call__(self, x: Node) -> Node:
        graph = self.scale.graph_of(x)
        return layer_norm(x, self.scale.on(graph), self.bias.on(graph), self.eps)


class RMSNorm(Norm):
    """``y = scale * x / sqrt(mean(x^2) + eps)`` over the last axis of ``x (..., dim)``, plus any ``bias``.

    Parameters: ``{prefix}_rms_scale{suffix} (1, dim)`` and, with ``rms_bias``,
    ``{prefix}_rms_bias{suffix} (1, dim)``.
    Source: Zhang and Sennrich 2019; Marian's operation ``r``, which has a bias in models of the type
    ``transformer-new``.
    """

    def __init__(self, prefix: str, dim: int, suffix: str = "", config: NormConfig = MARIAN_NORM) -> None:
        self.eps: float = of_class(f"config of {prefix!r}", config, NormConfig).eps
        self.scale = self.param(f"{prefix}_rms_scale{suffix}", 1, dim, inits.ones())
        name = f"{prefix}_rms_bias{suffix}"
        self.bias = self.param(name, 1, dim, inits.zeros()) if config.rms_bias else None

    def __call__(self, x: Node) -> Node:
        graph = self.scale.graph_of(x)
        bias = None if self.bias is None else self.bias.on(graph)
        return rms_norm(x, self.scale.on(graph), bias, self.eps)
