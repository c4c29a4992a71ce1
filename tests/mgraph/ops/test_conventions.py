"""Marian's conventions: what operators give at ties, kinks and edges, by default, and through shortcuts.

Calls are strings in the namespace of ``mgraph``, as in ``test_golden``; one program runs a table's calls.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, ShapeError, inits
from tests.helpers.leaves import constant, param, value

pytestmark = pytest.mark.optimized

NAN, INF = math.nan, math.inf

PARAMETERS: dict[str, Any] = {
    "x": [-2.0, 0.0, 2.0],
    "u": [1.0],
    "far": [-1e4, 0.0, 1e4],
    "p": [1.0, 2.0, 3.0],
    "q": [1.0, 3.0, 2.0],
    "tied": [[1.0, 3.0, 3.0]],
    "m": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    "cube": np.arange(8.0).reshape(2, 2, 2),
    "tens": [[10.0], [20.0]],
}
CONSTANTS: dict[str, Any] = {
    "a": [1.0, 1.0, NAN],
    "b": [1.0, 2.0, 1.0],
    "mask": [2.0, 2.0, 2.0],
    "weights": [1.0, 2.0, 3.0],
    "two": [1.0, 2.0],
    "low": [[-1.70e38, 0.0], [-1.71e38, 0.0]],
    "keep": [[1.0, 0.0], [1.0, 0.0]],
}
INDICES: dict[str, Any] = {"all_rows": [[2, 0]], "each_row": [[2], [0]], "each_column": [[1, 0, 1]]}


def evaluated(graph: ExpressionGraph, calls: list[str]) -> list[Any]:
    """The nodes of the calls, on a graph with the leaves above."""
    names = dict(vars(mgraph))
    names |= {name: param(graph, values, name) for name, values in PARAMETERS.items()}
    names |= {name: constant(graph, values) for name, values in CONSTANTS.items()}
    names |= {name: constant(graph, values, "uint32") for name, values in INDICES.items()}
    return [eval(call, names) for call in calls]


def calls_of(lines: str) -> list[str]:
    """The calls of a table of lines, separated by semicolons."""
    return [call.strip() for line in lines.strip().splitlines() for call in line.split(";")]


# ---------------------------------------------------------------- values

VALUES: dict[str, Any] = {
    # 2.1 structure
    "stop_gradient(x)": [-2, 0, 2],
    "clip_gradient(x, 1)": [-2, 0, 2],
    "choose([x, m], 1)": [[1, 2, 3], [4, 5, 6]],
    "choose([x, each_row], 1)": [[2], [0]],
    "get(argmin(m, 0), 1)": [[0, 0, 0]],
    "get(sort(x, 0)[0].children[0], 1)": [2, 1, 0],
    # 2.2 elementwise
    "2 - x": [4, 2, 0],
    "x / 2": [-1, 0, 1],
    "2 / x": [-1, INF, 1],
    "abs(x)": [2, 0, 2],
    "sigmoid(far)": [0, 0.5, 1],
    "swish(u)": [0.7310586],
    "gelu(u)": [0.8413447],  # by erf; the approximations give 0.8412 and 0.8458
    "tanh(u, u)": [math.tanh(2)],
    "tanh([u, u])": [math.tanh(2)],
    "plus([u, u, 2 * u])": [4],
    "sigmoid([u, u])": [0.8807971],
    "swish([u, u])": [1.7615942],
    "gelu([u, u])": [1.9544997],
    "relu([u, -3 * u])": [0],
    "leakyrelu([u, -3 * u])": [-0.02],
    "prelu([u, -3 * u], 0.5)": [-1],
    "leakyrelu(x)": [-0.02, 0, 2],
    "prelu(x)": [-0.02, 0, 2],
    "log(x)": [NAN, -INF, 0.6931472],
    "exp(far)": [0, 1, INF],
    "sqrt(x)": [NAN, 0, 1.4142135],
    "sqrt(x, 2)": [0, 1.4142135, 2],
    "clip(x, 1)": [-1, 0, 1],
    "pow(x, 2)": [NAN, 0, 4],
    "pow(x, 0)": [NAN, NAN, 1],
    "pow(0, p)": [0, 0, 0],
    "x ** 2": [4, 0, 4],
    "x ** 0": [1, 1, 1],
    "p ** -1": [1, 0.5, 1 / 3],
    "x ** 1.5": [NAN, 0, 2.8284271],
    "x ** -0.5": [NAN, INF, 0.70710677],
    "2 ** x": [0.25, 1, 4],
    "dropout_relu_inplace(x)": [0, 0, 2],
    "dropout_relu_inplace(x, mask)": [0, 0, 4],
    "affine_with_relu_dropout(m, transpose(m) - 2, tied[:, :2] - 20)": [[0, 3], [0, 30]],
    # 2.3 binary: ge, le and ne are "not lt", "not gt" and "not eq", also with NaN
    "lt(a, b)": [0, 1, 0],
    "eq(a, b)": [1, 0, 1],
    "gt(a, b)": [0, 0, 0],
    "ge(a, b)": [1, 0, 1],
    "ne(a, b)": [0, 1, 0],
    "le(a, b)": [1, 1, 1],
    "a < b": [0, 1, 0],
    "a >= b": [1, 0, 1],
    "gt(x, 0)": [0, 0, 1],
    "ge(0, x)": [1, 1, 0],
    "0 >= x": [1, 1, 0],
    "1 < p": [0, 1, 1],
    "p <= 2": [1, 1, 0],
    # 2.4 reductions: one axis, the first one by default, which stays
    "sum(m)": [[5, 7, 9]],
    "mean(m)": [[2.5, 3.5, 4.5]],
    "max(m, 1)": [[3], [6]],
    "scalar_product(m, m)": [[17, 29, 45]],
    "weighted_average(m, m)": [[3.4, 29 / 7, 5]],
    # 2.5 a mask adds half the lowest float32, -1.7014e38
    "softmax(low, keep)": [[1, 0], [0, 1]],
    # 2.7 shape and indices
    "flatten_2d(cube)": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "transpose(cube)": [[[0, 2], [1, 3]], [[4, 6], [5, 7]]],
    "transpose(cube, (2, 0, 1))": [[[0, 2], [4, 6]], [[1, 3], [5, 7]]],
    "swap_axes(m, 0, 1)": [[1, 4], [2, 5], [3, 6]],
    "atleast_3d(x)": [[[-2, 0, 2]]],
    "concatenate([p, q])": [1, 2, 3, 1, 3, 2],
    "concatenate([m, tens], -1)": [[1, 2, 3, 10], [4, 5, 6, 20]],
    "repeat(p, 2)": [1, 2, 3, 1, 2, 3],
    "repeat(tens, 2, 1)": [[10, 10], [20, 20]],
    "slice(m, 1, -1)": [[3], [6]],
    "slice(m, 1, Slice(0, 3, 2))": [[1, 3], [4, 6]],
    "slice(m, -1, Slice(-2, Slice.END))": [[2, 3], [5, 6]],
    "narrow(m, 1, 1, 2)": [[2, 3], [5, 6]],
    "rows(m, [1, 0, 1])": [[4, 5, 6], [1, 2, 3], [4, 5, 6]],
    "cols(m, [2, 2])": [[3, 3], [6, 6]],
    "index_select(cube, 1, [1])": [[[2, 3]], [[6, 7]]],
    "gather(m, 1, all_rows)": [[3, 1], [6, 4]],
    "gather(m, 1, each_row)": [[3], [4]],
    "gather(m, 0, each_column)": [[4, 2, 6]],
    "scatter(m, -1, each_row, tens)": [[1, 2, 10], [20, 5, 6]],
    "scatter(m, 0, each_column, 9)": [[1, 9, 3], [9, 5, 9]],
    "scatter(m, 1, all_rows, two)": [[2, 2, 1], [2, 5, 1]],
    "scatter(m, 1, all_rows, tens)": [[10, 2, 10], [20, 5, 20]],
    "shift(x, (1,))": [0, -2, 0],
    "shift(x, (-1,), 9)": [0, 2, 9],
    "shift(m, (0, 1))": [[0, 1, 2], [0, 4, 5]],
    "sort(x, 0)[0]": [2, 0, -2],
    "sort(x, 0)[1]": [2, 1, 0],
    "sort(x, 0, False)[0]": [-2, 0, 2],
    "topk(x, 2, 0)[0]": [2, 0],
    "topk(x, 2, 0, False)[0]": [-2, 0],
    "topk_values(x, 2, 0)": [2, 0],
    "topk_indices(x, 2, 0)": [2, 1],
    "argmax(tied, 1)[0]": [[3]],
    "argmax(tied, 1)[1]": [[1]],
    "argmin(m, 0)[0]": [[1, 2, 3]],
}


def test_values(graph: ExpressionGraph) -> None:
    nodes = evaluated(graph, list(VALUES))
    function = graph.function(nodes)
    found = jax.jit(function.pure)(graph.params().vals())
    for (call, expected), node, array in zip(VALUES.items(), nodes, found, strict=True):
        assert node.shape == np.shape(expected), call
        np.testing.assert_allclose(array, expected, rtol=2e-6, err_msg=call)


# ---------------------------------------------------------------- gradients

GRADIENTS: dict[tuple[str, str], Any] = {
    ("relu(x)", "x"): [0, 0, 1],
    ("leakyrelu(x)", "x"): [0.01, 0.01, 1],
    ("prelu(x, 0.2)", "x"): [0.2, 0.2, 1],
    ("relu([x, x])", "x"): [0, 0, 2],
    ("abs(x)", "x"): [-1, 0, 1],
    ("clip(x, 2)", "x"): [0, 1, 0],
    ("sqrt(x, 6)", "x"): [0.25, 0.2041241, 0.1767767],
    ("sigmoid(far)", "far"): [0, 0.25, 0],
    ("pow(p, 3)", "p"): [3, 12, 27],
    ("x ** 3", "x"): [12, 0, 12],
    ("abs(x) ** 1.5", "x"): [-2.1213203, 0, 2.1213203],
    ("dropout_relu_inplace(x)", "x"): [0, 0, 1],
    ("dropout_relu_inplace(x, mask)", "x"): [0, 0, 2],
    # Ties go to the second operand; a number is always the first, in either order.
    ("maximum(p, q)", "p"): [0, 0, 1],
    ("maximum(p, q)", "q"): [1, 1, 0],
    ("minimum(p, q)", "p"): [0, 1, 0],
    ("minimum(p, q)", "q"): [1, 0, 1],
    ("maximum(x, 0)", "x"): [0, 1, 1],
    ("maximum(0, x)", "x"): [0, 1, 1],
    ("minimum(x, 0)", "x"): [1, 1, 0],
    # Every tied element has the whole gradient.
    ("max(tied, -1)", "tied"): [[0, 1, 1]],
    ("min(-tied, -1)", "tied"): [[0, -1, -1]],
    ("argmax(tied, -1)[0]", "tied"): [[0, 1, 0]],
    ("gt(x, 0) * x", "x"): [0, 0, 1],
    # Where gradients stop.
    ("stop_gradient(x) * x", "x"): [-2, 0, 2],
    ("clip_gradient(x, 0.5) * 3 + x", "x"): [1.5, 1.5, 1.5],
    ("choose([x, m], 0)", "x"): [1, 1, 1],
    ("choose([m, x], 1)", "x"): [1, 1, 1],
    ("choose([m, x], 1)", "m"): [[0, 0, 0], [0, 0, 0]],
    ('cast(cast(x, "float16") * 2)', "x"): [2, 2, 2],
    ('cast(cast(x, "int32")) * x', "x"): [-2, 0, 2],
    # The gradients of selections add up; elements that are overwritten or lost have none.
    ("rows(m, [1, 1])", "m"): [[0, 0, 0], [2, 2, 2]],
    ("gather(m, 1, all_rows)", "m"): [[1, 0, 1], [1, 0, 1]],
    ("scatter(m, -1, each_row, tens)", "m"): [[1, 1, 0], [0, 1, 1]],
    ("scatter(m, -1, each_row, tens)", "tens"): [[1], [1]],
    ("scatter(m, 1, all_rows, tens)", "tens"): [[2], [2]],
    ("shift(x, (1,), 9)", "x"): [1, 1, 0],
    ("slice(m, 1, -1)", "m"): [[0, 0, 1], [0, 0, 1]],
    ("repeat(p, 3)", "p"): [3, 3, 3],
    ("sort(x, 0)[0] * weights", "x"): [3, 2, 1],
    ("topk_values(x, 2, 0) * two", "x"): [0, 2, 1],
}


@pytest.mark.parametrize("rule_set", ["rules", "marian"])
@pytest.mark.sampled("rules")
def test_gradients(graph: ExpressionGraph, rule_set: str) -> None:
    function = graph.function(evaluated(graph, [call for call, _ in GRADIENTS]), derivatives=rule_set)

    def sums(params: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        return tuple(jnp.sum(y) for y in function.pure(params))

    slopes = jax.jit(jax.jacrev(sums))(graph.params().vals())
    for (key, expected), found in zip(GRADIENTS.items(), slopes, strict=True):
        np.testing.assert_allclose(found[key[1]], expected, rtol=2e-6, err_msg=str(key))


# ---------------------------------------------------------------- shortcuts

SAME = """
    x + 0; 0 + x; x - 0; x * 1; 1 * x; x / 1; x ** 1; plus([x]); plus(x, 0)
    clip(x, 0); clip_gradient(x, 0); cast(x); cast(x, "float32"); debug(x, "x"); checkpoint(x)
    dropout(x, 0); dropout(x, None); reshape(x, (3,)); atleast_1d(x); atleast_nd(x, 0); swap_axes(x, 0, -1)
    concatenate([x]); repeat(x, 1); slice(x, 0, Slice()); slice(x, 0, Slice(0, 3)); narrow(x, 0, 0, 3); x[:]
    get([m, x], 1); remove_as_root(x)
"""
OTHERWISE = {
    "0 - x": "negate",
    "2 - x": "scalar_add",
    "x - 2": "scalar_add",
    "x * 0": "scalar_mult",
    "x / 4": "scalar_mult",
    "4 / x": "/",
    "pow(x, 3)": "exp",
    "x ** 3": "pow",
    "x ** 1.5": "scalar_pow",
    "leakyrelu(x)": "PReLU",
    "tanh(x, p, q)": "tanh",
    "flatten(x)": "reshape",
    "flatten_2d(m)": "reshape",
    "swap_axes(tied, 0, 1)": "reshape",
    "swap_axes(m, 0, 1)": "transpose",
    "repeat(m, 2)": "concat",
    "rows(m, [0])": "rows",
    "cols(m, [0])": "cols",
    "index_select(m, -2, [0])": "rows",
    "index_select(cube, 0, [0])": "gather",
    "dropout(x, mask)": "*",
    "dropout_relu_inplace(x, 0)": "dropoutReluInplace",
    "choose([x, p], 0)": "choose",
    "std(tied, 0)": "-",
    "var(tied, 0)": "-",
}


def test_shortcuts_return_their_input(graph: ExpressionGraph) -> None:
    calls = calls_of(SAME)
    x, *found = evaluated(graph, ["x", *calls])
    assert [call for call, node in zip(calls, found, strict=True) if node is not x] == []
    axis_of_one = ["sum", "mean", "max", "min", "prod", "logsumexp"]
    tied, *found = evaluated(graph, ["tied", *(f"{name}(tied, 0)" for name in axis_of_one)])
    assert all(node is tied for node in found)


def test_types_of_the_other_ways() -> None:
    found = evaluated(ExpressionGraph(), list(OTHERWISE))
    assert {call: node.type for call, node in zip(OTHERWISE, found, strict=True)} == OTHERWISE


def test_equal_expressions_are_one_node(graph: ExpressionGraph) -> None:
    one = (
        "x + 2; 2 + x", "sum(m, -1); sum(m, 1)", "slice(m, 1, -1); slice(m, -1, Slice(2, 3))",
        "softmax(m); softmax(m, 1)", "transpose(m); transpose(m, (1, 0)); swap_axes(m, 0, 1)",
        "p > q; gt(p, q)", "abs(x); x.__abs__()", "prelu(x); leakyrelu(x)",
    )  # fmt: skip
    # A number becomes a new constant each time, and a mask is new each time.
    two = (
        "softmax(m); softmax(m, 0)", "4 / x; 4 / x", "x > 0; x > 0", "maximum(x, 0); maximum(x, 0)",
        "dropout(x, 0.5); dropout(x, 0.5)", "choose([x, p], 0); choose([x, p], 1)",
    )  # fmt: skip
    assert [calls for calls in one if len({*evaluated(graph, calls_of(calls))}) != 1] == []
    assert [calls for calls in two if len({*evaluated(graph, calls_of(calls))}) != 2] == []


def test_division_by_a_number_multiplies_by_its_reciprocal() -> None:
    numbers = np.arange(1, 50, dtype=np.float32)
    graph = ExpressionGraph()
    found = value(constant(graph, numbers) / 3)
    np.testing.assert_array_equal(found, numbers * np.float32(1 / 3))
    assert (found != numbers / np.float32(3)).any()


def test_numbers_by_default(graph: ExpressionGraph) -> None:
    x, gamma = param(graph, np.ones((2, 3))), graph.ones((1, 3))
    assert mgraph.layer_norm(x, gamma).eps == mgraph.rms_norm(x, gamma).eps == 1e-9
    assert mgraph.sqrt(x).eps == 0 and mgraph.swish(x).b == 1 and mgraph.prelu(x).alpha == 0.01


# ---------------------------------------------------------------- structure


def test_the_alternatives_of_a_choice_are_no_tops(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    chosen = mgraph.choose([x * 2, x * 3, graph.indices([0, 1])], 1)
    best = mgraph.topk_indices(x, 1, 0)
    graph.backprop()
    assert x.grad().tolist() == [3, 3] and chosen.val().tolist() == [3, 6]
    assert best.val().tolist() == [1] and best.value_type == "uint32" and not best.trainable
    for wrong in (3, -1):
        with pytest.raises(ValueError, match=r"no node -?\d of 3(.|\n)*test_conventions\.py"):
            mgraph.choose([x, x, x], wrong)
    for wrong in ((x, 0), ([x], 1), (mgraph.topk(x, 1, 0), 2)):
        with pytest.raises(ValueError, match=r"no output \d of (.|\n)*test_conventions\.py"):
            mgraph.get(*wrong)


def test_nothing_is_overwritten(graph: ExpressionGraph) -> None:
    hidden = param(graph, [-1.0, 2.0]) * 2
    dropped = mgraph.dropout_relu_inplace(hidden)
    graph.forward()
    assert hidden.val().tolist() == [-2, 4] and dropped.val().tolist() == [0, 4]


def test_constants_like_a_node(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((2, 2)), type="float16")
    assert mgraph.constant_like(x, inits.ones()).value_type == "float16"
    for numbers in ([1, 2, 3, 4], (1.0, 2.0, 3.0, 4.0), [[1, 2], [3, 4]], np.arange(1, 5)):
        made = mgraph.constant_like(x, numbers)
        assert made.val().tolist() == [[1, 2], [3, 4]] and made.value_type == "float16"
    with pytest.raises(ShapeError, match="3 values for a node of shape"):
        mgraph.constant_like(x, [1, 2, 3])


def test_dropout(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((100, 50)))
    plain, other = mgraph.dropout(x, 0.2), mgraph.dropout(x, 0.2)
    rows, given = mgraph.dropout(x, 0.5, axes=(0,)), mgraph.dropout_relu_inplace(x, 0.5, (1, 50))
    W, b = graph.ones((50, 4)), graph.ones((1, 4))
    layer = mgraph.affine_with_relu_dropout(mgraph.atleast_3d(x), W, b, 0.5)
    graph.forward()
    found = np.asarray(plain.val())
    assert set(np.unique(found)) == {np.float32(0), np.float32(1.25)}
    assert abs(found.mean() - 1) < 0.05
    assert (found != np.asarray(other.val())).any()
    assert (np.asarray(rows.val()) == np.asarray(rows.val())[:, :1]).all()
    assert set(np.unique(given.val())) == {0, 2} and given.child(1).shape == (1, 50)
    assert set(np.unique(layer.val())) == {0, 102} and layer.child(1).shape == (1, 100, 4)
    for wrong in (1.0, -0.1, "half"):
        with pytest.raises(ValueError, match="dropout expects a probability"):
            mgraph.dropout(x, wrong)
