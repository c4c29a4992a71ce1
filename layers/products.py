"""Products with weights, and rows of tables, held in floating point or in int8.

A graph may declare a parameter as int8 instead of in floating point. The int8 matrix comes with more
parameters: ``{name}:scale``, one number for each column or, in tables, for each row; and sometimes
``{name}:multiplier``, one number that quantizes the rows that the matrix is multiplied with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mgraph import Node, Type, affine, affine_int8, cast, concatenate, dot, rows
from mgraph.tape import Graph

from .layer import Parameter

SCALE, MULTIPLIER = ":scale", ":multiplier"
"""Suffixes of the parameters that go with an int8 matrix."""


class Int8(NamedTuple):
    """The nodes of an int8 matrix."""

    values: Node
    scales: Node
    multiplier: Node | None


def int8_of(weight: Parameter, graph: Graph) -> Int8 | None:
    """The int8 matrix that ``graph`` has for a weight; ``None`` if the weight is in floating point."""
    values = weight.on(graph)
    if values.value_type is not Type.int8:
        return None
    shape = tuple(1 if axis == weight.contracted else int(n) for axis, n in enumerate(weight.shape))
    return Int8(values, graph.param(weight.name + SCALE, shape), graph.get(weight.name + MULTIPLIER))


def product(x: Node, weight: Parameter, bias: Parameter | None = None, *, trans_b: bool = False) -> Node:
    """``x W + b`` of rows ``x (..., k)``, ``W (k, n)`` and ``b (1, n)``; in integers if ``W`` is int8.

    ``trans_b`` is for a ``W`` of shape ``(n, k)``.
    """
    graph = weight.graph_of(x)
    int8 = int8_of(weight, graph)
    if int8 is not None:
        shift = None if bias is None else bias.on(graph)
        return affine_int8(x, int8.values, int8.scales, shift, int8.multiplier, trans_b)
    matrix = weight.on(graph)
    if bias is None:
        return dot(x, matrix, False, trans_b)
    return affine(x, matrix, bias.on(graph), False, trans_b)


def products(x: Node, weights: Sequence[Parameter]) -> Node:
    """``x [W1 W2 ...]``: one product with the concatenated matrices, or one for each matrix if int8."""
    if int8_of(weights[0], x.graph) is not None:
        return concatenate([product(x, weight) for weight in weights], -1)
    return dot(x, concatenate([weight.on(x.graph) for weight in weights], -1))


def table_rows(table: Parameter, ids: Node) -> Node:
    """The rows ``(n, dim)`` of a table at ``ids (n,)``."""
    int8 = int8_of(table, ids.graph)
    if int8 is None:
        return rows(table.on(ids.graph), ids)
    scales = rows(int8.scales, ids)
    return cast(rows(int8.values, ids), scales.value_type) * scales
