"""Bridges: graphs from plain JAX functions, graphs to and from ONNX files."""

from __future__ import annotations

from .errors import BridgeError as BridgeError
from .errors import UnsupportedOperatorError as UnsupportedOperatorError
from .errors import UnsupportedPrimitiveError as UnsupportedPrimitiveError
from .jaxpr import from_jax as from_jax
from .onnx import export_onnx as export_onnx
from .onnx import import_onnx as import_onnx
