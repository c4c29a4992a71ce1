"""Operators: Marian's conventions, shortcuts, where gradients stop, errors.

That values and gradients are right is shown by ``test_golden`` and ``test_gradients``.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leaves import constant, gradient, param, value

import mgraph
from mgraph import (
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
from mgraph.ops.softmax import CrossEntropyNodeOp
from mgraph.ops.structure import CastNodeOp
from mgraph.rules import evaluate


@pytest.fixture
def graph() -> ExpressionGraph:
    return ExpressionGraph()


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
        assert cls.__name__.endswith("Op"), cls
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
            if cls is CastNodeOp or case.through:
                continue
            fields = dict(case.fields) | ({"to": mgraph.Type.float32} if cls is CrossEntropyNodeOp else {})
            operator = make_operator(cls, fields)
            values = [v if v.dtype == np.uint32 else v.astype(dtype) for v in case.values()]
            trained = tuple(v.dtype != np.uint32 for v in values)

            y, first = jax.eval_shape(partial(value_and_gradient, operator, trained), *values)
            kept = jax.tree.leaves(y)[0].dtype
            assert kept == (jnp.float32 if cls is CrossEntropyNodeOp else dtype), (cls, case)
            assert first.dtype == dtype, (cls, case)


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
        "i": graph.indices([0, 1, 2]),
        "i2": graph.constant((2, 1), inits.zeros(), "uint32"),
    }
    with pytest.raises(ShapeError, match=message) as caught:
        eval(compile(call, "user.py", "eval"), vars(mgraph) | names)
    text = str(caught.value)
    assert ("children: " in text and "float32[2, 3]" in text) or "uint32" in text
    assert "at user.py:1" in text
