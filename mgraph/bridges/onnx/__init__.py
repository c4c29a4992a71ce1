"""Graphs to and from ONNX files."""

from __future__ import annotations

from .exporting import export_onnx as export_onnx
from .importing import import_onnx as import_onnx
