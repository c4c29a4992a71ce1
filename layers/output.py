"""The output layer: logits over the vocabulary."""

from __future__ import annotations

from mgraph import ExpressionGraph, Node, affine, dot, inits


class Output:
    """``logits = x Wt^T + b``, not normalised.

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

    def __call__(self, x: Node) -> Node:
        weight = self._weight(x.shape[-1])
        if self.omit_bias:
            return dot(x, weight, False, self.transposed)
        bias = self.graph.param(f"{self.prefix}_b", (1, self.dim_vocab), inits.zeros())
        return affine(x, weight, bias, False, self.transposed)

    def _weight(self, dim: int) -> Node:
        if self.tied is not None:
            return self.tied
        if self.transposed:
            init = inits.glorot_uniform(fan_out=True)
            return self.graph.param(f"{self.prefix}_Wt", (self.dim_vocab, dim), init)
        return self.graph.param(f"{self.prefix}_W", (dim, self.dim_vocab), inits.glorot_uniform(fan_in=True))
