"""What the engine's tests begin with."""

from __future__ import annotations

import pytest

from mgraph import ExpressionGraph


@pytest.fixture
def graph() -> ExpressionGraph:
    return ExpressionGraph()
