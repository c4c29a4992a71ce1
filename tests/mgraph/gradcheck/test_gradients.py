"""Every operator's hand-written gradient, checked by its witnesses."""

from __future__ import annotations

import pytest

from mgraph import NaryNodeOp
from mgraph.gradcheck.survey import check_operator, own_operators

WITNESSES = {"jit", "vmap", "scan", "remat", "frozen"}
DERIVATIVES = {"jax", "differences", "second"}


def check(operator: type[NaryNodeOp], *, quick: bool) -> None:
    row = check_operator(operator, quick=quick)
    assert row.ok, row.report or row.problem
    asked = row.differences.keys()
    assert quick or asked >= WITNESSES
    if operator.gradient_is_derivative and operator.differentiable:
        assert asked >= (DERIVATIVES - {"second"} if quick else DERIVATIVES)


OPERATORS = pytest.mark.parametrize("operator", own_operators(), ids=lambda cls: cls.__name__)


@OPERATORS
def test_gradient(operator: type[NaryNodeOp]) -> None:
    """On two of its cases, first derivatives only."""
    check(operator, quick=True)


@OPERATORS
@pytest.mark.sampled(every=12)
def test_gradient_on_all_cases(operator: type[NaryNodeOp]) -> None:
    check(operator, quick=False)
