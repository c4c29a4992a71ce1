"""Graphs as ONNX files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ...errors import ArgumentError
from ...function import Function
from ...items import replacing
from ...leaves import ParamNode
from ...node import Node
from ...ops.scan import Body, ScanNodeOp
from ...places import place
from ...specs import Spec, Specs, is_wide
from ...tape import INPUT, Structure, is_leaf
from ..errors import BridgeError, UnsupportedOperatorError
from .axes import OpenAxes
from .extras import extra
from .places import RULES as PLACES
from .primitives import primitive_rule
from .rules import Operation, Rule
from .values import RULES as VALUES
from .writer import Name, Writer

if TYPE_CHECKING:
    from ...graph import ExpressionGraph

RULES: dict[type, Rule] = {**VALUES, **PLACES}

PARAMETERS = "mgraph.parameters"
"""Key of the metadata that lists which initialisers are parameters."""
OPSETS = (18, 23)
EXTERNAL = 1_900_000_000  # bytes; a protocol buffer holds less than 2 GiB


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
    initialisers with their present values. Outputs are called as in the mapping, by their nodes' names, or
    ``output0`` and so on. Element types are kept; loops of ``scan`` become ONNX loops of ``Scan``.

    ``axes`` names sizes that shall be open: ``{"batch": 1999, "length": 2003}`` for a graph that was recorded
    with these sizes, which must be like no other, large primes best. Products of open sizes may occur, sums
    may not. An open axis that no input has becomes an input of its own, an int64 scalar. Of a constant with
    an open axis the first entries are taken, as positions and masks want it, so the recorded size is the
    largest that can be asked for; a constant of one number may have any size.

    A file beyond 1.9 GB keeps the initialisers in ``{path}.data`` beside it. Needs the package onnx:
    ``pip install 'mgraph[onnx]'``. ``UnsupportedOperatorError`` for random nodes and operators that ONNX
    does not have, with the name and the line; ``BridgeError`` for sizes that cannot be open.
    Indices beyond the end, which give NaN here, are errors there.
    """
    if not OPSETS[0] <= opset <= OPSETS[1]:
        raise ArgumentError(f"expected an operator set from {OPSETS[0]} to {OPSETS[1]}, got {opset}")
    model = _Export(graph, outputs, inputs, axes or {}).model(opset)
    _save(model, os.fspath(path))


def _save(model: Any, path: str) -> None:
    onnx = extra("onnx")
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size > EXTERNAL:
        location = f"{os.path.basename(path)}.data"
        onnx.save_model(model, path, save_as_external_data=True, location=location)
        return
    data = model.SerializeToString()
    with replacing(path) as file:
        file.write(data)


class _Export:
    """One export: the parts of the model as they are written."""

    def __init__(self, graph: ExpressionGraph, outputs: Any, inputs: Any, axes: Mapping[str, int]) -> None:
        self.outputs = _named_outputs(outputs)
        # It checks that inputs and outputs are what they must be, with the messages that users know.
        function = Function(graph, list(self.outputs.values()), inputs, graph.derivatives)
        named = inputs if isinstance(inputs, Mapping) else dict(zip(function.inputs, inputs, strict=True))
        self.inputs: dict[str, Node] = {name: node.current() for name, node in named.items()}
        self.tape = graph.tape
        chosen = [n.current() for n in (*self.outputs.values(), *self.inputs.values())]
        self.excerpt = self.tape.below([n.id for n in chosen])
        leaves = [self.tape.nodes[i] for i in self.excerpt.inputs]
        given = {node.id for node in self.inputs.values()}
        held = [n for n in leaves if isinstance(n, ParamNode) and n.id not in given]
        self.writer = Writer(OpenAxes(axes, {size for n in held for size in n.shape}))
        self.leaves, self.given, self.parameters = leaves, given, [n.name for n in held]

    def model(self, opset: int) -> Any:
        w, helper = self.writer, extra("onnx").helper
        for name in (*self.inputs, *self.outputs):
            if w.reserve(name) != name:
                raise BridgeError(f"export_onnx: two inputs or outputs are called {name!r}")
        infos = [w.value_info(name, node._first_spec()) for name, node in self.inputs.items()]
        infos += self._open_axes()
        nodes = {row: self.tape.nodes[i] for i, row in _pairs(self.excerpt.row_of)}
        values = write_rows(w, self.excerpt.structure, [self._leaf(n) for n in self.leaves], nodes)
        results = []
        for name, node in self.outputs.items():
            value = values[self.excerpt.row_of[node.current().id]]
            if isinstance(value, tuple):
                raise BridgeError(f"export_onnx: output {name!r} has several values; take one of them")
            w.alias(value, name)
            results.append(w.value_info(name, node._first_spec()))
        body = w.graph("mgraph", infos, results)
        opsets = [helper.make_opsetid("", opset)]
        ir_version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(body, producer_name="mgraph", opset_imports=opsets, ir_version=ir_version)
        helper.set_model_props(model, {PARAMETERS: json.dumps(self.parameters)})
        extra("onnx").checker.check_model(model)
        return model

    def _open_axes(self) -> list[Any]:
        """Say where the size of each open axis comes from; the inputs for those that no input has."""
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
                    f"export_onnx: the axis {axis!r} needs an input, and there is one so called"
                )
            infos.append(w.onnx.helper.make_tensor_value_info(axis, w.onnx.TensorProto.INT64, []))
            w.axis_values[axis] = w.op("Reshape", axis, w.ints(1))
        return infos

    def _leaf(self, node: Node) -> Name:
        if node.id in self.given:
            return next(name for name, given in self.inputs.items() if given.id == node.id)
        value = np.asarray(node.leaf_value())
        if isinstance(node, ParamNode):
            return self.writer.initializer(self.writer.reserve(node.name), value)
        return self._constant(node, value)

    def _constant(self, node: Node, value: np.ndarray) -> Name:
        w = self.writer
        stem = node.name if node.name != "none" else f"const_{node.id}"
        opened = [(axis, w.axes.size(n)) for axis, n in enumerate(value.shape) if w.axes.size(n).axes]
        if not opened:
            return w.initializer(w.reserve(stem), value)
        if value.size and (value == value.flat[0]).all():
            name: Name = w.op("Expand", w.constant(value.flat[0], value.dtype), w.dims(value.shape))
            return name
        if any(size.factor != 1 or len(size.axes) != 1 for _, size in opened):
            raise BridgeError(
                f"export_onnx: a constant of shape {value.shape}, made at {place(node.where)}, has an axis "
                "that is a product with an open one; give it an axis for each"
            )
        name = w.initializer(w.reserve(stem), value)
        for axis, _ in opened:
            name = w.op("Slice", name, w.ints(0), w.size(value.shape[axis]), w.ints(axis))
        return name


def _pairs(row_of: Mapping[int, int] | range) -> list[tuple[int, int]]:
    return [(i, i) for i in row_of] if isinstance(row_of, range) else list(row_of.items())


def _named_outputs(outputs: Any) -> dict[str, Node]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    nodes = [outputs] if isinstance(outputs, Node) else list(outputs)
    names = [n.name if n.name != "none" else f"output{i}" for i, n in enumerate(nodes)]
    if len(set(names)) != len(names):
        raise BridgeError(f"export_onnx: two outputs are called alike, in {names}; name them by a dictionary")
    return dict(zip(names, nodes, strict=True))


def write_rows(
    w: Writer, structure: Structure, leaves: Sequence[Name], nodes: Mapping[int, Node] | None = None
) -> list[Any]:
    """Write a structure; the names of the values of all rows. ``leaves`` are those of the input rows."""
    values: list[Any] = []
    specs: list[Specs] = []
    inputs = iter(leaves)
    for i, row in enumerate(structure.rows):
        where = place(nodes[i].where) if nodes else "a line in the body of a loop"
        if row[0] is INPUT:
            values.append(next(inputs))
            specs.append(row[1])
        elif is_leaf(row):
            raise UnsupportedOperatorError(
                f"the random node made at {where} cannot be written to ONNX, which has no such numbers; "
                "record the graph for inference"
            )
        else:
            children = tuple(specs[k] for k in row[1:])
            specs.append(_spec(row[0], children))
            operation = Operation(row[0], children, specs[-1], where)
            values.append(_write(w, operation, [values[k] for k in row[1:]]))
    return values


def _write(w: Writer, operation: Operation, values: Sequence[Any]) -> Any:
    operator = operation.operator
    if isinstance(operator, ScanNodeOp):
        return _write_scan(w, operation, values)
    found = RULES.get(type(operator)) or primitive_rule(operator)
    if found is None:
        raise operation.refuse("ONNX, or this export, has none like it")
    outs = operation.out if isinstance(operation.out, tuple) else (operation.out,)
    for spec in outs:
        for number in spec.shape:
            w.axes.size(number)
    return found(w, operation, *values)


def _spec(operator: Any, children: tuple[Any, ...]) -> Specs:
    known = operator._shapes.get(children)
    if known is None:
        with jax.enable_x64(any(is_wide(s) for s in children) or operator.makes_wide()):
            known = operator.new_spec(*children)
    found: Specs = known
    return found


def _write_scan(w: Writer, operation: Operation, values: Sequence[Name]) -> tuple[Name, ...]:
    """A loop; its body sees names from outside as they are."""
    operator = operation.operator
    body: Body = operator.body
    states, sequences = len(body.states), operator.sequences
    inner = Writer(w.axes, w)
    leaves = [row for row in body.structure.rows if row[0] is INPUT]
    specs: list[Spec] = [row[1] for row in leaves[: states + sequences]]
    names = [inner.reserve("state" if i < states else "slice") for i in range(len(specs))]
    rows = write_rows(inner, body.structure, [*names, *values[states + sequences :]])
    infos = [inner.value_info(name, spec) for name, spec in zip(names, specs, strict=True)]
    results = []
    for k, row in enumerate((*body.states, *body.results)):
        name = inner.reserve("result")
        inner.alias(rows[row], name)
        out: Spec = operation.out[k]
        of_step = out if k < states else Spec(out.shape[1:], out.type)
        results.append(inner.value_info(name, of_step))
    count = len(body.results)
    made = w.op(
        "Scan",
        *values[: states + sequences],
        outputs=states + count,
        body=inner.graph(w.reserve("body"), infos, results),
        num_scan_inputs=sequences,
        scan_input_directions=[int(operator.reverse)] * sequences,
        **({"scan_output_directions": [int(operator.reverse)] * count} if count else {}),
    )
    return made if isinstance(made, tuple) else (made,)
