"""Packages that only a bridge needs, imported when it is crossed."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import BridgeError


def extra(package: str) -> Any:
    """The module ``package``; ``BridgeError`` that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        root = package.partition(".")[0]
        raise BridgeError(
            f"this needs the package {root}, which is not installed; "
            "pip install 'mgraph-jax[onnx]' installs it"
        ) from None
