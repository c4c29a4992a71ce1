"""Graphs to and from ONNX files."""

from __future__ import annotations

from .axes import distinct_primes as distinct_primes
from .exporting import check_onnx as check_onnx
from .exporting import export_onnx as export_onnx
from .extras import extra as extra
from .importing import import_onnx as import_onnx
