"""Attention of recurrent decoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgraph import (
    Node,
    ShapeError,
    affine,
    bdot,
    concatenate,
    dot,
    dropout,
    inits,
    layer_norm,
    narrow,
    reshape,
    softmax,
)
from mgraph.ops.cells import AttentionNodeOp
from mgraph.ops.operands import node

from .cells import State
from .dense import LAYER_NORM_EPS, NEMATUS_EPS
from .dropping import probability, shared_mask
from .layer import Layer


class GlobalAttention(Layer):
    """Attention with a hidden layer over an encoder's context.

    ``e_i = va . tanh(c_i U + b + s W)``, ``a = softmax(e)`` over the source words, result ``sum_i a_i c_i``.

    Parameters: ``{prefix}_W_comb_att (dim_state, dim_context)`` is ``W``, ``_Wc_att (dim_context,
    dim_context)`` is ``U``, ``_U_att (dim_context, 1)`` is ``va``, ``_b_att (1, dim_context)``; with
    layer normalization ``c U`` has the gain ``_att_gamma1`` with ``b`` as bias, ``s W`` the gain
    ``_att_gamma2``, ``(1, dim_context)`` each, eps 1e-9; with ``nematus_normalization`` too
    ``LN(c U + b)`` has the gain ``_Wc_att_lns`` and the bias ``_Wc_att_lnb``, ``s W`` has
    ``_W_comb_att_lns`` and ``_W_comb_att_lnb``, ``(1, dim_context)`` each, eps 1e-5.

    ``dropout`` is the probability of dropping features of the ``c_i`` and of ``s`` in the energies, with one
    mask each for all words, steps and sentences (``dropout-rnn``); the averaged ``c_i`` are not dropped.
    ``ArgumentError`` unless ``0 <= dropout < 1``.
    Source: Bahdanau et al. 2015; Marian, ``rnn/attention.h``.
    """

    def __init__(
        self,
        prefix: str,
        dim_state: int,
        dim_context: int,
        *,
        layer_normalization: bool = False,
        nematus_normalization: bool = False,
        dropout: float = 0.0,
    ) -> None:
        self.dropout, self.dim_state = probability(f"dropout of {prefix!r}", dropout), dim_state
        self.weight = self.param(f"{prefix}_W_comb_att", dim_state, dim_context)
        self.context_weight = self.param(f"{prefix}_Wc_att", dim_context, dim_context)
        self.va = self.param(f"{prefix}_U_att", dim_context, 1)
        self.bias = self.param(f"{prefix}_b_att", 1, dim_context, inits.zeros())
        self.layer_normalization, self.nematus = layer_normalization, nematus_normalization
        if layer_normalization:
            gains = ("att_gamma1", "att_gamma2")
            if nematus_normalization:
                gains = ("Wc_att_lns", "W_comb_att_lns")
                self.context_shift, self.state_shift = (
                    self.param(f"{prefix}_{name}", 1, dim_context, inits.zeros())
                    for name in ("Wc_att_lnb", "W_comb_att_lnb")
                )
            self.context_gain, self.state_gain = (
                self.param(f"{prefix}_{name}", 1, dim_context, inits.ones()) for name in gains
            )

    def map_context(self, context: Node) -> Node:
        """``c U + b`` of a context ``(batch, source, dim_context)``: once per sentence."""
        graph = self.context_weight.graph_of(context)
        context = dropout(context, shared_mask(graph, self.dropout, (1, context.shape[-1])))
        weight, bias = self.context_weight.on(graph), self.bias.on(graph)
        if self.layer_normalization and not self.nematus:
            return layer_norm(dot(context, weight), self.context_gain.on(graph), bias, LAYER_NORM_EPS)
        mapped = affine(context, weight, bias)
        if not self.layer_normalization:
            return mapped
        return layer_norm(mapped, self.context_gain.on(graph), self.context_shift.on(graph), NEMATUS_EPS)

    def over(
        self,
        context: Node,
        mapped: Node,
        mask: Node,
        *,
        tiers: Sequence[tuple[Node, Node]] = (),
        give_weights: bool = False,
    ) -> AttendedContext:
        """Bind the attention to a context; ``mapped`` is its ``map_context``, ``mask (batch, source)`` is 1
        at words. ``tiers`` are ``context`` and ``mapped`` with less padding (``in_tiers``), to be read
        instead. ``ShapeError`` for a context without three axes, and for a mask of another shape."""
        layer = f"GlobalAttention with {self.context_weight.name!r}"
        if len(node(layer, context).shape) != 3:
            raise ShapeError(f"{layer}: expected a context (batch, source, dim_context), got {context.shape}")
        what = f"mask of {layer}"
        if node(what, mask).shape != context.shape[:2]:
            raise ShapeError(
                f"{what}: expected (batch, source), {context.shape[:2]} for a context {context.shape}, got"
                f" {mask.shape}"
            )
        state_mask = shared_mask(context.graph, self.dropout, (1, self.dim_state))
        return AttendedContext(self, context, mapped, mask, state_mask, give_weights, tuple(tiers))

    def map_state(self, state: Node) -> Node:
        """``s W`` of states ``(..., dim_state)``."""
        graph = self.weight.graph_of(state)
        mapped = dot(state, self.weight.on(graph))
        if not self.layer_normalization:
            return mapped
        gain = self.state_gain.on(graph)
        if self.nematus:
            return layer_norm(mapped, gain, self.state_shift.on(graph), NEMATUS_EPS)
        return layer_norm(mapped, gain, eps=LAYER_NORM_EPS)


@dataclass(frozen=True)
class AttendedContext(Layer):
    """A ``GlobalAttention`` bound to a context: a cell input for ``StackedCell``. Its parameters are those of
    the attention."""

    attention: GlobalAttention
    context: Node
    """``(batch, source, dim_context)``."""
    mapped: Node
    """``(batch, source, dim_context)``."""
    mask: Node
    """``(batch, source)``."""
    state_mask: Node | None
    """The dropout mask of states, ``(1, dim_state)``."""
    give_weights: bool = False
    """Whether ``apply`` also returns the attention's weights."""
    tiers: tuple[tuple[Node, Node], ...] = ()
    """``context`` and ``mapped`` in tiers with less padding, ``(sentences, words, dim_context)``."""

    @property
    def dim_output(self) -> int:
        """``dim_context``."""
        return self.context.shape[-1]

    def apply(self, state: State) -> Node | tuple[Node, Node]:
        """The attended context ``(rows, dim_context)`` for a state ``(rows, dim_state)``.

        A sentence may have several adjacent rows (a beam). With ``give_weights``, a pair with the weights
        ``(rows, source)``.
        """
        rows = state[0].shape[0]
        weights = self.weights(state)
        aligned = reshape(self._averaged(weights), (rows, self.dim_output))
        return (aligned, reshape(weights, (rows, weights.shape[-1]))) if self.give_weights else aligned

    def weights(self, state: State) -> Node:
        """The attention weights ``(batch, rows per sentence, source)``, which sum to 1 over the source."""
        batch, source, dim = self.context.shape
        query = self.attention.map_state(dropout(state[0], self.state_mask))
        query = reshape(query, (batch, query.shape[0] // batch, dim))
        return softmax(self._energies(query), reshape(self.mask, (batch, 1, source)))

    def _energies(self, query: Node) -> Node:
        """The energies ``(batch, beam, source)`` of queries ``(batch, beam, dim_context)`` and all words; 0
        where a tier has no words."""
        if not self.tiers:
            return self._compared(self.mapped, query)
        source = self.context.shape[1]
        found = []
        for (_, mapped), own in self._by_tier(query):
            energies = self._compared(mapped, own)
            sentences, words, _ = mapped.shape
            missing = query.graph.zeros((sentences, own.shape[1], source - words), query.value_type)
            found.append(concatenate([energies, missing], -1))
        return concatenate(found, 0)

    def _compared(self, mapped: Node, query: Node) -> Node:
        (batch, source, dim), beam = mapped.shape, query.shape[1]
        keys, query = reshape(mapped, (batch, 1, source, dim)), reshape(query, (batch, beam, 1, dim))
        energies = AttentionNodeOp(self.attention.va.on(query.graph), keys, query)
        return reshape(energies, (batch, beam, source))

    def _averaged(self, weights: Node) -> Node:
        """The contexts, ``(batch, beam, dim_context)``, averaged by weights ``(batch, beam, source)``."""
        if not self.tiers:
            return bdot(weights, self.context)
        parts = self._by_tier(weights)
        return concatenate([bdot(narrow(own, -1, 0, c.shape[1]), c) for (c, _), own in parts], 0)

    def _by_tier(self, x: Node) -> Iterator[tuple[tuple[Node, Node], Node]]:
        """Each tier with the part of ``x (batch, ...)`` that belongs to its sentences."""
        first = 0
        for tier in self.tiers:
            sentences = tier[0].shape[0]
            yield tier, narrow(x, 0, first, sentences)
            first += sentences
