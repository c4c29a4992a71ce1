"""Functions that are cloned, get other parameters, or are saved in files that need no operator's code."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ElementTypeError,
    ExpressionGraph,
    GraphError,
    ModelFileError,
    ShapeError,
    UnaryNodeOp,
    inits,
    load_function,
)
from mgraph.files.items import read_npz, write_npz
from tests.helpers.fresh import python

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


class SevenfoldNodeOp(UnaryNodeOp):
    """Its rule is no derivative, so it cannot be mistaken for JAX's."""

    type = "sevenfold"

    def forward_ops(self, x: Any) -> Any:
        return jnp.sin(x)

    def backward_ops(self, adj: Any, val: Any, x: Any) -> Any:
        return (7 * adj,)


def network(graph: ExpressionGraph) -> mgraph.Function:
    x = graph.input("x", (4, 3))
    hidden = SevenfoldNodeOp(mgraph.affine(x, graph.param("W", (3, 5)), graph.param("b", (1, 5))))
    return graph.function([hidden, mgraph.sum(hidden * 2, (0, 1))], [x])


def test_a_saved_function_has_values_and_the_rules_gradients(graph: ExpressionGraph, tmp_path: Path) -> None:
    f = network(graph)
    f.save(tmp_path / "f.mgraph")
    g = load_function(tmp_path / "f.mgraph")
    assert g.inputs == f.inputs == pickle.loads(pickle.dumps(f.inputs)) == copy.deepcopy(f.inputs)
    assert g.parameters == f.parameters
    message = r"loaded cannot be copied or pickled; mgraph\.load_function\(path\) reads it"
    for copier in (copy.copy, pickle.dumps):
        with pytest.raises(GraphError, match=message):
            copier(g)
    for mine, theirs in zip(f(X), g(X), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    params = graph.params().vals()
    mine, theirs = (jax.grad(lambda p, h=h: h.pure(p, [X])[1][0, 0])(params) for h in (f, g))
    np.testing.assert_allclose(theirs["b"], np.full((1, 5), 7 * 2 * 4), rtol=1e-6)
    np.testing.assert_allclose(theirs["W"], mine["W"], rtol=1e-6)


@pytest.mark.slow
def test_a_process_that_knows_no_operator_runs_it(graph: ExpressionGraph, tmp_path: Path) -> None:
    f, path = network(graph), tmp_path / "f.mgraph"
    f.save(path)
    code = (
        f"import jax, mgraph, numpy as np\nf = mgraph.load_function({str(path)!r})\n"
        "x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)\n"
        "slopes = jax.grad(lambda p: f.pure(p, [x])[1][0, 0])(f.values())\n"
        "print(float(f(x)[1][0, 0]), float(slopes['b'][0, 0]))\n"
    )
    value, slope = map(float, python(code).split())
    assert value == pytest.approx(float(f(X)[1][0, 0]), rel=1e-6) and slope == pytest.approx(56)


def test_the_order_of_derivatives_is_that_of_the_file(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", ())
    f = graph.function(x * x * x, [x])
    for order in range(3):
        f.save(tmp_path / "f", order=order)
        cube, at = load_function(tmp_path / "f"), np.float32(2)
        derivative = [lambda v, cube=cube: cube.pure({}, [v])]
        for _ in range(order + 1):
            derivative.append(jax.grad(derivative[-1]))
        assert [float(d(at)) for d in derivative[:-1]] == [8, 12, 12][: order + 1]
        expected = rf"{order} times?, .*order={order}; .*order={order + 1}\)(.|\n)*_function\.py:\d+"
        for transformation in (lambda d: d, jax.jit):
            with pytest.raises(ArgumentError, match=expected):
                transformation(derivative[-1])(at)
        assert float(jax.grad(lambda v, last=derivative[-2]: jax.lax.stop_gradient(last(v)))(at)) == 0


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64"])
def test_element_types_and_constants_are_kept(graph: ExpressionGraph, tmp_path: Path, kind: str) -> None:
    x = graph.input("x", (2,), kind)
    w = graph.param("w", (2,), inits.from_vector([0.1, 0.2]), kind)
    steps = graph.constant((2,), inits.from_vector([-1, 2**40]), "int64")
    f = graph.function([w * x + graph.constant((2,), inits.from_vector([3, 4]), kind), steps], [x])
    f.save(tmp_path / "f")
    ones = jnp.ones(2, f.inputs["x"].type.dtype) if kind != "float64" else np.ones(2)
    g = load_function(tmp_path / "f")
    for mine, theirs in zip(f(ones), g(ones), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_random_nodes_draw_anew_at_each_call(tmp_path: Path) -> None:
    graph = ExpressionGraph(seed=5)
    x = graph.input("x", (50,))
    graph.function(mgraph.dropout(x, 0.5), [x]).save(tmp_path / "f")
    one, same = load_function(tmp_path / "f"), load_function(tmp_path / "f")
    ones = np.ones(50, np.float32)
    first, second = one(ones), one(ones)
    assert set(np.asarray(first).tolist()) == {0, 2} and not np.array_equal(first, second)
    np.testing.assert_array_equal(first, same(ones))
    with pytest.raises(GraphError, match="random nodes"):
        one.pure({}, [ones])
    key = jax.random.key(3)
    np.testing.assert_array_equal(one.pure({}, [ones], key), same.pure({}, [ones], key))


def test_arguments_are_checked_as_before(graph: ExpressionGraph, tmp_path: Path) -> None:
    network(graph).save(tmp_path / "f")
    g = load_function(tmp_path / "f")
    with pytest.raises(ShapeError, match=r"input 'x' has shape \(4, 3\)"):
        g(X.T)
    with pytest.raises(ElementTypeError):
        g(X.astype(np.float64))
    with pytest.raises(GraphError, match="missing parameters: b"):
        g.pure({"W": np.zeros((3, 5), np.float32)}, [X])
    with pytest.raises(GraphError, match=r"fn\.pure"):
        jax.jit(g)(X)


def test_parameters_are_replaced_in_a_copy(graph: ExpressionGraph, tmp_path: Path) -> None:
    f = network(graph)
    f.save(tmp_path / "f")
    before, zeros = np.asarray(f(X)[0]), np.zeros((3, 5), np.float32)
    elsewhere = ExpressionGraph()
    other = elsewhere.param("other", (3, 5), inits.zeros())
    bias = np.asarray(graph.params()["b"].val())
    for g in (
        f.replace_parameter("W", zeros),
        f.replace_parameter("W", other),
        load_function(tmp_path / "f").replace_parameter("W", zeros),
    ):
        np.testing.assert_allclose(g(X)[0], np.broadcast_to(np.sin(bias), (4, 5)), rtol=1e-5)
        np.testing.assert_array_equal(g.values()["W"], zeros)
    np.testing.assert_array_equal(f(X)[0], before)
    for g in (f, load_function(tmp_path / "f")):
        given = zeros.copy()
        replaced = g.replace_parameter("W", given)
        given += 1
        np.testing.assert_array_equal(replaced.values()["W"], zeros)
    for g in (f, load_function(tmp_path / "f")):
        with pytest.raises(ArgumentError, match=r"no parameter 'w'; it has \['W', 'b'\]"):
            g.replace_parameter("w", zeros)
        with pytest.raises(ShapeError, match="parameter 'W' has shape"):
            g.replace_parameter("W", zeros.T)


def test_a_replacing_parameter_is_followed(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.ones())
    other = graph.param("other", (2,), inits.zeros())
    f = graph.function(w * 2).replace_parameter("w", other)
    other.set_value(np.float32([3, 4]))
    assert np.asarray(f()).tolist() == [6, 8]


def test_a_clone_has_a_rule_set_of_its_own(graph: ExpressionGraph) -> None:
    f = network(graph)
    clone = f.clone(derivatives="jax")
    params = graph.params().vals()
    slopes = [jax.grad(lambda p, h=h: h.pure(p, [X])[1][0, 0])(params)["b"] for h in (f, clone)]
    assert (f.derivatives, clone.derivatives) == ("rules", "jax")
    np.testing.assert_allclose(slopes[0], np.full((1, 5), 56), rtol=1e-6)
    assert np.abs(slopes[1]).max() <= 8
    graph.params()["b"].set_value(np.ones((1, 5), np.float32))
    np.testing.assert_array_equal(f(X)[0], clone(X)[0])


def test_files_that_hold_no_function(graph: ExpressionGraph, tmp_path: Path) -> None:
    path = tmp_path / "f"
    network(graph).save(path)
    items = read_npz(path)
    header = json.loads(items["special:function.json"].tobytes())
    damaged = (header | {"seed": -1}, header | {"platforms": None})
    for change in (
        *({"special:function.json": np.frombuffer(json.dumps(h).encode(), np.uint8)} for h in damaged),
        {"W": X},
        {"special:function.json": np.frombuffer(b"[]", np.uint8)},
        {"special:function.json": np.frombuffer(b'{"version": 1, "platforms": ["cpu"]}', np.uint8)},
        {"special:function.program": np.zeros(5, np.uint8)},
    ):
        write_npz(path, items | change)
        with pytest.raises(ModelFileError):
            load_function(path)
    write_npz(path, {"W": X})
    with pytest.raises(ModelFileError, match="holds no function"):
        load_function(path)
    network(graph).save(path, platforms=["tpu"])
    with pytest.raises(ModelFileError, match=r"its program is for \['tpu'\]"):
        load_function(path)
    for settings in ({"order": 9}, {"platforms": ["abacus"]}):
        with pytest.raises(ArgumentError):
            network(graph).save(path, **settings)
