"""Errors of bridges, and the import of packages that only a bridge needs."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import MGraphError


class BridgeError(MGraphError, ValueError):
    """A function or a file cannot be turned into a graph, or a graph into a file."""


class UnsupportedPrimitiveError(BridgeError, NotImplementedError):
    """A JAX function uses a primitive that has no meaning in a graph."""


class UnsupportedOperatorError(BridgeError, NotImplementedError):
    """An operator has no counterpart on the other side of a bridge."""


def extra(package: str) -> Any:
    """The module ``package``; ``BridgeError`` that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        root = package.partition(".")[0]
        raise BridgeError(
            f"this needs the package {root}, which is not installed; pip install 'mgraph[onnx]' installs it"
        ) from None
