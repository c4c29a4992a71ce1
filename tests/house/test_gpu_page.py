"""The code of ``docs/gpu.md`` runs, and its settings reach programs."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.export
import pytest

import mgraph
from mgraph import ExpressionGraph, inits
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT

PAGE = (ROOT / "docs" / "gpu.md").read_text()


def test_the_block_runs() -> None:
    assert check_blocks(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), "gpu.md") == ["[0.0, 16.0]"]


def test_the_settings_are_jaxs() -> None:
    named = {name.lower() for name in re.findall(r"\b(JAX_[A-Z_]+)", PAGE)}
    assert len(named) == 2 and all(hasattr(jax.config, name) for name in named)


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_the_precision_reaches_every_product(precision: str) -> None:
    """The forward and backward products of all operators that multiply."""
    graph = ExpressionGraph()
    w = graph.param("w", (1, 1, 8, 8), inits.glorot_uniform())
    y = mgraph.dot_product_attention(mgraph.bdot(w, w), w, w)
    y = mgraph.affine(y, mgraph.reshape(w, (8, 8)), graph.zeros((1, 8)))
    function = graph.function(mgraph.sum(mgraph.flatten(y)))

    def loss(params: dict[str, Any]) -> Any:
        return function.pure(params)[0]

    with jax.default_matmul_precision(precision):
        exported = jax.export.export(jax.jit(jax.grad(loss)), platforms=["cuda"])(graph.params().vals())
    products = [line for line in exported.mlir_module().splitlines() if "stablehlo.dot_general" in line]
    assert len(products) >= 8
    word = precision.upper()
    assert all(f"precision = [{word}, {word}]" in line for line in products)
