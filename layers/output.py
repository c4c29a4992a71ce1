"""The output layer: logits over the vocabulary."""

from __future__ import annotations

import math
from typing import NamedTuple

from mgraph import (
    ArgumentError,
    Node,
    ShapeError,
    affine,
    affine_cross_entropy,
    affine_int8,
    bdot,
    cross_entropy,
    dot,
    flatten,
    gather,
    index_select,
    inits,
    reshape,
    transpose,
)
from mgraph.tape import Graph

from .layer import Layer, Parameter
from .products import SCALE, int8_of, product

MANY_LOGITS = 1 << 24
"""From this many logits on (64 MiB in float32) the loss is computed in chunks of the vocabulary."""
LISTED = ":listed"
"""Suffix of the names of parameters that replace the layer's if only some words are listed."""


class Columns(NamedTuple):
    """The shortlist of each sentence, as columns among the ``listed`` words of the whole batch.

    If fewer words are listed than the vocabulary has, the graph needs ``Output.of_listed`` as parameters.
    """

    columns: Node
    """Integers, ``(batch, candidates)``: the places of each sentence's candidates among the listed words."""
    listed: int


class Output(Layer):
    """``logits = x Wt^T + b``, not normalized, of ``x (..., dim)``; the logits are ``(..., dim_vocab)``.

    Parameters: ``{prefix}_Wt (dim_vocab, dim)`` and, unless ``omit_bias``, ``{prefix}_b (1, dim_vocab)``.
    ``tied`` is the table of an ``Embedding`` that serves as ``Wt`` (``tied-embeddings``); ``ArgumentError``
    if it is no parameter, ``ShapeError`` if it has another shape.
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
        self.transposed, self.dim_vocab = transposed or tied is not None, dim_vocab
        if tied is not None:
            if not isinstance(tied, Parameter):
                raise ArgumentError(f"layer {prefix!r}: expected a tied table, embedding.table, got {tied!r}")
            if tied.shape != (dim_vocab, dim):
                raise ShapeError(
                    f"layer {prefix!r}: expected a tied table of shape {(dim_vocab, dim)}, got {tied.name!r}"
                    f" of shape {tied.shape}"
                )
            self.weight = tied
        elif transposed:
            init = inits.glorot_uniform(fan_out=True)
            self.weight = self.param(f"{prefix}_Wt", dim_vocab, dim, init, contracted=1)
        else:
            init = inits.glorot_uniform(fan_in=True)
            self.weight = self.param(f"{prefix}_W", dim, dim_vocab, init, contracted=0)
        self.bias = None if omit_bias else self.param(f"{prefix}_b", 1, dim_vocab, inits.zeros())

    def __call__(self, x: Node, shortlist: Node | Columns | None = None) -> Node:
        """The logits of all words, or with a shortlist those of each sentence's candidates:
        ``(batch * beam, candidates)`` for ``x (batch * beam, dim)``; ``ShapeError`` for other shapes.

        A ``shortlist (batch, candidates)`` of integer ids suits few sentences: each has its own product.
        ``Columns`` suit many: one product with all listed words serves every sentence.
        """
        if shortlist is None:
            return product(x, self.weight, self.bias, trans_b=self.transposed)
        candidates = shortlist.columns if isinstance(shortlist, Columns) else shortlist
        fits = len(x.shape) == len(candidates.shape) == 2 and candidates.shape[0]
        if not fits or x.shape[0] % candidates.shape[0]:
            raise ShapeError(
                "expected (batch * beam, dim) and a shortlist (batch, candidates), got"
                f" {x.shape} and {candidates.shape}"
            )
        if isinstance(shortlist, Columns):
            return self._in_columns(x, shortlist)
        return self._of_candidates(x, shortlist)

    def cross_entropy(self, x: Node, labels: Node, label_smoothing: float = 0.0, *, parts: int = 1) -> Node:
        """``mgraph.cross_entropy`` of the logits of ``x (..., dim)``, ``(..., 1)``. Many logits are never
        held in memory all at once (``affine_cross_entropy``). parts: number of devices that may split the
        vocabulary."""
        graph, logits = self.weight.graph_of(x), math.prod(x.shape[:-1]) * self.dim_vocab
        if logits < MANY_LOGITS or int8_of(self.weight, graph) is not None:
            return cross_entropy(self(x), labels, label_smoothing)
        bias = None if self.bias is None else self.bias.on(graph)
        matrix = self.weight.on(graph)
        ranges = 1 if self.dim_vocab % parts else parts
        return affine_cross_entropy(x, matrix, labels, bias, label_smoothing, self.transposed, parts=ranges)

    def of_listed(self, ids: Node) -> dict[str, Node]:
        """The parameters by name that replace the layer's if only the words ``ids (listed,)`` are listed."""
        graph, axis = ids.graph, 0 if self.transposed else 1
        int8 = int8_of(self.weight, graph)
        found = {self.weight.name: self.weight.on(graph) if int8 is None else int8.values}
        if int8 is not None:
            found[self.weight.name + SCALE] = int8.scales
        found = {name + LISTED: index_select(node, axis, ids) for name, node in found.items()}
        if self.bias is not None:
            found[self.bias.name + LISTED] = index_select(self.bias.on(graph), 1, ids)
        return found

    def _in_columns(self, x: Node, shortlist: Columns) -> Node:
        rows, (batch, candidates) = x.shape[0], shortlist.columns.shape
        logits = reshape(self._of_all_listed(x, shortlist.listed), (batch, rows // batch, shortlist.listed))
        columns = reshape(shortlist.columns, (batch, 1, candidates))
        return reshape(gather(logits, 2, columns), (rows, candidates))

    def _of_all_listed(self, x: Node, listed: int) -> Node:
        """The logits of the listed words, ``(batch * beam, listed)``."""
        if listed == self.dim_vocab:
            return self(x)
        graph, dim = x.graph, x.shape[1]
        int8 = int8_of(self.weight, graph)
        weight = self.weight.on(graph) if int8 is None else int8.values
        matrix = self._listed(graph, weight, (listed, dim) if self.transposed else (dim, listed))
        bias = None if self.bias is None else self._listed(graph, self.bias.on(graph), (1, listed))
        if int8 is not None:
            scales = self._listed(graph, int8.scales, (listed, 1) if self.transposed else (1, listed))
            return affine_int8(x, matrix, scales, bias, int8.multiplier, self.transposed)
        if bias is None:
            return dot(x, matrix, False, self.transposed)
        return affine(x, matrix, bias, False, self.transposed)

    def _listed(self, graph: Graph, whole: Node, shape: tuple[int, int]) -> Node:
        node: Node = graph.param(whole.name + LISTED, shape, type=whole.value_type)
        return node

    def _of_candidates(self, x: Node, shortlist: Node) -> Node:
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
        """The columns of ``matrix``, or rows if it is transposed, for the candidates of each sentence."""
        ids = flatten(shortlist)
        if self.transposed:
            return reshape(index_select(matrix, 0, ids), (*shortlist.shape, matrix.shape[1]))
        return transpose(
            reshape(index_select(matrix, 1, ids), (matrix.shape[0], *shortlist.shape)), (1, 0, 2)
        )
