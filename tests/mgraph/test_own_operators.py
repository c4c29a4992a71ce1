"""Operators of one's own: declarations, fields and rules, and the errors for mistakes."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ExpressionGraph,
    GraphError,
    MGraphError,
    NaryNodeOp,
    ShapeError,
    TupleViewNodeOp,
    UnaryNodeOp,
    inits,
)
from mgraph.operators import find_operator
from mgraph.places import user_frame


def test_fields_that_differ_only_in_kind_stay_apart() -> None:
    class Field(mgraph.UnaryNodeOp):
        type = "field"
        c: object

        def forward_ops(self, x):
            return x

    graph = ExpressionGraph()
    x = graph.ones((2,))
    values = [1, 1.0, True, 0.0, -0.0, (1,), (1.0,), (True,), "1", None]
    nodes = {id(Field(x, c=v)) for v in values}
    assert len(nodes) == len(values)
    assert Field(x, c=float("nan")) is Field(x, c=float("nan"))
    with pytest.raises(TypeError, match=r"Field.c must be a number.*graph.constant"):
        Field(x, c=np.ones(2))


def test_errors_name_op_children_and_the_line(graph: ExpressionGraph) -> None:
    w = graph.param("weights", (5, 6))
    with pytest.raises(
        ShapeError, match=r"affine(.|\n)*'weights' float32\[5, 6\](.|\n)*test_own_operators.py:\d+"
    ):
        mgraph.affine(graph.zeros((4, 3)), w, graph.zeros((1, 6)))
    with pytest.raises(mgraph.ElementTypeError, match="float32 and float64.*cast"):
        graph.zeros((2,)) + graph.zeros((2,), "float64")
    with pytest.raises(mgraph.ElementTypeError, match="expected nodes, got"):
        mgraph.sin(3.0)


def test_wrong_rules_raise() -> None:
    class WrongShape(mgraph.UnaryNodeOp):
        type = "wrong"

        def forward_ops(self, x):
            return x * 2

        def backward_ops(self, adj, val, x):
            return (adj.sum(),)

    class WrongCount(NaryNodeOp):
        type = "wrong"

        def forward_ops(self, x, y):
            return x + y

        def backward_ops(self, adj, val, x, y):
            return (adj,)

    class WrongType(mgraph.UnaryNodeOp):
        type = "wrong"

        def forward_ops(self, x):
            return x * 2

        def backward_ops(self, adj, val, x):
            return (adj.astype("float16"),)

    graph = ExpressionGraph()
    x = graph.param("x", (2, 3))
    for make, message in (
        (lambda: WrongShape(x), r"child 0: expected shape \(2, 3\).*got \(\)"),
        (lambda: WrongCount(x, x), "expected one gradient per child, 2, got 1"),
        (lambda: WrongType(x), "expected element type float32, got float16"),
    ):
        graph.clear()
        make()
        with pytest.raises(mgraph.GradientError, match=message):
            graph.backprop()


def test_only_the_value_and_other_children_stretch_a_child() -> None:
    class Sums(NaryNodeOp):
        """The sum of a product over its first axis: its children are larger than its value."""

        type = "sums"
        gradient: object

        def forward_ops(self, x, y):
            return jnp.sum(x * y, 0, keepdims=True)

        def backward_ops(self, adj, val, x, y):
            return adj * jnp.broadcast_to(y, x.shape), self.gradient(adj * x)

    graph = ExpressionGraph()
    x = graph.param("x", (4, 3), inits.ones())
    y = graph.param("y", (1, 3), inits.ones())
    Sums(x, y, gradient=jnp.asarray)
    graph.backprop()
    assert y.grad().tolist() == [[4, 4, 4]]
    for gradient in (lambda g: jnp.stack([g, g]), lambda g: jnp.concatenate([g, g])):
        graph.clear()
        Sums(x, y, gradient=gradient)
        with pytest.raises(
            mgraph.GradientError, match=r"child 1: expected shape \(1, 3\), or that .*got \((8|2, 4), 3\)"
        ):
            graph.backprop()


def test_a_rule_sees_no_children() -> None:
    class Peeking(mgraph.UnaryNodeOp):
        type = "peek"

        def forward_ops(self, x):
            return x + self.children[0].shape[0]

    graph = ExpressionGraph()
    with pytest.raises(GraphError, match="a rule sees values only"):
        Peeking(graph.ones((2,)))


class Scaled(UnaryNodeOp):
    """x times c."""

    type = "scaled"
    c: object = 1.0

    def forward_ops(self, x):
        return x * self.c

    def backward_ops(self, adj, val, x):
        return (adj * self.c,)


def test_a_plain_attribute_is_the_new_default_of_an_inherited_field() -> None:
    class Doubled(Scaled):
        c = 2.0

    graph = ExpressionGraph()
    x = graph.ones((2,))
    plain, doubled, tripled = Scaled(x), Doubled(x), Doubled(x, c=3.0)
    graph.forward()
    assert [float(n.val()[0]) for n in (plain, doubled, tripled)] == [1.0, 2.0, 3.0]
    assert (doubled.c, tripled.c) == (2.0, 3.0)


@pytest.mark.parametrize("name", ["type", "shape", "name", "children", "trainable"])
def test_a_field_cannot_take_the_name_of_what_every_node_has(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"every node has a {name!r} of its own"):
        type("Taken", (UnaryNodeOp,), {"__annotations__": {name: int}})


def test_a_type_is_a_name() -> None:
    with pytest.raises(ArgumentError, match=r"Nameless.type: expected the operation's name, got None"):
        type("Nameless", (UnaryNodeOp,), {"type": None})


def test_a_constructor_that_would_be_ignored_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="__init__ is never called; declare a field"):

        class Constructed(UnaryNodeOp):
            def __init__(self, x, c):
                self.c = c


def test_numpy_scalars_are_fields_like_pythons(graph: ExpressionGraph) -> None:
    x = graph.ones((2,))
    assert Scaled(x, c=np.float32(0.0)) is not Scaled(x, c=np.float32(-0.0))
    assert Scaled(x, c=np.float32("nan")) is Scaled(x, c=np.float32("nan"))
    assert Scaled(x, c=np.float32(1)) is not Scaled(x, c=np.float16(1))


@pytest.mark.parametrize("runtime", [(), ("c",)])
def test_a_node_is_no_field(graph: ExpressionGraph, runtime: tuple[str, ...]) -> None:
    class Scaled(UnaryNodeOp):
        type = "scaled"
        c: float
        runtime_fields = runtime

        def forward_ops(self, x):
            return x

    x = graph.ones((2,))
    for wrong in (x, (1, mgraph.abs(x))):
        with pytest.raises(
            ArgumentError, match="Scaled.c must be a number.*got an? .* node; nodes are children"
        ):
            Scaled(x, c=wrong)


def test_fields_that_cannot_be_are_errors_of_mgraph(graph: ExpressionGraph) -> None:
    x = graph.ones((2,))
    for fields in ({"c": [1.0]}, {"c": {}}, {"d": 1.0}, {"c": jnp.ones(2)}):
        with pytest.raises(ArgumentError, match="Scaled"):
            Scaled(x, **fields)


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"slots": True, "eq": False}])
def test_an_operator_is_no_dataclass(options) -> None:
    with pytest.raises(ArgumentError, match=r"^Op: an operation is no dataclass(.|\n)*operators\.py:\d+"):

        @dataclasses.dataclass(**options)
        class Op(UnaryNodeOp):
            axis: int = 0


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: None, "must return an array or a tuple of them, got None"),
        (lambda self, x: (), r"must return an array or a tuple of them, got \(\)"),
        (lambda self, x: [x, x], r"must return an array or a tuple of them, got \["),
        (lambda self, x: {"y": x}, r"must return an array or a tuple of them, got \{"),
        (
            lambda self, x: "y",
            "must return an array or a tuple of them, got .y.\n  rule at .*operators.py:\\d+",
        ),
        (repr, r"must return an array or a tuple of them, got .*float32\[\d\].*'\n  children"),
        (lambda self, x: (x, min), r"must return an array or a tuple of them, got \(.*function min>\)"),
        (lambda self, x: x.missing, "forward_ops failed: AttributeError: .*missing"),
        (
            lambda self, x: np.sin(x),
            r"use jax.numpy instead of numpy, .*TracerArray\w+ at .*test_own_operators.py",
        ),
        (lambda self, x: x if x[0] > 0 else -x, "jnp.where or jax.lax.cond instead of if .*TracerBool"),
        (
            lambda self: 0,
            r"expected forward_ops\(self, x\), with one array per child, got forward_ops\(self\)",
        ),
        (lambda x: x, r"expected forward_ops\(self, x\), .*, got forward_ops\(x\)"),
        (lambda self, x, y: x, r"expected forward_ops\(self, x\), .*, got forward_ops\(self, x, y\)"),
        (
            lambda self, x: jnp.reshape(),
            r"children do not fit: reshape.* missing 2 required positional.* \(.*test_own_operators.py:\d+\)",
        ),
        (lambda self, x: x[x > 0], r"jnp.where or jax.lax.cond instead of if \(NonConcreteBooleanIndexError"),
        (None, "declares no forward_ops"),
    ],
)
def test_forward_ops_that_give_no_array_are_named_with_their_place(forward, message: str) -> None:
    body = {"type": "odd"} if forward is None else {"type": "odd", "forward_ops": forward}
    odd = type("Odd", (UnaryNodeOp,), body)
    graph = ExpressionGraph()
    with pytest.raises(MGraphError, match=rf"Odd \(odd\): .*{message}(.|\n)*test_own_operators.py"):
        odd(graph.ones((2,)))


@pytest.mark.parametrize(
    ("backward", "message"),
    [
        (lambda self, adj, x: (adj,), r"expected backward_ops\(self, adj, val, x\), got .*\(self, adj, x\)"),
        (lambda adj, val, x: (adj,), r"expected backward_ops\(self, adj, val, x\), got .*\(adj, val, x\)"),
        (lambda self, adj, val, x: adj, r"expected a tuple .*, one per child, got a value of shape \(2, 2\)"),
        (lambda self, adj, val, x: adj(), r"failed: TypeError: .*test_own_operators.py:\d+"),
    ],
)
def test_backward_ops_of_another_form_are_told_the_right_one(backward, message: str) -> None:
    body = {"type": "odd", "forward_ops": lambda self, x: x, "backward_ops": backward}
    graph = ExpressionGraph()
    type("Odd", (UnaryNodeOp,), body)(graph.param("x", (2, 2)))
    with pytest.raises(
        mgraph.GradientError, match=rf"Odd.backward_ops.*{message}(.|\n)*rule at .*test_own_op"
    ):
        graph.backprop()


def test_a_node_of_several_outputs_is_no_operand(graph: ExpressionGraph) -> None:
    both = mgraph.topk(graph.ones((3,)), 2, -1)[0].children[0]
    with pytest.raises(ShapeError, match="several outputs; take one of them"):
        mgraph.sin(both)
    with pytest.raises(ShapeError, match="index out of range"):
        TupleViewNodeOp(both, index=5)


def test_integers_that_a_class_does_not_declare_are_told_how(graph: ExpressionGraph) -> None:
    class Picked(NaryNodeOp):
        type = "picked"

        def forward_ops(self, ids, table):
            return table[ids]

    class Declared(Picked):
        index_children = (0,)

    ids, table = graph.indices([1, 1, 0]), graph.zeros((2, 3))
    with pytest.raises(
        mgraph.ElementTypeError, match=r"need no cast if Picked declares index_children = \(0,\)"
    ):
        Picked(ids, table)
    assert Declared(ids, table).shape == (3, 3)
    counts = graph.constant((2, 3), inits.zeros(), "uint32")
    for built_in in (lambda: table + counts, lambda: counts + table):
        with pytest.raises(mgraph.ElementTypeError, match=r"cast\(x, float32\)\n"):
            built_in()


def test_a_users_folder_may_begin_like_the_packages() -> None:
    """A file mgraph_tools.py next to the package belongs to the user."""
    code = compile("place = user_frame()", f"{mgraph.__path__[0]}_tools.py", "exec")
    names = {"user_frame": user_frame}
    exec(code, names)
    assert names["place"][0] is code


class Keeping(UnaryNodeOp):
    type = "keeping"
    rule: str

    def forward_ops(self, x):
        y = jnp.tanh(x)
        if self.rule == "forward_ops":
            self.kept = y
        return y

    def backward_ops(self, adj, val, x):
        if self.rule == "backward_ops":
            self.rule = "none"
        return (adj * (1 - val * val),)


@pytest.mark.parametrize(("rule", "name"), [("forward_ops", "kept"), ("backward_ops", "rule")])
def test_a_rule_that_keeps_a_value_is_an_error(rule: str, name: str) -> None:
    """The next node would read it, because all nodes with these fields share one operator."""
    graph = ExpressionGraph()
    x = graph.param("x", (2,), inits.ones())
    for _ in range(2):
        with pytest.raises(
            ArgumentError, match=rf"Keeping.{rule} sets self.{name}.*\n  children: .*float32\[2\]"
        ):
            mgraph.sum(Keeping(x, rule=rule))
            graph.backprop()
        graph.clear()
    operator = find_operator(Keeping, {"rule": rule})
    assert operator.rule == rule and vars(operator).keys() == {"rule", "_shapes"}


def test_a_replaced_rule_counts_when_programs_are_forgotten(graph: ExpressionGraph) -> None:
    class Twice(UnaryNodeOp):
        type = "twice"

        def forward_ops(self, x):
            return 2 * x

        def backward_ops(self, adj, val, x):
            return (adj * 3,)

    def gradient_of_one() -> list[float]:
        graph.clear()
        x = graph.param("x", (1,), inits.ones())
        Twice(x)
        graph.backprop()
        return x.grad().tolist()

    assert gradient_of_one() == [3]
    Twice.backward_ops = lambda self, adj, val, x: (adj * 2,)
    mgraph.clear_programs()
    assert gradient_of_one() == [2]


def raising(self, adj, val, x):
    return (adj @ jnp.ones((7, 3)),)


def test_a_rule_that_raises_is_named() -> None:
    bad = type("Bad", (UnaryNodeOp,), {"forward_ops": lambda self, x: 2 * x, "backward_ops": raising})
    graph = ExpressionGraph()
    top = mgraph.sum(bad(graph.param("x", (2,), inits.ones())))
    named = r"Bad.backward_ops failed: TypeError: .*\n  children: float32\[2\]\n  rule at .*_operators.py:\d+"
    with pytest.raises(mgraph.GradientError, match=named):
        graph.backprop()
    report = mgraph.check_gradients(top)
    assert not report.ok and "Bad.backward_ops failed" in str(report)
