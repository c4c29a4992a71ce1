"""Patterns: what they match, what they bind, where they backtrack."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, inits
from mgraph.ops.arithmetic import DivNodeOp, MultNodeOp, NegNodeOp, PlusNodeOp, ScalarMultNodeOp
from mgraph.ops.elementwise import ExpNodeOp, LogNodeOp, TanhNodeOp
from mgraph.ops.index import GatherNodeOp
from mgraph.ops.product import DotNodeOp
from mgraph.ops.reduce import SumNodeOp
from mgraph.ops.shape import ConcatenateNodeOp
from mgraph.ops.softmax import SoftmaxNodeOp
from mgraph.ops.structure import StopGradientNodeOp
from mgraph.rewriting.patterns import Any, AnyOf, Constant, Field, Label, Op, Or, Pattern, Repeat, Skip

X, Y = Label("x"), Label("y")


@pytest.fixture
def x(graph: ExpressionGraph) -> mgraph.Node:
    return graph.param("x", (2, 3))


@pytest.fixture
def y(graph: ExpressionGraph) -> mgraph.Node:
    return graph.param("y", (2, 3))


def test_a_pattern_finds_its_places_in_a_graph(graph, x) -> None:
    labels = graph.indices([0, 2], x, 0)
    labels = mgraph.reshape(labels, (2, 1))
    loss = -mgraph.log(mgraph.gather(mgraph.softmax(x), -1, labels))
    pattern = -Op(LogNodeOp, Op(GatherNodeOp, Op(SoftmaxNodeOp, X), Label("labels")))
    (match,) = pattern.find(graph)
    assert match.root is loss and match.x is x and match["labels"] is labels
    assert [n.type for n in match.inner] == ["log", "gather", "softmax"]
    assert pattern.match(loss.child(0)) is None
    with pytest.raises(AttributeError, match="no label 'z'"):
        _ = match.z


def test_classes_match_exactly(x) -> None:
    class MyExpNodeOp(ExpNodeOp):
        """A different function, whatever its base class."""

        type = "my_exp"

    assert Op(ExpNodeOp).match(mgraph.exp(x)) is not None
    assert Op(ExpNodeOp).match(MyExpNodeOp(x)) is None
    assert Op((ExpNodeOp, MyExpNodeOp)).match(MyExpNodeOp(x)) is not None


def test_a_label_stands_for_one_node(x, y) -> None:
    square = X * X
    assert square.match(x * x) is not None
    assert square.match(x * y) is None
    same_twice = Op(ExpNodeOp, X) / Op(SumNodeOp, Op(ExpNodeOp, X), ...)
    assert same_twice.match(mgraph.exp(x) / mgraph.sum(mgraph.exp(x), -1)) is not None
    assert same_twice.match(mgraph.exp(x) / mgraph.sum(mgraph.exp(y), -1)) is None


def test_sums_and_products_match_in_either_order(x, y) -> None:
    pattern = Op(ExpNodeOp, X) + Y
    for node in (mgraph.exp(x) + y, y + mgraph.exp(x)):
        match = pattern.match(node)
        assert match is not None and match.x is x and match.y is y
    assert (Op(ExpNodeOp, X) - Y).match(y - mgraph.exp(x)) is None
    assert Op(PlusNodeOp, Op(ExpNodeOp, X), Y, ordered=True).match(y + mgraph.exp(x)) is None
    assert len(list((X + Y).matches(x + y))) == 2
    assert len(list((X + Y).matches(x + x))) == 1


def test_a_choice_is_taken_back_where_it_leads_nowhere(x, y) -> None:
    # The first order binds X to exp(exp(x)), which is not what is below the second child.
    pattern = Op(MultNodeOp, X, Op(ExpNodeOp, X))
    node = mgraph.exp(mgraph.exp(x)) * mgraph.exp(x)
    match = pattern.match(node)
    assert match is not None and match.x is mgraph.exp(x)
    nested = (Op(ExpNodeOp, X) + Label("a")) * (Op(ExpNodeOp, Y) + X)
    assert nested.match((mgraph.exp(x) + mgraph.exp(y)) * (mgraph.exp(x) + y)) is not None


def test_fields_are_constrained_or_captured(x) -> None:
    node = x * 2.5
    assert Op(ScalarMultNodeOp, X, c=2.5).match(node) is not None
    assert Op(ScalarMultNodeOp, X, c=2).match(node) is None
    assert Op(ScalarMultNodeOp, X, c=lambda c: c < 0).match(node) is None
    match = Op(ScalarMultNodeOp, X, c=Field("c")).match(node)
    assert match is not None and match.c == 2.5
    assert Op(ScalarMultNodeOp, X, c=Field("c", lambda c: c > 3)).match(node) is None
    equal = Op(ScalarMultNodeOp, Op(ScalarMultNodeOp, X, c=Field("c")), c=Field("c"))
    assert equal.match(x * 2.5 * 2.5) is not None
    assert equal.match(x * 2.5 * 2.0) is None
    with pytest.raises(ArgumentError, match=r"DotNodeOp has the fields .*, not \['axis'\]"):
        Op(DotNodeOp, axis=1)
    for wrong in ("dot", x, (DotNodeOp, mgraph.dot)):
        with pytest.raises(ArgumentError, match="expected classes of nodes"):
            Op(wrong)


def test_predicates_see_the_node(x) -> None:
    last = Op(SumNodeOp, X, where=lambda n: n.axis == len(n.child(0).shape) - 1)
    assert last.match(mgraph.sum(x, -1)) is not None
    assert last.match(mgraph.sum(x, 0)) is None
    assert Any(lambda n: n.shape == (2, 3)).match(x) is not None
    assert Label("x", where=lambda n: n.shape == (3, 2)).match(x) is None
    assert Label("e", Op(ExpNodeOp)).match(x) is None


def test_children_may_be_left_open(x, y) -> None:
    node = mgraph.tanh(x, y, x + y)
    assert Op(TanhNodeOp).match(node) is not None
    assert Op(TanhNodeOp, X, Y).match(node) is None
    match = Op(TanhNodeOp, X, ...).match(node)
    assert match is not None and match.x is x
    with pytest.raises(ArgumentError, match="as the last one only"):
        Op(TanhNodeOp, ..., X)


def test_any_of_finds_a_part(x, y) -> None:
    whole = mgraph.concatenate([x, mgraph.exp(y), y], 0)
    match = AnyOf(ConcatenateNodeOp, Op(ExpNodeOp, X)).match(whole)
    assert match is not None and match.x is y
    assert AnyOf(ConcatenateNodeOp, Op(LogNodeOp)).match(whole) is None
    assert len(list(AnyOf(ConcatenateNodeOp, X).matches(whole))) == 3


def test_or_tries_in_order(x) -> None:
    pattern = Or(Label("a", Op(ExpNodeOp)), Label("b", Op((ExpNodeOp, LogNodeOp))))
    first, second = pattern.match(mgraph.exp(x)), pattern.match(mgraph.log(x))
    assert first is not None and "a" in first.bindings
    assert second is not None and "b" in second.bindings
    assert pattern.heads() == {ExpNodeOp, LogNodeOp}
    assert Or(pattern, Any()).heads() is None


def test_skip_looks_through_one_operator(x) -> None:
    pattern = Op(LogNodeOp, Skip(StopGradientNodeOp, Op(ExpNodeOp, X), name="stop"))
    plain = pattern.match(mgraph.log(mgraph.exp(x)))
    stopped = pattern.match(mgraph.log(mgraph.stop_gradient(mgraph.exp(x))))
    assert plain is not None and plain.stop is None
    assert stopped is not None and stopped.stop.type == "stopGradient" and stopped.x is x
    assert stopped.stop in stopped.inner
    assert pattern.match(mgraph.log(mgraph.sqrt(mgraph.exp(x)))) is None


def test_repeat_follows_a_chain(x) -> None:
    chain = Repeat(Op(ScalarMultNodeOp, Label("next"), c=Field("c")), "next", Op(ExpNodeOp, X))
    match = chain.match(mgraph.exp(x) * 2.0 * 3.0 * 4.0)
    assert match is not None and match.c == (4.0, 3.0, 2.0) and match.x is x
    assert match.next[-1] is mgraph.exp(x) and len(match.inner) == 3
    assert chain.match(mgraph.exp(x)) is None
    assert chain.match(mgraph.log(x) * 2.0) is None


def test_repeat_takes_either_branch_and_counts(x, y) -> None:
    added = Repeat(Label("step", Label("next") + Label("term")), "next", Op(ExpNodeOp), least=2, most=3)
    match = added.match(y + (x + (mgraph.exp(x) + y)))
    assert match is not None and match.term == (y, x, y) and len(match.step) == 3
    assert added.match(mgraph.exp(x) + y) is None
    assert added.match(y + (x + (y + (mgraph.exp(x) + y)))) is None
    none = Repeat(Op(NegNodeOp, Label("next")), "next", Op(ExpNodeOp, X), least=0)
    match = none.match(mgraph.exp(x))
    assert match is not None and "next" not in match.bindings


def test_repeat_keeps_what_must_be_the_same(graph, x) -> None:
    w, v = graph.param("w", (3, 3)), graph.param("v", (3, 3))
    step = Op(TanhNodeOp, Op(DotNodeOp, Label("h"), Label("w")))
    cells = Repeat(step, "h", Op(ExpNodeOp, X), same=("w",), least=2)

    def recurrent(*weights: mgraph.Node) -> mgraph.Node:
        h = mgraph.exp(x)
        for weight in weights:
            h = mgraph.tanh(mgraph.dot(h, weight))
        return h

    match = cells.match(recurrent(w, w, w))
    assert match is not None and match.w is w and len(match.h) == 3
    assert cells.match(recurrent(w, v)) is None
    with pytest.raises(ArgumentError, match="no label 'k'"):
        Repeat(step, "k")
    with pytest.raises(ArgumentError, match="no label 'h' of its own"):
        (Label("h") - Repeat(step, "h")).match(mgraph.exp(x) - recurrent(w))


def test_constants_are_matched_by_value(graph, x) -> None:
    halves = graph.constant((3,), inits.from_value(0.5))
    pattern = X * Constant("c", value=0.5)
    match = pattern.match(halves * x)
    assert match is not None and match.c is halves
    assert pattern.match(x * graph.constant((3,), inits.from_vector([0.5, 0.5, 0.4]))) is None
    assert (X * Constant(where=lambda a: a.size == 1)).match(x * halves) is None
    # Leaves whose numbers may change have no value to match.
    named = graph.constant((3,), inits.from_value(0.5), name="half")
    given = graph.input("given", (3,))
    given.set_value([0.5, 0.5, 0.5])
    drawn = graph.dropout_mask(0.5, (3,))
    for leaf in (named, given, drawn, graph.param("p", (3,), inits.from_value(0.5))):
        assert pattern.match(x * leaf) is None


def test_heads_say_where_to_look() -> None:
    assert (X / Y).heads() == {DivNodeOp}
    assert X.heads() is None
    assert Label("e", Op(ExpNodeOp)).heads() == {ExpNodeOp}
    assert Skip(StopGradientNodeOp, Op(ExpNodeOp)).heads() == {StopGradientNodeOp, ExpNodeOp}


def test_labels_are_names() -> None:
    for name in ("two words", "root", "inner"):
        with pytest.raises(ArgumentError, match="identifier"):
            Label(name)


@pytest.mark.parametrize("name", [3, "not a name", "root"])
def test_a_label_needs_a_name_that_a_rule_can_take(name: object) -> None:
    with pytest.raises(mgraph.ArgumentError, match="expected an identifier"):
        Label(name)


NEGATED = Op(NegNodeOp, Label("next"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Or(3), "expected patterns, got 3"),
        (lambda: Or(), "at least one pattern"),
        (lambda: Label("x", 3), "expected patterns, got 3"),
        (lambda: Label("x", lambda n: True), "expected patterns, got <function"),
        (lambda: Label("x", where=3), "expected a function as where, got 3"),
        (lambda: Any(X), "expected a function as where, got"),
        (lambda: Field("c", 3), "expected a function as where, got 3"),
        (lambda: Op(NegNodeOp, where=3), "expected a function as where, got 3"),
        (lambda: Constant(where=3), "expected a function as where, got 3"),
        (lambda: AnyOf(NegNodeOp, 3), "expected patterns, got 3"),
        (lambda: Skip(NegNodeOp, 3), "expected patterns, got 3"),
        (lambda: Repeat(3, "next"), "expected patterns, got 3"),
        (lambda: Repeat(NEGATED, "next", 3), "expected patterns, got 3"),
        (lambda: Repeat(NEGATED, 3), "expected an identifier"),
        (lambda: Repeat(NEGATED, "nxt"), "no label 'nxt'"),
        (lambda: Repeat(NEGATED, "next", least="1"), "least must be a whole number"),
        (lambda: Repeat(NEGATED, "next", same=("nxt",)), r"labels among \['next'\], got 'nxt'"),
        (lambda: Repeat(NEGATED, "next", same="next"), "a tuple of labels, got 'next'"),
    ],
)
def test_patterns_are_made_of_patterns(made: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        made()


def test_a_pattern_knows_its_labels() -> None:
    below = Skip(ExpNodeOp, Op(ScalarMultNodeOp, Constant("k"), c=Field("c")), name="over")
    pattern = Or(X + AnyOf(ConcatenateNodeOp, below), Repeat(NEGATED, "next", Y))
    assert pattern.labels == {"x", "k", "c", "over", "next", "y"}

    class Mine(Pattern):
        """A pattern that does not say what it binds."""

    assert (X + Mine()).labels is None
    Repeat(Mine(), "next", same=("any",))
