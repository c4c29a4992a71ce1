"""Settings for tests of translation."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _compiled_quickly(request: pytest.FixtureRequest) -> None:
    """Programs as users run them are for tests marked so: those against Marian's numbers."""
    if request.node.get_closest_marker("optimized") is None:
        request.getfixturevalue("quick_compilation")
