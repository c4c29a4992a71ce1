"""Operators at the edges: numbers far out, half precision, indices that repeat or lie outside."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ElementTypeError, ExpressionGraph, ShapeError, TupleViewNodeOp
from mgraph.ops.shape import SliceViewNodeOp
from tests.helpers.leaves import constant, drawn, gradient, param, value

pytestmark = pytest.mark.optimized

# ---------------------------------------------------------------- matrices large enough to be copied


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize(
    ("batch", "rows", "inner", "columns"),
    [((), 256, 200, 256), ((), 70, 512, 600), ((), 90, 400, 370), ((), 20_000, 2, 1), ((3,), 130, 90, 140)],
)
@pytest.mark.sampled(every=3)
def test_gradients_of_large_products(
    graph: ExpressionGraph,
    batch: tuple[int, ...],
    rows: int,
    inner: int,
    columns: int,
    trans_a: bool,
    trans_b: bool,
) -> None:
    dice = np.random.default_rng(1)
    a, b, adj = (
        dice.normal(size=(*batch, *shape)) for shape in [(rows, inner), (inner, columns), (rows, columns)]
    )
    own = [
        param(graph, v.swapaxes(-1, -2) if t else v, n) for v, t, n in ((a, trans_a, "a"), (b, trans_b, "b"))
    ]
    product = mgraph.bdot if batch else mgraph.dot
    top = product(*own, trans_a=trans_a, trans_b=trans_b) * constant(graph, adj)
    expected = adj @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ adj
    for leaf, turned, right in zip(own, (trans_a, trans_b), expected, strict=True):
        found = gradient(top, leaf)
        np.testing.assert_allclose(
            found.swapaxes(-1, -2) if turned else found, right, atol=2e-5 * abs(right).max()
        )


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(96, 64, 160), (96, 160, 64), (77, 24, 40), (5, 3, 4)]
)
def test_gradients_of_bfloat16_products_are_bfloat16_products(
    graph: ExpressionGraph, rows: int, inner: int, columns: int, trans_b: bool
) -> None:
    """Rounded once from sums in float32. On CPUs XLA computes transposed products in float32: there are none,
    unless a matrix with an odd number of rows is transposed."""
    dice = np.random.default_rng(2)
    x, w, adj = (
        jnp.asarray(dice.normal(size=shape), "bfloat16")
        for shape in [(rows, inner), (inner, columns), (rows, columns)]
    )
    given = x, w.mT if trans_b else w
    a, b = (graph.input(name, v.shape, "bfloat16") for name, v in zip("ab", given, strict=True))
    function = graph.function(mgraph.dot(a, b, trans_b=trans_b), [a, b])

    def pulled(a: jax.Array, b: jax.Array, adj: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.vjp(lambda *values: function.pure({}, values), a, b)[1](adj))

    compiled = jax.jit(pulled).lower(*given, adj).compile()
    by_x, by_w = compiled(*given, adj)
    left, right, slopes = (np.asarray(v, np.float64) for v in (x, w, adj))
    for found, wanted in ((by_x, slopes @ right.T), (by_w.mT if trans_b else by_w, left.T @ slopes)):
        assert found.dtype == jnp.bfloat16
        bounds = {"rtol": 2**-8, "atol": 1e-5 * abs(wanted).max()}
        np.testing.assert_allclose(np.asarray(found, np.float64), wanted, **bounds)
    if rows % 2 == 0 and "f32" not in operand_types(jax.jit(jnp.matmul).lower(x, w).compile()):
        assert set(operand_types(compiled)) == {"bf16"}


def operand_types(compiled: Any) -> list[str]:
    """The types of the operands of a program's products."""
    text = compiled.as_text()
    types = dict(re.findall(r"%([\w.\-]+) = (\w+)\[", text))
    return [types[name] for pair in re.findall(r" dot\(%([\w.\-]+), %([\w.\-]+)\)", text) for name in pair]


# ---------------------------------------------------------------- edges of number ranges


def test_softmax_family_far_out(graph: ExpressionGraph) -> None:
    x = param(graph, [[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])
    labels = graph.indices([1, 2])
    nodes = {
        "softmax": mgraph.softmax(x),
        "logsoftmax": mgraph.logsoftmax(x),
        "logsumexp": mgraph.logsumexp(x, 1),
        "x-ent": mgraph.cross_entropy(x, labels, 0.1),
    }
    graph.forward()
    for name, node in nodes.items():
        assert np.isfinite(np.asarray(node.val())).all(), name
        assert np.isfinite(gradient(node, x)).all(), name
    np.testing.assert_allclose(nodes["softmax"].val(), [[1, 0, 0], [1 / 3] * 3], rtol=1e-6)
    np.testing.assert_allclose(nodes["logsumexp"].val(), [[1e4], [-1e4 + math.log(3)]])


@pytest.mark.parametrize("element_type", ["float32", "float16", "bfloat16"])
def test_masked_softmax(graph: ExpressionGraph, element_type: str) -> None:
    x = param(graph, [[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]], type=element_type)
    mask = constant(graph, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], element_type)
    p = mgraph.softmax(x, mask)
    found = value(p).astype(np.float32)
    np.testing.assert_allclose(found[0], [0.269, 0.731, 0], atol=5e-3)
    np.testing.assert_allclose(found[1], 1 / 3, atol=5e-3)
    assert np.isfinite(gradient(p, x).astype(np.float32)).all()


def test_a_mask_fits_its_node(graph: ExpressionGraph) -> None:
    x, flags = param(graph, [[1.0, 2.0]]), constant(graph, [[True, False]], "bool")
    here = r"(.|\n)*test_operator_edges\.py"
    with pytest.raises(ElementTypeError, match=r"softmax: .*mask.*float32 and bool; cast\(mask" + here):
        mgraph.softmax(x, flags)
    for shape in ((3, 2), (1, 1, 2), (1, 3)):
        for operator in (mgraph.softmax, mgraph.dropout, mgraph.dropout_relu_inplace):
            message = rf"{operator.__name__}: a mask of .* does not broadcast to \(1, 2\)" + here
            with pytest.raises(ShapeError, match=message):
                operator(x, constant(graph, np.ones(shape)))


def test_all_is_impossible(graph: ExpressionGraph) -> None:
    x = param(graph, [[-math.inf, -math.inf], [0.0, -math.inf]])
    top = mgraph.logsumexp(x, 1)
    assert value(top).tolist() == [[-math.inf], [0.0]]
    assert gradient(top, x).tolist() == [[0, 0], [1, 0]]


def test_losses_and_norms_of_half_precision_are_summed_in_float32(graph: ExpressionGraph) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(2, 5000)).astype(np.float16)
    x = constant(graph, logits, "float16")
    loss = mgraph.cross_entropy(x, graph.indices([3, 4]))
    normal = mgraph.layer_norm(constant(graph, np.full((1, 4), 300.0) + np.arange(4), "float16"))
    graph.forward()
    wide = logits.astype(np.float64)
    expected = np.log(np.exp(wide).sum(1)) - wide[[0, 1], [3, 4]]
    assert loss.value_type == "float32"
    np.testing.assert_allclose(np.asarray(loss.val())[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(normal.val())[0], [-1.3416, -0.4472, 0.4472, 1.3416], rtol=2e-3)


# ---------------------------------------------------------------- indices


def test_repeated_indices_add_up(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((3, 2)))
    assert gradient(mgraph.rows(x, [2, 0, 2]), x).tolist() == [[1, 1], [0, 0], [2, 2]]
    assert gradient(mgraph.cols(x, [1, 1]), x).tolist() == [[0, 2]] * 3
    cube = param(graph, np.ones((2, 2, 2)), "cube")
    picked = mgraph.index_select(cube, -2, [1, 1, 0])
    assert picked.shape == (2, 3, 2) and picked.type == "gather"
    assert gradient(picked, cube)[0].tolist() == [[1, 1], [2, 2]]


@pytest.mark.parametrize("element_type", ["float16", "bfloat16"])
def test_repeated_indices_add_up_in_float32(graph: ExpressionGraph, element_type: str) -> None:
    """Ones stop adding up at 256 in bfloat16 and at 2048 in float16."""
    x = param(graph, np.ones((2, 2)), type=element_type)
    often, both = np.zeros((4096, 1)), np.zeros((4096, 2))
    nodes = (
        mgraph.rows(x, constant(graph, often[:, 0], "uint32")),
        mgraph.cols(x, constant(graph, often[:, 0], "uint32")),
        mgraph.gather(x, 0, constant(graph, often, "uint32")),
        mgraph.gather(x, 0, constant(graph, both, "uint32")),
    )
    for node, expected in zip(
        nodes, ([[4096] * 2, [0] * 2], [[4096, 0]] * 2, *[[[4096] * 2, [0] * 2]] * 2), strict=True
    ):
        assert gradient(node, x).tolist() == expected, node


def test_indices_outside(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((3, 2)))
    with pytest.raises(
        ShapeError, match=r"index 3 is outside of axis 0 with size 3(.|\n)*test_operator_edges\.py"
    ):
        mgraph.rows(x, [0, 3])
    with pytest.raises(ShapeError, match="index -1"):
        mgraph.cols(x, [-1])
    with pytest.raises(ElementTypeError, match="expected a node or a list of ints"):
        mgraph.rows(x, [0.5])
    with pytest.raises(ElementTypeError, match="holds indices"):
        mgraph.rows(x, param(graph, [0.0, 1.0], "i"))
    found = mgraph.rows(x, graph.indices([0, 7]))
    loss = mgraph.cross_entropy(x, graph.indices([0, 1, 2]))
    graph.forward()
    assert np.isnan(np.asarray(found.val())).tolist() == [[False] * 2, [True] * 2]
    assert np.isnan(np.asarray(loss.val())).ravel().tolist() == [False, False, True]


def test_indices_beyond_the_ends_of_an_axis(graph: ExpressionGraph) -> None:
    """Beyond the end, nothing is written and NaN is read; negative indices count from the end."""
    x = param(graph, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    places = constant(graph, [[-1, 7, -9], [0, 1, 2]], "int32")
    nodes = {
        "gather": mgraph.gather(x, 1, places),
        "the same in all rows": mgraph.gather(x, 1, constant(graph, [[-1, 7, -9]], "int32")),
        "scatter": mgraph.scatter(x, 1, places, 0),
        "rows": mgraph.rows(x, constant(graph, [-1, 2], "int32")),
    }
    graph.forward()
    expected = {
        "gather": [[3, math.nan, math.nan], [4, 5, 6]],
        "the same in all rows": [[3, math.nan, math.nan], [6, math.nan, math.nan]],
        "scatter": [[1, 2, 0], [0, 0, 0]],
        "rows": [[4, 5, 6], [math.nan] * 3],
    }
    for name, node in nodes.items():
        np.testing.assert_array_equal(node.val(), expected[name], name)
    assert gradient(nodes["gather"], x).tolist() == [[0, 0, 1], [1, 1, 1]]
    assert gradient(nodes["scatter"], x).tolist() == [[1, 1, 0], [0, 0, 0]]


NARROW = [("int8", 127), ("uint8", 255), ("int16", 32_767), ("uint16", 65_535)]
"""Types of indices, and the largest position that they hold."""


@pytest.mark.parametrize(("kind", "last"), NARROW)
@pytest.mark.sampled("int8-127", "uint16-65535")
def test_narrow_labels_of_many_classes(graph: ExpressionGraph, kind: str, last: int) -> None:
    """The classes are more than the type of the labels can count."""
    logits = param(graph, drawn(2, last + 4))
    for loss in (mgraph.cross_entropy, mgraph.unlikelihood):
        for labels in ([0, 2], [last, 1], [-1, -100])[: 3 if kind.startswith("i") else 2]:
            narrow, wide = (loss(logits, constant(graph, labels, k)) for k in (kind, "int32"))
            np.testing.assert_array_equal(value(narrow), value(wide))
            np.testing.assert_array_equal(gradient(narrow, logits), gradient(wide, logits))
            hot, expected = (mgraph.one_hot(constant(graph, labels, k), last + 4) for k in (kind, "int32"))
            np.testing.assert_array_equal(value(hot), value(expected))


def relocated(x: mgraph.Node, i: mgraph.Node) -> mgraph.Node:
    return mgraph.relocate(mgraph.transpose(x), i, mgraph.cast(x[0] * 0, i.value_type))


@pytest.mark.parametrize("lead", [(0,), (2, 0)])
def test_no_groups_of_rows_are_relocated(graph: ExpressionGraph, lead: tuple[int, ...]) -> None:
    x = param(graph, np.ones((*lead, 3, 2)))
    origins, destinations = (constant(graph, np.ones((*lead, n)), "int32") for n in (4, 3))
    moved = mgraph.relocate(x, origins, destinations)
    assert value(moved).shape == (*lead, 4, 2) and gradient(moved, x).shape == x.shape


def sparse_product(x: mgraph.Node, i: mgraph.Node) -> mgraph.Node:
    offsets = mgraph.constant_like(i, [0, 2])
    return mgraph.csr_dot((1, 300), x[0], i, offsets, x)


SELECTIONS: dict[str, tuple[tuple[int, ...], Any]] = {
    "rows": ((300, 2), lambda x, i: mgraph.rows(x, i)),
    "cols": ((2, 300), lambda x, i: mgraph.cols(x, i)),
    "index_select": ((1, 300, 2), lambda x, i: mgraph.index_select(x, 1, i)),
    "gather": ((2, 300), lambda x, i: mgraph.gather(x, 1, mgraph.reshape(i, (2, 1)))),
    "scatter": ((2, 300), lambda x, i: mgraph.scatter(x, 1, mgraph.reshape(i, (2, 1)), 5)),
    "scatter one": ((2, 300), lambda x, i: mgraph.scatter(x, 1, mgraph.reshape(i[0], (1, 1)), 5)),
    "relocate": ((2, 300), relocated),
    "insert": ((300,), lambda x, i: mgraph.insert(x, x[:2], i[1], 0)),
    "csr_dot": ((300, 2), sparse_product),
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.sampled(every=3)
def test_narrow_indices_into_a_long_axis(graph: ExpressionGraph, name: str) -> None:
    """The axis is longer than int8 can count."""
    shape, selection = SELECTIONS[name]
    x = param(graph, drawn(*shape))
    for places in ([3, 100], [-3, 127])[: 1 if name in ("relocate", "csr_dot") else 2]:
        narrow, wide = (selection(x, constant(graph, places, kind)) for kind in ("int8", "int32"))
        np.testing.assert_array_equal(value(narrow), value(wide))
        np.testing.assert_array_equal(gradient(narrow, x), gradient(wide, x))


def test_scatter_writes_one_place_as_it_writes_many(graph: ExpressionGraph) -> None:
    """One index for all rows has its own implementation, also at and beyond the ends."""
    x = param(graph, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    source = param(graph, [[7.0], [8.0]], name="source")
    for index in (0, 2, 3, 9, -1, -3, -4):
        one, each = (
            mgraph.scatter(x, 1, constant(graph, places, "int32"), source)
            for places in ([[index]], [[index], [index]])
        )
        graph.forward()
        np.testing.assert_array_equal(one.val(), each.val(), str(index))
        for leaf in (x, source):
            assert gradient(one, leaf).tolist() == gradient(each, leaf).tolist()


def test_order_of_equal_elements(graph: ExpressionGraph) -> None:
    x = param(graph, [[2.0, 1.0, 2.0, 1.0]])
    values, indices = mgraph.topk(x, 3, -1)
    found = {
        "topk": indices,
        "smallest": mgraph.topk(x, 3, -1, descending=False)[1],
        "sort": mgraph.sort(x, -1)[1],
        "argmax": mgraph.argmax(x, -1)[1],
        "argmin": mgraph.argmin(x, -1)[1],
    }
    graph.forward()
    assert {name: np.asarray(node.val())[0].tolist() for name, node in found.items()} == {
        "topk": [0, 2, 1], "smallest": [1, 3, 0], "sort": [0, 2, 1, 3], "argmax": [0], "argmin": [1],
    }  # fmt: skip
    assert indices.value_type == "uint32" and not indices.trainable and values.trainable
    counts = mgraph.topk(graph.indices([5, 9, 0]), 2, 0, descending=False)[0]
    assert value(counts).tolist() == [0, 5]


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize(
    "numbers",
    [
        [-0.0, 0.0, -0.0, 0.0],
        [3.0, 1.0, 2.0, NAN],
        [-NAN, 3.0, NAN, 3.0],
        [NAN, INF, -INF, INF],
        [NAN, -NAN],
        [0.0, -1.0, -0.0, 1e-3],
    ],
)
def test_topk_is_the_beginning_of_sort(
    graph: ExpressionGraph, numbers: list[float], descending: bool
) -> None:
    """Zeros of both signs are equal, and so are all NaNs, which are larger than any number."""
    x = param(graph, numbers)
    first = [mgraph.topk(x, k, 0, descending) for k in range(1, len(numbers) + 1)]
    first.append((mgraph.argmax if descending else mgraph.argmin)(x, 0))
    values, places = mgraph.sort(x, 0, descending)
    graph.forward()
    rank = [(math.isnan(n), 0 if math.isnan(n) else n) for n in numbers]
    expected = sorted(range(len(rank)), key=rank.__getitem__)
    if descending:
        expected = sorted(range(len(rank)), key=lambda i: tuple(-part for part in rank[i]))
    assert np.asarray(places.val()).tolist() == expected
    for best, where in first:
        k = best.shape[0]
        assert np.asarray(where.val()).tolist() == expected[:k]
        np.testing.assert_array_equal(best.val(), values.val()[:k])
        np.testing.assert_array_equal(np.signbit(best.val()), np.signbit(values.val()[:k]))


def test_an_index_output_is_no_top(graph: ExpressionGraph) -> None:
    x = param(graph, [[2.0, 1.0, 5.0]])
    best, _ = mgraph.argmax(x, -1)
    sorted_values, order = mgraph.sort(x, -1)
    hits = mgraph.cast(order, "float32")
    assert isinstance(best, TupleViewNodeOp) and not hits.trainable
    top = mgraph.sum(best * sorted_values, -1)
    graph.backprop()
    np.testing.assert_allclose(x.grad(), [[5, 5, 13]])
    np.testing.assert_allclose(best.grad(), [[8]])
    assert sorted_values.children[0].grad()[0].tolist() == [[5, 5, 5]]
    assert top.scalar() == 40


def test_insert_writes_in_place_of_what_was_there(graph: ExpressionGraph) -> None:
    buffer, part = param(graph, np.zeros((2, 4)), "buffer"), param(graph, np.ones((2, 2)), "part")
    nodes = [mgraph.insert(buffer, part, graph.indices([i]), axis=1) for i in (1, 3)]
    graph.forward()
    assert np.asarray(nodes[0].val()).tolist() == [[0, 1, 1, 0]] * 2
    assert np.asarray(nodes[1].val()).tolist() == [[0, 0, 1, 1]] * 2
    assert gradient(nodes[0], buffer).tolist() == [[1, 0, 0, 1]] * 2
    assert gradient(nodes[0] * 3, part).tolist() == [[3, 3]] * 2


def test_both_impossible(graph: ExpressionGraph) -> None:
    a = param(graph, [-math.inf, 0.0, -math.inf], "a")
    b = param(graph, [-math.inf, -math.inf, 1.0], "b")
    both = mgraph.logaddexp(a, b)
    assert value(both).tolist() == [-math.inf, 0, 1]
    assert gradient(both, a).tolist() == [0, 1, 0] and gradient(both, b).tolist() == [0, 0, 1]


@pytest.mark.parametrize("loss", [mgraph.cross_entropy, mgraph.unlikelihood])
def test_negative_labels_are_no_classes(graph: ExpressionGraph, loss: Any) -> None:
    x = param(graph, np.ones((2, 3)))
    found = loss(x, constant(graph, [-1, 2], "int32"))
    assert np.isnan(value(found)).ravel().tolist() == [True, False]


@pytest.mark.parametrize("alpha", [-0.1, 1.5, math.nan])
def test_label_smoothing_is_a_share(graph: ExpressionGraph, alpha: float) -> None:
    x = param(graph, np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="smoothing from 0 to 1"):
        mgraph.cross_entropy(x, graph.indices([0, 1]), alpha)


def test_a_loss_is_no_integer(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((2, 3)))
    with pytest.raises(ElementTypeError, match="floating point type of the loss, got int32"):
        mgraph.cross_entropy(x, graph.indices([0, 1]), output_type="int32")


@pytest.mark.parametrize("axis", [None, (0, 1), 1.0])
def test_an_axis_is_an_int(graph: ExpressionGraph, axis: Any) -> None:
    """Reductions take several axes, each an int."""
    x = param(graph, np.ones((2, 3)))
    operators = [mgraph.sort, mgraph.cumsum, lambda x, axis: mgraph.concatenate([x, x], axis)]
    for operator in operators if isinstance(axis, tuple) else [*operators, mgraph.sum]:
        with pytest.raises(ArgumentError, match="expected one axis, an int"):
            operator(x, axis)
    with pytest.raises(ArgumentError, match="expected one axis, an int"):
        mgraph.sum(x, (0, axis))


@pytest.mark.parametrize("divisor", [1, 2, 0.5])
def test_integers_are_not_divided(graph: ExpressionGraph, divisor: float) -> None:
    """Not even by 1, where the result would happen to be an integer."""
    with pytest.raises(ElementTypeError, match="/: expected a node of a floating point type, got int32"):
        constant(graph, [2, 4], "int32") / divisor


@pytest.mark.parametrize("number", [np.float16(3), np.float16(1e-5), np.float32(3)])
def test_division_by_a_narrow_number_keeps_the_digits(graph: ExpressionGraph, number: Any) -> None:
    quotient = constant(graph, [1.0, 2.0], "float64") / number
    np.testing.assert_allclose(value(quotient), np.array([1.0, 2.0]) / float(number), rtol=1e-15)


def test_numbers_that_no_float_holds(graph: ExpressionGraph) -> None:
    x = constant(graph, [1.0])
    for call in (lambda: x / 10**400, lambda: x * 10**400, lambda: x**10**400):
        with pytest.raises(ArgumentError, match="must be a number, got 1000"):
            call()


@pytest.mark.parametrize("operator", [lambda n: mgraph.pow(2, n), mgraph.debug, mgraph.checkpoint])
def test_a_number_where_a_node_is_needed(operator: Any) -> None:
    with pytest.raises(ElementTypeError, match="expected a node, got 3"):
        operator(3)


def test_a_power_beyond_int32(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 0.5])
    y = x**2**40
    assert value(y).tolist() == [1, 0] and gradient(y, x).tolist() == [2**40, 0]


def test_a_scalar_has_no_classes(graph: ExpressionGraph) -> None:
    for loss in (mgraph.cross_entropy, mgraph.unlikelihood):
        with pytest.raises(ShapeError, match="an axis of classes"):
            loss(param(graph, 1.0), graph.indices([0]))


@pytest.mark.parametrize("deviation", [mgraph.std, mgraph.var])
def test_deviation_over_nothing(graph: ExpressionGraph, deviation: Any) -> None:
    x, empty = param(graph, [[1.0, 2.0]]), constant(graph, np.ones((2, 0)))
    over_no_axis = deviation(x, ())
    assert value(over_no_axis).tolist() == [[0, 0]] and gradient(over_no_axis, x).tolist() == [[0, 0]]
    np.testing.assert_array_equal(value(deviation(empty, 1)), value(mgraph.mean(empty, 1)))


def test_a_row_without_elements_is_normalized_to_one(graph: ExpressionGraph) -> None:
    empty = constant(graph, np.ones((2, 0)))
    for norm in (mgraph.layer_norm, mgraph.rms_norm):
        assert value(norm(empty)).shape == (2, 0)


@pytest.mark.parametrize("extremum", [mgraph.max, mgraph.min])
@pytest.mark.parametrize("axes", [1, (0, 1)])
def test_no_element_of_an_empty_axis_is_the_largest(graph: ExpressionGraph, extremum: Any, axes: Any) -> None:
    with pytest.raises(ShapeError, match=r"axis \d has no elements(.|\n)*test_operator_edges\.py"):
        extremum(constant(graph, np.ones((2, 0))), axes)
    assert extremum(constant(graph, np.ones((0, 2))), 1).shape == (0, 1)


def test_an_empty_slice_has_a_gradient_of_zeros(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((2, 5)))
    nothing = SliceViewNodeOp(x, axis=1, begin=3, end=3, stride=2)
    assert nothing.shape == (2, 0) and gradient(nothing, x).tolist() == [[0] * 5] * 2
