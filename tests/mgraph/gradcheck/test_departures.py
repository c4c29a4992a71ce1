"""A loss is checked operator by operator: wrong rules are named wherever they are, right ones never."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import (
    ArgumentError,
    ExpressionGraph,
    GradientError,
    GraphError,
    Node,
    ShapeError,
    UnaryNodeOp,
    affine,
    clip_gradient,
    dot,
    dropout,
    flatten,
    inits,
    scan,
    sum,
    tanh,
)
from mgraph.gradcheck import check_layers, check_loss, write_page

Params = dict[str, np.ndarray]
Activation = Callable[[Node], Node]


class HalvedNodeOp(UnaryNodeOp):
    """``tanh`` with half of its gradient."""

    type = "halved"

    def forward_ops(self, x: Any) -> Any:
        return jnp.tanh(x)

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (0.5 * adj * (1 - val**2),)


class ForgottenNodeOp(HalvedNodeOp):
    """``tanh`` whose rule gives no gradient at all."""

    type = "forgotten"

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (None,)


class MisshapenNodeOp(HalvedNodeOp):
    """``tanh`` whose rule gives a gradient of the wrong shape."""

    type = "misshapen"

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (adj[..., :1],)


class CoarseNodeOp(HalvedNodeOp):
    """``tanh`` whose rule has few right digits in float32; the others change with every bit of its input."""

    type = "coarse"

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        noise = 1e-3 * jnp.sin(1e6 * x) if x.dtype == jnp.float32 else 0
        return (adj * (1 - val**2) * (1 + noise),)


class LastOfEqualsNodeOp(UnaryNodeOp):
    """The largest element; the last of equal ones gets the whole gradient, where JAX gives each a share."""

    type = "last of equals"

    def forward_ops(self, x: Any) -> Any:
        return jnp.max(x, -1, keepdims=True)

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        last = x.shape[-1] - 1 - jnp.argmax(x[..., ::-1] == val, -1)
        return (adj * (jnp.arange(x.shape[-1]) == last[..., None]).astype(x.dtype),)


class InvariantNodeOp(UnaryNodeOp):
    """The sum of a softmax, which is 1: its gradient is zero, but JAX's has rounding errors."""

    type = "invariant"

    def forward_ops(self, x: Any) -> Any:
        return jnp.sum(jax.nn.softmax(x), -1, keepdims=True)

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (jnp.zeros_like(x),)


class NotQuiteInvariantNodeOp(InvariantNodeOp):
    """The sum of a softmax, with a gradient that is small and wrong."""

    type = "not quite invariant"

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (1e-13 * adj * jnp.ones_like(x),)


class UnboundedNodeOp(UnaryNodeOp):
    """A square root, whose gradient at zero is infinite in JAX and zero in the rule."""

    type = "unbounded"

    def forward_ops(self, x: Any) -> Any:
        return jnp.sqrt(x)

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (jnp.where(x > 0, 0.5 * adj / val, 0),)


WIDTH = 4


def params_of(layers: int) -> Params:
    rng = np.random.default_rng(5)
    shapes = {"W1": (WIDTH, WIDTH), "b1": (1, WIDTH), "W2": (WIDTH, WIDTH), "b2": (1, WIDTH)}
    names = {f"net_l{i}_{name}": shape for i in range(1, layers + 1) for name, shape in shapes.items()}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in names.items()}


def network(*activations: Activation, params: Mapping[str, np.ndarray]) -> Callable[[ExpressionGraph], Node]:
    """Layers of two products, with the given function after the first one."""

    def record(graph: ExpressionGraph) -> Node:
        rng = np.random.default_rng(6)
        x = graph.constant((3, WIDTH), inits.from_tensor(rng.standard_normal((3, WIDTH), np.float32)))
        for i, activation in enumerate(activations, 1):

            def param(name: str, layer: int = i) -> Node:
                full = f"net_l{layer}_{name}"
                return graph.param(full, params[full].shape)

            x = affine(activation(affine(x, param("W1"), param("b1"))), param("W2"), param("b2"))
        return sum(flatten(x * tanh(x)))

    return record


def check(*activations: Activation, float32: bool = False) -> Any:
    params = params_of(len(activations))
    return check_layers(network(*activations, params=params), params, float32=float32)


# ---------------------------------------------------------------- right rules


def test_right_rules_agree_and_gradients_are_those_of_the_whole_program() -> None:
    report = check(tanh, tanh, float32=True)
    report.raise_if_wrong()
    assert report.ok and report.first is None and not report.paths
    params = params_of(2)
    loss, checks = check_loss(network(tanh, tanh, params=params), params)
    assert report.loss == pytest.approx(loss, rel=1e-12)
    known = {check.name: check for check in checks}
    assert {check.name for check in report.parameters.checks} == set(known)
    for row in report.parameters.checks:
        assert row.gradient == pytest.approx(known[row.name].gradient, rel=1e-12)
        assert row.differences.keys() == known[row.name].differences.keys()
    layers = {layer.name: layer for layer in report.layers}
    assert list(layers)[:2] == ["net_l1", "net_l2"]
    assert all(layer.name.startswith("test_departures.py:") for layer in report.layers[2:])
    errors = [layers[name].value for name in ("net_l1", "net_l2")]
    assert 1e-9 < errors[0] < 1e-6 and 1e-9 < errors[1] < 1e-6, "float32 is compared with float64"
    assert 1e-9 < layers["net_l1"].adjoint("rounding") < 1e-5
    assert "each of" in str(report) and "all gradients agree" in str(report)


def test_what_rounding_leaves_is_told_from_a_small_wrong_gradient() -> None:
    def record(of: Activation) -> Callable[[ExpressionGraph], Node]:
        return lambda graph: sum(flatten(of(graph.param("x", (3, 5)))))

    params = {"x": np.random.default_rng(0).standard_normal((3, 5))}
    report = check_layers(record(InvariantNodeOp), params, float32=False)
    (child,) = report.node(report.nodes[0].key).children
    found = child.comparisons["float64"]
    assert 0 < found.size < 1e-15 and found.difference == found.size and not report.departures
    (wrong,) = check_layers(record(NotQuiteInvariantNodeOp), params, float32=False).departures
    assert wrong.type == "not quite invariant"


def test_what_is_no_derivative_by_design_is_not_blamed() -> None:
    report = check(tanh, lambda x: tanh(clip_gradient(x, 0.01)))
    assert report.ok and [n.type for n in report.nodes if n.verdict == "by design"] == ["clipGradient"]


def test_random_leaves_are_the_same_in_all_passes() -> None:
    assert check(tanh, lambda x: dropout(tanh(x), 0.5), float32=True).ok


# ---------------------------------------------------------------- wrong rules


def test_a_wrong_rule_deep_inside_is_named() -> None:
    report = check(tanh, HalvedNodeOp, tanh)
    assert not report.ok
    (found,) = report.departures
    assert (found.type, found.layer, found.verdict) == ("halved", "net_l2", "WRONG")
    assert "test_departures.py" in found.place
    (child,) = found.children
    comparison = child.comparisons["float64"]
    assert comparison.found == pytest.approx(comparison.expected / 2) and child.likeness.startswith(
        "0.5 times"
    )
    assert child.shape == (3, WIDTH) and len(child.index("float64")) == 2
    wrong = {row.name for row in report.parameters.checks if not row.ok}
    below = {f"net_l1_{name}" for name in ("W1", "b1", "W2", "b2")} | {"net_l2_W1", "net_l2_b1"}
    assert wrong == set(report.paths) == below, "what is above is right"
    assert all(path[-1] == found.key for path in report.paths.values())
    assert report.way("net_l1_W1") == ("net_l1", "net_l2")
    with pytest.raises(GradientError, match="halved .* in net_l2: WRONG"):
        report.raise_if_wrong()


def test_all_wrong_rules_are_named_the_nearest_to_the_loss_first() -> None:
    report = check(ForgottenNodeOp, tanh, HalvedNodeOp)
    assert [(n.type, n.layer) for n in report.departures] == [("halved", "net_l3"), ("forgotten", "net_l1")]
    assert report.departures[1].children[0].likeness == "zero"
    assert report.first is not None and report.first.type == "halved"
    text = str(report)
    assert "2 of" in text and text.index("halved") < text.index("further from the loss") < text.index(
        "forgotten"
    )
    data = report.as_json()
    assert data["ok"] is False and [d["operator"] for d in data["departures"]] == ["halved", "forgotten"]
    assert data["departures"][0]["children"][0]["float64"]["factor"] == pytest.approx(0.5)
    assert {row["layer"]: row["verdict"] for row in data["layers"]}["net_l3"] == "WRONG: 1"


def test_a_rule_that_cannot_be_evaluated_hides_no_other() -> None:
    report = check(HalvedNodeOp, MisshapenNodeOp)
    assert [(n.type, n.verdict) for n in report.departures] == [("misshapen", "FAILS"), ("halved", "WRONG")]
    assert "MisshapenNodeOp.backward_ops: the gradient of child 0" in str(report)


def test_a_rule_that_loses_digits_in_float32_is_unstable() -> None:
    report = check(tanh, CoarseNodeOp, float32=True)
    assert [(n.type, n.verdict) for n in report.departures] == [("coarse", "UNSTABLE")]
    assert "in float32" in str(report)
    wide = check(tanh, CoarseNodeOp)
    assert wide.ok, "float64 has all its digits"
    assert {(layer.value, layer.adjoint("rounding")) for layer in wide.layers} == {(None, None)}


def test_ties_are_not_taken_for_rounding() -> None:
    def record(graph: ExpressionGraph) -> Node:
        return sum(LastOfEqualsNodeOp(graph.param("x", (2, 3))), 0)

    (found,) = check_layers(record, {"x": np.ones((2, 3))}, float32=False).departures
    assert found.type == "last of equals"


def test_a_gradient_that_is_not_finite_is_named_and_not_what_it_spoils() -> None:
    def record(graph: ExpressionGraph) -> Node:
        return sum(UnboundedNodeOp(tanh(graph.param("x", (3,)) * 2.0)), 0)

    report = check_layers(record, {"x": np.array([0.0, 1.0, 2.0])})
    assert [(n.type, n.verdict) for n in report.departures] == [
        ("unbounded", "WRONG"),
        ("tanh", "not finite"),
        ("scalar_mult", "not finite"),
    ]
    assert report.departures[0].children[0].likeness == "not finite"
    assert report.as_json()["departures"][0]["children"][0]["float64"]["difference"] is None


def test_parameters_must_fit() -> None:
    params = params_of(1)
    record = network(tanh, params=params)
    with pytest.raises(GraphError, match="missing parameter: net_l1_b2"):
        check_layers(record, {name: p for name, p in params.items() if name != "net_l1_b2"})
    with pytest.raises(ShapeError, match=r"'net_l1_b1' has shape \(1, 4\), got \(4,\)"):
        check_layers(record, params | {"net_l1_b1": np.zeros(WIDTH)})
    with pytest.raises(ArgumentError, match="check_layers: expected parameters by name, got 3"):
        check_layers(record, 3)
    with pytest.raises(
        ArgumentError, match="check_layers: parameter 'net_l1_b1' takes numbers, got .* complex"
    ):
        check_layers(record, params | {"net_l1_b1": np.zeros((1, WIDTH), complex)})


def test_a_loss_of_constants_has_no_gradient() -> None:
    with pytest.raises(GraphError, match="nothing below this loss can have a gradient"):
        check_layers(lambda graph: sum(graph.ones((3,)), 0), {})


# ---------------------------------------------------------------- loops


def recurrent(activation: Activation, steps: int = 3) -> Callable[[ExpressionGraph], Node]:
    def record(graph: ExpressionGraph) -> Node:
        drawn = np.random.default_rng(1).standard_normal((steps, 2, 3))
        xs = graph.constant(drawn.shape, inits.from_tensor(drawn))
        weight = graph.param("cell_U", (3, 3))

        def step(state: Node, x: Node) -> tuple[Node, Node]:
            state = tanh(activation(dot(state, weight) + x))
            return state, state * x

        last, results = scan(step, graph.param("start", (2, 3)), xs)
        return sum(sum(last + sum(results, 0), 1), 0)

    return record


RECURRENT = {
    name: np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    for name, shape in {"cell_U": (3, 3), "start": (2, 3)}.items()
}


def test_a_loop_with_right_rules_agrees() -> None:
    report = check_layers(recurrent(tanh), RECURRENT, float32=False)
    assert report.ok and {"tanh", "dot", "scan"} <= {node.type for node in report.nodes}


def test_a_wrong_rule_in_the_body_of_a_loop_is_named() -> None:
    report = check_layers(recurrent(HalvedNodeOp), RECURRENT, float32=False)
    (found,) = report.departures
    assert found.type == "halved" and found.loop and "in the body of the loop recorded at" in found.place
    assert found.children[0].step in (0, 1, 2) and f"in step {found.children[0].step}" in str(report)
    assert report.node(found.loop).verdict == "WRONG", "the loop as a whole is wrong, too"
    assert report.paths["cell_U"][-1] == found.loop


def test_a_wrong_rule_in_a_loop_in_a_loop_is_named() -> None:
    def record(graph: ExpressionGraph) -> Node:
        xs = graph.param("xs", (2, 2, 3))

        def step(state: Node, x: Node) -> tuple[Node, tuple[()]]:
            def inner(row: Node, each: Node) -> tuple[Node, tuple[()]]:
                return HalvedNodeOp(row + each), ()

            return state + scan(inner, state, x)[0], ()

        return sum(scan(step, graph.param("start", (3,)), xs)[0], 0)

    rng = np.random.default_rng(3)
    params = {"xs": rng.standard_normal((2, 2, 3)), "start": rng.standard_normal(3)}
    (found,) = check_layers(record, params, float32=False).departures
    assert found.type == "halved" and found.key.count(".") == 2


# ---------------------------------------------------------------- the page


def test_the_page_is_one_file_that_says_what_the_text_says(tmp_path: Path) -> None:
    report = check(HalvedNodeOp, lambda x: tanh(tanh(x)))
    path = tmp_path / "layers.html"
    text = report.page()
    write_page(report, path)
    assert path.read_text(encoding="utf-8") == text
    assert "{{" not in text and not re.search(r"(?:src|href)=\"(?!data:)", text), "nothing is loaded"
    outer = text[: text.index("<iframe")]
    tags: list[str] = []

    class Nesting(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in ("meta", "link", "line", "circle"):
                tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("line", "circle"):
                assert tags.pop() == tag

    Nesting().feed(outer)
    assert tags == ["html", "body"]
    assert f"1 of {len(report.nodes)} operators depart" in outer and "0.5 times what was expected" in outer
    assert all(escape(node.label) in outer for node in report.nodes)
    assert all(check.name in outer for check in report.parameters.checks)
    graph = unescape(text[text.index("<iframe") :])
    scene = json.loads(re.search(r'<script type="application/json" id="scene">(.*?)</script>', graph)[1])
    (found,) = report.departures
    assert scene["clusters"][found.key] == "departs" and scene["coloring"]["button"] == "Gradients"
    spoiled = {key for key, kind in scene["clusters"].items() if kind.startswith("is off")}
    assert spoiled and all(int(key) < int(found.key) for key in spoiled)
    assert scene["nodes"][found.key]["statistics"][0]["title"] == "Adjoint"
