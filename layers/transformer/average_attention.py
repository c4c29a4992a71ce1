"""Average attention of a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mgraph import Node, cast, cumsum, inits, reshape, sigmoid
from mgraph.tape import Graph

from ..dense import Affine
from ..dropping import drop_features
from ..layer import graph_of
from ..packing import PackedWords, laid_out, taken_up
from .autoregression import Cache, Now
from .blocks import Block, block_activation
from .config import TransformerConfig


class AverageAttention(Block):
    """The average of all words so far instead of attention to them (AAN).

    With ``m`` the mean of ``x`` up to each position and ``y = ffn(before(m))`` the result is
    ``after(sigmoid(x Wi + bi) * x + sigmoid(y Wf + bf) * y, x)``, without gates ``after(y, x)``. ``ffn`` has
    ``aan_depth - 1`` affine layers with activation and dropout (``transformer-dropout-ffn``), plus a plain
    one if their result does not have ``dim`` features; none for ``aan_depth`` 1. A step keeps only the
    running mean of ``x``.

    Parameters: ``{prefix}_aan_W1 (dim, dim_aan)``, ``_b1``, ..., ``_Wi``, ``_bi``, ``_Wf``, ``_bf``; the
    frame's under ``{prefix}_aan_ffn``. Source: Zhang et al. 2018; Marian's ``LayerAAN``
    (``transformer-decoder-autoreg average-attention``, ``transformer-dim-aan``, ``transformer-aan-depth``,
    ``transformer-aan-activation``, ``transformer-aan-nogate``).
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        prefix = f"{prefix}_aan"
        super().__init__(f"{prefix}_ffn", config, depth)
        self.dim, self.dropout = config.dim, config.dropout_ffn
        self.activation = block_activation(config.aan_activation, "transformer-aan-activation")

        def layer(dim_input: int, dim: int, suffix: str) -> Affine:
            return Affine(prefix, dim_input, dim, suffix, init=config.init(depth), bias=config.bias)

        dim, sizes = config.dim, [config.dim, *[config.dim_aan] * (config.aan_depth - 1)]
        self.inner = [layer(before, after, str(i)) for i, (before, after) in enumerate(pairwise(sizes), 1)]
        widened = sizes[-1] != dim
        self.last = layer(sizes[-1], dim, str(config.aan_depth)) if widened else None
        self.gates = (layer(dim, dim, "i"), layer(dim, dim, "f")) if config.aan_gate else None

    def __call__(self, x: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        graph, words = graph_of("average attention", x), laid_out(x, packing)
        length = words.shape[1]
        counts = graph.constant((length, 1), inits.range(1, length + 1))
        return self._applied(taken_up(cumsum(words, 1) / counts, packing), x, packing)

    def start(self, graph: Graph, batch: int, beam: int, places: Sequence[int]) -> Cache:
        return {"mean": graph.zeros((batch * beam, self.dim))}

    def step(self, x: Node, cache: Cache, now: Now) -> tuple[Node, Cache]:
        before = cast(now.place, x.value_type)
        mean = (reshape(cache["mean"], x.shape) * before + x) / (before + 1)
        return self._applied(mean, x), {"mean": reshape(mean, cache["mean"].shape)}

    def _applied(self, mean: Node, x: Node, packing: PackedWords | None = None) -> Node:
        y = self.before(mean, packing)
        for layer in self.inner:
            y = drop_features(self.activation(layer(y)), self.dropout, packing)
        if self.last is not None:
            y = self.last(y)
        if self.gates is not None:
            of_input, of_mean = self.gates
            y = sigmoid(of_input(x)) * x + sigmoid(of_mean(y)) * y
        return self.after(y, x, packing)
