"""Errors of bridges."""

from __future__ import annotations

from ..errors import MGraphError


class BridgeError(MGraphError, ValueError):
    """A function or a file cannot be turned into a graph, or a graph into a file."""


class UnsupportedPrimitiveError(BridgeError, NotImplementedError):
    """A JAX function uses a primitive that cannot be a node."""


class UnsupportedOperatorError(BridgeError, NotImplementedError):
    """An operator has no counterpart on the other side of a bridge."""
