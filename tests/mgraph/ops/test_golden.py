"""Operators compared with Marian's own expression graph; see ``data/golden/README.md``."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, Node, inits
from tests.helpers.places import DATA

pytestmark = pytest.mark.optimized

RECORDS = json.loads((DATA / "golden/operators.json").read_text())
WRONG_IN_MARIAN = [record for record in RECORDS if "wrong_gradients" in record]
TOLERANCE = 2e-5

# Marian goes through a transpose or a gather, or returns the first of two outputs itself.
OTHER_ROUTES = {"softmax", "sliceView", "tupleView"}


def array(flat: dict[str, Any]) -> np.ndarray:
    """Values of a record, in which "nan", "inf" and "-inf" are spelled out."""
    return np.array([float(v) for v in flat["values"]]).reshape(flat["shape"])


def leaf(graph: ExpressionGraph, name: str, data: dict[str, Any], element_type: str) -> Node:
    """The input of a record, as a parameter or a constant."""
    if data["trainable"]:
        return graph.param(name, data["shape"], inits.from_tensor(array(data)), element_type)
    kind = element_type if data["element_type"] == "float32" else data["element_type"]
    return graph.constant(data["shape"], inits.from_tensor(array(data)), kind)


class Evaluation:
    """All records on one graph; one program computes all values and gradients."""

    def __init__(self, records: list[dict[str, Any]], derivatives: str, kind: str = "float32") -> None:
        graph = ExpressionGraph()
        self.nodes: list[Node] = []
        for i, record in enumerate(records):
            leaves = {d["name"]: leaf(graph, f"{i} {d['name']}", d, kind) for d in record["inputs"]}
            self.nodes.append(eval(record["call"], vars(mgraph) | leaves))
        function = graph.function(self.nodes, derivatives=derivatives)
        adjoints = tuple(
            np.array(record.get("adjoint", np.zeros(node.shape)), node.value_type.dtype).reshape(node.shape)
            for record, node in zip(records, self.nodes, strict=True)
        )

        def evaluate(params: dict[str, jax.Array], adjoints: tuple[jax.Array, ...]) -> tuple[Any, Any]:
            values, pull = jax.vjp(function.pure, params)
            return values, pull(adjoints)[0]

        with jax.enable_x64(kind == "float64"):
            params = graph.params().vals()
            traced = jax.jit(evaluate).lower(params, adjoints)
            # The program runs once: compiling it without optimization takes half the time.
            run = traced.compile(compiler_options={"xla_backend_optimization_level": 0})
            self.values, self.gradients = run(params, adjoints)

    def gradient(self, record: int, name: str) -> np.ndarray:
        return np.asarray(self.gradients[f"{record} {name}"], np.float64)


def differs(found: Any, expected: np.ndarray) -> bool:
    """Whether two arrays differ in shape or by more than the tolerance, relative or absolute."""
    found = np.asarray(found, np.float64)
    if found.shape != expected.shape:
        return True
    return not np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def gradients(record: dict[str, Any]) -> list[tuple[str, np.ndarray]]:
    """Marian's gradients of a record, with the inputs' names."""
    pairs = zip(record["inputs"], record.get("gradients", ()), strict=False)
    return [(d["name"], array({"values": g, "shape": d["shape"]})) for d, g in pairs if g is not None]


def test_values_types_and_gradients_are_marians() -> None:
    result = Evaluation(RECORDS, "rules")
    for record, node in zip(RECORDS, result.nodes, strict=True):
        assert node.type == record["type"] or node.type in OTHER_ROUTES, record["call"]
    wrong = [r["call"] for r, v in zip(RECORDS, result.values, strict=True) if differs(v, array(r["output"]))]
    assert not wrong
    wrong = [
        f"{record['call']} by {name}"
        for i, record in enumerate(RECORDS)
        for name, expected in gradients(record)
        if name not in record.get("wrong_gradients", ()) and differs(result.gradient(i, name), expected)
    ]
    assert not wrong


def test_marian_rules_repeat_marians_gradients() -> None:
    marian, right = Evaluation(WRONG_IN_MARIAN, "marian"), Evaluation(WRONG_IN_MARIAN, "rules")
    for i, record in enumerate(WRONG_IN_MARIAN):
        for name, expected in gradients(record):
            assert not differs(marian.gradient(i, name), expected), (record["call"], name)
            as_ours = not differs(right.gradient(i, name), expected)
            assert as_ours == (name not in record["wrong_gradients"]), (record["call"], name)


def test_where_marian_is_wrong_the_rules_are_right() -> None:
    ours, jaxs = (Evaluation(WRONG_IN_MARIAN, d, "float64") for d in ("rules", "jax"))
    for i, record in enumerate(WRONG_IN_MARIAN):
        for name, _ in gradients(record):
            np.testing.assert_allclose(ours.gradient(i, name), jaxs.gradient(i, name), rtol=1e-10, atol=1e-12)


def test_a_wrong_number_would_be_seen() -> None:
    value = array(RECORDS[0]["output"])
    assert not differs(value, value)
    assert differs(value * 1.0001, value)
    assert differs(value[:1], value)
