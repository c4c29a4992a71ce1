"""Fully connected layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

from mgraph import ArgumentError, Node, inits, layer_norm
from mgraph.inits import Initializer

from .activations import activation as find_activation
from .layer import Layer
from .products import product

LAYER_NORM_EPS = 1e-9
NEMATUS_EPS = 1e-5


class Affine(Layer):
    """``y = x W + b`` of ``x (..., dim_input)``, ``y (..., dim)``.

    Parameters: ``{prefix}_W{suffix} (dim_input, dim)`` and, with ``bias``, ``{prefix}_b{suffix} (1, dim)``.
    Source: the products inside Marian's attention and feed-forward blocks (``denseInline``).
    """

    def __init__(
        self,
        prefix: str,
        dim_input: int,
        dim: int,
        suffix: str = "",
        *,
        init: Initializer | None = None,
        bias: bool = True,
    ) -> None:
        self.weight = self.param(f"{prefix}_W{suffix}", dim_input, dim, init, contracted=0)
        self.bias = self.param(f"{prefix}_b{suffix}", 1, dim, inits.zeros()) if bias else None

    def __call__(self, x: Node) -> Node:
        return product(x, self.weight, self.bias)


class Dense(Layer):
    """``y (..., dim) = act(sum_i x_i W_i + b_i)`` of one or several inputs ``x_i (..., dim_input_i)``.

    dim_input: features of the input, or a list for several inputs.
    Parameters: ``{prefix}_W (dim_input, dim)``, ``{prefix}_b (1, dim)``; with several inputs
    ``{prefix}_W0``, ``{prefix}_b0``, ``{prefix}_W1``, ... With ``layer_normalization`` each term is
    ``LN(x_i W_i)`` with the gain ``{prefix}_gamma{i} (1, dim)`` and ``b_i`` as bias (eps 1e-9); with
    ``nematus_normalization`` too it is ``LN(x_i W_i + b_i)`` with ``{prefix}_ln_s{i}``, ``{prefix}_ln_b{i}``
    (eps 1e-5). ``ArgumentError`` for a wrong number of inputs or an empty list.
    Source: Marian's ``mlp::Dense``.
    """

    def __init__(
        self,
        prefix: str,
        dim_input: int | Sequence[int],
        dim: int,
        *,
        activation: str = "linear",
        layer_normalization: bool = False,
        nematus_normalization: bool = False,
    ) -> None:
        self.prefix = prefix
        self.activation = find_activation(activation)
        sizes = list(dim_input) if isinstance(dim_input, Iterable) else [dim_input]
        if not sizes:
            raise ArgumentError(f"layer {prefix!r}: expected the sizes of at least one input, got none")
        numbers = [""] if len(sizes) == 1 else [str(i) for i in range(len(sizes))]
        normalized = layer_normalization, nematus_normalization
        self.terms = [
            _Term(prefix, size, dim, number, *normalized) for size, number in zip(sizes, numbers, strict=True)
        ]

    def __call__(self, *inputs: Node) -> Node:
        if len(inputs) != len(self.terms):
            raise ArgumentError(
                f"layer {self.prefix!r}: expected {len(self.terms)} input(s), got {len(inputs)}"
            )
        return self.activation(reduce(add, (term(x) for term, x in zip(self.terms, inputs, strict=True))))


class _Term(Layer):
    """One term of a ``Dense`` layer, normalized or not."""

    def __init__(
        self, prefix: str, dim_input: int, dim: int, number: str, layer_normalization: bool, nematus: bool
    ) -> None:
        self.affine = Affine(prefix, dim_input, dim, number)
        self.gain = self.shift = None
        if layer_normalization:
            gain = f"{prefix}_ln_s{number}" if nematus else f"{prefix}_gamma{number}"
            self.gain = self.param(gain, 1, dim, inits.ones())
            if nematus:
                self.shift = self.param(f"{prefix}_ln_b{number}", 1, dim, inits.zeros())

    def __call__(self, x: Node) -> Node:
        if self.gain is None:
            return self.affine(x)
        graph = self.affine.weight.graph_of(x)
        if self.shift is not None:
            return layer_norm(self.affine(x), self.gain.on(graph), self.shift.on(graph), NEMATUS_EPS)
        mapped = product(x, self.affine.weight)
        assert self.affine.bias is not None
        return layer_norm(mapped, self.gain.on(graph), self.affine.bias.on(graph), LAYER_NORM_EPS)
