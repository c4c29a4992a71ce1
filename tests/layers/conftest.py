"""What tests of layers begin with."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _compiled_quickly(quick_compilation: None) -> None:
    """Each program is run once or twice."""
