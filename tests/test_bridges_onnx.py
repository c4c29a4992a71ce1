"""ONNX: every operator written, run by onnxruntime, read back; loops, open axes, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, Node, inits
from mgraph.bridges import export_onnx, import_onnx
from mgraph.gradcheck.survey import own_operators

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

REFUSED = {"CSRDotNodeOp", "UnlikelihoodNodeOp"}
"""Operators of mgraph that cannot be written."""
OPERATORS = {cls.__name__: cls for cls in own_operators() if getattr(cls, "cases", ())}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def run(path: Path, **inputs: Any) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def children(graph: ExpressionGraph, arrays: list[np.ndarray], type_: str) -> list[Node]:
    """Parameters of ``type_`` for real arrays, constants for the others."""
    return [
        graph.param(f"child {i}", a.shape, inits.from_tensor(a), type_)
        if a.dtype == np.float64
        else graph.constant(a.shape, inits.from_tensor(a), a.dtype, name=f"child {i}")
        for i, a in enumerate(arrays)
    ]


def slopes(graph: ExpressionGraph, top: Node, wide: bool) -> dict[str, np.ndarray]:
    """The gradients by all parameters of a sum that weighs every element differently."""
    f = graph.function(top, derivatives="rules")
    weights = np.sin(np.arange((top.shape and np.prod(top.shape)) or 1) + 1.0).reshape(top.shape)
    with jax.enable_x64(wide):
        value = lambda p: jnp.sum(weights * f.pure(p))  # noqa: E731
        return jax.tree.map(np.asarray, jax.grad(value)(graph.params().vals()))


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - REFUSED))
def test_an_operator_there_and_back(name: str, tmp_path: Path) -> None:
    """On each of the cases that its gradient is checked on: the values of onnxruntime in float32, values and
    gradients after import in float64."""
    cls = OPERATORS[name]
    for number, case in enumerate(cls.cases):
        path = tmp_path / f"{number}.onnx"
        for type_ in ("float32", "float64"):
            graph = ExpressionGraph()
            top = (case.through or cls)(*children(graph, case.values(number), type_), **dict(case.fields))
            if isinstance(top.spec, tuple):
                top = mgraph.get(top, 0)
            graph.forward()
            export_onnx(graph, {"y": top}, [], path)
            if type_ == "float32":
                found = run(path)["y"]
                assert found.dtype == top.value_type.dtype
                np.testing.assert_allclose(found, top.val(), rtol=2e-5, atol=2e-6)
        back = ExpressionGraph()
        again = import_onnx(back, path)["y"]
        assert again.spec == top.spec
        back.forward()
        np.testing.assert_allclose(again.val(), top.val(), rtol=1e-6, atol=1e-7)
        if not top.trainable or not cls.gradient_is_derivative:
            continue
        expected = slopes(graph, top, True)
        for key, slope in slopes(back, again, True).items():
            np.testing.assert_allclose(slope, expected[key], rtol=1e-6, atol=1e-7)
