"""Graphs from plain JAX functions: values, gradients, what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mgraph
from mgraph import ExpressionGraph, GradientError, GraphError, inits
from mgraph.bridges import BridgeError, UnsupportedPrimitiveError, from_jax

Function = Callable[..., Any]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + 7 * len(shape) + sum(shape)).standard_normal(shape)


def mlp(p: dict[str, Any], x: Any) -> Any:
    hidden = jax.nn.relu(x @ p["w1"] + p["b1"])
    return jnp.sum(jnp.tanh(hidden @ p["w2"] + p["b2"]) ** 2) / x.shape[0]


MLP = {"w1": drawn(4, 8), "b1": drawn(8), "w2": drawn(8, 3), "b2": drawn(3)}


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.var(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-6) * gain + bias


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -jnp.mean(chosen)


def block(p: dict[str, Any], x: Any) -> Any:
    """A transformer block written with jax.nn."""
    y = layer_norm(x, p["gain1"], p["bias1"])
    q, k, v = (jnp.einsum("btd,dhe->bthe", y, p[name]) for name in ("q", "k", "v"))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + jnp.einsum("bthe,hed->btd", y, p["out"])
    y = layer_norm(x, p["gain2"], p["bias2"])
    return x + jax.nn.gelu(y @ p["up"]) @ p["down"]


BLOCK = {
    "gain1": 1 + drawn(6), "bias1": drawn(6), "gain2": 1 + drawn(6, seed=2), "bias2": drawn(6, seed=3),
    "q": drawn(6, 2, 3), "k": drawn(6, 2, 3, seed=1), "v": drawn(6, 2, 3, seed=2), "out": drawn(2, 3, 6),
    "up": drawn(6, 12), "down": drawn(12, 6),
}  # fmt: skip


def recurrence(w: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> tuple[Any, Any]:
        state = jnp.tanh(state @ w + x)
        return state, (state * x, jnp.sum(state))

    last, (products, sums) = lax.scan(step, jnp.zeros(xs.shape[1:]), xs, reverse=True)
    return last, products, sums


def doubled_until_large(x: Any) -> Any:
    return lax.while_loop(lambda c: jnp.max(jnp.abs(c)) < 100, lambda c: c * 2, x)


def either(x: Any, y: Any) -> Any:
    return lax.cond(x[0, 0] > y[0, 0], jnp.sin, lambda x: x * 3, x) + lax.switch(
        jnp.argmax(y[0]), [jnp.cos, jnp.exp, jnp.tanh], y
    )


def indexed(table: Any, ids: Any, other: Any) -> Any:
    rows = table[ids]
    updated = table.at[ids].add(other).at[0, 1:].set(5.0)
    moving = lax.dynamic_update_slice(updated, rows[:1] * 2, (ids[0], ids[1]))
    return (
        jnp.take(table, ids, axis=1),
        rows[:, ::2],
        moving,
        lax.dynamic_slice(table, (ids[1], ids[1]), (2, 3)),
    )


def many(x: Any, y: Any) -> Any:
    """Many elementwise primitives, with numbers on either side."""
    a = 1 / (1 + jnp.exp(-x)) + jnp.log1p(x**2) - jnp.abs(y) ** 1.5 + 2**y
    b = jnp.where(x > y, jnp.maximum(x, 0.3), jnp.minimum(y, x)) + jnp.clip(x, -0.5, 0.5) * jnp.sign(y)
    c = jax.nn.softplus(x) + jax.nn.silu(y) + jax.scipy.special.erf(x) + jnp.arctan2(x, y) + jnp.expm1(y)
    return a * b - c / (3 + y**2) + jnp.sqrt(x * x + 1) + jnp.floor(x) + jax.nn.gelu(y, approximate=False)


def reductions(x: Any) -> Any:
    return (
        jnp.sum(x, (0, 2)) + jnp.max(x, (0, 2)) + jnp.prod(x, (0, 2)),
        jax.nn.logsumexp(x, 1),
        jnp.std(x, (1, 2)),
        jnp.cumsum(x, 1) + lax.cumlogsumexp(x, 1, reverse=True) + lax.cummax(x, 2),
        jnp.min(x) * jnp.mean(x),
    )


def moves(x: Any) -> Any:
    y = jnp.swapaxes(x, 0, 2)
    parts = jnp.split(x, 2, 1)
    return (
        jnp.concatenate([parts[1], parts[0], x[:, :1]], 1),
        jnp.pad(y, ((1, 0), (0, 2), (0, 0))) + 1,
        jnp.stack([y, y * 2]).reshape(-1),
        jnp.flip(x, 1) + jnp.roll(x, 1, 0) + jnp.tile(x[:1], (2, 1, 1)),
        jnp.broadcast_to(x[:, :, :1], x.shape) @ y.mean(2),
        jnp.sort(x, 1) + lax.top_k(x, 3)[0].sum(),
    )


def products(a: Any, b: Any) -> Any:
    return (
        a @ jnp.swapaxes(b, 1, 2),
        jnp.tensordot(a, b, ((1, 2), (1, 2))),
        jnp.einsum("bij,bkj->kib", a, b),
        jnp.vdot(a, b),
        a[0].T @ b[0],
        b[0] @ a[1][0],
    )


def branches_in_a_loop(xs: Any) -> Any:
    def step(state: Any, x: Any) -> tuple[Any, Any]:
        inner, _ = lax.scan(lambda c, e: (c * 0.5 + e, ()), 0.1, x)
        return lax.cond(x[0] > 0, lambda c: c + inner * x, lambda c: jnp.sin(c) - x, state), state * x

    return lax.scan(step, xs[0], xs)


def lines(x: Any) -> Any:
    """Searches, tree sums, counts."""
    knots = jnp.interp(x, jnp.linspace(-2.0, 2.0, 5), jnp.arange(5.0) ** 2)
    sums = lax.associative_scan(lambda a, b: a * 0.5 + b, x)
    bins = jnp.zeros(5).at[jnp.clip((x * 2).astype(int), 0, 4)].add(x)
    return knots, sums, bins, jnp.percentile(x, 30, axis=1), jax.nn.one_hot(jnp.argmax(x, 1), 6) * x


def convolved(image: Any, kernel: Any) -> Any:
    y = lax.conv_general_dilated(image, kernel, (1, 2), "SAME")
    pooled = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return pooled, lax.reduce_window(y, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")


@jax.custom_vjp
def reversed_gradient(x: Any) -> Any:
    return jnp.sin(x)


reversed_gradient.defvjp(lambda x: (jnp.sin(x), None), lambda _, adj: (-3 * adj,))


@jax.custom_vjp
def scaled(x: Any, factor: Any) -> Any:
    return x * factor


scaled.defvjp(lambda x, factor: (x * factor, factor), lambda factor, adj: (-factor * adj, None))


@jax.custom_jvp
def straight_through(x: Any) -> Any:
    return jnp.round(x)


straight_through.defjvp(lambda primals, tangents: (jnp.round(primals[0]), tangents[0]))


@jax.custom_gradient
def fivefold(x: Any) -> Any:
    return jnp.cos(x), lambda adj: (5 * adj,)


def relu(x: Any) -> Any:
    """A function that has the name of one of JAX's, but a rule of its own."""
    return jnp.maximum(x, 0)


relu = jax.custom_jvp(relu)
relu.defjvp(lambda primals, tangents: (relu(primals[0]), 7 * tangents[0]))


@jax.jit
@functools.partial(jax.checkpoint, static_argnums=1)
def wrapped(x: Any, power: int) -> Any:
    return (
        reversed_gradient(x) * x**power + straight_through(x) * lax.stop_gradient(x) + fivefold(x) * relu(x)
    )


IDS = np.array([2, 0, 2], np.int32)
CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "mlp": (mlp, (MLP, drawn(5, 4))),
    "layer norm": (layer_norm, (drawn(2, 3, 6), drawn(6), drawn(6, seed=1))),
    "attention": (attention, tuple(drawn(2, 4, 2, 3, seed=i) for i in range(3))),
    "cross-entropy": (cross_entropy, (drawn(3, 5), np.array([1, 4, 0], np.int32))),
    "transformer block": (block, (BLOCK, drawn(2, 4, 6))),
    "scan": (recurrence, (drawn(3, 3), drawn(5, 2, 3))),
    "while": (doubled_until_large, (drawn(2, 3),)),
    "counted loop": (lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * i + x, x), (drawn(2, 3),)),
    "cond": (either, (drawn(2, 3), drawn(2, 3, seed=1))),
    "indexing": (indexed, (drawn(4, 3), IDS, drawn(3, 3))),
    "elementwise": (many, (drawn(3, 1, 4), drawn(2, 4))),
    "reductions": (reductions, (drawn(2, 3, 4),)),
    "shapes": (moves, (drawn(2, 4, 3),)),
    "products": (products, (drawn(2, 3, 4), drawn(2, 3, 4, seed=1))),
    "convolution": (convolved, (drawn(2, 3, 7, 6), drawn(4, 3, 3, 3))),
    "branches in a loop": (branches_in_a_loop, (drawn(5, 3),)),
    "searches": (lines, (drawn(4, 6),)),
    "gradients inside": (
        lambda x: jax.vmap(jax.grad(lambda r: jnp.prod(jnp.sin(r)) + jnp.sum(jax.nn.gelu(r))))(x),
        (drawn(3, 4),),
    ),
    "rules of their own": (lambda x: wrapped(x, 3), (drawn(2, 3),)),
    "numbers for rules": (lambda x: scaled(x, 2.0) * scaled(x, 0.5), (drawn(2, 3),)),
    "pairs": (lambda pair: {"b": pair[0] + 1, "a": [pair[1], pair[0]]}, ((drawn(2), drawn(3)),)),
}
FORWARD_ONLY = ("while",)
ROUNDED = {"transformer block": 1e-4}
"""Tolerances where jax.nn.dot_product_attention computes in float32, whatever it is given."""


def recorded(function: Function, arguments: Any) -> tuple[ExpressionGraph, Any, list[Any]]:
    """The function's nodes, and its inputs in the order of the arguments' leaves."""
    graph = ExpressionGraph()
    leaves, form = jax.tree.flatten(arguments)
    inputs = [graph.input(f"x{i}", leaf.shape, leaf.dtype) for i, leaf in enumerate(leaves)]
    return graph, from_jax(graph, function, *jax.tree.unflatten(form, inputs)), inputs


def total(results: Any) -> Any:
    """A number that depends on every element differently."""
    leaves = [r for r in jax.tree.leaves(results) if jnp.issubdtype(r.dtype, jnp.floating)]
    return sum(jnp.sum(jnp.sin(jnp.arange(r.size) + 1.0) * r.reshape(-1)) for r in leaves)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(every=4)
def test_values_and_gradients_are_those_of_the_function(name: str) -> None:
    function, arguments = CASES[name]
    tolerance = ROUNDED.get(name, 1e-11)
    graph, nodes, inputs = recorded(function, arguments)
    with jax.enable_x64(True):
        leaves, form = jax.tree.flatten(jax.tree.map(jnp.asarray, arguments))
        expected = function(*jax.tree.unflatten(form, leaves))
        found = graph.function(jax.tree.leaves(nodes), inputs)
        assert jax.tree.structure(nodes) == jax.tree.structure(expected)
        for node, mine, theirs in zip(
            jax.tree.leaves(nodes), found(*leaves), jax.tree.leaves(expected), strict=True
        ):
            assert (node.shape, node.value_type) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
        if name in FORWARD_ONLY:
            return
        mine = gradients(lambda full: found.pure({}, full), leaves)
        theirs = gradients(lambda full: function(*jax.tree.unflatten(form, full)), leaves)
        chex.assert_trees_all_close(mine, theirs, rtol=tolerance, atol=tolerance)


def gradients(function: Function, leaves: list[Any]) -> Any:
    """The gradients of ``total`` of a function of all leaves, with respect to the real ones."""
    real = [i for i, leaf in enumerate(leaves) if leaf.dtype == np.float64]

    def loss(*reals: Any) -> Any:
        full = list(leaves)
        for i, value in zip(real, reals, strict=True):
            full[i] = value
        return total(function(full))

    return jax.jit(jax.grad(loss, tuple(range(len(real)))))(*(leaves[i] for i in real))


@pytest.mark.parametrize("name", ["mlp", "attention", "cross-entropy", "scan", "indexing", "reductions"])
@pytest.mark.sampled(every=2)
def test_the_checker_agrees(name: str) -> None:
    function, arguments = CASES[name]
    graph = ExpressionGraph()

    def leaf(path: Any, value: np.ndarray) -> Any:
        init = inits.from_tensor(value)
        if value.dtype == np.int32:
            return graph.constant(value.shape, init, "int32")
        return graph.param(jax.tree_util.keystr(path), value.shape, init, "float64")

    nodes = from_jax(graph, function, *jax.tree_util.tree_map_with_path(leaf, arguments))
    for node in jax.tree.leaves(nodes):
        report = mgraph.check_gradients(node)
        assert report.ok, report


@jax.custom_jvp
def at_least_a_tenth(x: Any) -> Any:
    return lax.max(x, jnp.full(x.shape, 0.1, x.dtype))


@at_least_a_tenth.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    above = lax.gt(x, jnp.full(x.shape, 0.1, x.dtype))
    return at_least_a_tenth(x), lax.select(above, dx, jnp.zeros_like(x))


STRICT: dict[str, Function] = {
    "a rule": at_least_a_tenth,
    "a rule of JAX's": lambda x: jax.scipy.special.xlogy(x, x),
    "a rule in a loop": lambda xs: lax.scan(lambda c, x: (at_least_a_tenth(c * x), ()), xs[0], xs)[0],
    "branches": lambda x: lax.cond(x[0] > 0, at_least_a_tenth, jnp.exp, x * 2),
    "chosen branches": lambda x: lax.switch(jnp.int32(1), [jnp.sin, lambda x: x * x.dtype.type(3)], x),
    "a loop that counts": lambda x: lax.fori_loop(0, x.size, lambda i, n: n + i, 0) * x,
    "polynomial": lambda x: jnp.polyval(jnp.array([1.0, 2.0, 3.0]), x) + jnp.sinc(x),
}


@pytest.mark.parametrize("name", STRICT)
@pytest.mark.sampled(every=2)
def test_what_was_traced_in_float32_is_checked_in_float64(name: str, graph: ExpressionGraph) -> None:
    """JAX's primitives take no mixed types, and functions that stay one node keep theirs."""
    x = graph.param("x", (3,), inits.from_vector([1.5, 0.3, 0.7]))
    y = from_jax(graph, STRICT[name], x)
    report = mgraph.check_gradients(y)
    assert report.ok, report
    graph.forward()
    np.testing.assert_allclose(y.val(), STRICT[name](x.val()), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: lax.cond(x[0] > 0, lambda x: lax.max(x, jnp.ones(3, jnp.float32)), jnp.sin, x),
        lambda x, y: lax.cond(x[0] > 0, jnp.max, jnp.min, x if x.dtype == jnp.float32 else x[:2]),
        lambda x, y: lax.cond(x[0] > 0, jnp.add, jnp.multiply, x, y if x.dtype == jnp.float32 else x),
    ],
    ids=["an error", "another shape", "other operands"],
)
def test_a_function_that_does_not_take_float64_is_an_error_of_the_check(
    function: Callable[..., Any], graph: ExpressionGraph
) -> None:
    x, y = graph.param("x", (3,), inits.ones()), graph.param("y", (3,), inits.ones())
    z = from_jax(graph, function, x, y)
    with pytest.raises(BridgeError, match="expected cond to take float64"):
        mgraph.check_gradients(z)


def test_the_slope_of_a_kink_is_that_of_jax(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3,), inits.from_vector([-1.0, 0.0, 1.0]))
    mgraph.sum(from_jax(graph, jnp.abs, x))
    graph.backprop()
    np.testing.assert_array_equal(x.grad(), jax.grad(lambda x: jnp.abs(x).sum())(x.val()))


def test_operators_are_real_ones(graph: ExpressionGraph) -> None:
    p = {name: graph.param(name, value.shape, inits.from_tensor(value)) for name, value in MLP.items()}
    loss = from_jax(graph, mlp, p, graph.constant((5, 4), inits.from_tensor(drawn(5, 4))))
    types = [node.type for node in graph.tape.nodes if node.children]
    assert types == "dot reshape + ReLU dot reshape + tanh square reshape sum reshape /".split()
    graph.backprop()
    expected = jax.grad(mlp)({k: np.float32(v) for k, v in MLP.items()}, np.float32(drawn(5, 4)))
    chex.assert_trees_all_close(graph.params().grads(), expected, rtol=1e-5, atol=1e-6)
    assert loss.shape == ()
    line = from_jax(graph, lambda b: 2 * b + 1, p["b1"])
    assert (line.type, line.child(0).type) == ("scalar_add", "scalar_mult")


def test_what_only_a_comparison_sees_is_no_top() -> None:
    def f(x: Any) -> Any:
        return jnp.where(jnp.sin(x) > 0, x, 2 * x) * lax.stop_gradient(jnp.exp(x))

    graph = ExpressionGraph()
    x = graph.param("x", (3,), inits.from_vector([-1, 1, 2]))
    from_jax(graph, lambda x: f(x).sum(), x)
    graph.backprop()
    np.testing.assert_allclose(x.grad(), jax.grad(lambda x: f(x).sum())(x.val()), rtol=1e-6)


def test_a_result_that_only_another_result_compares_is_a_top(graph: ExpressionGraph) -> None:
    x = graph.param("x", (3,), inits.from_vector([-1, 1, 2]))
    loss, positive = from_jax(graph, lambda x: (loss := jnp.sum(x * x), loss > 0), x)
    assert loss.trainable and not positive.trainable
    graph.backprop()
    np.testing.assert_array_equal(x.grad(), [-2, 2, 4])


@pytest.mark.parametrize("function", [
    lambda x: jnp.split(jnp.tanh(x), 2)[0],
    lambda x: jax.jit(lambda x: (x * 2, jnp.sin(x) * 3))(x)[0],
    lambda x: jax.checkpoint(lambda x: (x * 2, jnp.sin(x) * 3))(x)[1],
])  # fmt: skip
def test_a_result_that_the_function_does_not_use_is_no_top(
    graph: ExpressionGraph, function: Function
) -> None:
    values = np.arange(1, 5, dtype=np.float32)
    x = graph.param("x", (4,), inits.from_tensor(values))
    mgraph.sum(from_jax(graph, function, x))
    graph.backprop()
    np.testing.assert_allclose(x.grad(), jax.grad(lambda x: function(x).sum())(values), rtol=1e-6)


def test_a_node_that_a_function_left_unused_can_be_a_top_of_its_own(graph: ExpressionGraph) -> None:
    x = graph.param("x", (4,), inits.ones())
    mgraph.remove_as_root(from_jax(graph, lambda x: jnp.split(x, 2)[0], x))
    y = x[2:]
    graph.backprop()
    np.testing.assert_array_equal(y.val(), [1, 1])
    np.testing.assert_array_equal(x.grad(), [0, 0, 1, 1])


def test_the_same_function_again_compiles_nothing() -> None:
    def build() -> None:
        graph = ExpressionGraph()
        x = graph.constant((2, 3), inits.from_tensor(drawn(2, 3)), "float64")
        y = from_jax(graph, either, x, x)
        z = from_jax(graph, reversed_gradient, y)
        graph.forward()
        z.val()

    build()
    before = mgraph.compile_stats().misses
    build()
    assert mgraph.compile_stats().misses == before


def test_inside_the_body_of_a_loop(graph: ExpressionGraph) -> None:
    xs = graph.param("xs", (4, 3), inits.from_tensor(drawn(4, 3)))
    weight = graph.param("w", (1, 3), inits.from_tensor(drawn(1, 3)))

    def f(state: Any, x: Any, w: Any) -> Any:
        return jnp.tanh(state * w[0] + x) + jnp.arange(3)

    last, _ = mgraph.scan(lambda state, x: (from_jax(graph, f, state, x, weight), ()), graph.zeros((3,)), xs)
    top = mgraph.sum(last)
    graph.backprop()

    def plain(xs: Any, w: Any) -> Any:
        return lax.scan(lambda state, x: (f(state, x, w), ()), jnp.zeros(3), xs)[0].sum()

    np.testing.assert_allclose(top.scalar(), plain(xs.val(), weight.val()), rtol=1e-6)
    slopes = jax.grad(plain, (0, 1))(xs.val(), weight.val())
    for node, slope in zip((xs, weight), slopes, strict=True):
        np.testing.assert_allclose(node.grad(), slope, rtol=1e-5, atol=1e-6)


def test_along_the_second_axis_and_with_integers(graph: ExpressionGraph) -> None:
    def results(x: Any) -> list[Any]:
        numbers = (3 * x).astype(jnp.int32)
        return [
            jnp.stack([x, 2 * x], 1),
            jnp.unstack(x, axis=1)[2],
            jnp.tile(x, (2, 3)),
            lax.tile(x, (0, 2)),
            lax.cumsum(x, 1, reverse=True),
            lax.cumlogsumexp(x, 1, reverse=True),
            lax.slice(x, (0, 1), (2, 4), (1, 2)),
            lax.broadcast_in_dim(x, (2, 3, 4), (0, 2)),
            lax.optimization_barrier(x),
            lax.fori_loop(0, 3, lambda i, state: state + i * x, x),
            numbers**3,
            numbers // 2,
            lax.top_k(x, 2)[1],
        ]

    values = np.float32(drawn(2, 4))
    x = graph.param("x", (2, 4), inits.from_tensor(values))
    nodes = from_jax(graph, results, x)
    graph.forward()
    for node, expected in zip(nodes, jax.jit(results)(values), strict=True):
        assert node.value_type == expected.dtype and node.trainable == node.value_type.is_float
        np.testing.assert_allclose(node.val(), expected, rtol=1e-5)
    assert not any(node.value_type.is_wide for node in graph.tape.nodes if not isinstance(node.spec, tuple))
    best = mgraph.sum(mgraph.flatten(from_jax(graph, lambda x: lax.top_k(x, 1)[0], x)))
    assert best.trainable


def test_indices_in_64_bits_beside_32(graph: ExpressionGraph) -> None:
    x, y = graph.constant((3,), inits.range(0, 3)), graph.constant((3,), inits.range(1, 4), "float64")
    place, _ = from_jax(graph, lambda x, y: (jnp.argmax(x), y * 2), x, y)
    graph.forward()
    assert place.value_type == "int64" and place.scalar() == 2
    assert graph.function(place, [x])(np.ones(3, np.float32)).dtype == np.int64, "without y, too"


def test_arrays_closed_over_become_constants() -> None:
    table = jnp.arange(6.0).reshape(2, 3)
    graph = ExpressionGraph()
    x = graph.constant((3,), inits.from_vector([1, 2, 3]))
    y = from_jax(graph, lambda x: table @ x, x)
    graph.forward()
    np.testing.assert_array_equal(y.val(), [8, 26])


def test_a_search_in_arrays_of_other_sizes(graph: ExpressionGraph) -> None:
    for knots, shape in ((4, (2, 3)), (4, (2,)), (9, (2,))):
        x = np.full(shape, 1.5, np.float32)
        places = from_jax(
            graph,
            jnp.searchsorted,
            graph.constant((knots,), inits.range(0, knots)),
            graph.constant(shape, inits.from_tensor(x)),
        )
        graph.forward()
        np.testing.assert_array_equal(places.val(), np.searchsorted(np.arange(knots), x))


def test_a_logarithm_to_base_two_and_an_array_without_numbers(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.from_vector([4, 8]))
    y = from_jax(graph, lambda x: jnp.empty((2,)).at[:].set(jnp.log2(x)) + 0 * jnp.empty((2,)), x)
    graph.backprop()
    np.testing.assert_allclose(y.val(), [2, 3], rtol=1e-6)
    np.testing.assert_allclose(x.grad(), [1 / 4 / np.log(2), 1 / 8 / np.log(2)], rtol=1e-6)


@jax.custom_jvp
def twice(x: Any) -> Any:
    return 2 * x


@twice.defjvp
def _(primals: Any, tangents: Any) -> Any:
    """Not linear in the tangent."""
    return twice(primals[0]), tangents[0] ** 2


@pytest.mark.parametrize(("kind", "function"), [("while", doubled_until_large), ("custom_rule", twice)])
def test_what_jax_cannot_differentiate_has_values_and_a_clear_error(
    graph: ExpressionGraph, kind: str, function: Function
) -> None:
    x = graph.param("x", (2,), inits.ones())
    y = from_jax(graph, function, x)
    mgraph.sum(y)
    graph.forward()
    np.testing.assert_array_equal(y.val(), function(np.ones(2)))
    for run in (graph.backward, graph.backprop, graph.memory):
        with pytest.raises(GradientError, match=rf"\({kind}\): JAX has no gradient(.|\n)*test_bridges_jax"):
            run()
    graph.clear()
    mgraph.sum(graph.get("x") * 3.0)
    graph.backprop()
    np.testing.assert_array_equal(graph.get("x").grad(), [3, 3])


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "random_seed": lambda x: jax.random.normal(jax.random.key(0), x.shape) + x,
        "debug_print": lambda x: jax.debug.print("{}", x) or x,
        "pure_callback": lambda x: jax.pure_callback(np.sin, x, x),
        "cholesky": jnp.linalg.cholesky,
        "complex": lambda x: jnp.real(lax.complex(x, x)),
        "convert_element_type": lambda x: jnp.abs(x.astype("complex64")),
    }.items(),
)
def test_an_unknown_primitive_is_an_error_by_name(name: str, function: Function) -> None:
    graph = ExpressionGraph()
    x = graph.constant((2, 2), inits.ones())
    with pytest.raises(UnsupportedPrimitiveError, match="test_bridges_jax.py") as raised:
        from_jax(graph, function, x)
    assert name in str(raised.value)


def test_only_nodes_cross(graph: ExpressionGraph) -> None:
    x = graph.constant((2, 2), inits.ones())
    for wrong in ((jnp.sin, x), (graph, x)):
        with pytest.raises(BridgeError, match=r"expected from_jax\(graph, function, \*nodes\), got"):
            from_jax(*wrong)
    with pytest.raises(BridgeError, match=r"expected nodes with one value, got 3.*partial"):
        from_jax(graph, jnp.add, x, 3)
    with pytest.raises(BridgeError, match="expected nodes with one value"):
        from_jax(graph, jnp.add, x, mgraph.topk(x, 1, 0)[0].child(0))


def test_a_node_of_another_graph_is_refused(graph: ExpressionGraph) -> None:
    other = ExpressionGraph()
    before = len(other.tape.nodes)
    with pytest.raises(GraphError, match=r"const node of float32\[2\], made at .*belongs to another graph"):
        from_jax(other, jnp.sin, graph.ones((2,)))
    assert len(other.tape.nodes) == before


@pytest.mark.parametrize("wrong", ["text", object()])
def test_a_function_returns_arrays(graph: ExpressionGraph, wrong: Any) -> None:
    with pytest.raises(BridgeError, match="expected a function that returns arrays, .*(str|object)"):
        from_jax(graph, lambda x: (x, wrong), graph.ones((2,)))


def test_a_random_key_from_outside_is_refused(graph: ExpressionGraph) -> None:
    key = jax.random.key(0)
    with pytest.raises(UnsupportedPrimitiveError, match="the function closes over a random key"):
        from_jax(graph, lambda x: x + jax.random.uniform(key, x.shape), graph.ones((2,)))
