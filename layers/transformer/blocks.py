"""Sub-layers of the transformer, each with pre- and post-processing (its frame)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple, Protocol

from mgraph import ArgumentError, Node, narrow, repeat

from ..activations import ACTIVATIONS, Activation
from ..attention import MultiHeadAttention
from ..choices import choose
from ..dense import Affine
from ..dropping import drop_features
from ..layer import Layer, of_class
from ..packing import PackedWords, laid_out, taken_up
from ..processing import PostProcess, PreProcess
from .config import TransformerConfig

BLOCK_ACTIVATIONS = {name: ACTIVATIONS[name] for name in ("relu", "swish", "gelu", "sigmoid", "tanh", "")}
"""The activations that Marian has inside blocks."""


class Context(NamedTuple):
    """One encoder as seen by a block of a decoder layer."""

    prepared: Mapping[str, Node]
    """What the block's ``prepare`` made of the encoder's output."""
    mask: Node
    """A ``log_mask``, ``(batch, 1, 1, source)``."""


class Block(Layer):
    """A sub-layer's frame: ``after(sublayer(before(x)), x)`` with the options of the stack.

    The parameters of ``before`` and ``after`` are under ``prefix``, those of ``before`` under
    ``before_prefix`` if that is given.
    """

    def __init__(
        self, prefix: str, config: TransformerConfig, depth: int, before_prefix: str | None = None
    ) -> None:
        of_class(f"config of {prefix!r}", config, TransformerConfig)
        self.before = PreProcess(
            prefix if before_prefix is None else before_prefix,
            config.dim,
            config.preprocess,
            dropout=config.dropout,
            norm=config.norm,
        )
        self.after = PostProcess(
            prefix,
            config.dim,
            config.postprocess,
            dropout=config.dropout,
            init=config.init(depth),
            norm=config.norm,
        )


class CrossBlock(Protocol):
    """Base of blocks through which a decoder layer sees an encoder."""

    prefix: str

    def project(self, context: Node) -> dict[str, Node]:
        """What the block needs of an encoder's output ``(batch, source, dim)``, or for packed sentences
        ``(bins, width, dim)``, computed once per word."""
        ...

    def arrange(self, projected: Mapping[str, Node], packing: PackedWords | None = None) -> dict[str, Node]:
        """What the block attends to: the result of ``project``, laid out (``laid_out``) if it is packed."""
        ...

    def prepare(self, context: Node) -> dict[str, Node]:
        """Project and arrange an encoder's output ``(batch, source, dim)``."""
        return self.arrange(self.project(context))

    def cross_attend(
        self, x: Node, context: Context, give_weights: bool = False, packing: PackedWords | None = None
    ) -> tuple[Node, Node | None]:
        """The block's result for ``x (batch, time, dim)``, or with ``packing`` ``(rows, width, dim)``, and
        its weights ``(batch, heads, time, source)`` before dropout; ``None`` if not requested or without
        attention."""
        ...


class AttentionBlock(Block, CrossBlock):
    """``after(attention(before(x), keys, values), x)``: multi-head attention in its frame.

    ``x`` is ``(batch, time, dim)``. Parameters: those of ``MultiHeadAttention`` under ``prefix``, the frame's
    under ``{prefix}_Wo``. Source: Marian's ``LayerAttention``.
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        super().__init__(f"{prefix}_Wo", config, depth)
        self.prefix = prefix
        self.attention = MultiHeadAttention(
            prefix,
            config.dim,
            config.heads,
            projection=config.projection,
            bias=config.bias,
            dropout=config.dropout_attention,
            init=config.init(depth),
        )

    def project(self, context: Node) -> dict[str, Node]:
        """Keys and values of an encoder's output, not split into heads."""
        return {"keys": self.attention.key(context), "values": self.attention.value(context)}

    def arrange(self, projected: Mapping[str, Node], packing: PackedWords | None = None) -> dict[str, Node]:
        """Keys and values by sentence and head."""
        return {part: self.attention.split(node, packing) for part, node in projected.items()}

    def cross_attend(
        self, x: Node, context: Context, give_weights: bool = False, packing: PackedWords | None = None
    ) -> tuple[Node, Node | None]:
        keys, values = (_prepared(self.prefix, context, part) for part in ("keys", "values"))
        y = self.before(x, packing)
        if not give_weights:
            found = self.attention.attend(y, keys, values, context.mask, packing)
            return self.after(found, x, packing), None
        weights = self.attention.weights(y, keys, context.mask, packing)
        return self.after(self.attention.gathered(weights, values, packing), x, packing), weights

    def self_attend(self, x: Node, mask: Node, packing: PackedWords | None = None) -> Node:
        """``x (batch, time, dim)`` attends to itself; keys and values are pre-processed like queries. With
        ``packing``, ``x`` is ``(rows, width, dim)``."""
        y = self.before(x, packing)
        return self.after(self.attention(y, y, y, mask, packing), x, packing)


class PoolingBlock(Layer, CrossBlock):
    """``after(v Wo + bo, x)`` with ``v`` the encoder's first state, instead of cross-attention.

    There is no pre-processing, and ``d`` in post-processing drops nothing. Parameters:
    ``{prefix}_Wo (dim, dim)``, ``{prefix}_bo (1, dim)``, neither without projection, no ``bo`` without
    ``bias``; post-processing under ``{prefix}_Wo``.
    Source: Marian's ``LayerPooling`` (``transformer-pool``).
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        of_class(f"config of {prefix!r}", config, TransformerConfig)
        dim, init = config.dim, config.init(depth)
        self.prefix = prefix
        self.output = (
            Affine(prefix, dim, dim, "o", init=init, bias=config.bias) if config.projection else None
        )
        self.after = PostProcess(f"{prefix}_Wo", dim, config.postprocess, init=init, norm=config.norm)

    def project(self, context: Node) -> dict[str, Node]:
        """All states."""
        return {"pooled": context}

    def arrange(self, projected: Mapping[str, Node], packing: PackedWords | None = None) -> dict[str, Node]:
        """The projected first state ``(batch, 1, dim)``."""
        if packing is not None and packing.origins is None:
            packing = packing._replace(places=narrow(packing.places, 1, 0, 1))
        first = narrow(laid_out(projected["pooled"], packing), 1, 0, 1)
        return {"pooled": first if self.output is None else self.output(first)}

    def cross_attend(
        self, x: Node, context: Context, give_weights: bool = False, packing: PackedWords | None = None
    ) -> tuple[Node, Node | None]:
        """The block; it has no weights."""
        pooled = _prepared(self.prefix, context, "pooled")
        if packing is not None:
            pooled = taken_up(repeat(pooled, packing.length, 1), packing)
        return self.after(pooled, x, packing), None


class FeedForwardBlock(Block):
    """``after(act(before(x) W1 + b1) W2 + b2, x)``: ``ffn_depth`` affine layers in their frame.

    An activation and dropout follow each layer but the last; ``x`` is ``(batch, time, dim)``, or for packed
    sentences ``(rows, width, dim)``.
    Parameters: ``{prefix}_W1 (dim, dim_ffn)``, ``{prefix}_b1 (1, dim_ffn)``, ..., the last
    ``(dim_ffn, dim)``; the frame's under ``{prefix}_ffn``. Source: Marian's ``LayerFFN``.
    """

    def __init__(self, prefix: str, config: TransformerConfig, depth: int) -> None:
        super().__init__(f"{prefix}_ffn", config, depth)
        sizes = [config.dim, *[config.dim_ffn] * (config.ffn_depth - 1), config.dim]
        self.layers = [
            Affine(prefix, before, after, str(i), init=config.init(depth), bias=config.bias)
            for i, (before, after) in enumerate(pairwise(sizes), 1)
        ]
        self.activation = block_activation(config.ffn_activation, "transformer-ffn-activation")
        self.dropout = config.dropout_ffn

    def __call__(self, x: Node, packing: PackedWords | None = None) -> Node:
        *inner, last = self.layers
        y = self.before(x, packing)
        for layer in inner:
            y = drop_features(self.activation(layer(y)), self.dropout, packing)
        return self.after(last(y), x, packing)


def _prepared(prefix: str, context: Context, part: str) -> Node:
    """A part of what a block's ``prepare`` made; ``ArgumentError`` if a context lacks it."""
    if part not in context.prepared:
        raise ArgumentError(
            f"{prefix}: expected a context of what this block prepared, with {part!r}, got "
            f"{list(context.prepared)}"
        )
    return context.prepared[part]


def block_activation(name: str, option: str) -> Activation:
    """An activation of blocks; ``UnsupportedOptionError``, which names ``option``, if it does not exist."""
    return choose(option, name, BLOCK_ACTIVATIONS)
