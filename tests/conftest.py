"""Settings shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import settings

import mgraph
from tests.helpers.tiers import QUICK, beyond_samples

os.environ["MGRAPH_COMPILATION_CACHE"] = "none"  # tests leave nothing outside their folders
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # onnxruntime would use the network and leave a file
QUICKLY = "JAX_DISABLE_MOST_OPTIMIZATIONS"
"""The variable that makes the processes that a test starts compile as the test itself does."""

settings.register_profile("mgraph", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("mgraph")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in beyond_samples(items):
        item.add_marker(pytest.mark.thorough)
    for item in items:
        tiers = {mark.name for mark in item.iter_markers()}
        if "thorough" in tiers:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
        elif "slow" not in tiers and item.path.stem.removeprefix("test_") in QUICK:
            item.add_marker(pytest.mark.quick)


@pytest.fixture(autouse=True, scope="module")
def programs_of_a_file() -> Iterator[None]:
    """Drop the programs that a file's tests compiled: those of all files together take gigabytes."""
    yield
    mgraph.clear_programs()
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip optimizations: most programs are tiny and run once or twice, so optimizing them does not pay."""
    if request.node.get_closest_marker("optimized"):
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ[QUICKLY] = "1"
    yield
    os.environ.pop(QUICKLY, None)
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder with models that Marian trained on Europarl; not part of the project."""
    folder = os.environ.get("MGRAPH_FIXTURES")
    if not folder:
        pytest.skip("MGRAPH_FIXTURES does not name the folder of the Europarl models")
    return Path(folder)
