"""The engine where users slip: declarations, fields and rules that cannot be, odd orders of calls."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ElementTypeError,
    ExpressionGraph,
    GraphError,
    MGraphError,
    ShapeError,
    TupleViewNodeOp,
    UnaryNodeOp,
    inits,
    scan,
)
from mgraph.places import user_frame


class Scaled(UnaryNodeOp):
    """x times c."""

    type = "scaled"
    c: object = 1.0

    def forward_ops(self, x):
        return x * self.c

    def backward_ops(self, adj, val, x):
        return (adj * self.c,)


# -- declarations


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


def test_a_constructor_that_would_be_ignored_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="__init__ is never called; declare a field"):

        class Constructed(UnaryNodeOp):
            def __init__(self, x, c):
                self.c = c


def test_numpy_scalars_are_fields_like_pythons() -> None:
    graph = ExpressionGraph()
    x = graph.ones((2,))
    assert Scaled(x, c=np.float32(0.0)) is not Scaled(x, c=np.float32(-0.0))
    assert Scaled(x, c=np.float32("nan")) is Scaled(x, c=np.float32("nan"))
    assert Scaled(x, c=np.float32(1)) is not Scaled(x, c=np.float16(1))


def test_fields_that_cannot_be_are_errors_of_mgraph() -> None:
    graph = ExpressionGraph()
    x = graph.ones((2,))
    for fields in ({"c": [1.0]}, {"c": {}}, {"d": 1.0}, {"c": jnp.ones(2)}):
        with pytest.raises(ArgumentError, match="Scaled"):
            Scaled(x, **fields)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: None, "must return an array or a tuple of them, got None"),
        (lambda self, x: [x, x], r"must return an array or a tuple of them, got \["),
        (lambda self, x: {"y": x}, r"must return an array or a tuple of them, got \{"),
        (lambda self, x: x.missing, "forward_ops failed: AttributeError: .*missing"),
        (lambda self: 0, "children do not fit: .*positional argument"),
        (None, "declares no forward_ops"),
    ],
)
def test_forward_ops_that_give_no_array_are_named_with_their_place(forward, message: str) -> None:
    body = {"type": "odd"} if forward is None else {"type": "odd", "forward_ops": forward}
    odd = type("Odd", (UnaryNodeOp,), body)
    graph = ExpressionGraph()
    with pytest.raises(MGraphError, match=rf"Odd \(odd\): .*{message}(.|\n)*test_engine_edges.py"):
        odd(graph.ones((2,)))


def test_a_node_of_several_outputs_is_no_operand() -> None:
    graph = ExpressionGraph()
    both = mgraph.topk(graph.ones((3,)), 2, -1)[0].children[0]
    with pytest.raises(ShapeError, match="several outputs; take one of them"):
        mgraph.sin(both)
    with pytest.raises(ShapeError, match="index out of range"):
        TupleViewNodeOp(both, index=5)


def test_a_users_folder_may_begin_like_the_packages(tmp_path) -> None:
    """A file beside the package called mgraph_tools.py is the user's."""
    code = compile("place = user_frame()", f"{mgraph.__path__[0]}_tools.py", "exec")
    names = {"user_frame": user_frame}
    exec(code, names)
    assert names["place"][0] is code


# -- rules


def raising(self, adj, val, x):
    return (adj @ jnp.ones((7, 3)),)


def forgetful(self, adj, x):
    return (adj,)


@pytest.mark.parametrize("rule", [raising, forgetful])
def test_a_rule_that_raises_is_named(rule) -> None:
    bad = type("Bad", (UnaryNodeOp,), {"forward_ops": lambda self, x: 2 * x, "backward_ops": rule})
    graph = ExpressionGraph()
    top = mgraph.sum(bad(graph.param("x", (2,), inits.ones())))
    with pytest.raises(mgraph.GradientError, match=r"Bad.backward_ops failed: TypeError: "):
        graph.backprop()
    report = mgraph.check_gradients(top)
    assert not report.ok and "Bad.backward_ops failed" in str(report)


@pytest.mark.parametrize("derivatives", ["rules", "jax", "marian"])
def test_frozen_means_frozen_under_every_rule_set(derivatives: str) -> None:
    graph = ExpressionGraph(derivatives=derivatives)
    a = graph.param("a", (), inits.from_value(2))
    fixed = graph.param("fixed", (), inits.from_value(5), fixed=True)
    square = a * a
    square.set_trainable(False)
    top = square * a + fixed * fixed
    graph.backprop()
    np.testing.assert_allclose(a.grad(), 4.0)
    f = graph.function(top, [])
    gradient = jax.grad(lambda p: f.pure(p))(graph.params().vals())
    assert {name: float(g) for name, g in gradient.items()} == {"a": 4.0, "fixed": 0.0}


def test_an_input_of_a_function_is_trained_even_if_the_graph_froze_it() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (), inits.ones())
    top = w * mgraph.sin(graph.param("v", (), inits.ones()))
    w.set_trainable(False)
    f = graph.function(top, [w])
    slope = jax.grad(lambda v: f.pure(graph.params().vals(), [v]))(3.0)
    np.testing.assert_allclose(slope, np.sin(1.0), rtol=1e-6)


# -- odd orders of calls


@pytest.mark.parametrize(
    "look", [lambda loss: mgraph.stop_gradient(loss) * 2.0, lambda loss: mgraph.gt(loss, loss)]
)
def test_what_is_not_trained_may_look_at_the_top(look) -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (2,), inits.ones())
    loss = mgraph.sum(w * w)
    seen = look(loss)
    graph.backprop()
    np.testing.assert_allclose(w.grad(), [2.0, 2.0])
    assert seen.val().shape == (1,)


def test_parameters_can_be_frozen_and_debugged_after_clear(capfd) -> None:
    graph = ExpressionGraph()
    w, v = graph.param("w", (2,), inits.ones()), graph.param("v", (2,), inits.ones())
    graph.clear()
    w.set_trainable(False)
    v.debug("the other")
    mgraph.sum(w * v)
    graph.backprop()
    assert not w.trainable and graph.params().trainable() == {"v": v}
    assert "Debug Grad: the other op=param" in capfd.readouterr().err


def test_freezing_between_a_value_and_backward_counts() -> None:
    for frozen in (False, True):  # the first round teaches that backward follows the value
        graph = ExpressionGraph()
        a, b = graph.param("a", (2,), inits.ones()), graph.param("b", (2,), inits.from_value(3))
        square = mgraph.square(a)
        top = square * b
        graph.forward()
        assert top.val().shape == (2,)
        if frozen:
            square.set_trainable(False)
        graph.backward()
        np.testing.assert_allclose(a.grad(), [0.0, 0.0] if frozen else [6.0, 6.0])


def test_integers_are_not_trained() -> None:
    graph = ExpressionGraph()
    with pytest.raises(ElementTypeError, match=r"uint32\[2\] has no gradient"):
        graph.indices([0, 1]).set_trainable(True)
    w = graph.param("w", (4,), inits.range(0, 4))
    values, places = mgraph.topk(w, 2, -1)
    mgraph.sum(values)
    graph.backprop()
    np.testing.assert_allclose(w.grad(), [0, 0, 1, 1])
    with pytest.raises(GraphError, match="has no gradient"):
        places.grad()


def test_a_trained_constant_is_clipped_like_any_node() -> None:
    graph = ExpressionGraph()
    c = graph.constant((2,), inits.from_value(3))
    c.set_trainable(True)
    mgraph.square(c)
    graph.backprop(clip_value=0.1)
    np.testing.assert_allclose(c.grad(), [0.1, 0.1])
    with pytest.raises(ArgumentError, match="clip_value of at least 0, got -1"):
        graph.backprop(clip_value=-1)


def test_a_node_added_after_backward_has_no_gradient_yet() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (2,), inits.ones())
    h = w * 2.0
    graph.backprop()
    y = h * h
    with pytest.raises(GraphError, match=r"call graph.backward\(\) first"):
        y.grad()
    graph.forward()
    graph.backward()
    np.testing.assert_allclose(w.grad(), [8.0, 8.0])


def test_nodes_of_several_outputs_can_be_debugged(capfd) -> None:
    graph = ExpressionGraph()
    values, _ = mgraph.topk(graph.param("w", (4,), inits.range(0, 4)), 2, -1)
    values.children[0].debug("both")
    mgraph.sum(values * 3.0)
    graph.backprop()
    text = capfd.readouterr().err
    assert (text.count("Debug: both op=topk"), text.count("Debug Grad: both op=topk")) == (2, 1)
    gradient, none = values.children[0].grad()
    np.testing.assert_allclose(gradient, [3.0, 3.0])
    assert none is None


def test_what_is_no_initialiser_is_refused_where_it_is_given() -> None:
    graph = ExpressionGraph()
    for wrong in (0, 0.5, [1.0, 2.0], np.ones(2)):
        with pytest.raises(ArgumentError, match="expected an initializer"):
            graph.param(f"w{wrong}", (2,), wrong)
        with pytest.raises(ArgumentError, match="expected an initializer"):
            graph.constant((2,), wrong)
    assert not graph.params() and not graph.tape.nodes


def test_fractions_do_not_become_integers_silently() -> None:
    graph = ExpressionGraph()
    ids, x = graph.param("ids", (2,), inits.zeros(), "int32"), graph.input("x", (2,), "uint32")
    for leaf in (ids, x):
        with pytest.raises(ElementTypeError, match="got a value of float64"):
            leaf.set_value([1.5, 2.0])
        leaf.set_value([3, 4])
        np.testing.assert_array_equal(leaf.val(), [3, 4])


def test_a_model_that_does_not_fit_changes_nothing(tmp_path) -> None:
    saved = ExpressionGraph()
    saved.param("a", (2,), inits.ones())
    saved.param("b", (3,), inits.ones())
    saved.save(tmp_path / "m.npz", meta="x: 1\n")
    graph = ExpressionGraph()
    a, _ = graph.param("a", (2,), inits.zeros()), graph.param("b", (2,), inits.zeros())
    with pytest.raises(ShapeError, match=r"'b' has shape \(2,\), got a value of \(3,\)"):
        graph.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(a.val(), [0.0, 0.0])
    assert graph.model_yml is None and not graph.reloaded


def test_a_model_that_could_not_be_read_is_not_written(tmp_path) -> None:
    graph = ExpressionGraph()
    graph.param("flag", (2,), inits.ones(), "bool")
    with pytest.raises(mgraph.ModelFileError, match="'flag' is bool"):
        graph.save(tmp_path / "m.npz")
    assert not list(tmp_path.iterdir())


def test_names_are_escaped_in_pictures() -> None:
    graph = ExpressionGraph()
    graph.param("a<b>&c", (2,))
    assert 'label=<param<br/>"a&lt;b&gt;&amp;c" (0/1)>' in graph.graphviz()


# -- 64-bit types


class Ramp(UnaryNodeOp):
    """x times numbers of JAX's default type, which follows the 64-bit switch."""

    type = "ramp"

    def forward_ops(self, x):
        return x * jnp.linspace(0, 1, x.shape[0])

    def backward_ops(self, adj, val, x):
        return (adj * jnp.linspace(0, 1, x.shape[0]),)


def test_the_users_64_bit_switch_changes_no_program() -> None:
    for switch in (True, False):
        with jax.enable_x64(switch):
            graph = ExpressionGraph()
            w = graph.param("w", (3,), inits.ones())
            y = Ramp(w)
            z = y * 2.0
            graph.backprop()
            assert {v.dtype for v in (y.val(), z.val(), w.grad(), y.grad())} == {np.dtype("float32")}
    mgraph.clear_programs()


def test_pure_functions_of_64_bits_want_the_switch() -> None:
    graph = ExpressionGraph()
    x = graph.input("x", (2,), "float64")
    f = graph.function(x * 2.0, [x])
    with pytest.raises(ElementTypeError, match=r"within jax.enable_x64\(True\)"):
        f.pure({}, [np.ones(2)])
    with jax.enable_x64(True):
        assert f.pure({}, [np.ones(2)]).dtype == np.float64


# -- functions


def test_every_call_of_every_function_draws_anew() -> None:
    graph = ExpressionGraph(seed=3)
    masks = []
    for _ in range(3):
        graph.clear()
        f = graph.function(graph.dropout_mask(0.5, (64,)), [])
        masks += [np.asarray(f()).tobytes(), np.asarray(f()).tobytes()]
    assert len(set(masks)) == 6
    other = ExpressionGraph(seed=3 + 2**32)
    assert np.asarray(other.function(other.dropout_mask(0.5, (64,)), [])()).tobytes() not in masks


def test_a_function_called_inside_jit_points_to_its_pure_form() -> None:
    graph = ExpressionGraph()
    x = graph.input("x", (2,))
    f = graph.function(x * graph.dropout_mask(0.5, (2,)), [x])
    with pytest.raises(GraphError, match=r"call fn.pure\(params, inputs, key\)"):
        jax.jit(lambda v: f(v))(jnp.ones(2))
    with pytest.raises(ArgumentError, match="expected a random key"):
        f.pure({}, [jnp.ones(2)], 3)


# -- loops


def test_loops_name_what_is_no_node() -> None:
    graph = ExpressionGraph()
    xs = graph.ones((3, 2))
    with pytest.raises(GraphError, match=r"or \(\) for nothing, got None"):
        scan(lambda h, x: (h + x, None), graph.zeros((2,)), xs)
    with pytest.raises(GraphError, match=r"expected a node or a tuple of nodes, got 0.0"):
        scan(lambda h, x: (h, ()), 0.0, xs)
    both = mgraph.topk(graph.ones((3,)), 2, -1)[0].children[0]
    with pytest.raises(GraphError, match="topk node has several outputs"):
        scan(lambda h, x: (h, ()), both, xs)
    with pytest.raises(GraphError, match="none to print"):
        scan(lambda h, x: ((h + x).debug("h"), ()), graph.zeros((2,)), xs)


# -- optimizers


def test_optimisers_with_other_settings_share_no_update() -> None:
    class Scaling(mgraph.Optimizer):
        def __init__(self, factor: float) -> None:
            super().__init__(1.0)
            self.factor = factor

        def direction(self):
            return optax.scale(self.factor)

    values = []
    for factor in (1.0, 2.0):
        graph = ExpressionGraph()
        w = graph.param("w", (2,), inits.ones())
        mgraph.sum(w)
        graph.backprop()
        Scaling(factor).update(graph)
        values.append(float(w.val()[0]))
    assert values == [0.0, -1.0]


@pytest.mark.parametrize("type_", ["float16", "bfloat16"])
@pytest.mark.parametrize("make", [mgraph.Adam, mgraph.Adagrad])
def test_sixteen_bit_parameters_without_gradient_stay_finite(make, type_: str) -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (2,), inits.ones(), type_)
    mgraph.sum(w * graph.constant((2,), inits.from_vector([0.0, 1.0]), type_))
    graph.backprop()
    make(0.125).update(graph)
    assert w.val().dtype == type_
    np.testing.assert_allclose(np.asarray(w.val(), np.float32), [1.0, 0.875])


def test_the_cache_has_no_negative_capacity() -> None:
    with pytest.raises(ArgumentError, match="at least 0, got -1"):
        mgraph.set_program_capacity(-1)


@pytest.mark.parametrize(
    "value", [[300, 1], [-1, 1], [1j, 1], ["a", "b"], [None, 1], [[1], [1, 2]], [0.5, 1]]
)
def test_a_leaf_refuses_what_it_cannot_hold(value: object) -> None:
    graph = ExpressionGraph()
    for leaf in (graph.input("x", (2,), "uint8"), graph.param("w", (2,), inits.ones(), "uint8")):
        leaf.set_value([255, True])
        with pytest.raises((ElementTypeError, ShapeError), match=f"'{leaf.name}'"):
            leaf.set_value(value)
        np.testing.assert_array_equal(leaf.val(), [255, 1])


def test_arguments_of_the_graph_are_checked() -> None:
    graph = ExpressionGraph()
    w = graph.param("w", (2,), inits.ones())
    for values in ([-1], [1.5], [[1, 2]]):
        with pytest.raises((ElementTypeError, ShapeError), match="a vector of indices"):
            graph.indices(values)
    assert graph.indices([]).shape == (0,)
    with pytest.raises(ShapeError, match="axis 2 does not exist"):
        graph.indices([1], w, 2)
    for name in ("", 3):
        with pytest.raises(ArgumentError, match="needs a name"):
            graph.param(name, (1,))
    with pytest.raises(ArgumentError, match="seed"):
        ExpressionGraph(seed=1.5)
    with pytest.raises(ArgumentError, match="2 parts"):
        graph.set_checkpointing(parts=2.5)
    with pytest.raises(ArgumentError, match="expects a node, got 3.0"):
        graph.assign(w, 3.0)
    mgraph.sum(w * 3)
    with pytest.raises(ArgumentError, match="clip_value of at least 0, got 'a'"):
        graph.backprop(clip_value="a")
    graph.backprop(clip_value=jnp.float32(0.5))
    np.testing.assert_array_equal(w.grad(), [0.5, 0.5])
