"""Activation functions by Marian's names."""

from __future__ import annotations

from collections.abc import Callable

from mgraph import Node, gelu, leakyrelu, prelu, relu, sigmoid, swish, tanh

from .choices import choose

Activation = Callable[[Node], Node]


def linear(x: Node) -> Node:
    """The identity."""
    return x


ACTIVATIONS: dict[str, Activation] = {
    "": linear,
    "linear": linear,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "relu": relu,
    "leakyrelu": leakyrelu,
    "prelu": prelu,
    "swish": swish,
    "gelu": gelu,
}


def activation(name: str, option: str = "activation") -> Activation:
    """The activation ``name``; ``UnsupportedOptionError``, which names ``option``, if it does not exist."""
    return choose(option, name, ACTIVATIONS)
