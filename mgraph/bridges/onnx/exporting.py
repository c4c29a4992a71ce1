"""Graphs as ONNX files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays import described, is_series, text, whole
from ...errors import ArgumentError
from ...files.items import replacing
from ...files.paths import path_text
from ...graph import ExpressionGraph
from ...leaves import ParamNode
from ...node import Node
from ...places import here, place
from ..errors import BridgeError
from .axes import OpenAxes
from .extras import extra
from .rows import write_constant, write_rows
from .writer import Name, Writer

PARAMETERS = "mgraph.parameters"
"""Key of the metadata that lists which initializers are parameters; an object gives their names as
parameters where an input, an output or a constant has that name, too."""
OPSETS = (18, 23)
EXTERNAL = 1_900_000_000  # bytes; a protocol buffer holds less than 2 GiB
CHECKED = 1024  # bytes; shapes and axes are constants, too


def export_onnx(
    graph: ExpressionGraph,
    outputs: Node | Sequence[Node] | Mapping[str, Node],
    inputs: Sequence[Node] | Mapping[str, Node],
    path: str | os.PathLike[str],
    *,
    opset: int = 18,
    axes: Mapping[str, int] | None = None,
) -> None:
    """Write the graph below ``outputs`` as the ONNX model ``path``, a function of ``inputs``.

    ``inputs`` are leaves, as for ``graph.function``; parameters, under their names, and constants become
    initializers with their present values. Outputs are named by the mapping, by their nodes' names, or
    ``output0`` and so on. Element types are kept; loops of ``scan`` become ONNX ``Scan`` loops.

    ``axes`` names sizes to leave open: ``{"batch": 1999, "length": 2003}`` for a graph that was recorded with
    these sizes, which must be unique, preferably large primes. Products of open sizes may occur, sums may
    not; slices take elements at the beginning or at the end. A number that is a multiple of an open prime, or
    1 over such a multiple, as in means, follows the size. A prime's root, its logarithm and the number before
    it are refused; other numbers that were computed from a size outside the graph stay as they are. An open
    axis that no input has becomes an input itself, an int64 scalar. A constant with an open axis is cut to
    its first entries, as positions and masks need, so the recorded size is the largest possible; a constant
    that repeats one number may have any size.

    A model beyond 1.9 GB keeps its initializers in ``{path}.data`` next to it. Needs the package onnx: ``pip
    install 'mgraph-jax[onnx]'``. ``UnsupportedOperatorError``, with the name and the line, for random nodes
    and for operators that can be written neither directly nor as the primitives of their forward;
    ``BridgeError`` for sizes that cannot be open, and for element types that ONNX does not compute with, as
    in sums of truth values. An index out of range gives NaN here and is an error in ONNX. For a row that
    holds only -inf, such as attention to masked keys only, softmax gives zeros and cross entropy inf here;
    ONNX gives NaN.
    """
    if not isinstance(graph, ExpressionGraph):
        raise ArgumentError(f"export_onnx: expected a graph, got {described(graph)}{here()}")
    if not isinstance(axes, Mapping | None):
        raise ArgumentError(f"export_onnx: expected sizes of axes by name, got {described(axes)}{here()}")
    check_onnx(opset)
    name = path_text(path)
    sizes = {
        text("the name of an axis", axis): whole("export_onnx", f"the size of axis {axis!r}", size)
        for axis, size in (axes or {}).items()
    }
    model = _Export(graph, outputs, inputs, sizes).model(opset)
    _save(model, name)


def check_onnx(opset: int) -> None:
    """The errors of ``export_onnx`` that do not depend on the graph: ``ArgumentError`` for an operator set
    that is not written, ``BridgeError`` without the package onnx."""
    if not OPSETS[0] <= whole("export_onnx", "opset", opset) <= OPSETS[1]:
        raise ArgumentError(f"expected an operator set from {OPSETS[0]} to {OPSETS[1]}, got {opset}")
    extra("onnx")


def is_large(model: Any) -> bool:
    """Whether a model's constants are too large for one file, so that a second file holds them."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer) > EXTERNAL


def _save(model: Any, path: str) -> None:
    onnx = extra("onnx")
    if is_large(model):
        location = f"{os.path.basename(path)}.data"
        onnx.save_model(model, path, save_as_external_data=True, location=location)
        return
    data = model.SerializeToString()
    with replacing(path) as file:
        file.write(data)


def _check(model: Any) -> None:
    """``BridgeError`` for a model that ONNX does not allow. Its large constants are checked as inputs,
    because ONNX checks at most 2 GiB in memory."""
    onnx = extra("onnx")
    tensors = model.graph.initializer
    large = [t for t in tensors if len(t.raw_data) > CHECKED]
    infos = [onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large]
    body = onnx.helper.make_graph(
        model.graph.node,
        model.graph.name,
        [*model.graph.input, *infos],
        model.graph.output,
        [t for t in tensors if len(t.raw_data) <= CHECKED],
    )
    light = onnx.helper.make_model(body, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        onnx.checker.check_model(light, full_check=True)
    except (onnx.checker.ValidationError, extra("onnx.shape_inference").InferenceError) as e:
        raise BridgeError(f"export_onnx: ONNX does not allow this graph: {str(e).strip()[:500]}") from None


class _Export:
    """One export: the parts of the model under construction."""

    def __init__(self, graph: ExpressionGraph, outputs: Any, inputs: Any, axes: Mapping[str, int]) -> None:
        self.outputs = _named_outputs(outputs)
        inputs = [inputs] if isinstance(inputs, Node) else inputs
        # graph.function checks inputs and outputs, with messages that users know.
        function = graph.function(list(self.outputs.values()), inputs)
        named = inputs if isinstance(inputs, Mapping) else dict(zip(function.inputs, inputs, strict=True))
        self.inputs: dict[str, Node] = {name: node.current() for name, node in named.items()}
        self.tape = graph.tape
        chosen = [n.current() for n in (*self.outputs.values(), *self.inputs.values())]
        self.excerpt = self.tape.below([n.id for n in chosen])
        leaves = [self.tape.nodes[i] for i in self.excerpt.inputs]
        given = {node.id for node in self.inputs.values()}
        held = [n for n in leaves if isinstance(n, ParamNode) and n.id not in given]
        self.writer = Writer(OpenAxes(axes, {size for n in held for size in n.shape}))
        self.leaves, self.given = leaves, given
        self.parameters: dict[Name, str] = {}
        """The names of parameters by those of their initializers."""

    def model(self, opset: int) -> Any:
        w, helper = self.writer, extra("onnx").helper
        for name in (*self.inputs, *self.outputs):
            if w.reserve(name) != name:
                raise BridgeError(f"export_onnx: two inputs or outputs are called {name!r}")
        infos = [w.value_info(name, node._first_spec()) for name, node in self.inputs.items()]
        infos += self._open_axes()
        row_of = self.excerpt.row_of
        nodes = {row_of[i]: self.tape.nodes[i] for i in row_of}
        leaves = [self._leaf(node) for node in self.leaves]
        values = write_rows(w, self.excerpt.structure, leaves, lambda row: place(nodes[row].where))
        results = []
        for name, node in self.outputs.items():
            value = values[row_of[node.current().id]]
            if isinstance(value, tuple):
                raise BridgeError(f"export_onnx: output {name!r} has several values; take one of them")
            w.alias(value, name)
            results.append(w.value_info(name, node._first_spec()))
        body = w.graph("mgraph", infos, results)
        opsets = [helper.make_opsetid("", opset)]
        ir_version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(body, producer_name="mgraph", opset_imports=opsets, ir_version=ir_version)
        same = all(initializer == name for initializer, name in self.parameters.items())
        listed = [*self.parameters] if same else self.parameters
        helper.set_model_props(model, {PARAMETERS: json.dumps(listed)})
        _check(model)
        return model

    def _open_axes(self) -> list[Any]:
        """Record where the size of each open axis comes from; returns new inputs for axes that no input
        has."""
        w, infos = self.writer, []
        for axis, size in w.axes.sizes.items():
            places = [
                (name, i) for name, node in self.inputs.items() for i, n in enumerate(node.shape) if n == size
            ]
            if places:
                name, i = places[0]
                shape = w.op("Shape", name, start=i, end=i + 1)
                w.axis_values[axis] = shape
                continue
            if w.reserve(axis) != axis:
                raise BridgeError(
                    f"export_onnx: the axis {axis!r} needs an input, and there is already one of that name"
                )
            infos.append(w.onnx.helper.make_tensor_value_info(axis, w.onnx.TensorProto.INT64, []))
            w.axis_values[axis] = w.op("Reshape", axis, w.ints(1))
        return infos

    def _leaf(self, node: Node) -> Name:
        if node.id in self.given:
            return next(name for name, given in self.inputs.items() if given.id == node.id)
        value = np.asarray(node.leaf_value())
        if isinstance(node, ParamNode):
            name = self.writer.reserve(node.name)
            self.parameters[name] = node.name
            return self.writer.initializer(name, value)
        return write_constant(self.writer, node, value)


def _named_outputs(outputs: Any) -> dict[str, Node]:
    if isinstance(outputs, Mapping) and outputs:
        return {text("the name of an output", name): node for name, node in outputs.items()}
    nodes = [outputs] if isinstance(outputs, Node) or not is_series(outputs) else list(outputs)
    if not nodes or not all(isinstance(n, Node) for n in nodes):
        raise ArgumentError(f"export_onnx: the outputs are nodes, got {described(outputs)}{here()}")
    names = [n.name if n.name != "none" else f"output{i}" for i, n in enumerate(nodes)]
    if len(set(names)) != len(names):
        raise BridgeError(
            f"export_onnx: two outputs have the same name, in {names}; name them by a dictionary"
        )
    return dict(zip(names, nodes, strict=True))
