"""Dumps: the values of a graph's named nodes in a file, and the first node that differs between two dumps.

To find where two computations begin to differ (another machine, rule set, element type, or a change in the
code), give nodes names, dump both graphs and let ``diff`` name the first node that differs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..arrays import real
from ..errors import ArgumentError
from ..tables import table
from ..tape import Graph
from .parameter_files import read_items, write_items

RTOL, ATOL = 1e-5, 1e-6

# Element types that a file of items cannot hold, and the types that hold their values instead.
_STORED = {"bool": np.uint8, "bfloat16": np.float32}


def values(graph: Graph) -> dict[str, np.ndarray]:
    """The values of all named nodes of ``graph``, in the order in which they were recorded.

    Parameters and inputs have names, other nodes get theirs from ``set_name``. A second node of the same name
    is called ``name#2``; the outputs of a node with several outputs are ``name.0``, ``name.1``. Nodes in the
    body of a loop have no single value and are left out. ``GraphError`` before ``forward()``.
    """
    found: dict[str, np.ndarray] = {}
    for node in graph.tape.nodes:
        if node.name == "none":
            continue
        value = graph.value_of(node.id)
        if isinstance(value, tuple):
            for i, part in enumerate(value):
                found[_free(f"{node.name}.{i}", found)] = np.asarray(part)
        else:
            found[_free(node.name, found)] = np.asarray(value)
    return found


def dump(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Writes ``values(graph)``, in their order, to ``path``, an ``.npz``, ``.bin`` or ``.safetensors``.

    ``bool`` is stored as uint8 and ``bfloat16`` as float32, which hold the same values.
    """
    items = {
        name: array.astype(_STORED.get(str(array.dtype), array.dtype), copy=False)
        for name, array in values(graph).items()
    }
    write_items(path, items)


@dataclass(frozen=True)
class NodeDifference:
    """The values of one node in two dumps, compared."""

    name: str
    shape: tuple[int, ...]
    type: str
    problem: str
    """How the values differ beyond the tolerance, in words; empty if they do not."""
    largest: float = 0.0
    """The largest ``|a - b|``; infinite if only one of the two is a number."""
    relative: float = 0.0
    """``largest`` divided by the largest magnitude in ``b``."""
    beyond: int = 0
    """Number of elements that differ beyond the tolerance."""


@dataclass(frozen=True)
class DumpDiff:
    """What ``diff`` found, node by node, in order; prints the first difference, then a table."""

    nodes: tuple[NodeDifference, ...]
    tolerance: str

    @property
    def first(self) -> NodeDifference | None:
        """The first node that differs beyond the tolerance, ``None`` if there is none."""
        return next((node for node in self.nodes if node.problem), None)

    def __str__(self) -> str:
        first = self.first
        different = sum(bool(node.problem) for node in self.nodes)
        head = f"{len(self.nodes)} nodes, {different} of them differ beyond {self.tolerance}"
        if first is None:
            lines = [head]
        else:
            lines = [f"the first node that differs is {first.name!r}: {first.problem}", head]
        rows = [("", "node", "type", "shape", "max |a-b|", "relative", "beyond")]
        for node in self.nodes:
            shape = "x".join(map(str, node.shape)) or "scalar"
            numbers = (f"{node.largest:.1e}", f"{node.relative:.1e}", str(node.beyond))
            if node.problem and not node.beyond:
                numbers = ("-", "-", "-")
            rows.append(("*" if node.problem else "", node.name, node.type, shape, *numbers))
        return "\n".join([*lines, *table(rows, "<<<<>>>")])

    __repr__ = __str__  # for prompts and notebooks


Dump = Mapping[str, Any] | str | os.PathLike[str]


def diff(a: Dump, b: Dump, rtol: float = RTOL, atol: float = ATOL) -> DumpDiff:
    """Compares two dumps (``values`` of graphs, or files of ``graph.dump`` or models) node by node.

    Two values differ if one is missing, if shapes or element types are unequal, or if for an element ``|a -
    b| > atol + rtol * |b|``; integers must be equal, and NaN is equal to NaN. The order is that of ``a``; a
    node that only ``b`` has comes after its predecessor in ``b``. ``ArgumentError`` for a tolerance that is
    negative or no number, and for anything but a dump.
    """
    rtol, atol = real("diff", "rtol", rtol), real("diff", "atol", atol)
    if not (rtol >= 0 and atol >= 0):
        raise ArgumentError(f"expected tolerances of at least 0, got rtol={rtol} and atol={atol}")
    a, b = _items(a), _items(b)
    nodes = []
    for name in _merged(a, b):
        if name in a and name in b:
            nodes.append(_compared(name, np.asarray(a[name]), np.asarray(b[name]), rtol, atol))
        else:
            array = np.asarray(a[name] if name in a else b[name])
            where = "only in the first" if name in a else "only in the second"
            nodes.append(NodeDifference(name, array.shape, str(array.dtype), where))
    return DumpDiff(tuple(nodes), f"rtol {rtol:g}, atol {atol:g}")


def _items(dump: Dump) -> Mapping[str, Any]:
    if isinstance(dump, str | os.PathLike):
        return read_items(dump)
    if not isinstance(dump, Mapping):
        raise ArgumentError(f"diff: expected values by name or a file, got {dump!r}")
    return dump


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """``name``, or the first free of ``name#2``, ``name#3``, ... if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}#{number}"
    return free


def _merged(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The names of ``a``, with each name that only ``b`` has after its predecessor in ``b``."""
    followers: dict[str | None, list[str]] = {None: []}
    last = None
    for name in b:
        if name in a:
            last = name
        else:
            followers.setdefault(last, []).append(name)
    order = list(followers[None])
    for name in a:
        order += [name, *followers.get(name, ())]
    return order


def _compared(name: str, a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> NodeDifference:
    kind = str(b.dtype)
    if a.shape != b.shape:
        return NodeDifference(name, b.shape, kind, f"shape {a.shape} and {b.shape}")
    if a.dtype != b.dtype:
        return NodeDifference(name, b.shape, kind, f"element type {a.dtype} and {b.dtype}")
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    wide_a, wide_b = flat_a.astype(np.float64), flat_b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(wide_a - wide_b)
        gap[(flat_a == flat_b) | (np.isnan(wide_a) & np.isnan(wide_b))] = 0
        gap[np.isnan(gap)] = np.inf
        scale = np.abs(wide_b)
        wrong = (gap > atol + rtol * scale) | np.isinf(gap)
    if not jax.numpy.issubdtype(b.dtype, np.floating):
        wrong = flat_a != flat_b
    largest = float(gap.max(initial=0))
    most = float(scale.max(initial=0, where=np.isfinite(scale)))
    relative = largest / most if most else math.inf if largest else 0.0
    beyond = int(wrong.sum())
    problem = ""
    if beyond:
        i = int(np.where(wrong, gap, -1).argmax())
        index = ", ".join(str(k) for k in np.unravel_index(i, a.shape))
        place = f" at [{index}]" if index else ""
        problem = (
            f"by {gap[i]:.3g}{place}: {flat_a[i]} and {flat_b[i]} "
            f"({beyond} of {a.size} elements are beyond the tolerance)"
        )
    return NodeDifference(name, b.shape, kind, problem, largest, relative, beyond)
