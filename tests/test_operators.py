"""Operators: Marian's conventions, shortcuts, errors, and numbers at the edges.

That values and gradients are right is shown by ``test_golden`` and ``test_gradients``.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgraph
from mgraph import (
    ElementTypeError,
    ExpressionGraph,
    NaryNodeOp,
    Node,
    ShapeError,
    Slice,
    TupleViewNodeOp,
    UnaryNodeOp,
    check_gradients,
    inits,
)
from mgraph.operators import make_operator
from mgraph.ops.softmax import CrossEntropyNodeOp
from mgraph.ops.structure import CastNodeOp
from mgraph.rules import evaluate


@pytest.fixture
def graph() -> ExpressionGraph:
    return ExpressionGraph()


def param(graph: ExpressionGraph, values: Any, name: str = "x", type: str = "float32") -> Node:
    """A parameter with these values."""
    array = np.asarray(values, np.float64)
    return graph.param(name, array.shape, inits.from_tensor(array), type)


def constant(graph: ExpressionGraph, values: Any, type: str = "float32") -> Node:
    array = np.asarray(values)
    return graph.constant(array.shape, inits.from_tensor(array), type)


def value(node: Node) -> np.ndarray:
    """The node's value as numpy."""
    node.graph.forward()
    return np.asarray(node.val())


def gradient(top: Node, leaf: Node) -> np.ndarray:
    """The gradient of the sum of ``top`` by ``leaf``."""
    function, params = top.graph.function(top, [leaf]), top.graph.params().vals()
    return np.asarray(jax.grad(lambda v: jnp.sum(function.pure(params, [v])))(leaf.leaf_value()))


# ---------------------------------------------------------------- all operators


def operators() -> list[type[NaryNodeOp]]:
    """All node operators of the package with rules of their own: not loops, not views on outputs."""
    for module in pkgutil.iter_modules(mgraph.ops.__path__):
        importlib.import_module(f"mgraph.ops.{module.name}")
    found, pending = set(), [NaryNodeOp]
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if cls.__module__.startswith("mgraph.ops.") and "type" in vars(cls) and not cls.composite:
            found.add(cls)
    return sorted(found, key=lambda c: c.__name__)


def test_every_operator_has_cases() -> None:
    assert [cls.__name__ for cls in operators() if not getattr(cls, "cases", ())] == []


def test_fields_come_from_every_base() -> None:
    class AxisNodeOp(UnaryNodeOp):
        axis: int
        keep: bool = True

    class ScaledNodeOp(UnaryNodeOp):
        scale: float = 2.0

    class BothNodeOp(ScaledNodeOp, AxisNodeOp):
        shift: float

    assert BothNodeOp.fields == ("scale", "axis", "keep", "shift")
    assert BothNodeOp.defaults == {"scale": 2.0, "keep": True}


def test_names_and_colors_are_marians() -> None:
    for cls in operators():
        assert cls.__name__.endswith(("NodeOp", "NormalizationOp")), cls
        assert cls.color in {"yellow", "orange", "grey"}, cls


def zero_adjoint(y: Any) -> Any:
    """An adjoint of zeros, of JAX's empty type for an integer output."""
    integer = jnp.issubdtype(y.dtype, jnp.integer)
    return np.zeros(y.shape, jax.dtypes.float0) if integer else jnp.zeros(y.shape, y.dtype)


def value_and_gradient(operator: Any, trained: tuple[bool, ...], *values: Any) -> tuple[Any, Any]:
    """The operator's value and its gradient by the first child."""
    y, pull = jax.vjp(lambda *v: evaluate(operator, "rules", trained, v), *values)
    return y, pull(jax.tree.map(zero_adjoint, y))[0]


@pytest.mark.parametrize("element_type", ["float16", "bfloat16", "float32"])
def test_element_types_are_kept(element_type: str) -> None:
    """Values have their children's type, and gradients that of their child, or the engine objects."""
    dtype = jnp.dtype(element_type)
    for cls in operators():
        for case in getattr(cls, "cases", ()):
            if cls is CastNodeOp:
                continue
            fields = dict(case.fields) | ({"to": mgraph.Type.float32} if cls is CrossEntropyNodeOp else {})
            operator = make_operator(cls, fields)
            values = [v if v.dtype == np.uint32 else v.astype(dtype) for v in case.values()]
            trained = tuple(v.dtype != np.uint32 for v in values)

            y, first = jax.eval_shape(partial(value_and_gradient, operator, trained), *values)
            kept = jax.tree.leaves(y)[0].dtype
            assert kept == (jnp.float32 if cls is CrossEntropyNodeOp else dtype), (cls, case)
            assert first.dtype == dtype, (cls, case)


# ---------------------------------------------------------------- arithmetic


SHAPES = st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple)
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


@settings(max_examples=12)
@given(SHAPES, SHAPES, st.sampled_from(sorted(BINARY)))
def test_broadcasting_is_numpys(left: tuple[int, ...], right: tuple[int, ...], name: str) -> None:
    graph, rng, function = ExpressionGraph(), np.random.default_rng(0), BINARY[name]
    x, y = rng.uniform(1, 2, left), rng.uniform(1, 2, right)
    a, b = param(graph, x, "a"), param(graph, y, "b")
    try:
        expected = function(x, y)
    except ValueError:
        with pytest.raises(ShapeError, match=r"test_operators\.py:\d+"):
            function(a, b)
        return
    node = function(a, b)
    assert node.shape == expected.shape and node.type == name
    graph.backprop()
    np.testing.assert_allclose(node.val(), expected, rtol=1e-6)
    for leaf, at in ((a, x), (b, y)):
        assert leaf.grad().shape == at.shape
    step = 1e-6
    slope = (function(x + step, y).sum() - function(x - step, y).sum()) / (2 * step)
    np.testing.assert_allclose(float(jnp.sum(a.grad())), slope, rtol=1e-4)


def test_neutral_numbers_return_the_node(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    for same in (x + 0, 0 + x, x - 0, x * 1, 1 * x, x / 1, x**1):
        assert same is x
    assert (0 - x).type == "negate"
    assert (x * 0).type == "scalar_mult"
    assert (2 - x).children[0].type == "negate"
    assert (x / 4).type == "scalar_mult" and (x / 4).c == 0.25
    assert (4 / x).type == "/" and (4 / x) is not (4 / x)
    assert (x + 2) is (2 + x) and (x + 2) is (x + np.float32(2))


def test_numpy_scalars_stand_on_either_side(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    total = np.float32(3) * x + np.float64(1) - np.int64(2) * x
    assert isinstance(total, Node) and total.value_type == "float32"
    np.testing.assert_allclose(value(total), [2.0, 3.0])


def test_powers_products_and_positions(graph: ExpressionGraph) -> None:
    x = param(graph, [[-1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    cube, inverse = x**3, x**-1
    product, positions, last = x @ mgraph.transpose(x), x[:, 1], x[-1]
    graph.forward()
    array = np.asarray(x.val())
    np.testing.assert_allclose(cube.val(), array**3, rtol=1e-6)
    np.testing.assert_allclose(inverse.val(), 1 / array, rtol=1e-6)
    np.testing.assert_allclose(product.val(), array @ array.T, rtol=1e-6)
    np.testing.assert_array_equal(positions.val(), array[:, 1])
    np.testing.assert_array_equal(last.val(), array[-1])
    for node, expected in ((x[..., 1:], (2, 2)), (x[0, ::2], (2,)), (x[:], (2, 3)), (x[1:, 0], (1,))):
        assert node.shape == expected
    assert x[:] is x


def test_what_is_no_operand(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    for wrong in ([1.0, 2.0], np.ones(2), "a", None):
        with pytest.raises(TypeError):
            x + wrong
        with pytest.raises(TypeError):
            wrong * x
    with pytest.raises(TypeError):
        iter(x)
    with pytest.raises(ShapeError, match="too many indices"):
        x[0, 0]
    with pytest.raises(ElementTypeError, match="index_select"):
        x[[0, 1]]
    with pytest.raises(ElementTypeError, match="expected a node"):
        mgraph.sum([1, 2])  # type: ignore[arg-type]


def test_integers_stay_integers(graph: ExpressionGraph) -> None:
    i = graph.indices([3, 4])
    before, twice = i - 1, i * 2
    assert before.value_type == "uint32" and not before.trainable
    graph.forward()
    assert np.asarray(before.val()).tolist() == [2, 3] and np.asarray(twice.val()).tolist() == [6, 8]
    for wrong in (lambda: i * 0.5, lambda: i / 2, lambda: mgraph.exp(i), lambda: mgraph.mean(i)):
        with pytest.raises(ElementTypeError, match="cast"):
            wrong()
    with pytest.raises(ElementTypeError, match="unequal element type"):
        i + param(graph, [1.0, 2.0])
    assert (mgraph.cast(i) * 0.5).value_type == "float32"


# ---------------------------------------------------------------- conventions


def test_ties_go_to_the_second(graph: ExpressionGraph) -> None:
    a, b = param(graph, [1.0, 2.0, 3.0], "a"), param(graph, [1.0, 3.0, 2.0], "b")
    assert gradient(mgraph.maximum(a, b), a).tolist() == [0, 0, 1]
    assert gradient(mgraph.maximum(a, b), b).tolist() == [1, 1, 0]
    assert gradient(mgraph.minimum(a, b), a).tolist() == [0, 1, 0]
    zero = param(graph, [0.0, -1.0], "zero")
    # A number counts as the first, in either order.
    assert gradient(mgraph.maximum(zero, 0), zero).tolist() == [1, 0]
    assert gradient(mgraph.maximum(0, zero), zero).tolist() == [1, 0]
    assert gradient(mgraph.relu(zero), zero).tolist() == [0, 0]


def test_gradients_at_kinks(graph: ExpressionGraph) -> None:
    x = param(graph, [-2.0, 0.0, 2.0])
    assert gradient(mgraph.clip(x, 2), x).tolist() == [0, 1, 0]
    assert gradient(mgraph.abs(x), x).tolist() == [-1, 0, 1]
    np.testing.assert_allclose(gradient(mgraph.prelu(x, 0.2), x), [0.2, 0.2, 1])
    tied = param(graph, [[1.0, 3.0, 3.0]], "tied")
    assert gradient(mgraph.max(tied, -1), tied).tolist() == [[0, 1, 1]]


def test_comparisons_with_nan(graph: ExpressionGraph) -> None:
    a, b = constant(graph, [1.0, 1.0, math.nan]), constant(graph, [1.0, 2.0, 1.0])
    found = {name: getattr(mgraph, name)(a, b) for name in ("lt", "eq", "gt", "ge", "ne", "le")}
    graph.forward()
    assert {name: np.asarray(node.val()).tolist() for name, node in found.items()} == {
        "lt": [0, 1, 0], "eq": [1, 0, 1], "gt": [0, 0, 0],
        "ge": [1, 0, 1], "ne": [0, 1, 0], "le": [1, 1, 1],
    }  # fmt: skip
    assert not mgraph.gt(param(graph, [1.0]), 0).trainable


def test_shortcuts_return_their_input(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((1, 3)))
    reductions = (mgraph.sum, mgraph.mean, mgraph.max, mgraph.min, mgraph.prod, mgraph.logsumexp)
    assert all(reduction(x) is x for reduction in reductions)
    assert mgraph.std(x).type == "-" and mgraph.var(x, 0).type == "-"
    assert mgraph.sum(x, 1).shape == (1, 1)
    same = (
        mgraph.clip(x, 0), mgraph.clip_gradient(x, 0), mgraph.reshape(x, (1, 3)), mgraph.atleast_2d(x),
        mgraph.swap_axes(x, 1, -1), mgraph.concatenate([x]), mgraph.repeat(x, 1),
        mgraph.slice(x, 1, Slice()), mgraph.slice(x, 0, 0), mgraph.cast(x, "float32"),
        mgraph.dropout(x, 0), mgraph.dropout(x, None), mgraph.debug(x, "x"), mgraph.checkpoint(x),
    )  # fmt: skip
    assert all(node is x for node in same)
    assert mgraph.swap_axes(x, 0, 1).type == "reshape"
    assert mgraph.swap_axes(param(graph, np.ones((2, 3)), "y"), 0, 1).type == "transpose"


def test_equal_expressions_are_one_node(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((2, 3)))
    assert mgraph.sum(x, -1) is mgraph.sum(x, 1)
    assert mgraph.softmax(x) is mgraph.softmax(x, 1) is not mgraph.softmax(x, 0)
    assert mgraph.slice(x, 1, -1) is mgraph.slice(x, -1, Slice(2, 3))
    assert mgraph.transpose(x) is mgraph.transpose(x, (1, 0)) is mgraph.swap_axes(x, 0, 1)


def test_deviation_of_equal_numbers_has_no_gradient(graph: ExpressionGraph) -> None:
    x = param(graph, [[2.0, 2.0], [1.0, 3.0]])
    found = gradient(mgraph.std(x, 1), x)
    np.testing.assert_allclose(found, [[0, 0], [-0.5, 0.5]], atol=1e-6)


def test_gradient_of_a_product_with_zeros(graph: ExpressionGraph) -> None:
    x = param(graph, [[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]])
    np.testing.assert_allclose(gradient(mgraph.prod(x, 1), x), [[0, 6, 0], [0, 0, 0]])


def test_exclusive_logarithmic_sums() -> None:
    def tail(x: Node) -> Node:
        return mgraph.slice(mgraph.logcumsumexp(x, 1, exclusive=True), 1, Slice(1, Slice.END))

    assert check_gradients(tail, (2, 4)).ok
    graph = ExpressionGraph()
    x = constant(graph, [[0.0, 1.0, 900.0]])
    np.testing.assert_allclose(
        value(mgraph.logcumsumexp(x, 1, reverse=True, exclusive=True)), [[900.0, 900.0, -math.inf]]
    )


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
def test_masked_softmax(element_type: str) -> None:
    graph = ExpressionGraph()
    x = param(graph, [[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]], type=element_type)
    mask = constant(graph, [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], element_type)
    p = mgraph.softmax(x, mask)
    found = value(p).astype(np.float32)
    np.testing.assert_allclose(found[0], [0.269, 0.731, 0], atol=5e-3)
    np.testing.assert_allclose(found[1], 1 / 3, atol=5e-3)
    assert np.isfinite(gradient(p, x).astype(np.float32)).all()


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


def test_indices_outside(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((3, 2)))
    with pytest.raises(
        ShapeError, match=r"index 3 is outside of axis 0 with size 3(.|\n)*test_operators\.py"
    ):
        mgraph.rows(x, [0, 3])
    with pytest.raises(ShapeError, match="index -1"):
        mgraph.cols(x, [-1])
    with pytest.raises(ElementTypeError, match="expected a node or a list of ints"):
        mgraph.rows(x, [0.5])  # type: ignore[list-item]
    with pytest.raises(ElementTypeError, match="holds indices"):
        mgraph.rows(x, param(graph, [0.0, 1.0], "i"))
    found = mgraph.rows(x, graph.indices([0, 7]))
    loss = mgraph.cross_entropy(x, graph.indices([0, 1, 2]))
    graph.forward()
    assert np.isnan(np.asarray(found.val())).tolist() == [[False] * 2, [True] * 2]
    assert np.isnan(np.asarray(loss.val())).ravel().tolist() == [False, False, True]


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


# ---------------------------------------------------------------- where gradients stop


def test_clipped_and_stopped_gradients(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    top = mgraph.clip_gradient(x, 0.5) * 3 + mgraph.stop_gradient(x) * x
    for rules in ("rules", "jax", "marian"):
        function = graph.function(top, [x], derivatives=rules)
        slope = jax.grad(lambda v, f=function: jnp.sum(f.pure({}, [v])))(x.leaf_value())
        np.testing.assert_allclose(slope, [1.5, 2.5])
    assert not mgraph.stop_gradient(x).trainable


def test_casts(graph: ExpressionGraph) -> None:
    x = param(graph, [1.5, -2.5])
    assert mgraph.cast(x, "float16").trainable and not mgraph.cast(x, "int32").trainable
    assert gradient(mgraph.cast(mgraph.cast(x, "float16") * 2), x).tolist() == [2, 2]
    assert value(mgraph.cast(x, "int32")).tolist() == [1, -2]
    with pytest.raises(ElementTypeError, match="float33"):
        mgraph.cast(x, "float33")


def test_dropout(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((100, 50)))
    plain, other = mgraph.dropout(x, 0.2), mgraph.dropout(x, 0.2)
    rows = mgraph.dropout(x, 0.5, axes=(0,))
    given = mgraph.dropout(x, 0.5, (1, 50))
    masked = mgraph.dropout(x, constant(graph, np.zeros((1, 50))))
    graph.forward()
    found = np.asarray(plain.val())
    assert set(np.unique(found)) == {np.float32(0), np.float32(1.25)}
    assert abs(found.mean() - 1) < 0.05
    assert (found != np.asarray(other.val())).any()
    assert rows.children[1].shape == (100, 1) and given.children[1].shape == (1, 50)
    assert (np.asarray(rows.val()) == np.asarray(rows.val())[:, :1]).all()
    assert not np.asarray(masked.val()).any()
    with pytest.raises(ValueError, match="probability"):
        mgraph.dropout(x, 1.0)


def test_constant_like(graph: ExpressionGraph) -> None:
    x = param(graph, np.ones((2, 2)), type="float16")
    ones = mgraph.constant_like(x, inits.ones())
    listed = mgraph.constant_like(x, [1, 2, 3, 4])
    assert ones.shape == x.shape and ones.value_type == "float16"
    assert np.asarray(listed.val()).tolist() == [[1, 2], [3, 4]]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dot(x, x)", r"equal inner sizes, got 3 and 2 in \(2, 3\) times \(2, 3\)"),
        ("dot(x, cube)", "expected a matrix b"),
        ("bdot(x, x)", "equal inner sizes"),
        ("affine(x, transpose(x), x)", r"bias of shape \(1, 2\), got \(2, 3\)"),
        ("x + transpose(x)", "children do not fit"),
        ("sum(x, 2)", "axis 2 does not exist in a node with 2 axes"),
        ("reshape(x, (4, 2))", "holds 8 elements, the child has 6"),
        ("transpose(x, (0, 0))", "no order of the child's 2 axes"),
        ("concatenate([x, transpose(x)])", "differ in size along axis 0 only"),
        ("repeat(x, 0)", "at least one copy"),
        ("slice(x, 0, 2)", "selects nothing"),
        ("slice(x, 1, Slice(0, 3, -1))", "stride"),
        ("shift(x, (1,))", "one offset per axis"),
        ("cross_entropy(x, i)", "got 3 for 2 rows"),
        ("layer_norm(x, transpose(x))", r"expected gamma for rows of \(3,\), got \(3, 2\)"),
        ("index_select(x, 0, i2)", "one axis"),
        ("gather(x, 0, i)", "must have the child's sizes or 1"),
        ("scatter(x, -1, i2, x)", "must have one shape"),
        ("topk(x, 4, -1)", "1 <= k <= 3"),
        ("insert(x, transpose(x), i, 0)", "expected one position"),
        ("gru_ops(x, x, x, x)", "expected xW with 3 times 3 columns"),
        ("att_ops(x, cube, x)", "va of shape"),
        ("weighted_average(cube, x)", "as many axes"),
    ],
)
def test_errors_name_operator_children_and_place(graph: ExpressionGraph, call: str, message: str) -> None:
    names = {
        "x": param(graph, np.ones((2, 3))),
        "cube": param(graph, np.ones((2, 3, 3)), "cube"),
        "i": graph.indices([0, 1, 2]),
        "i2": graph.constant((2, 1), inits.zeros(), "uint32"),
    }
    with pytest.raises(ShapeError, match=message) as caught:
        eval(compile(call, "user.py", "eval"), vars(mgraph) | names)
    text = str(caught.value)
    assert ("children: " in text and "float32[2, 3]" in text) or "uint32" in text
    assert "at user.py:1" in text
