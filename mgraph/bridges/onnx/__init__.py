"""Graphs to and from ONNX files."""

from __future__ import annotations

from .export import export_onnx as export_onnx
