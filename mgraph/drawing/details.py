"""Details: all that is known about a node, as plain data for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import GraphError
from ..node import Node
from ..places import place
from .faces import short
from .nodes import Drawn

_FEW, _MOST = 6, 240


def details(node: Drawn) -> dict[str, str]:
    """Element type, trainability, fields and place of a node, as texts by name."""
    parts = node.spec if isinstance(node.spec, tuple) else (node.spec,)
    found = {"element type": ", ".join(part.type.value for part in parts)}
    found["trainable"] = "yes" if node.trainable else "no"
    if node.is_checkpoint:
        found["checkpoint"] = "yes"
    found.update({name: short(repr(value), _MOST) for name, value in node.fields.items()})
    if node.where is not None:
        found["made at"] = place(node.where)
    return found


def statistics(nodes: Sequence[Node]) -> dict[str, list[dict[str, Any]]]:
    """Statistics of the values of nodes that ``forward()`` has covered, by key, one for each output.

    A value that no program returned is computed now. Gradients of parameters come after their values, once
    there are any.
    """
    found = {}
    for node in nodes:
        values = _values(node)
        if values:
            found[str(node.id)] = values
    return found


def _values(node: Node) -> list[dict[str, Any]]:
    try:
        value: Any = node.val()
    except GraphError:  # the input of a function, which has no value of its own
        return []
    parts = value if isinstance(value, tuple) else (value,)
    found = [summary(part) for part in parts]
    if node.type == "param" and node.trainable and node.graph.has_gradients:
        found.append({**summary(node.grad()), "gradient": True})
    return found


def summary(value: Any) -> dict[str, Any]:
    """Minimum, maximum, mean and l2 norm of the elements that are numbers, and how many are not.

    Of a value of few elements these too, as a text.
    """
    wide = np.asarray(value).astype(np.float64).reshape(-1)
    numbers = wide[~np.isnan(wide)]
    found: dict[str, Any] = {"NaN": int(wide.size - numbers.size)}
    if numbers.size:
        found["min"], found["max"] = float(numbers.min()), float(numbers.max())
        with np.errstate(all="ignore"):
            found["mean"], found["l2 norm"] = float(numbers.mean()), float(np.sqrt(np.square(numbers).sum()))
    if wide.size <= _FEW:
        found["values"] = ", ".join(f"{x:.6g}" for x in wide)
    return found
