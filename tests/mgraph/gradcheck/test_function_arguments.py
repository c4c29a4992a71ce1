"""Arguments, cotangents and mistakes in checks of JAX functions."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ElementTypeError,
    GradientError,
    MGraphError,
    ShapeError,
    WrongGradientError,
    assert_gradients,
    check_gradients,
)
from mgraph.ops.elementwise import SinNodeOp
from tests.helpers.ruled import right_vjp, with_vjp, wrong_vjp

X = np.array([0.3, -0.7, 1.2], np.float32)


def test_positions_of_numpys_do_not_narrow_the_check() -> None:
    report = check_gradients(lambda x, i: right_vjp(x)[i], X, np.array([0, 2, 0]))
    assert report.ok and "float64" not in report.note, report


def test_arguments_of_every_kind() -> None:
    def f(key: Any, x: Any, n: int, mask: Any, scale: float, *more: Any, power: int = 1) -> Any:
        noise = jax.random.uniform(key, x.shape)
        y = jnp.where(mask, right_vjp(x) * noise, 0.0) * scale**power
        return (y + sum(jnp.sum(m) for m in jax.tree.leaves(more))).reshape(n, -1), None, jnp.argmax(y)

    mask = np.array([True, False, True])
    fixed = functools.partial(f, power=2)
    report = check_gradients(fixed, jax.random.key(0), X, 1, mask, 2.0, X, [X[0]])
    assert report.ok and [c.name for c in report.checks] == ["x", "scale", "more[0]", "more[1][0]"], report
    chosen = check_gradients(fixed, jax.random.key(0), X, 1, mask, 2.0, argnums=(1, -1))
    assert chosen.ok and [c.name for c in chosen.checks] == ["x", "scale"]


def test_static_arguments_of_a_rule_are_not_differentiated_by() -> None:
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def scaled(factor: float, x: Any) -> Any:
        return jnp.sin(x) if factor == 2.0 else x

    scaled.defvjp(lambda factor, x: (scaled(factor, x), x), lambda factor, x, g: (jnp.cos(x) * g,))
    assert [check.name for check in check_gradients(scaled, 2.0, X).checks] == ["x"]
    with pytest.raises(ArgumentError, match="leave them out of argnums"):
        check_gradients(lambda a, x: x if a > 1 else -x, 2.0, X)


def test_cotangents_choose_outputs() -> None:
    @jax.custom_vjp
    def pair(x: Any) -> Any:
        return {"a": jnp.sin(x), "b": x**2, "n": 3}

    def backward(x: Any, adjoint: Any) -> Any:
        return (jnp.array([2, 1, 1]) * adjoint["a"] * jnp.cos(x) + 2 * x * adjoint["b"],)

    pair.defvjp(lambda x: (pair(x), x), backward)
    for a, right in ((np.array([0, 1.0, 0]), True), (np.array([1.0, 0, 0]), False), (None, True)):
        report = check_gradients(pair, X, cotangents={"a": a, "b": np.ones(3), "n": None})
        assert report.ok == right, report
    with pytest.raises(ArgumentError, match="expected an array or one of .*, got 'all'"):
        check_gradients(pair, X, cotangents="all")
    with pytest.raises(ArgumentError, match="expected cotangents of the structure"):
        check_gradients(pair, X, cotangents=[np.ones(3)])
    with pytest.raises(ShapeError, match=r"shape \(2,\) was given for an output float32\[3\]"):
        check_gradients(pair, X, cotangents={"a": np.ones(2), "b": None, "n": None})


def raises(x: Any) -> Any:
    raise KeyError("no such table")


@pytest.mark.parametrize(
    ("target", "args", "error", "message"),
    [
        (raises, (X,), ArgumentError, r"raises raised KeyError: 'no such table'\n  at .*test_function_arg"),
        (jnp.argmax, (X,), ArgumentError, r"argmax returned no floating point number: int32\[\]"),
        (lambda x: "text", (X,), ArgumentError, "must return arrays, got str"),
        (lambda x: x + 1j, (X,), ElementTypeError, "returned complex numbers"),
        (jnp.sin, (1j,), ElementTypeError, "x is complex"),
        (jnp.sin, (np.arange(3),), ArgumentError, r"among argument 0 \(int64\[3\]\) to differentiate by"),
        (right_vjp, ((2, 3),), ArgumentError, "ruled: no floating point number"),
        (jnp.sin, (jax.ShapeDtypeStruct((3,), "float32"),), ArgumentError, "a shape without values"),
        (3.0, (X,), ArgumentError, "expected a function, an operator's class, a node or a graph, got 3.0"),
        ("sin", ((2, 3),), ArgumentError, "expected a function, .*, got 'sin'"),
        (SinNodeOp, (X,), ArgumentError, r"expected the shapes of its children, .*SinNodeOp, values=\["),
        (mgraph.exp, (X,), MGraphError, "exp"),
    ],
)
def test_mistakes_of_users_are_named(target: Any, args: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_gradients(target, *args)


@pytest.mark.parametrize("element_type", [np.float32, np.float64])
def test_arguments_that_keep_their_values_are_of_the_same_type(element_type: Any) -> None:
    """A rule returns float64 if any argument is float64."""

    @jax.custom_vjp
    def scaled(x: Any, factor: Any) -> Any:
        return x * factor

    scaled.defvjp(lambda x, f: (x * f, (x, f)), lambda kept, a: (a * kept[1], jnp.sum(a * kept[0])))
    kept = X.astype(element_type)
    assert check_gradients(scaled, kept, 0.7, argnums=1).ok
    assert [c.name for c in check_gradients(scaled, kept, 0.7, argnums=0).checks] == ["x"]


def test_options_of_the_other_kind_are_refused() -> None:
    with pytest.raises(ArgumentError, match="argnums are positions among 1 arguments, got 2"):
        check_gradients(jnp.sin, X, argnums=2)
    with pytest.raises(ArgumentError, match="functools.partial"):
        check_gradients(jax.nn.softmax, X, fields={"axis": 0})
    with pytest.raises(ArgumentError, match="values are for operators and functions of nodes"):
        check_gradients(with_vjp(right_vjp), values=[X])
    with pytest.raises(ArgumentError, match="x is a tracer"):
        jax.jit(lambda x: check_gradients(jnp.sin, x).ok)(X)


def test_shapes_still_mean_a_function_of_nodes() -> None:
    assert check_gradients(lambda x, y: mgraph.tanh(x) * y, (2, 3), [2, 3]).ok


def test_values_that_are_not_finite_are_no_point_to_check_at() -> None:
    report = check_gradients(with_vjp(lambda x, g: g * jnp.exp(x), jnp.exp), np.array([1e4]))
    assert report.checks[0].problem == "NaN or infinity among the outputs at these arguments"


def test_assert_gradients_fails_like_an_assertion() -> None:
    assert assert_gradients(right_vjp, X).ok
    with pytest.raises(WrongGradientError, match="WRONG: jax, differences") as caught:
        assert_gradients(wrong_vjp, X, thorough=False)
    assert isinstance(caught.value, AssertionError) and isinstance(caught.value, GradientError)
