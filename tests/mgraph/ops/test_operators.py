"""Operators: what holds for all of them, element types, errors.

That values and gradients are right is shown by ``test_golden``, ``test_conventions`` and ``test_gradients``.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from functools import partial
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
    NaryNodeOp,
    Node,
    ShapeError,
    Slice,
    UnaryNodeOp,
    check_gradients,
    inits,
)
from mgraph.operators import make_operator
from mgraph.ops.output_loss import AffineCrossEntropyNodeOp
from mgraph.ops.softmax import CrossEntropyNodeOp, SoftmaxCrossEntropyNodeOp
from mgraph.ops.structure import CastNodeOp
from mgraph.rules import evaluate
from tests.helpers.leaves import constant, gradient, param, value

LOSSES = (AffineCrossEntropyNodeOp, CrossEntropyNodeOp, SoftmaxCrossEntropyNodeOp)


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
    assert [cls.__name__ for cls in operators() if not cls.cases] == []


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
        assert cls.__name__.endswith("Op"), cls
        assert cls.color in {"yellow", "orange", "grey"}, cls


def zero_adjoint(y: Any) -> Any:
    """A zero adjoint, which for an integer output has JAX's type ``float0``."""
    integer = jnp.issubdtype(y.dtype, jnp.integer)
    return np.zeros(y.shape, jax.dtypes.float0) if integer else jnp.zeros(y.shape, y.dtype)


def value_and_gradient(operator: Any, trained: tuple[bool, ...], *values: Any) -> tuple[Any, Any]:
    """The operator's value and its gradient with respect to the first child."""
    y, pull = jax.vjp(lambda *v: evaluate(operator, "rules", trained, v), *values)
    return y, pull(jax.tree.map(zero_adjoint, y))[0]


@pytest.mark.parametrize("element_type", ["float16", "bfloat16", "float32"])
@pytest.mark.sampled("bfloat16", "float32")
def test_element_types_are_kept(element_type: str) -> None:
    """Values have their children's type, losses float32, gradients their child's: the engine demands it."""
    dtype = jnp.dtype(element_type)
    for cls in operators():
        for case in cls.cases:
            if cls is CastNodeOp or case.through:
                continue
            fields = dict(case.fields) | ({"to": mgraph.Type.float32} if cls is CrossEntropyNodeOp else {})
            operator = make_operator(cls, fields)
            values = [v if v.dtype == np.uint32 else v.astype(dtype) for v in case.values()]
            trained = tuple(v.dtype != np.uint32 for v in values)

            y, first = jax.eval_shape(partial(value_and_gradient, operator, trained), *values)
            kept = jax.tree.leaves(y)[0].dtype
            assert kept == (jnp.float32 if cls in LOSSES else dtype), (cls, case)
            assert first.dtype == dtype or not trained[0], (cls, case)


# ---------------------------------------------------------------- single operators


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


def test_clipped_and_stopped_gradients(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0, 2.0])
    top = mgraph.clip_gradient(x, 0.5) * 3 + mgraph.stop_gradient(x) * x
    for rules in ("rules", "jax", "marian"):
        function = graph.function(top, [x], derivatives=rules)
        slope = jax.grad(lambda v, f=function: jnp.sum(f.pure({}, [v])))(x.leaf_value())
        np.testing.assert_allclose(slope, [1.5, 2.5])
    assert not mgraph.stop_gradient(x).trainable


# ---------------------------------------------------------------- element types

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


@pytest.mark.parametrize("kind", FLOATS)
def test_parameters_and_constants_of_every_float(graph: ExpressionGraph, kind: str) -> None:
    third = 1 / 3
    x, c = param(graph, [third, 3.0], type=kind), constant(graph, [third, 1.0], kind)
    y = mgraph.sum((x * c + 1) / 2 - abs(-x), 0)
    graph.backprop()
    assert y.value_type == kind and y.val().dtype == x.grad().dtype == x.val().dtype == jnp.dtype(kind)
    precision = float(jnp.finfo(kind).eps)
    np.testing.assert_allclose(float(y.val()[0]), (third**2 + 1) / 2 - third - 1, rtol=8 * precision)
    np.testing.assert_allclose(np.float64(x.grad()), [third / 2 - 1, -0.5], rtol=2 * precision)


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_of_every_width(graph: ExpressionGraph, kind: str) -> None:
    i = constant(graph, [3, 0, 5], kind)
    nodes = (i + i, i * 2, i - 1 + 1, mgraph.maximum(i, 4), i >= 3, mgraph.sort(i, 0)[0], mgraph.sum(i, 0))
    picked = mgraph.rows(param(graph, np.eye(6)), i)
    graph.forward()
    assert all(node.value_type == kind and not node.trainable for node in nodes)
    assert [node.val().tolist() for node in nodes] == [
        [6, 0, 10], [6, 0, 10], [3, 0, 5], [4, 4, 5], [1, 0, 1], [5, 3, 0], [8],
    ]  # fmt: skip
    assert np.argmax(picked.val(), 1).tolist() == [3, 0, 5]


def test_numbers_that_integers_do_not_hold(graph: ExpressionGraph) -> None:
    i = graph.indices([3, 0])
    calls = (
        lambda: i < 0.5,
        lambda: mgraph.maximum(i, -1),
        lambda: mgraph.eq(2**32, i),
        lambda: i + 0.5,
        lambda: i + 2**32,
        lambda: i * -1,
        lambda: i - 10**400,
        lambda: 2**32 - i,
        lambda: mgraph.pad(i, [(1, 1)], 2**32),
        lambda: mgraph.shift(i, [1], -1),
        lambda: mgraph.select(i, i, math.inf),
    )
    for call in calls:
        with pytest.raises(ElementTypeError, match=r"uint32(.|\n)*cast(.|\n)*test_operators\.py"):
            call()


@pytest.mark.parametrize("kind", INTEGERS)
def test_numbers_that_integers_hold(graph: ExpressionGraph, kind: str) -> None:
    """Up to the largest, which float32 rounds."""
    limits = np.iinfo(kind)
    zero = constant(graph, [0, 0], kind)
    nodes = [zero + limits.max, limits.max - zero, zero + limits.min, mgraph.shift(zero, [1], limits.max)]
    nodes += [constant(graph, np.array([limits.min, limits.max], kind), kind) - limits.min]
    graph.forward()
    found = [np.asarray(node.val()).tolist() for node in nodes]
    whole = int(np.array(limits.max).astype(kind) - np.array(limits.min).astype(kind))
    assert found == [[limits.max] * 2, [limits.max] * 2, [limits.min] * 2, [limits.max, 0], [0, whole]]


@pytest.mark.parametrize(
    ("call", "got"),
    [
        ("dot(x, array)", r"got an array of shape \(3, 2\) and type float64; .*from_tensor"),
        ("affine(x, x, None)", "got None of type NoneType"),
        ("cross_entropy(x, [0, 1])", r"got \[0, 1\] of type list; .*from_tensor"),
        ("layer_norm(x, 2.0)", r"got 2.0 of type float; .*graph\.constant\(shape, init\)"),
        ("sin(array)", r"got an array of shape \(3, 2\).*from_tensor"),
        ("rows(array, [0])", r"got an array of shape \(3, 2\).*from_tensor"),
    ],
)
def test_what_is_no_node_is_named(graph: ExpressionGraph, call: str, got: str) -> None:
    names = {"x": param(graph, np.ones((2, 3))), "array": np.ones((3, 2))}
    with pytest.raises(ElementTypeError, match=f"expected (a node|nodes), {got}") as caught:
        eval(compile(call, "user.py", "eval"), vars(mgraph) | names)
    assert "at user.py:1" in str(caught.value)


def test_casts(graph: ExpressionGraph) -> None:
    """Gradients pass between float types and get the child's type; none pass to or from integers."""
    nodes = [param(graph, [1.5, 0.0], kind, kind) for kind in FLOATS]
    nodes += [constant(graph, [1, 0], kind) for kind in (*INTEGERS, "bool")]
    for x in nodes:
        for kind in (*FLOATS, *INTEGERS, "bool"):
            y = mgraph.cast(x, kind)
            assert y.value_type == kind and (y is x) == (x.value_type == kind)
            assert y.trainable == (x.trainable and kind in FLOATS), (x, kind)
    flags = mgraph.cast(nodes[0], mgraph.Type.bool)
    whole = mgraph.cast(param(graph, [1.5, -2.5], "x"), "int32")
    assert mgraph.cast(nodes[0]).value_type == "float32"
    graph.forward()
    assert flags.val().tolist() == [True, False] and whole.val().tolist() == [1, -2]
    with pytest.raises(ElementTypeError, match="float33"):
        mgraph.cast(whole, "float33")


def test_gradients_are_cast_back() -> None:
    for first in FLOATS:
        graph = ExpressionGraph()
        x = param(graph, [1.5, 2.0], type=first)
        y = x
        for kind in FLOATS:
            y = mgraph.cast(y, kind) * 2
        graph.backprop()
        assert y.value_type == "float64" and x.grad().dtype == jnp.dtype(first)
        assert x.grad().tolist() == [16, 16] and y.val().tolist() == [24, 32]


# ---------------------------------------------------------------- errors

UNEQUAL = """
    x + half; x - half; x * half; x / half; logaddexp(x, half); maximum(half, x); minimum(x, half)
    lt(x, half); x <= half; tanh(x, half); sigmoid([x, half]); concatenate([x, half]); dropout(x, half)
    dropout_relu_inplace(x, half); scatter(x, 0, j, half); dot(x, half); insert(x, half, i[0:1], 0)
"""


@pytest.mark.parametrize(
    "call", [call.strip() for call in UNEQUAL.replace("\n", ";").split(";") if call.strip()]
)
def test_unequal_element_types_are_an_error_that_suggests_the_cast(graph: ExpressionGraph, call: str) -> None:
    names = {
        "x": param(graph, np.ones((2, 3))),
        "half": constant(graph, np.ones((2, 3)), "float16"),
        "i": graph.indices([0, 1]),
        "j": graph.constant((2, 3), inits.zeros(), "uint32"),
    }
    with pytest.raises(ElementTypeError, match=r"differ in element type(.|\n)*cast\(x, float\d\d\)"):
        eval(call, vars(mgraph) | names)


def test_lists_for_activations(graph: ExpressionGraph) -> None:
    x = param(graph, [1.0])
    for name in ("sigmoid", "swish", "gelu", "relu", "leakyrelu", "prelu", "plus", "tanh"):
        function = getattr(mgraph, name)
        with pytest.raises(ElementTypeError, match="expected at least one node"):
            function([])
        with pytest.raises(ElementTypeError, match=r"expected (a node|nodes), got (.|\n)*test_operators\.py"):
            function([x, "a"])


@pytest.mark.parametrize("call", ["clip(x, -1)", "clip_gradient(x, -1)", "pow(-1, x)", "(-1) ** x"])
def test_numbers_below_zero_are_an_error_where_they_mean_nothing(graph: ExpressionGraph, call: str) -> None:
    with pytest.raises(ArgumentError, match=r"expected a \w+ of at least 0, got -1"):
        eval(call, vars(mgraph) | {"x": param(graph, [1.0])})


@pytest.mark.parametrize(
    "call", ["(x == 0) * x", "x - (x != 0)", "x / True", "maximum(x, False)", "lt(i, True)", "i + (i == i)"]
)
def test_a_comparison_by_identity_is_no_number(graph: ExpressionGraph, call: str) -> None:
    nodes = {"x": param(graph, [0.0, 1.0]), "i": constant(graph, [0, 1], "int32")}
    with pytest.raises(ElementTypeError, match=r"(True|False) with a node of type \w+; .* eq\(\) and ne\(\)"):
        eval(call, vars(mgraph) | nodes)


def test_a_bool_compares_with_bools(graph: ExpressionGraph) -> None:
    assert value(mgraph.eq(constant(graph, [True, False], "bool"), True)).tolist() == [1, 0]


@pytest.mark.parametrize("base", [0, 1, 2, 1.5])
def test_a_power_of_integers_says_that_it_is_a_power(graph: ExpressionGraph, base: float) -> None:
    with pytest.raises(ElementTypeError, match="^pow: expected a node of a floating point type, got int32"):
        base ** constant(graph, [1, 2], "int32")


def test_a_power_that_fails_leaves_no_top(graph: ExpressionGraph) -> None:
    x, y = graph.param("x", (2,), inits.ones()), graph.param("y", (3,), inits.ones())
    with pytest.raises(ShapeError, match="do not broadcast"):
        x**y
    top = mgraph.sum(x * x)
    graph.backprop()
    assert x.grad().tolist() == [2, 2] and top.val() == 2


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
        ("transpose(x, (0, 0))", "not a permutation of the child's 2 axes"),
        ("concatenate([x, transpose(x)])", "differ in size along axis 0 only"),
        ("repeat(x, 0)", "at least one copy"),
        ("slice(x, 0, 2)", "is not a valid slice"),
        ("slice(x, 1, Slice(0, 3, -1))", "stride"),
        ("shift(x, (1,))", "one offset per axis"),
        ("cross_entropy(x, i)", "got 3 for 2 rows"),
        ("layer_norm(x, transpose(x))", r"expected gamma for rows of \(3,\), got \(3, 2\)"),
        ("layer_norm(x, None, x)", r"expected beta for rows of \(3,\), got \(2, 3\)"),
        ("rms_norm(one, one)", "expected rows of at least one element, got a scalar"),
        ("index_select(x, 0, i2)", "one axis"),
        ("gather(x, 0, i)", "must have the child's sizes or 1"),
        ("scatter(x, -1, i2, x)", r"a source of \(2, 3\) does not fit indices that write \(2, 1\)"),
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
        "one": param(graph, np.ones(()), "one"),
        "i": graph.indices([0, 1, 2]),
        "i2": graph.constant((2, 1), inits.zeros(), "uint32"),
    }
    with pytest.raises(ShapeError, match=message) as caught:
        eval(compile(call, "user.py", "eval"), vars(mgraph) | names)
    text = str(caught.value)
    assert "children: " in text and re.search(r"float32\[(2, 3)?\]|uint32", text)
    assert "at user.py:1" in text
