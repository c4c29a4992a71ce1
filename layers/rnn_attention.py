"""Attention of recurrent decoders."""

from __future__ import annotations

from dataclasses import dataclass

from mgraph import (
    ExpressionGraph,
    Node,
    affine,
    bdot,
    dot,
    dropout,
    inits,
    layer_norm,
    reshape,
    softmax,
)
from mgraph.ops.cells import AttentionNodeOp

from .cells import State
from .dense import LAYER_NORM_EPS
from .dropping import shared_mask


class GlobalAttention:
    """Attention with a hidden layer over an encoder's context.

    ``e_i = va . tanh(c_i U + b + s W)``, ``a = softmax(e)`` over the source words, result ``sum_i a_i c_i``.

    Parameters: ``{prefix}_W_comb_att (dim_state, dim_context)`` is ``W``, ``_Wc_att (dim_context,
    dim_context)`` is ``U``, ``_U_att (dim_context, 1)`` is ``va``, ``_b_att (1, dim_context)``; with
    layer normalization ``c U`` has the gain ``_att_gamma1`` with ``b`` as bias, ``s W`` the gain
    ``_att_gamma2``, ``(1, dim_context)`` each, eps 1e-9.
    Source: Bahdanau et al. 2015; Marian, ``rnn/attention.h``.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        prefix: str,
        dim_state: int,
        dim_context: int,
        *,
        layer_normalization: bool = False,
        dropout: float = 0.0,
    ) -> None:
        self.weight = graph.param(f"{prefix}_W_comb_att", (dim_state, dim_context))
        self.context_weight = graph.param(f"{prefix}_Wc_att", (dim_context, dim_context))
        self.va = graph.param(f"{prefix}_U_att", (dim_context, 1))
        self.bias = graph.param(f"{prefix}_b_att", (1, dim_context), inits.zeros())
        self.context_gain = self.state_gain = None
        if layer_normalization:
            self.context_gain = graph.param(f"{prefix}_att_gamma1", (1, dim_context), inits.ones())
            self.state_gain = graph.param(f"{prefix}_att_gamma2", (1, dim_context), inits.ones())
        self.context_mask = shared_mask(graph, dropout, (1, dim_context))
        self.state_mask = shared_mask(graph, dropout, (1, dim_state))

    def map_context(self, context: Node) -> Node:
        """``c U + b`` of a context ``(batch, source, dim_context)``: once per sentence."""
        context = dropout(context, self.context_mask)
        if self.context_gain is None:
            return affine(context, self.context_weight, self.bias)
        mapped = dot(context, self.context_weight)
        return layer_norm(mapped, self.context_gain, self.bias, LAYER_NORM_EPS)

    def over(self, context: Node, mapped: Node, mask: Node) -> AttendedContext:
        """This attention over one context; ``mapped`` is its ``map_context``, ``mask (batch, source)``
        is 1 at words."""
        return AttendedContext(self, context, mapped, mask)

    def map_state(self, state: Node) -> Node:
        """``s W`` of states ``(..., dim_state)``."""
        mapped = dot(dropout(state, self.state_mask), self.weight)
        return mapped if self.state_gain is None else layer_norm(mapped, self.state_gain, eps=LAYER_NORM_EPS)


@dataclass(frozen=True)
class AttendedContext:
    """A ``GlobalAttention`` bound to a context; the input of a cell in a ``StackedCell``."""

    attention: GlobalAttention
    context: Node
    """``(batch, source, dim_context)``."""
    mapped: Node
    """``(batch, source, dim_context)``."""
    mask: Node
    """``(batch, source)``."""

    @property
    def dim_output(self) -> int:
        """``dim_context``."""
        return self.context.shape[-1]

    def apply(self, state: State) -> Node:
        """What ``state`` attends to: ``(rows, dim_context)`` for an output ``(rows, dim_state)``.

        There may be several rows for a sentence, those of one sentence side by side (a beam).
        """
        aligned = bdot(self.weights(state), self.context)
        return reshape(aligned, (state[0].shape[0], self.dim_output))

    def weights(self, state: State) -> Node:
        """The attention weights: ``(batch, rows per sentence, source)``, 1 in sum over the source."""
        batch, source, dim = self.context.shape
        beam = state[0].shape[0] // batch
        query = reshape(self.attention.map_state(state[0]), (batch, beam, 1, dim))
        keys = reshape(self.mapped, (batch, 1, source, dim))
        energies = AttentionNodeOp(self.attention.va, keys, query)
        mask = reshape(self.mask, (batch, 1, source))
        return softmax(reshape(energies, (batch, beam, source)), mask)
