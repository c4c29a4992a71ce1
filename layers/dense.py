"""Fully connected layers."""

from __future__ import annotations

from functools import reduce
from operator import add

from mgraph import ArgumentError, ExpressionGraph, Node, affine, dot, inits, layer_norm
from mgraph.inits import Initializer

from .activations import activation as find_activation

LAYER_NORM_EPS = 1e-9
NEMATUS_EPS = 1e-5


class Affine:
    """``y = x W + b``.

    Parameters: ``{prefix}_W{suffix} (inputs, dim)`` and, with ``bias``, ``{prefix}_b{suffix} (1, dim)``.
    ``x`` has the shape ``(..., inputs)``, ``y`` ``(..., dim)``. Source: the products inside Marian's
    attention and feed-forward blocks (``denseInline``).
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        prefix: str,
        dim: int,
        suffix: str = "",
        *,
        init: Initializer | None = None,
        bias: bool = True,
    ) -> None:
        self.graph, self.prefix, self.suffix, self.dim = graph, prefix, suffix, dim
        self.init, self.biased = init or inits.glorot_uniform(), bias

    def __call__(self, x: Node) -> Node:
        weight = self.weight(x.shape[-1])
        return affine(x, weight, self.bias()) if self.biased else dot(x, weight)

    def weight(self, dim_input: int) -> Node:
        """``W`` for inputs of ``dim_input`` features."""
        return self.graph.param(f"{self.prefix}_W{self.suffix}", (dim_input, self.dim), self.init)

    def bias(self) -> Node:
        """``b``."""
        return self.graph.param(f"{self.prefix}_b{self.suffix}", (1, self.dim), inits.zeros())


class Dense:
    """``y = act(sum_i x_i W_i + b_i)`` for one or several inputs ``x_i`` of shape ``(..., inputs_i)``.

    ``y`` has the shape ``(..., dim)``. Parameters: ``{prefix}_W``, ``{prefix}_b``; with several inputs
    ``{prefix}_W0``, ``{prefix}_b0``, ``{prefix}_W1``, ... With ``layer_normalization`` each term is
    ``LN(x_i W_i)`` with the gain ``{prefix}_gamma{i}`` and ``b_i`` as bias (eps 1e-9); with
    ``nematus_normalization`` too it is ``LN(x_i W_i + b_i)`` with ``{prefix}_ln_s{i}``, ``{prefix}_ln_b{i}``
    (eps 1e-5). ``ArgumentError`` without an input. Source: Marian's ``mlp::Dense``.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        prefix: str,
        dim: int,
        *,
        activation: str = "linear",
        layer_normalization: bool = False,
        nematus_normalization: bool = False,
    ) -> None:
        self.graph, self.prefix, self.dim = graph, prefix, dim
        self.activation = find_activation(activation)
        self.layer_normalization = layer_normalization
        self.nematus_normalization = nematus_normalization

    def __call__(self, *inputs: Node) -> Node:
        if not inputs:
            raise ArgumentError(f"layer {self.prefix!r} has at least one input, got none")
        numbers = [""] if len(inputs) == 1 else [str(i) for i in range(len(inputs))]
        terms = [self._term(x, number) for x, number in zip(inputs, numbers, strict=True)]
        return self.activation(reduce(add, terms))

    def _term(self, x: Node, number: str) -> Node:
        layer = Affine(self.graph, self.prefix, self.dim, number)
        if not self.layer_normalization:
            return layer(x)
        if self.nematus_normalization:
            scale = self._vector(f"ln_s{number}", inits.ones())
            shift = self._vector(f"ln_b{number}", inits.zeros())
            return layer_norm(layer(x), scale, shift, NEMATUS_EPS)
        gamma = self._vector(f"gamma{number}", inits.ones())
        return layer_norm(dot(x, layer.weight(x.shape[-1])), gamma, layer.bias(), LAYER_NORM_EPS)

    def _vector(self, name: str, init: Initializer) -> Node:
        return self.graph.param(f"{self.prefix}_{name}", (1, self.dim), init)
