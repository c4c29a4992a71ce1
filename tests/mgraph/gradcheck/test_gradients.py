"""Every operator's hand-written gradient, held against all witnesses on all of its cases."""

from __future__ import annotations

import pytest

from mgraph import NaryNodeOp
from mgraph.gradcheck.survey import check_operator, own_operators

LONG = {
    "AffineCrossEntropyNodeOp",
    "AffineInt8NodeOp",
    "AffineNodeOp",
    "CSRDotNodeOp",
    "CachedAttentionNodeOp",
    "ConvolutionOp",
    "DotBatchedLegacyNodeOp",
    "DotBatchedNodeOp",
    "DotNodeOp",
    "DotProductAttentionNodeOp",
    "LayerNormalizationOp",
    "LogCumSumExpNodeOp",
    "PoolingOp",
    "ReduceByNodeOp",
    "ScatterNodeOp",
    "SparsemaxNodeOp",
    "TopKNodeOp",
    "UnlikelihoodNodeOp",
}
"""They have many cases, or children."""
WITNESSES = {"jit", "vmap", "scan", "remat", "frozen"}
DERIVATIVES = {"jax", "differences", "second"}


def check(operator: type[NaryNodeOp], *, quick: bool) -> None:
    row = check_operator(operator, quick=quick)
    assert row.ok, row.report or row.problem
    asked = row.differences.keys()
    assert quick or asked >= WITNESSES
    if operator.gradient_is_derivative and operator.differentiable:
        assert asked >= (DERIVATIVES - {"second"} if quick else DERIVATIVES)


@pytest.mark.parametrize("operator", own_operators(), ids=lambda cls: cls.__name__)
def test_gradient(operator: type[NaryNodeOp]) -> None:
    check(operator, quick=operator.__name__ in LONG)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(LONG))
def test_gradient_on_all_cases(name: str) -> None:
    check(next(cls for cls in own_operators() if cls.__name__ == name), quick=False)
