"""The output layer: logits over the vocabulary."""

from __future__ import annotations

from mgraph import Node, ShapeError, affine, bdot, dot, flatten, index_select, inits, reshape, transpose

from .layer import Layer, Parameter


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
            self.weight = self.param(f"{prefix}_Wt", dim_vocab, dim, inits.glorot_uniform(fan_out=True))
        else:
            self.weight = self.param(f"{prefix}_W", dim, dim_vocab, inits.glorot_uniform(fan_in=True))
        self.bias = None if omit_bias else self.param(f"{prefix}_b", 1, dim_vocab, inits.zeros())

    def __call__(self, x: Node, shortlist: Node | None = None) -> Node:
        """The logits of all words, or with a ``shortlist (batch, candidates)`` of integer ids those of each
        sentence's candidates: ``(batch * beam, candidates)`` for ``x (batch * beam, dim)``; ``ShapeError``
        for other shapes."""
        weight = self.weight.on(x.graph)
        bias = None if self.bias is None else self.bias.on(x.graph)
        if shortlist is not None:
            return self._of_candidates(x, weight, bias, shortlist)
        if bias is None:
            return dot(x, weight, False, self.transposed)
        return affine(x, weight, bias, False, self.transposed)

    def _of_candidates(self, x: Node, weight: Node, bias: Node | None, shortlist: Node) -> Node:
        if len(x.shape) != 2 or len(shortlist.shape) != 2 or x.shape[0] % max(shortlist.shape[0], 1):
            raise ShapeError(
                "expected (batch * beam, dim) and a shortlist (batch, candidates), got"
                f" {x.shape} and {shortlist.shape}"
            )
        rows, dim = x.shape
        batch, candidates = shortlist.shape
        ids = flatten(shortlist)
        if self.transposed:
            chosen = reshape(index_select(weight, 0, ids), (batch, candidates, dim))
        else:
            chosen = transpose(reshape(index_select(weight, 1, ids), (dim, batch, candidates)), (1, 0, 2))
        logits = bdot(reshape(x, (batch, rows // batch, dim)), chosen, False, self.transposed)
        if bias is not None:
            logits = logits + reshape(index_select(bias, 1, ids), (batch, 1, candidates))
        return reshape(logits, (rows, candidates))
