"""Fixtures of the engine's tests."""

from __future__ import annotations

import pytest

from mgraph import ExpressionGraph


@pytest.fixture
def graph() -> ExpressionGraph:
    return ExpressionGraph()
