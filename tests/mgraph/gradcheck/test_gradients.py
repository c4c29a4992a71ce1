"""Every operator's hand-written gradient, held against all witnesses on all of its cases."""

from __future__ import annotations

import pytest

from mgraph import NaryNodeOp
from mgraph.gradcheck.survey import check_operator, own_operators

LONG = {
    "AffineCrossEntropyNodeOp",
    "AffineInt8NodeOp",
    "CSRDotNodeOp",
    "CachedAttentionNodeOp",
    "ConvolutionOp",
    "DotBatchedLegacyNodeOp",
    "DotProductAttentionNodeOp",
    "LogCumSumExpNodeOp",
    "PoolingOp",
    "ReduceByNodeOp",
    "ScatterNodeOp",
    "SparsemaxNodeOp",
    "TopKNodeOp",
    "UnlikelihoodNodeOp",
}
"""Checked with the slow tests: they have many cases, or children."""
OPERATORS = [
    pytest.param(cls, id=cls.__name__, marks=[pytest.mark.slow] * (cls.__name__ in LONG))
    for cls in own_operators()
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradient(operator: type[NaryNodeOp]) -> None:
    row = check_operator(operator)
    assert row.ok, row.report or row.problem
    assert {"jit", "vmap", "scan", "remat", "frozen"} <= row.differences.keys()
    if operator.gradient_is_derivative and operator.differentiable:
        assert {"jax", "differences", "second"} <= row.differences.keys()
