"""The rows of a graph as ONNX operations, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph import ExpressionGraph
from ...node import Node
from ...ops.loop import Body
from ...ops.scan import ScanNodeOp
from ...places import place
from ...recording import spec_over
from ...specs import Spec, Specs
from ...structure import INPUT, Structure, is_leaf
from ..calls import ControlFlowNodeOp
from ..errors import BridgeError, UnsupportedOperatorError
from ..jaxpr import translated
from ..primitive_node import PrimitiveNodeOp
from ..primitives import RULES as PRIMITIVES
from ..primitives import WITHOUT_RULES
from .places import RULES as PLACES
from .primitives import primitive_rule
from .values import RULES as VALUES
from .writer import Name, Operation, Rule, Writer

RULES: dict[type, Rule] = {**VALUES, **PLACES}
_VALUES_ALONE = {**PRIMITIVES, **WITHOUT_RULES}


def write_constant(w: Writer, node: Node, value: np.ndarray) -> Name:
    """Write a constant; the model cuts open axes to their actual sizes when it runs."""
    stem = node.name if node.name != "none" else f"const_{node.id}"
    opened = [(axis, w.axes.size(n)) for axis, n in enumerate(value.shape) if w.axes.size(n).axes]
    if value.size and (value == value.flat[0]).all():
        number, where = value.flat[0].item(), place(node.where)
        if opened or w.axes.number(number, where):
            return w.op("Expand", w.given(number, node._first_spec(), where), w.dims(value.shape))
    if not opened:
        return w.initializer(w.reserve(stem), value)
    if any(size.factor != 1 or len(size.axes) != 1 for _, size in opened):
        raise BridgeError(
            f"export_onnx: a constant of shape {value.shape}, made at {place(node.where)}, has an axis "
            "that is a product with an open one; give it an axis for each"
        )
    name = w.initializer(w.reserve(stem), value)
    for axis, _ in opened:
        name = w.op("Slice", name, w.ints(0), w.size(value.shape[axis]), w.ints(axis))
    return name


def write_rows(
    w: Writer, structure: Structure, leaves: Sequence[Name], where: Callable[[int], str]
) -> list[Any]:
    """Write a structure; returns the names of the values of all rows. ``leaves`` are the names of the input
    rows' values, ``where`` gives the user's line for a row."""
    values: list[Any] = []
    specs: list[Specs] = []
    inputs = iter(leaves)
    for i, row in enumerate(structure.rows):
        if row[0] is INPUT:
            values.append(next(inputs))
            specs.append(row[1])
        elif is_leaf(row):
            raise UnsupportedOperatorError(
                f"the random node made at {where(i)} cannot be written to ONNX, which has no such numbers; "
                "record the graph for inference"
            )
        else:
            children = tuple(specs[k] for k in row[1:])
            specs.append(spec_over(row[0], children))
            operation = Operation(row[0], children, specs[-1], where(i))
            values.append(_write(w, operation, [values[k] for k in row[1:]]))
    return values


def _write(w: Writer, operation: Operation, values: Sequence[Any]) -> Any:
    operator = operation.operator
    if isinstance(operator, ScanNodeOp):
        return _write_scan(w, operation, values)
    for spec in operation.out if isinstance(operation.out, tuple) else (operation.out,):
        for number in spec.shape:
            w.axes.size(number)
    found = RULES.get(type(operator)) or primitive_rule(operator)
    return found(w, operation, *values) if found else _write_forward(w, operation, values)


def _write_forward(w: Writer, operation: Operation, values: Sequence[Any]) -> Any:
    """Write an operator without a rule as the primitives of its forward."""
    operator = operation.operator
    keeps_primitives = isinstance(operator, PrimitiveNodeOp | ControlFlowNodeOp)
    if keeps_primitives or any(isinstance(spec, tuple) for spec in operation.specs):
        raise operation.refuse("there is no rule for it")
    graph = ExpressionGraph(inference=True)
    inputs = [graph.input(f"child {i}", s.shape, s.type) for i, s in enumerate(operation.specs)]
    names = {node.id: value for node, value in zip(inputs, values, strict=True)}
    try:
        made = translated(graph, operator.forward_ops, tuple(inputs), _VALUES_ALONE)
        tops = list(made) if isinstance(made, tuple) else [made]
        excerpt = graph.tape.below([n.id for n in (*inputs, *tops)])
        nodes = [graph.tape.nodes[i] for i in excerpt.inputs]
        leaves = [names.get(n.id) or write_constant(w, n, np.asarray(n.leaf_value())) for n in nodes]
        results = write_rows(w, excerpt.structure, leaves, lambda _: operation.where)
    except BridgeError as e:
        raise operation.refuse(str(e)) from None
    rows = [results[excerpt.row_of[n.id]] for n in tops]
    return tuple(rows) if isinstance(operation.out, tuple) else rows[0]


def _write_scan(w: Writer, operation: Operation, values: Sequence[Name]) -> tuple[Name, ...]:
    """Write a loop; its body sees the names outside it."""
    operator = operation.operator
    body: Body = operator.body
    states, sequences = len(body.states), operator.sequences
    inner = Writer(w.axes, w)
    leaves = [row for row in body.structure.rows if row[0] is INPUT]
    specs: list[Spec] = [row[1] for row in leaves[: states + sequences]]
    names = [inner.reserve("state" if i < states else "slice") for i in range(len(specs))]
    outer = values[states + sequences :]
    rows = write_rows(inner, body.structure, [*names, *outer], lambda _: operation.where)
    infos = [inner.value_info(name, spec) for name, spec in zip(names, specs, strict=True)]
    results = []
    for k, row in enumerate((*body.states, *body.results)):
        name = inner.reserve("result")
        inner.alias(rows[row], name)
        out: Spec = operation.out[k]
        of_step = out if k < states else Spec(out.shape[1:], out.type)
        results.append(inner.value_info(name, of_step))
    count = len(body.results)
    return w.parts(
        "Scan",
        states + count,
        *values[: states + sequences],
        body=inner.graph(w.reserve("body"), infos, results),
        num_scan_inputs=sequences,
        scan_input_directions=[int(operator.reverse)] * sequences,
        **({"scan_output_directions": [int(operator.reverse)] * count} if count else {}),
    )
