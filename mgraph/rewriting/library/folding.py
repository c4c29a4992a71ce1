"""Constants computed once, when the graph is optimized."""

from __future__ import annotations

import numpy as np

from ...inits import from_tensor
from ...leaves import ConstantNode
from ...node import Node
from ...ops.functors import CallbackNodeOp, DifferentiableLambdaNodeOp, LambdaNodeOp
from ...running.interpreter import Interpreter
from ...structure import INPUT, Structure
from ..patterns import Any, Match, known_value
from ..rule import rule

FREE_BYTES = 2**16
"""A constant up to this size may be larger than those it is made of."""

OPAQUE = (CallbackNodeOp, DifferentiableLambdaNodeOp, LambdaNodeOp)
"""A user's function may do more than compute."""


def _foldable(node: Node) -> bool:
    if not node.children or node.trainable or isinstance(node, OPAQUE) or isinstance(node.spec, tuple):
        return False
    values = [known_value(child) for child in node.children]
    if any(value is None for value in values):
        return False
    spec = node.spec
    size = int(np.prod(spec.shape, dtype=np.int64)) * spec.type.dtype.itemsize
    return size <= max(FREE_BYTES, sum(value.nbytes for value in values if value is not None))


@rule(Any(_foldable))
def constant_folding(m: Match) -> ConstantNode:
    """An operator on constants is a constant, unless that would be far larger than they are."""
    node, graph = m.root, m.root.graph
    leaves = [known_value(child) for child in node.children]
    rows = [(INPUT, child.spec, False) for child in node.children]
    structure = Structure((*rows, (node.operator, *range(len(rows)))))
    interpreter = Interpreter(structure, leaves.__getitem__, "rules", graph.device, {})
    value = np.asarray(interpreter.value(len(rows)))
    return graph.constant(node.shape, from_tensor(value), node.value_type)


FOLDING = (constant_folding,)
