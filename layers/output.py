"""The output layer: logits over the vocabulary."""

from __future__ import annotations

from mgraph import (
    ExpressionGraph,
    Node,
    ShapeError,
    affine,
    bdot,
    dot,
    flatten,
    index_select,
    inits,
    reshape,
    transpose,
)


class Output:
    """``logits = x Wt^T + b``, not normalized.

    ``x`` has the shape ``(..., dim)``, the logits ``(..., dim_vocab)``. Parameters:
    ``{prefix}_Wt (dim_vocab, dim)`` and, unless ``omit_bias``, ``{prefix}_b (1, dim_vocab)``. ``tied`` is
    an embedding table that serves as ``Wt`` (``tied-embeddings``). ``transposed=False`` is for files of old
    versions of Marian, which have ``{prefix}_W (dim, dim_vocab)`` instead of ``Wt``.
    Source: Marian's ``mlp::Output``.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        prefix: str,
        dim_vocab: int,
        *,
        tied: Node | None = None,
        omit_bias: bool = False,
        transposed: bool = True,
    ) -> None:
        self.graph, self.prefix, self.dim_vocab = graph, prefix, dim_vocab
        self.tied, self.omit_bias = tied, omit_bias
        self.transposed = transposed or tied is not None

    def __call__(self, x: Node, shortlist: Node | None = None) -> Node:
        """The logits of all words; with a ``shortlist (batch, candidates)`` of word ids, integers, those of
        each sentence's candidates: ``(batch * beam, candidates)`` for ``x (batch * beam, dim)``, and
        ``ShapeError`` for other shapes."""
        weight = self._weight(x.shape[-1])
        bias = None if self.omit_bias else self._bias()
        if shortlist is not None:
            return self._of_candidates(x, weight, bias, shortlist)
        if bias is None:
            return dot(x, weight, False, self.transposed)
        return affine(x, weight, bias, False, self.transposed)

    def _of_candidates(self, x: Node, weight: Node, bias: Node | None, shortlist: Node) -> Node:
        """Each sentence's rows times the columns of its own candidates."""
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

    def _bias(self) -> Node:
        return self.graph.param(f"{self.prefix}_b", (1, self.dim_vocab), inits.zeros())

    def _weight(self, dim: int) -> Node:
        if self.tied is not None:
            return self.tied
        if self.transposed:
            init = inits.glorot_uniform(fan_out=True)
            return self.graph.param(f"{self.prefix}_Wt", (self.dim_vocab, dim), init)
        return self.graph.param(f"{self.prefix}_W", (dim, self.dim_vocab), inits.glorot_uniform(fan_in=True))
