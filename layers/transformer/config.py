"""The settings of all layers of a stack."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mgraph import ArgumentError, inits
from mgraph.inits import Initializer

from ..dropping import probability
from ..layer import size
from ..norm import NormConfig


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes and options of a stack of layers; the names are Marian's without ``transformer-``.

    Dropout applies in training graphs only. ``ArgumentError`` for sizes that are not positive ints, and
    unless ``0 <= p < 1`` for each probability ``p``.

    bias: whether affine maps in layers have a bias (not ``transformer-no-bias``).
    dec_cell, layer_normalization, dropout_rnn: for the cells, if ``decoder_autoreg`` is ``rnn``.
    pool: whether decoder layers see an encoder's first state instead of attending to all states.
    marian_exact: whether single steps repeat Marian's even where Marian's deviate from the trained model.
    """

    dim: int
    heads: int = 8
    dim_ffn: int = 2048
    ffn_depth: int = 2
    ffn_activation: str = "swish"
    preprocess: str = ""
    postprocess: str = "dan"
    projection: bool = True
    depth_scaling: bool = False
    norm: NormConfig = field(default_factory=NormConfig)
    bias: bool = True
    decoder_autoreg: str = "self-attention"
    dim_aan: int = 2048
    aan_depth: int = 2
    aan_activation: str = "swish"
    aan_gate: bool = True
    dec_cell: str = "ssru"
    layer_normalization: bool = False
    rnn_projection: bool = False
    pool: bool = False
    marian_exact: bool = False
    dropout: float = 0.0
    dropout_attention: float = 0.0
    dropout_ffn: float = 0.0
    dropout_rnn: float = 0.0

    def __post_init__(self) -> None:
        for name in ("dim", "heads", "dim_ffn", "ffn_depth", "dim_aan", "aan_depth"):
            size(name, getattr(self, name), error=ArgumentError)
        for name in ("dropout", "dropout_attention", "dropout_ffn", "dropout_rnn"):
            probability(name, getattr(self, name))

    def init(self, depth: int) -> Initializer:
        """The initializer of matrices in layer ``depth``; ``ArgumentError`` for a depth below 1."""
        depth = size("depth of a layer", depth, error=ArgumentError)
        scale = 1 / math.sqrt(depth) if self.depth_scaling else 1.0
        return inits.glorot_uniform(True, True, scale)
