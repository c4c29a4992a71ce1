"""A recurrent cell instead of a decoder's self-attention."""

from __future__ import annotations

from collections.abc import Sequence

from mgraph import Node, reshape, transpose
from mgraph.tape import Graph

from ..cells import find_cell
from ..dense import Affine
from ..packing import PackedWords, laid_out, taken_up
from ..rnn import RNN
from .autoregression import Cache, Now
from .blocks import Block
from .config import TransformerConfig


class Recurrence(Block):
    """``after(rnn(before(x)), x)`` with one layer of a recurrent cell over the words.

    Parameters: the cell's under ``{prefix}_rnn``, with ``rnn_projection`` also ``{prefix}_rnn_Wo`` and
    ``_bo``; pre-processing under ``{prefix}_rnn``, post-processing under ``{prefix}_rnn_ffn``. A step keeps
    the cell's state. Source: Kim et al. 2019; Marian's ``DecoderLayerRNN``
    (``transformer-decoder-autoreg rnn``, ``dec-cell``, ``transformer-rnn-projection``, ``dropout-rnn``).
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        prefix = f"{prefix}_rnn"
        super().__init__(f"{prefix}_ffn", config, depth, before_prefix=prefix)
        dim = config.dim
        self.cell = find_cell(config.dec_cell, "dec-cell")(
            prefix, dim, dim, layer_normalization=config.layer_normalization, dropout=config.dropout_rnn
        )
        self.rnn = RNN([self.cell])
        self.output: Affine | None = None
        if config.rnn_projection:
            self.output = Affine(prefix, dim, dim, "o", init=config.init(depth), bias=config.bias)

    def __call__(self, x: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        sequence = transpose(laid_out(self.before(x, packing), packing), (1, 0, 2))
        output = transpose(self.rnn(sequence).output, (1, 0, 2))
        return self._framed(taken_up(output, packing), x, packing)

    def start(self, graph: Graph, batch: int, beam: int, places: Sequence[int]) -> Cache:
        return {f"state{i}": node for i, node in enumerate(self.cell.start(graph, batch * beam))}

    def step(self, x: Node, cache: Cache, now: Now) -> tuple[Node, Cache]:
        batch, beam, dim = x.shape
        rows = reshape(self.before(x), (batch * beam, dim))
        done = self.rnn.step(rows, [tuple(cache[f"state{i}"] for i in range(self.cell.states))])
        after = {f"state{i}": node for i, node in enumerate(done.states[0])}
        return self._framed(reshape(done.output, x.shape), x), after

    def _framed(self, y: Node, x: Node, packing: PackedWords | None = None) -> Node:
        return self.after(y if self.output is None else self.output(y), x, packing)
