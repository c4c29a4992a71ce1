"""Marian's recurrent encoder."""

from __future__ import annotations

from layers import RNN, StackedCell, choose
from mgraph import concatenate, reshape, transpose
from nmt.models.parts import Encoded, EncoderPart, Setup, Source
from nmt.models.s2s.cells import deep_cell

DIRECTIONS = {"bidirectional": "", "bi-unidirectional": "", "alternating": "alternating-"}
"""How the layers of both stacks run, by the value of Marian's option ``enc-type``."""


class S2SEncoder(EncoderPart):
    """Recurrent cells over the source in both directions (Bahdanau et al. 2015).

    The outputs of both directions stand side by side: a context has ``2 dim-rnn`` features. With
    ``enc-type bi-unidirectional`` both have one layer, and further layers run forward over their outputs;
    then it has ``dim-rnn``.

    Parameters: ``{prefix}_bi_*`` forward, ``{prefix}_bi_r_*`` backward, ``{prefix}_bi_l2_cell1_*`` and so on
    for further layers (``{prefix}_l2_cell1_*`` with ``bi-unidirectional``), and embeddings. Loops over time
    are time-major inside.
    Source: Marian, ``EncoderS2S`` in ``models/s2s.h``; options ``enc-type``, ``enc-cell``, ``enc-depth``,
    ``enc-cell-depth``, ``skip``.
    """

    def __init__(self, setup: Setup, prefix: str, stream: int) -> None:
        super().__init__(setup, prefix, stream)
        options = self.options
        kind = choose("enc-type", options.enc_type, DIRECTIONS)
        upper = range(2, options.enc_depth + 1)
        only_forward = options.enc_type == "bi-unidirectional"
        self.two_ways = []
        for stem, direction in ((f"{prefix}_bi", "forward"), (f"{prefix}_bi_r", "backward")):
            layers = [self._layer(stem, options.dim_emb, first=stem)]
            if not only_forward:
                layers += [self._layer(f"{stem}_l{i}", options.dim_rnn) for i in upper]
            self.two_ways.append(RNN(layers, direction=kind + direction, skip=options.skip))
        self.forward: RNN | None = None
        if only_forward and upper:
            sizes = [2 * options.dim_rnn, *[options.dim_rnn] * (len(upper) - 1)]
            layers = [self._layer(f"{prefix}_l{i}", size) for i, size in zip(upper, sizes, strict=True)]
            self.forward = RNN(layers, skip=options.skip)

    @property
    def dim_context(self) -> int:
        return 2 * self.options.dim_rnn if self.forward is None else self.options.dim_rnn

    def encode(self, source: Source) -> Encoded:
        batch, length = source.ids.shape
        words = self.embedding(transpose(source.ids), time_axis=0)
        mask = reshape(transpose(source.mask), (length, batch, 1))
        hidden = concatenate([network(words, mask).output for network in self.two_ways], -1)
        if self.forward is not None:
            hidden = self.forward(hidden).output
        return Encoded(transpose(hidden, (1, 0, 2)), source.mask)

    def _layer(self, stem: str, dim_input: int, *, first: str = "") -> StackedCell:
        """The cells of one layer."""
        names = [f"{stem}_cell{i}" for i in range(1, self.options.enc_cell_depth + 1)]
        names[0] = first or names[0]
        return deep_cell(self, "enc-cell", names, dim_input)
