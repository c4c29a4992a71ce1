"""Marian's recurrent encoder."""

from __future__ import annotations

from collections.abc import Callable

from layers import RNN, choose
from mgraph import ExpressionGraph, Node, concatenate, reshape, transpose
from nmt.models.parts import Encoded, EncoderPart, Source
from nmt.models.s2s.cells import deep_cell


class S2SEncoder(EncoderPart):
    """Recurrent cells over the source in both directions (Bahdanau et al. 2015).

    Parameters: ``{prefix}_bi_*`` forward, ``{prefix}_bi_r_*`` backward, ``{prefix}_bi_l2_cell1_*`` and so on
    for further layers, and embeddings. Loops over time are time-major inside.
    Source: Marian, ``EncoderS2S`` in ``models/s2s.h``; options ``enc-type``, ``enc-cell``, ``enc-depth``,
    ``enc-cell-depth``, ``skip``.
    """

    def encode(self, graph: ExpressionGraph, source: Source) -> Encoded:
        batch, length = source.ids.shape
        build = choose("enc-type", self.options.enc_type, ENCODERS)
        words = self.embedding(graph, time_axis=0)(transpose(source.ids))
        hidden = build(self, graph, words, reshape(transpose(source.mask), (length, batch, 1)))
        return Encoded(transpose(hidden, (1, 0, 2)), source.mask)


def _two_ways(
    encoder: S2SEncoder,
    graph: ExpressionGraph,
    words: Node,
    mask: Node,
    *,
    depth: int,
    alternating: bool = False,
) -> Node:
    """A stack of layers in each direction, their outputs side by side: ``(time, batch, 2 dim_rnn)``."""
    options = encoder.options
    outputs = []
    kind = "alternating-" if alternating else ""
    for prefix, direction in ((f"{encoder.prefix}_bi", "forward"), (f"{encoder.prefix}_bi_r", "backward")):
        layers = []
        for layer in range(1, depth + 1):
            stem = prefix if layer == 1 else f"{prefix}_l{layer}"
            cells = [f"{stem}_cell{i}" for i in range(1, options.enc_cell_depth + 1)]
            if layer == 1:
                cells[0] = stem
            dim_input = options.dim_emb if layer == 1 else options.dim_rnn
            layers.append(deep_cell(encoder, graph, "enc-cell", cells, dim_input))
        rnn = RNN(graph, layers, direction=kind + direction, skip=options.skip)
        outputs.append(rnn(words, mask).output)
    return concatenate(outputs, -1)


def _bidirectional(encoder: S2SEncoder, graph: ExpressionGraph, words: Node, mask: Node) -> Node:
    return _two_ways(encoder, graph, words, mask, depth=encoder.options.enc_depth)


def _alternating(encoder: S2SEncoder, graph: ExpressionGraph, words: Node, mask: Node) -> Node:
    return _two_ways(encoder, graph, words, mask, depth=encoder.options.enc_depth, alternating=True)


def _bi_unidirectional(encoder: S2SEncoder, graph: ExpressionGraph, words: Node, mask: Node) -> Node:
    """One layer in both directions, then forward layers over their outputs: ``(time, batch, dim_rnn)``."""
    options = encoder.options
    hidden = _two_ways(encoder, graph, words, mask, depth=1)
    layers = []
    for layer in range(2, options.enc_depth + 1):
        cells = [f"{encoder.prefix}_l{layer}_cell{i}" for i in range(1, options.enc_cell_depth + 1)]
        dim_input = 2 * options.dim_rnn if layer == 2 else options.dim_rnn
        layers.append(deep_cell(encoder, graph, "enc-cell", cells, dim_input))
    return RNN(graph, layers, skip=options.skip)(hidden).output if layers else hidden


ENCODERS: dict[str, Callable[[S2SEncoder, ExpressionGraph, Node, Node], Node]] = {
    "bidirectional": _bidirectional,
    "bi-unidirectional": _bi_unidirectional,
    "alternating": _alternating,
}
"""Encoders by the value of Marian's option ``enc-type``."""
