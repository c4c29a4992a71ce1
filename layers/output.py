"""The output layer: logits over the vocabulary."""

from __future__ import annotations

from mgraph import Node, ShapeError, affine_int8, bdot, flatten, index_select, inits, reshape, transpose

from .layer import Layer, Parameter
from .products import int8_of, product


class Output(Layer):
    """``logits = x Wt^T + b``, not normalized, of ``x (..., dim)``; the logits are ``(..., dim_vocab)``.

    Parameters: ``{prefix}_Wt (dim_vocab, dim)`` and, unless ``omit_bias``, ``{prefix}_b (1, dim_vocab)``.
    ``tied`` is the table of an ``Embedding`` that serves as ``Wt`` (``tied-embeddings``).
    ``transposed=False`` is for files of old versions of Marian, which have ``{prefix}_W (dim, dim_vocab)``
    instead of ``Wt``. Source: Marian's ``mlp::Output``.
    """

    def __init__(
        self,
        prefix: str,
        dim: int,
        dim_vocab: int,
        *,
        tied: Parameter | None = None,
        omit_bias: bool = False,
        transposed: bool = True,
    ) -> None:
        self.transposed = transposed or tied is not None
        if tied is not None:
            self.weight = tied
        elif transposed:
            init = inits.glorot_uniform(fan_out=True)
            self.weight = self.param(f"{prefix}_Wt", dim_vocab, dim, init, contracted=1)
        else:
            init = inits.glorot_uniform(fan_in=True)
            self.weight = self.param(f"{prefix}_W", dim, dim_vocab, init, contracted=0)
        self.bias = None if omit_bias else self.param(f"{prefix}_b", 1, dim_vocab, inits.zeros())

    def __call__(self, x: Node, shortlist: Node | None = None) -> Node:
        """The logits of all words, or with a ``shortlist (batch, candidates)`` of integer ids those of each
        sentence's candidates: ``(batch * beam, candidates)`` for ``x (batch * beam, dim)``; ``ShapeError``
        for other shapes."""
        if shortlist is not None:
            return self._of_candidates(x, shortlist)
        return product(x, self.weight, self.bias, trans_b=self.transposed)

    def _of_candidates(self, x: Node, shortlist: Node) -> Node:
        if len(x.shape) != 2 or len(shortlist.shape) != 2 or x.shape[0] % max(shortlist.shape[0], 1):
            raise ShapeError(
                "expected (batch * beam, dim) and a shortlist (batch, candidates), got"
                f" {x.shape} and {shortlist.shape}"
            )
        rows, dim = x.shape
        batch, candidates = shortlist.shape
        of_sentences, int8 = reshape(x, (batch, rows // batch, dim)), int8_of(self.weight, x.graph)
        if int8 is None:
            chosen = self._chosen(self.weight.on(x.graph), shortlist)
            logits = bdot(of_sentences, chosen, False, self.transposed)
        else:
            values, scales = (self._chosen(matrix, shortlist) for matrix in (int8.values, int8.scales))
            logits = affine_int8(of_sentences, values, scales, None, int8.multiplier, self.transposed)
        if self.bias is not None:
            chosen = index_select(self.bias.on(x.graph), 1, flatten(shortlist))
            logits = logits + reshape(chosen, (batch, 1, candidates))
        return reshape(logits, (rows, candidates))

    def _chosen(self, matrix: Node, shortlist: Node) -> Node:
        """The columns, or rows if it is transposed, of the candidates of each sentence."""
        ids = flatten(shortlist)
        if self.transposed:
            return reshape(index_select(matrix, 0, ids), (*shortlist.shape, matrix.shape[1]))
        return transpose(
            reshape(index_select(matrix, 1, ids), (matrix.shape[0], *shortlist.shape)), (1, 0, 2)
        )
