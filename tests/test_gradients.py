"""Every operator's hand-written gradient, held against JAX's own and against differences."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import mgraph.ops
from mgraph import NaryNodeOp, check_gradients


def operators() -> list[type[NaryNodeOp]]:
    """All node operators of the package that have a rule of their own."""
    for module in pkgutil.iter_modules(mgraph.ops.__path__):
        importlib.import_module(f"mgraph.ops.{module.name}")
    found: set[type[NaryNodeOp]] = set()
    pending = [NaryNodeOp]
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if cls.__module__.startswith("mgraph.ops.") and "type" in vars(cls) and hasattr(cls, "backward_ops"):
            found.add(cls)
    return sorted(found, key=lambda c: (c.__module__, c.__name__))


@pytest.mark.parametrize("operator", operators(), ids=lambda c: c.__name__)
def test_gradient(operator: type[NaryNodeOp]) -> None:
    assert getattr(operator, "cases", ()), f"{operator.__name__} declares no cases"
    report = check_gradients(operator)
    assert report.checks
    if operator.gradient_is_derivative:
        assert report.ok, report
