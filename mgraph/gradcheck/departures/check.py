"""``check_layers``: a whole loss, operator by operator."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ...errors import ArgumentError, GraphError, ShapeError
from ...graph import ExpressionGraph
from ...leaves import ParamNode
from ...node import Node
from ...rules import check_rule_set
from ...structure import INPUT, Excerpt, is_leaf
from ..loss import checked_params
from ..witnesses.recorded import RecordedFunction, smoothed, wide
from .naming import Namer
from .report import DepartureReport
from .sweep import Programs, Side, Sweep

log = logging.getLogger("mgraph.gradcheck")


def check_layers(
    record: Callable[[ExpressionGraph], Node],
    params: Mapping[str, Any],
    *,
    float32: bool = True,
    rule_set: str = "rules",
) -> DepartureReport:
    """Examine the gradient of a loss operator by operator, and name operators whose rules depart from JAX.

    ``record`` records the loss in a graph; ``params`` are the values of its parameters. Each operator's rule
    is compared with JAX's derivative of its forward, at the values and the adjoint that it gets in the loss,
    which JAX computes in float64. So every wrong rule is named, wherever it is, and a correct rule is not
    blamed for what a wrong one hands on. Rules in the bodies of loops are examined in every step.

    In float64, a gradient may be off by 1e-10 of its largest element plus what rounding can do: 16 times as
    much as the gradient moves if its inputs move by 8 units in the last place. In float32, which
    ``float32=False`` leaves out, it may be off by 1e-5 plus rounding.

    The report also has the gradient of each parameter, as in ``check_loss``, and the path that an error took
    to it; and how far values and adjoints in float32 are from float64, layer by layer. Operators are compiled
    one by one, and those that are alike share a compiled function, so a model of many layers takes little
    longer to compile than one of few. The rule of a loop as a whole is examined like any other.

    ``rule_set="marian"`` examines Marian's own formulas. ``ArgumentError`` if ``record`` does not return a
    node, or ``params`` are not arrays of numbers by name; ``GraphError`` if nothing below the loss can have a
    gradient, or a parameter has no value; ``ShapeError`` for a value of another shape.
    """
    check_rule_set(rule_set)
    arrays = checked_params("check_layers", params)
    began = time.perf_counter()
    graph = ExpressionGraph()
    loss = record(graph)
    if not isinstance(loss, Node):
        raise ArgumentError(
            f"check_layers: expected a function that returns the node of a loss, got {loss!r}"
        )
    excerpt = loss.tape().below([loss.id])
    flags = excerpt.structure.trainable()
    top = excerpt.row_of[loss.id]
    if not flags[top]:
        raise GraphError("nothing below this loss can have a gradient")
    leaves, rows = _leaves(loss, excerpt, arrays), [row for row in excerpt.structure.rows if is_leaf(row)]
    typed = [leaf.astype(spec.type.dtype) for leaf, (_, spec, *_) in zip(leaves, rows, strict=True)]
    with jax.enable_x64(True):
        given = [wide(v) for v, (head, *_) in zip(leaves, rows, strict=True) if head is INPUT]
        chosen = [k for k, i in enumerate(excerpt.inputs) if loss.tape().nodes[i].trainable]
        own = RecordedFunction(excerpt, top, chosen, given, loss.graph.seed).widening
        programs = Programs(rule_set, own.rounding)
        wide_side = Side(own.structure, [wide(v) for v in leaves], programs, wide=True)
    narrow = Side(smoothed(excerpt.structure), typed, programs, wide=False) if float32 else None
    sweep = Sweep(wide_side, narrow, flags)
    report = Namer(loss, excerpt, own.rounding).report(sweep.run(top), sweep.loss)
    log.info("%d operators one by one: %.1f s", len(report.nodes), time.perf_counter() - began)
    return report


def _leaves(loss: Node, excerpt: Excerpt, params: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The values of all leaves in the order of their rows; random leaves are drawn.

    ``GraphError`` if a parameter has no value in ``params``, ``ShapeError`` if a value has another shape.
    """
    tape, key = loss.tape(), jax.random.key(loss.graph.seed & 0xFFFFFFFF)
    inputs, ordinals = iter(excerpt.inputs), iter(excerpt.random)
    found = []
    for head, spec, *_ in filter(is_leaf, excerpt.structure.rows):
        if head is not INPUT:
            draw = jax.random.fold_in(key, next(ordinals))
            found.append(np.asarray(head.device_value(draw, spec.shape, spec.type)))
            continue
        node = tape.nodes[next(inputs)]
        if not isinstance(node, ParamNode):
            found.append(np.asarray(node.leaf_value()))
            continue
        if node.name not in params:
            raise GraphError(f"missing parameter: {node.name}")
        array = params[node.name]
        if array.shape != node.shape:
            raise ShapeError(f"parameter {node.name!r} has shape {node.shape}, got {array.shape}")
        found.append(array)
    return found
