"""Values and gradients far out, on constant rows, under masks and along long axes, in every element type.

They are compared with the definitions in float64, differentiated by JAX, on numbers that the type can hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, Node, Slice, Type, inits
from tests.helpers import definitions
from tests.helpers.leaves import constant, gradient, param, value

pytestmark = pytest.mark.optimized

# Allowed errors, in units of the last place of the largest number of a row.
UNITS = {"float32": 32, "float16": 1.5, "bfloat16": 1.5}
TYPES = tuple(UNITS)
# XLA must round where the rules say, and not keep 16-bit numbers in float32 on its own.
STRICT = {"xla_allow_excess_precision": False}

RANDOM = np.random.default_rng(7)
FAR = 1e4
ROWS = np.stack(
    [
        RANDOM.normal(size=7),
        RANDOM.normal(size=7) + FAR,
        [FAR, -FAR, 0, 1, 2, FAR, -1],
        [-6e4, 6e4, -6e4, 6e4, 0, 1, 6e4],
        [-FAR, 1 - FAR, 2 - FAR, -FAR, -FAR, 5 - FAR, -FAR],
        *([c] * 7 for c in (1e4 + 0.1, -7777.77, 3.3, 0.1, 6e4, -6e4, 0.0)),
    ]
)
COUNT, SIZE = ROWS.shape
LABELS = np.arange(COUNT, dtype=np.uint32) % SIZE
MASK = (RANDOM.random(ROWS.shape) < 0.5) * (np.arange(COUNT)[:, None] % 3 > 0)
GAIN, SHIFT = RANDOM.normal(size=(2, 1, SIZE))


def far_rows(blocks: int, seed: int) -> np.ndarray:
    """Rows of ``blocks`` times the features, every second one far out."""
    random = np.random.default_rng(seed)
    far = random.choice([-6e4, -FAR, FAR, 6e4], (COUNT, blocks * SIZE))
    return np.where(np.arange(COUNT)[:, None] % 2, far, random.normal(size=far.shape))


def masked(x: Node) -> Node:
    return mgraph.softmax(x, constant(x.graph, MASK, x.value_type))


# Each problem has an operator, its definition and the children: unsigned integers are labels.
Problem = tuple[Callable[..., Node], Callable[..., Any], tuple[np.ndarray, ...]]
CELL = far_rows(1, 1)
GRU = CELL, far_rows(3, 2), far_rows(3, 3), far_rows(3, 4)[:1]
LSTM = CELL, far_rows(4, 5), far_rows(4, 6), far_rows(4, 7)[:1]
PROBLEMS: dict[str, Problem] = {
    "softmax": (mgraph.softmax, definitions.softmax, (ROWS,)),
    "softmax, axis 0": (lambda x: mgraph.softmax(x, 0), lambda x: definitions.softmax(x.T).T, (ROWS.T,)),
    "softmax, masked": (masked, lambda x: definitions.softmax(x - 1e300 * (1 - MASK)), (ROWS,)),
    "logsoftmax": (mgraph.logsoftmax, definitions.logsoftmax, (ROWS,)),
    "sparsemax": (mgraph.sparsemax, definitions.sparsemax, (ROWS,)),
    "logsumexp": (partial(mgraph.logsumexp, axis=1), definitions.logsumexp, (ROWS,)),
    "logaddexp": (mgraph.logaddexp, jnp.logaddexp, (ROWS, ROWS[::-1])),
    "cross_entropy": (mgraph.cross_entropy, definitions.cross_entropy, (ROWS, LABELS)),
    "cross_entropy, smoothed": (
        partial(mgraph.cross_entropy, label_smoothing=0.1),
        partial(definitions.cross_entropy, alpha=0.1),
        (ROWS, LABELS),
    ),
    "softmax_cross_entropy": (
        mgraph.softmax_cross_entropy,
        definitions.softmax_cross_entropy,
        (ROWS, np.random.default_rng(8).dirichlet(np.ones(SIZE), COUNT)),
    ),
    "unlikelihood": (mgraph.unlikelihood, definitions.unlikelihood, (ROWS, LABELS)),
    "layer_norm": (mgraph.layer_norm, definitions.layer_norm, (ROWS,)),
    "layer_norm, scaled": (mgraph.layer_norm, definitions.layer_norm, (ROWS, GAIN, SHIFT)),
    "rms_norm": (mgraph.rms_norm, definitions.rms_norm, (ROWS,)),
    "rms_norm, scaled": (mgraph.rms_norm, definitions.rms_norm, (ROWS, GAIN, SHIFT)),
    "std": (partial(mgraph.std, axis=1), definitions.std, (ROWS,)),
    "logcumsumexp": (partial(mgraph.logcumsumexp, axis=1), definitions.logcumsumexp, (ROWS,)),
    "logcumsumexp, reverse": (
        partial(mgraph.logcumsumexp, axis=1, reverse=True),
        lambda x: definitions.logcumsumexp(x[:, ::-1])[:, ::-1],
        (ROWS,),
    ),
    "logcumsumexp, exclusive": (
        lambda x: mgraph.slice(mgraph.logcumsumexp(x, 1, exclusive=True), 1, Slice(1, Slice.END)),
        lambda x: definitions.logcumsumexp(x[:, :-1]),
        (ROWS,),
    ),
    "highway": (mgraph.highway, definitions.highway, (CELL, ROWS, far_rows(1, 8))),
    "gru_ops": (mgraph.gru_ops, definitions.gru, GRU),
    "lstm_ops_c": (mgraph.lstm_ops_c, definitions.lstm_cell, LSTM),
    "lstm_ops_o": (mgraph.lstm_ops_o, definitions.lstm_output, LSTM),
    "att_ops": (mgraph.att_ops, definitions.attention, (GAIN.T, ROWS[:, None], far_rows(1, 9)[None, :1])),
}

LONG = 70_000
PLUS = RANDOM.uniform(0.3, 0.9, (2, LONG))
SIGNED = RANDOM.normal(size=(2, LONG))
ENDS = np.array([0, LONG - 1], np.uint32)
LONG_PROBLEMS: dict[str, Problem] = {
    "sum": (partial(mgraph.sum, axis=1), lambda x: x.sum(1, keepdims=True), (PLUS,)),
    "mean": (partial(mgraph.mean, axis=1), lambda x: x.mean(1, keepdims=True), (PLUS,)),
    "std": (partial(mgraph.std, axis=1), definitions.std, (PLUS,)),
    "var": (partial(mgraph.var, axis=1), lambda x: x.var(1, keepdims=True), (PLUS,)),
    "prod": (
        partial(mgraph.prod, axis=1),
        lambda x: x.prod(1, keepdims=True),
        (1 + 0.1 * RANDOM.random((2, 40)), ),
    ),
    "cumsum": (
        lambda x: mgraph.slice(mgraph.cumsum(x, 1), 1, -1),
        lambda x: x.sum(1, keepdims=True),
        (PLUS,),
    ),
    "scalar_product": (
        partial(mgraph.scalar_product, axis=1),
        lambda a, b: (a * b).sum(1, keepdims=True),
        (PLUS, PLUS[::-1]),
    ),
    "weighted_average": (
        partial(mgraph.weighted_average, axis=1),
        lambda x, w: (x * w).sum(1, keepdims=True) / w.sum(1, keepdims=True),
        (300 * PLUS, PLUS[::-1]),
    ),
    "logsumexp": (partial(mgraph.logsumexp, axis=1), definitions.logsumexp, (SIGNED,)),
    "logcumsumexp": (
        lambda x: mgraph.slice(mgraph.logcumsumexp(x, 1), 1, -1), definitions.logsumexp, (SIGNED,),
    ),
    "softmax": (mgraph.softmax, definitions.softmax, (3 * SIGNED,)),
    "logsoftmax": (mgraph.logsoftmax, definitions.logsoftmax, (SIGNED,)),
    "sparsemax": (mgraph.sparsemax, definitions.sparsemax, (1e-4 * SIGNED,)),
    "cross_entropy": (
        partial(mgraph.cross_entropy, label_smoothing=0.1),
        partial(definitions.cross_entropy, alpha=0.1),
        (SIGNED, ENDS),
    ),
    "softmax_cross_entropy": (
        mgraph.softmax_cross_entropy,
        definitions.softmax_cross_entropy,
        (SIGNED, PLUS / 1024),
    ),
    "unlikelihood": (mgraph.unlikelihood, definitions.unlikelihood, (SIGNED, ENDS)),
    "layer_norm": (mgraph.layer_norm, definitions.layer_norm, (PLUS,)),
    "rms_norm": (mgraph.rms_norm, definitions.rms_norm, (300 * PLUS,)),
    "dot": (mgraph.dot, jnp.matmul, (PLUS, PLUS[::-1].T)),
    "bdot": (mgraph.bdot, jnp.matmul, (PLUS[None], PLUS[::-1].T[None])),
    "affine": (mgraph.affine, lambda a, b, c: a @ b + c, (PLUS.T, GAIN[:, :2].T, SHIFT[:, :1])),
    "att_ops": (mgraph.att_ops, definitions.attention, (PLUS[:1].T, PLUS[:, None], PLUS[None, :1])),
}  # fmt: skip


def held(x: np.ndarray, kind: str) -> np.ndarray:
    """``x``, rounded to the element type."""
    return x if x.dtype == np.uint32 else x.astype(Type(kind).dtype)


def ours(problems: Mapping[str, Problem], kind: str, derivatives: str = "rules") -> dict[str, list[Any]]:
    """The value of each problem and the gradients of ``sum(adjoint * value)``, computed by one program."""
    graph = ExpressionGraph()
    nodes = {}
    for name, (operator, _, children) in problems.items():
        leaves = []
        for i, child in enumerate(children):
            if child.dtype == np.uint32:
                leaves.append(graph.indices(child))
            else:
                init = inits.from_tensor(held(child, kind))
                leaves.append(graph.param(f"{name} {i}", child.shape, init, kind))
        nodes[name] = operator(*leaves)
    function = graph.function(list(nodes.values()), derivatives=derivatives)
    adjoints = tuple(held(adjoint(n.shape), n.value_type) for n in nodes.values())
    values, gradients = jax.jit(partial(pull_back, function.pure), compiler_options=STRICT)(
        graph.params().vals(), adjoints
    )
    return {
        name: [y, *(gradients.get(f"{name} {i}") for i in range(len(problems[name][2])))]
        for name, y in zip(nodes, values, strict=True)
    }


def adjoint(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape)


def pull_back(function: Callable[..., Any], primals: Any, adjoints: Any) -> tuple[Any, Any]:
    """The value and the gradients."""
    values, pull = jax.vjp(function, primals)
    return values, pull(adjoints)[0]


@partial(jax.jit, static_argnums=0)
def defined(definition: Callable[..., Any], children: tuple[Any, ...], adjoint: Any) -> list[Any]:
    """The value and the gradients of a definition; ``None`` for the gradient of labels."""
    floats = {i: c for i, c in enumerate(children) if c.dtype != np.uint32}

    def of_floats(floats: dict[int, Any]) -> Any:
        return definition(*(floats.get(i, c) for i, c in enumerate(children)))

    y, gradients = pull_back(of_floats, floats, adjoint)
    return [y, *(gradients.get(i) for i in range(len(children)))]


def errors(problems: Mapping[str, Problem], kind: str) -> list[str]:
    """Values and gradients that are further from the definition than rounding allows."""
    found, wrong = ours(problems, kind), []
    info = jnp.finfo(kind)
    for name, (_, definition, children) in problems.items():
        wide = tuple(c if c.dtype == np.uint32 else held(c, kind).astype(np.float64) for c in children)
        y = np.asarray(found[name][0])
        with jax.enable_x64(True):
            expected = defined(definition, wide, held(adjoint(y.shape), y.dtype.name).astype(np.float64))
        for i, (a, b) in enumerate(zip(found[name], expected, strict=True)):
            if b is None:
                continue
            a, b = np.asarray(a, np.float64), np.clip(b, float(info.min), float(info.max))
            assert a.shape == b.shape, name
            size = np.max(np.abs(b), -1 if i == 0 or b.shape[-1] > 1 else None, keepdims=True, initial=0)
            allowed = UNITS[kind] * float(info.eps) * size + float(info.smallest_subnormal)
            if not np.all(np.abs(a - b) <= allowed):
                units = np.max(np.abs(a - b) / (float(info.eps) * size + float(info.smallest_subnormal)))
                wrong.append(f"{name}: {'the value' if i == 0 else f'by child {i - 1}'}, {units:.1f} units")
    return wrong


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.thorough
def test_far_out_and_on_constant_rows(kind: str) -> None:
    assert errors(PROBLEMS, kind) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.sampled("float16")
def test_along_long_axes(kind: str) -> None:
    assert errors(LONG_PROBLEMS, kind) == []


@pytest.mark.parametrize("kind", TYPES)
def test_marians_rules_are_finite_too(kind: str) -> None:
    problems = {
        name: PROBLEMS[name] for name in PROBLEMS if name.startswith(("layer_norm", "rms_norm", "std"))
    }
    found = ours(problems, kind, "marian")
    assert [name for name in found if not all(np.isfinite(v).all() for v in found[name])] == []


NOTHING = -np.inf
IMPOSSIBLE = np.array([[NOTHING, 0.5, NOTHING, 0.25], [NOTHING] * 4, [3.0, NOTHING, NOTHING, NOTHING]])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.sampled("bfloat16")
def test_masks_of_minus_infinity(graph: ExpressionGraph, kind: str) -> None:
    """Impossible elements have no probability and no gradient, even where nothing is possible."""
    x = param(graph, IMPOSSIBLE, type=kind)
    labels = graph.indices([1, 2, 0])
    shares = param(graph, [[0, 0.5, 0, 0.5], [0, 0, 1, 0], [1, 0, 0, 0]], "shares", kind)
    nodes = {
        "softmax": mgraph.softmax(x),
        "sparsemax": mgraph.sparsemax(x),
        "logsoftmax": mgraph.logsoftmax(x),
        "logsumexp": mgraph.logsumexp(x, 1),
        "logcumsumexp": mgraph.logcumsumexp(x, 1),
        "cross_entropy": mgraph.cross_entropy(x, labels),
        "softmax_cross_entropy": mgraph.softmax_cross_entropy(x, shares),
        "unlikelihood": mgraph.unlikelihood(x, labels),
    }
    graph.forward()
    a, b = 1 / (1 + math.exp(-0.25)), 1 / (1 + math.exp(0.25))
    lse = 0.5 - math.log(a)
    expected = {
        "softmax": [[0, a, 0, b], [0, 0, 0, 0], [1, 0, 0, 0]],
        "sparsemax": [[0, 0.625, 0, 0.375], [0, 0, 0, 0], [1, 0, 0, 0]],
        "logsoftmax": [[NOTHING, math.log(a), NOTHING, math.log(b)], [NOTHING] * 4, [0, *[NOTHING] * 3]],
        "logsumexp": [[lse], [NOTHING], [3]],
        "logcumsumexp": [[NOTHING, 0.5, 0.5, lse], [NOTHING] * 4, [3] * 4],
        "cross_entropy": [[-math.log(a)], [math.inf], [0]],
        "softmax_cross_entropy": [[-math.log(a * b) / 2], [math.inf], [0]],
        "unlikelihood": [[-math.log(b)], [0], [math.inf]],
    }
    for name, node in nodes.items():
        rounding = float(jnp.finfo(kind).eps)
        np.testing.assert_allclose(
            np.asarray(node.val(), np.float64), expected[name], rounding, rounding, err_msg=name
        )
        slope = gradient(mgraph.sum(node, 1) if name != "softmax" else node * node, x).astype(np.float64)
        assert np.isfinite(slope).all(), name
        if name not in ("logsoftmax", "cross_entropy", "softmax_cross_entropy"):
            assert not slope[np.isinf(IMPOSSIBLE)].any(), name


@pytest.mark.parametrize("kind", TYPES)
def test_the_slope_of_swish_far_out(graph: ExpressionGraph, kind: str) -> None:
    x = param(graph, [[-3e4, 640.0, 3e4]], type=kind)
    np.testing.assert_array_equal(gradient(mgraph.swish(x), x), [[0, 1, 1]])


def test_a_product_that_is_scaled_down_does_not_overflow_on_the_way(graph: ExpressionGraph) -> None:
    a, b = param(graph, [[[1.0]]]), param(graph, [[[3e38, 3e38]]], "b")
    y = mgraph.bdot_legacy(a, b, scale=0.25)
    np.testing.assert_allclose(gradient(y, a), [[[1.5e38]]], rtol=1e-6)


def test_a_large_loss_leaves_the_shares_of_the_classes(graph: ExpressionGraph) -> None:
    x, matrix = param(graph, [[1.0]]), param(graph, [[-1e9, 0.0, 1.0]], "matrix")
    loss = mgraph.affine_cross_entropy(x, matrix, graph.indices([0]))
    b, a = 1 / (1 + math.exp(1)), 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(gradient(loss, matrix), [[-1, b, a]], rtol=1e-5)


@pytest.mark.parametrize("kind", TYPES)
def test_one_transposed_matrix_times_a_batch(graph: ExpressionGraph, kind: str) -> None:
    a, b = np.arange(15.0).reshape(5, 3), np.arange(40.0).reshape(2, 4, 5) % 7
    nodes = param(graph, a, type=kind), param(graph, b, "b", kind)
    y = mgraph.bdot(*nodes, True, True)
    np.testing.assert_allclose(
        value(y).astype(np.float64), a.T @ b.mT, rtol=UNITS[kind] * float(jnp.finfo(kind).eps)
    )
