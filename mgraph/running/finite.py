"""Errors of ``set_throw_nan``: the first value or gradient that is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..errors import NonFiniteError
from ..node import Node
from ..places import place


def check_values(nodes: Sequence[Node], finite: Any) -> None:
    """``NonFiniteError`` about the first node whose value is not finite; ``finite`` has a flag per node."""
    bad = np.flatnonzero(~np.asarray(finite))
    if len(bad):
        node = nodes[int(bad[0])]
        raise NonFiniteError(f"the value of {_described(node)} is not finite{_children(node)}")


def check_gradients_of(nodes: Sequence[Node], finite: Any) -> None:
    """``NonFiniteError`` about the first node, from the top down, whose gradient is not finite."""
    bad = np.flatnonzero(~np.asarray(finite))
    if len(bad):
        node = nodes[int(bad[-1])]
        users = [n for n in nodes if n.trainable and node in n.children]
        sources = "".join(f"\n  from the rule of {_described(user)}{_children(user)}" for user in users)
        raise NonFiniteError(f"the gradient of {_described(node)} is not finite{sources}")


def _described(node: Node) -> str:
    name = f" {node.name!r}" if node.name != "none" else ""
    return f"{node.type}{name} {node.spec!r} (id {node.id}) made at {place(node.where)}"


def _children(node: Node) -> str:
    return "".join(f"\n  child {i}: {_described(c)}{_range(c)}" for i, c in enumerate(node.children))


def _range(node: Node) -> str:
    """The range of the finite elements of a value, and how many are not finite."""
    parts = [np.asarray(v) for v in jax.tree.leaves(node.val())]
    texts = []
    for part in parts:
        wide = part.astype(np.float64).ravel()
        numbers = wide[np.isfinite(wide)]
        inside = f"from {numbers.min():g} to {numbers.max():g}" if numbers.size else "no finite element"
        bad = wide.size - numbers.size
        texts.append(f"{inside}, {bad} not finite" if bad else inside)
    return f": {'; '.join(texts)}" if texts else ""
