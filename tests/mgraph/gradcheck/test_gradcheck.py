"""The checker itself: right rules pass, planted wrong ones are caught."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, NaryNodeOp, ShapeError, UnaryNodeOp, check_gradients, inits
from mgraph.cases import Case, Convention
from mgraph.gradcheck import (
    GradientCheck,
    LossReport,
    check_budgets,
    check_compiled,
    check_layers,
    check_loss,
    check_mutants,
    check_operators,
)
from mgraph.gradcheck.report import NOTHING
from mgraph.gradcheck.survey import OperatorReport, check_operator, with_failures
from mgraph.ops.elementwise import ClipNodeOp


class Product(NaryNodeOp):
    """sin(a) * b with a right rule, to be broken below."""

    type = "product"

    def forward_ops(self, a, b):
        return jnp.sin(a) * b

    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), adj * jnp.sin(a)


class OnePercentOff(Product):
    def backward_ops(self, adj, val, a, b):
        return 1.01 * adj * b * jnp.cos(a), adj * jnp.sin(a)


class WrongOrder(Product):
    def backward_ops(self, adj, val, a, b):
        return adj * jnp.sin(a), adj * b * jnp.cos(a)


class ForgottenChild(Product):
    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), None


class WrongSign(Product):
    def backward_ops(self, adj, val, a, b):
        return -adj * b * jnp.cos(a), adj * jnp.sin(a)


class AdjointIgnored(Product):
    def backward_ops(self, adj, val, a, b):
        return b * jnp.cos(a), adj * jnp.sin(a)


class NotFinite(Product):
    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a) / (0 * a), adj * jnp.sin(a)


class MeanForSum(Product):
    """Takes the mean over the rows that b was broadcast to."""

    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), jnp.mean(adj * jnp.sin(a), 0, keepdims=True)


class FirstRowForSum(Product):
    """Takes the first row instead of the sum over the rows that b was broadcast to."""

    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), (adj * jnp.sin(a))[:1]


class CutToFloat32(Product):
    """Loses half of the digits on the way."""

    def backward_ops(self, adj, val, a, b):
        return (adj * b * jnp.cos(a)).astype(jnp.float32).astype(a.dtype), adj * jnp.sin(a)


class HiddenFromJax(Product):
    """The rule is right; the forward hides a from JAX, so JAX's derivative is no witness."""

    def forward_ops(self, a, b):
        return jnp.sin(jax.lax.stop_gradient(a)) * b


@jax.custom_jvp
def sine(x):
    return jnp.sin(x)


@sine.defjvp
def _(primals, tangents):
    return jnp.sin(primals[0]), 1.01 * jnp.cos(primals[0]) * tangents[0]


class WrongLikeJax(Product):
    """The rule repeats the wrong derivative that JAX was given: only differences can tell."""

    def forward_ops(self, a, b):
        return sine(a) * b

    def backward_ops(self, adj, val, a, b):
        return 1.01 * adj * b * jnp.cos(a), adj * jnp.sin(a)


class RuleIsConstant(Product):
    """Right at first order, but a derivative of the rule does not see its inputs."""

    def backward_ops(self, adj, val, a, b):
        slope = jax.lax.stop_gradient(b * jnp.cos(a))
        return adj * slope, adj * jnp.sin(a)


class KnowsWhetherItIsCompiled(Product):
    """Right when compiled, doubled when it can see concrete numbers."""

    def backward_ops(self, adj, val, a, b):
        factor = 1.0 if isinstance(adj + a, jax.core.Tracer) else 2.0
        return factor * adj * b * jnp.cos(a), adj * jnp.sin(a)


def _over_all(x):
    """The largest of all numbers that are passed in, including those of other batch elements."""
    return np.broadcast_to(np.max(x, initial=0), x.shape)


class MixesBatches(Product):
    """Uses a host function that gets a batch but treats it as one input."""

    def backward_ops(self, adj, val, a, b):
        shape = jax.ShapeDtypeStruct(a.shape, a.dtype)
        sizes = jax.lax.stop_gradient(jnp.abs(a))
        largest = jax.pure_callback(_over_all, shape, sizes, vmap_method="expand_dims")
        own = jnp.max(sizes)
        return adj * b * jnp.cos(a) * largest / own, adj * jnp.sin(a)


class RemembersItsCalls(Product):
    """Gives a larger gradient every time it is traced."""

    calls = 0

    def backward_ops(self, adj, val, a, b):
        type(self).calls += 1
        return adj * b * jnp.cos(a) * type(self).calls, adj * jnp.sin(a)


class FreezesTogether(Product):
    """Gives no child a gradient as soon as one child is frozen."""

    composite = True

    def evaluate(self, rule_set, trained, values):
        value = self.forward_ops(*values)
        return value if all(trained) else jax.lax.stop_gradient(value)


FIRST = {"jax", "differences"}
PLANTED: dict[type[NaryNodeOp], set[str]] = {
    OnePercentOff: FIRST,
    WrongOrder: FIRST,
    ForgottenChild: FIRST,
    WrongSign: FIRST,
    AdjointIgnored: FIRST,
    NotFinite: FIRST,
    MeanForSum: FIRST,
    FirstRowForSum: FIRST,
    CutToFloat32: FIRST,
    HiddenFromJax: {"jax"},
    WrongLikeJax: {"differences"},
    RuleIsConstant: {"second"},
    KnowsWhetherItIsCompiled: {"jit"},
    MixesBatches: {"vmap"},
    RemembersItsCalls: {"second", "jit", "vmap", "scan", "remat", "frozen", "repeat"},
    FreezesTogether: {"frozen"},
}
"""Wrong rules, and the witnesses that must catch each of them."""


def test_a_right_rule_passes() -> None:
    report = check_gradients(Product, (3, 4), (1, 4))
    assert report.ok, report
    assert [c.name for c in report.checks] == ["child 0", "child 1"]
    assert all(c.jax_difference < 1e-13 and c.finite_difference < 1e-8 for c in report.checks)


@pytest.mark.parametrize("wrong", PLANTED, ids=lambda c: c.__name__)
def test_a_planted_wrong_rule_is_caught_by_the_witness_that_should_see_it(wrong: type[NaryNodeOp]) -> None:
    report = check_gradients(wrong, (3, 4), (1, 4), thorough=True)
    seen = {witness for check in report.checks for witness in check.objections}
    assert PLANTED[wrong] <= seen, report
    if not seen & FIRST:
        assert seen == PLANTED[wrong], report
    with pytest.raises(mgraph.GradientError, match="wrong gradients"):
        report.raise_if_wrong()


def test_the_report_shows_which_gradient_is_off_and_by_how_much() -> None:
    report = check_gradients(OnePercentOff, (3, 4), (1, 4))
    first, second = report.checks
    assert not first.ok and second.ok
    assert first.jax_difference == pytest.approx(0.01, rel=1e-6)
    assert first.finite_difference == pytest.approx(0.01, rel=1e-4)
    lines = str(report).splitlines()
    assert (
        "child 0" in lines[2]
        and "1.0e-02" in lines[2]
        and "WRONG: jax, differences (wrong by 1.0e-02 at [" in lines[2]
    )
    assert lines[3].endswith("ok")


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        (lambda adj, a: (jnp.sum(adj * a), adj), "the gradient of child 0: expected shape"),
        (lambda adj, a: (adj,), "expected one gradient per child, 2, got 1"),
        (lambda adj, a: (adj.astype(jnp.float32), adj), "expected element type float64, got float32"),
        (lambda adj, a: (1.0, adj), "expected an array, got 1.0"),
        (lambda adj, a: adj @ adj, "backward_ops failed: TypeError"),
    ],
)
def test_what_is_no_gradient_is_reported(gradients: Any, message: str) -> None:
    class Broken(Product):
        def backward_ops(self, adj, val, a, b):
            return gradients(adj, a)

    report = check_gradients(Broken, (3, 4), (3, 4), thorough=True)
    assert not report.ok and message in str(report)


def test_a_rule_without_a_derivative_of_its_own_is_reported_for_second_order_only() -> None:
    class Halving(UnaryNodeOp):
        type = "halving"

        def forward_ops(self, x):
            return 2 * x

        def backward_ops(self, adj, val, x):
            return (jax.lax.while_loop(lambda a: jnp.sum(a) != jnp.sum(2 * adj), lambda a: 2 * a, adj),)

    assert check_gradients(Halving, (3,)).ok
    report = check_gradients(Halving, (3,), thorough=True)
    (check,) = report.checks
    assert check.ok and report.note.startswith("no second derivatives: ValueError: Reverse-mode")
    assert "second" not in check.differences and "vmap" in check.differences


class Looped(UnaryNodeOp):
    """x**4, computed in a loop that JAX cannot differentiate."""

    type = "looped"
    cases = (Case((2, 3)),)
    wrong = 0.0

    def forward_ops(self, x):
        def step(state):
            return state[0] + 1, state[1] * x

        return jax.lax.while_loop(lambda s: s[0] < 3 + 0 * jnp.sum(x), step, (0.0, x))[1]

    def backward_ops(self, adj, val, x):
        return (adj * (4 + self.wrong) * x**3,)


class LoopedWrong(Looped):
    wrong = 1e-3


@pytest.mark.parametrize("thorough", [False, True])
def test_where_jax_has_no_derivative_differences_judge(thorough: bool) -> None:
    report = check_gradients(Looped, thorough=thorough)
    assert report.ok and report.note.startswith(
        "not compared with JAX's own derivative: ValueError: Reverse-mode"
    )
    assert not {"jax", "second", "one-hot"} & report.checks[0].differences.keys()
    (check,) = check_gradients(LoopedWrong, thorough=thorough).checks
    assert check.objections == ("differences",)


def test_a_table_of_operators_says_which_witness_is_missing() -> None:
    row = check_operator(Looped)
    assert row.ok and row.verdict.startswith("ok (not compared with JAX's own derivative: ")
    wrong = with_failures(OperatorReport((check_operator(LoopedWrong, quick=True),))).rows[0]
    assert wrong.verdict.startswith("WRONG: differences (wrong by ") and wrong.failure is None


def test_mutants_of_what_jax_cannot_differentiate_are_no_crash() -> None:
    class Called(UnaryNodeOp):
        type = "called by the host"
        cases = (Case((2,)),)

        def forward_ops(self, x):
            return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

        def backward_ops(self, adj, val, x):
            return (adj * jnp.cos(x),)

    (row,) = check_mutants([Called.type], Called.__module__).rows
    assert row.problem.startswith("ValueError: Pure callbacks do not support JVP")


def test_an_operator_without_a_gradient_by_design_is_ok() -> None:
    class Stopped(UnaryNodeOp):
        type = "stopped"
        differentiable = False
        cases = (Case((2, 3)),)

        def forward_ops(self, x):
            return jnp.sin(x)

    row = check_operator(Stopped, quick=True)
    assert row.ok and row.verdict == "ok (no gradient by design: stopped)"
    report = check_gradients(lambda x: x * Stopped(x), (2,))
    assert not report.ok and report.note == "no gradient by design: stopped"
    assert check_gradients(lambda x: x * (x > 0.1), (2,)).note == ""


def test_the_rule_of_a_jax_function_is_judged_without_calling_it_no_derivative_by_design(
    graph: ExpressionGraph,
) -> None:
    @jax.custom_vjp
    def squared(x):
        return x * x

    squared.defvjp(lambda x: (x * x, x), lambda x, adj: (3 * x * adj,))
    y = mgraph.from_jax(graph, squared, graph.param("x", (2,), inits.from_vector([1, 2])))
    report = check_gradients(y)
    assert not report.ok and report.note == "rules that need not be derivatives: custom_rule"


def test_cases_without_elements_are_not_ok() -> None:
    class Elementless(UnaryNodeOp):
        """Wrong, but its case cannot show it."""

        type = "elementless"
        cases = (Case((0, 3)),)

        def forward_ops(self, x):
            return jnp.sin(x)

        def backward_ops(self, adj, val, x):
            return (7 * adj,)

    class AlsoRight(Elementless):
        type = "also right"
        cases = (Case((0, 3)), Case((2, 3)))

        def backward_ops(self, adj, val, x):
            return (adj * jnp.cos(x),)

    alone = check_gradients(Elementless, (2, 0))
    assert alone.ok and alone.note == NOTHING
    row = check_operator(Elementless, quick=True)
    assert not row.ok and row.verdict == NOTHING
    report = check_gradients(AlsoRight)
    assert report.ok and report.note == f"{NOTHING} in 0x3"
    module = {"module": Elementless.__module__}
    assert [row.problem for row in check_mutants(["Elementless"], **module).rows] == [NOTHING]
    assert [row.problem for row in check_budgets(["Elementless"], **module).rows] == [NOTHING]


class Leaving(UnaryNodeOp):
    type = "leaving"
    cases = (Case((2,)),)
    raised: ClassVar[Any] = SystemExit

    def forward_ops(self, x):
        return 2 * x

    def backward_ops(self, adj, val, x):
        raise self.raised


@pytest.mark.parametrize(
    ("check", "options"),
    [
        (check_operators, {}),
        (check_operators, {"quick": True}),
        (check_mutants, {}),
        (check_budgets, {"element_types": ["float32"]}),
        (check_compiled, {"quick": True, "sizes": [3]}),
    ],
)
def test_a_rule_that_leaves_the_program_does_not_end_the_check(
    monkeypatch: pytest.MonkeyPatch, check: Any, options: Any
) -> None:
    (row,) = check(["leaving"], __name__, **options).rows
    assert re.fullmatch(r"SystemExit \(.*test_gradcheck\.py:\d+\)", row.problem)
    monkeypatch.setattr(Leaving, "raised", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        check(["leaving"], __name__, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_gradients(mgraph.sin, (2,), fields=5), "expected fields by name, got 5"),
        (lambda: check_gradients(mgraph.sin, values=5), "expected a list of values, one per child, got 5"),
        (
            lambda: check_gradients(mgraph.sin, (2,), thorough="no"),
            "thorough must be true or false, got 'no'",
        ),
        (lambda: check_gradients(mgraph.sin, (2,), nondet_tol="a"), "nondet_tol must be a number, got 'a'"),
        (lambda: check_gradients(mgraph.sin, (2,), fields={1: 2}), "expected fields by name, got {1: 2}"),
        (lambda: check_gradients(mgraph.sin, values=np.array(1)), "expected a list of values, one per child"),
        (lambda: check_gradients(jnp.sin, 1.0, only=5), "expected names of rules only, got 5"),
        (lambda: check_gradients(jnp.sin, 1.0, only=np.ones(2)), "expected names of rules only, got an arr"),
        (lambda: check_operators(5), "expected names of operators, got 5"),
        (lambda: check_operators(np.ones(2)), "expected names of operators, got "),
        (
            lambda: check_operators(module=5),
            "module, the name of a module or a Python file, must be a string, got 5",
        ),
    ],
)
def test_arguments_of_another_kind_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


def test_what_a_node_or_a_graph_does_not_take_is_refused(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2,), inits.ones())
    top = mgraph.tanh(x)
    said = "a node is checked at the present values of its leaves; got also values"
    with pytest.raises(ArgumentError, match=said):
        check_gradients(top, values=[np.array([2.0, 3.0])])
    with pytest.raises(ArgumentError, match="a graph is .* got also arguments, fields, only"):
        check_gradients(graph, (2,), fields={"axis": 0}, only="tanh")
    assert check_gradients(top).ok and check_gradients(graph).ok


def test_reports_can_be_copied() -> None:
    report = check_gradients(mgraph.dot, (2, 3), (3, 4), fields={"scale": 0.5})
    for again in (copy.deepcopy(report), pickle.loads(pickle.dumps(report))):
        assert again == report and str(again) == str(report)
        example = again.checks[0].example
        assert example.case == report.checks[0].example.case and example.case.fields == {"scale": 0.5}
        with pytest.raises(TypeError, match="item assignment"):
            example.case.fields["scale"] = 1.0


def test_calls_that_cannot_be_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"dot: missing .* argument: 'b'; it was given 1 children\n  at .*py:"
    ):
        check_gradients(mgraph.dot, values=[np.ones((2, 3))])
    with pytest.raises(ArgumentError, match="expected a seed from 0 to .*, got -1"):
        check_gradients(mgraph.sin, (3,), seed=-1)


def test_a_missing_gradient_does_not_accuse_the_other_child() -> None:
    class Half(Product):
        def backward_ops(self, adj, val, a, b):
            return adj * b * jnp.cos(a), None

    first, second = check_gradients(Half, (3,), (3,), thorough=True).checks
    assert first.ok and "second" not in first.differences
    assert {"jax", "differences", "second"} <= set(second.objections)


def test_a_gradient_that_is_not_a_number_is_named() -> None:
    class Masked(UnaryNodeOp):
        type = "masked"

        def forward_ops(self, x):
            return jnp.where(jnp.isnan(x), 0.0, 2 * x)

        def backward_ops(self, adj, val, x):
            return (2 * adj + 0 * x,)

    (check,) = check_gradients(Masked, values=[np.array([np.nan, 1.0])]).checks
    assert "(nan instead of 0.0e+00 at [0])" in check.verdict


def test_objections_come_before_what_could_not_be_evaluated() -> None:
    class Mixing(UnaryNodeOp):
        """Calls the host, which also sums over a batch."""

        type = "mixing"

        def forward_ops(self, x):
            return x * jnp.sum(x)

        def backward_ops(self, adj, val, x):
            spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
            summed = jax.pure_callback(
                lambda x: np.full(x.shape, np.sum(x)), spec, x, vmap_method="expand_dims"
            )
            return (adj * summed + jnp.sum(adj * x),)

    report = check_gradients(Mixing, (3,), thorough=True)
    assert report.checks[0].verdict == "WRONG: vmap"
    assert "no second derivatives: Mixing.backward_ops failed: ValueError: Pure callbacks" in report.note

    class Unbatched(Mixing):
        """Wrong, and calls the host in a way that does not support batches."""

        def backward_ops(self, adj, val, x):
            spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return (adj * jax.pure_callback(lambda x: np.full(x.shape, np.sum(x)), spec, x),)

    (check,) = check_gradients(Unbatched, (3,), thorough=True).checks
    assert check.verdict.startswith("WRONG: jax, differences, ") and "pure_callback" in check.verdict
    assert not any(name in check.verdict for name in ("first_order", "second_order", "transformed"))


def test_a_node_is_checked_by_its_trainable_leaves(graph: ExpressionGraph) -> None:
    w = graph.param("w", (3, 2), inits.normal())
    frozen = graph.param("frozen", (1, 2), inits.normal(), fixed=True)
    x = graph.constant((4, 3), inits.normal())
    loss = mgraph.sum(mgraph.flatten(mgraph.tanh(mgraph.affine(x, w, frozen))))
    report = check_gradients(loss)
    assert report.ok, report
    assert [c.name for c in report.checks] == ["w"]
    assert check_gradients(graph).checks == report.checks


def test_larger_inputs_are_moved_along_random_directions() -> None:
    assert check_gradients(mgraph.square, (20, 30)).ok

    class LastElementWrong(UnaryNodeOp):
        type = "last"

        def forward_ops(self, x):
            return x * x

        def backward_ops(self, adj, val, x):
            gradient = 2 * x * adj
            return (gradient.at[-1, -1].mul(1.5),)

    assert not check_gradients(LastElementWrong, (20, 30)).ok


def test_integer_children_and_fields() -> None:
    values = [np.random.default_rng(1).standard_normal((4, 3)), np.array([3, 0, 3], np.uint32)]
    report = check_gradients(lambda x, i: mgraph.rows(x, i), values=values)
    assert report.ok and len(report.checks) == 1
    assert check_gradients(mgraph.clip, (5,), fields={"c": 0.7}).ok


def test_infinite_gradients_that_are_equal_agree() -> None:
    """Differences cannot see them, and still see every other element."""
    report = check_gradients(mgraph.sqrt, values=[np.array([0.0, 1.0, 4.0])], thorough=True)
    assert not {"jax", "differences"} & set(report.checks[0].objections), report

    class Root(UnaryNodeOp):
        type = "root"
        factors: tuple[float, ...]

        def forward_ops(self, x):
            return jnp.sqrt(x)

        def backward_ops(self, adj, val, x):
            return (adj * jnp.array(self.factors) * 0.5 / val,)

    def check(*factors: float) -> GradientCheck:
        return check_gradients(Root, values=[np.array([0.0, 1.0])], fields={"factors": factors}).checks[0]

    assert check(1.0, 1.0).ok
    assert {"jax", "differences"} <= set(check(1.0, 1.01).objections)
    for wrong in (-1.0, 0.0):
        assert "jax" in check(wrong, 1.0).objections


class Log(UnaryNodeOp):
    type = "a log"

    def forward_ops(self, x):
        return jnp.log(x)

    def backward_ops(self, adj, val, x):
        return (adj / x,)


class TwiceLog(Log):
    def backward_ops(self, adj, val, x):
        return (2 * adj / x,)


class Root(UnaryNodeOp):
    type = "a root"

    def forward_ops(self, x):
        return jnp.sqrt(x)

    def backward_ops(self, adj, val, x):
        return (adj / (2 * val),)


@pytest.mark.parametrize("operator", [Log, Root, mgraph.log])
@pytest.mark.parametrize("values", [[-1.0, 2.0], [-1.0, -2.0]])
def test_where_the_value_is_not_finite_no_rule_is_called_wrong_nor_right(operator: Any, values: Any) -> None:
    (check,) = check_gradients(operator, values=[np.array(values)]).checks
    assert not check.ok and not check.objections
    assert check.verdict == (
        "NaN or infinity in the value at these inputs: give others, by values= or "
        'Case(..., domain="positive")'
    )


def test_beside_a_value_that_is_not_finite_a_wrong_rule_is_found() -> None:
    for zero in (-1.0, 0.0):
        assert "at [1]" in check_gradients(TwiceLog, values=[np.array([zero, 2.0])]).checks[0].verdict
    assert check_gradients(Log, values=[np.array([0.0, 2.0])]).checks[0].verdict.startswith("NaN or")


def test_a_cotangent_leaves_out_what_is_not_finite() -> None:
    values, cotangent = [np.array([-1.0, 2.0])], np.array([0.0, 1.0])
    assert check_gradients(Log, values=values, cotangents=cotangent).ok
    assert not check_gradients(TwiceLog, values=values, cotangents=cotangent).ok


def test_an_output_of_integers_has_no_gradient() -> None:
    report = check_gradients(lambda x: mgraph.argmax(x, 0)[1], (3,))
    assert report.ok and not report.checks and "a node of uint32 has no gradient" in str(report)


def test_functions_of_nodes_can_be_checked() -> None:
    def gated(x: mgraph.Node, y: mgraph.Node) -> mgraph.Node:
        return mgraph.sigmoid(x) * y + x

    assert check_gradients(gated, (2, 3), (1, 3)).ok


def test_a_function_with_parameters_as_a_layer_has_is_checked_by_them_too() -> None:
    report = check_gradients(lambda x: mgraph.dot(x, x.graph.param("W", (3, 4))), (2, 3))
    assert report.ok and [c.name for c in report.checks] == ["child 0", "W"], report


def test_what_names_no_operator_and_what_is_no_loss_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match="expected names of operators, got <class.*; check_gradients.*module="
    ):
        mgraph.check_operators([Product])
    report = mgraph.check_operators("sin", quick=True)
    assert [row.operator for row in report.rows] == ["SinNodeOp"]
    assert str(report).splitlines()[-1].startswith("1 operator, ")
    with pytest.raises(ArgumentError, match="the node of a loss, got None"):
        check_layers(lambda graph: None, {})


def test_dropout_is_checked_with_one_mask() -> None:
    assert check_gradients(lambda x: mgraph.dropout(x, 0.4), (6, 5)).ok


def test_a_class_without_cases_needs_shapes() -> None:
    with pytest.raises(mgraph.GraphError, match="Product declares no cases"):
        check_gradients(Product)


def test_a_masked_loss_is_checked_in_float64_throughout(graph: ExpressionGraph) -> None:
    logits = graph.param("logits", (4, 5), inits.normal())
    loss = mgraph.cross_entropy(logits, graph.indices([0, 4, 2, 2]), 0.1)
    masked = mgraph.sum(loss * graph.constant((4, 1), inits.from_vector([1, 1, 0, 1])))
    assert loss.value_type == "float32"
    report = check_gradients(masked)
    assert report.ok, report


def test_casts_do_not_blur_the_differences(graph: ExpressionGraph) -> None:
    w = graph.param("w", (3, 4), inits.normal(), "bfloat16")
    xs = graph.constant((5, 4), inits.normal(), "bfloat16")

    def step(total: mgraph.Node, x: mgraph.Node) -> tuple[mgraph.Node, tuple[()]]:
        return total + mgraph.cast(mgraph.tanh(w * x), "float32"), ()

    total, _ = mgraph.scan(step, graph.zeros((3, 4)), xs)
    report = check_gradients(mgraph.sum(mgraph.flatten(total * mgraph.cast(w, "float32"))))
    assert report.ok, report


def test_arguments_that_cannot_be_are_refused() -> None:
    with pytest.raises(ArgumentError, match="rule sets"):
        check_gradients(mgraph.tanh, (2,), rule_set="own")
    with pytest.raises(ShapeError, match=r"values of the shapes \[\(3,\)\] were given for \[\(2,\)\]"):
        check_gradients(mgraph.tanh, (2,), values=[np.ones(3)])
    assert check_gradients(mgraph.tanh, 2, values=[[0.5, 1.0]]).ok
    assert check_gradients(mgraph.tanh, values=(v for v in [[0.5, 1.0]])).ok
    with pytest.raises(ShapeError, match="whose parts differ in shape"):
        check_gradients(mgraph.tanh, values=[[[1.0], [1.0, 2.0]]])
    with pytest.raises(ArgumentError, match="nondet_tol of at least 0, got -1.0"):
        check_gradients(mgraph.tanh, (2,), nondet_tol=-1)


@pytest.mark.parametrize("check", [check_operators, check_mutants, check_budgets, check_compiled])
@pytest.mark.parametrize("seed", [-1, "7"])
def test_a_seed_that_cannot_be_is_refused(check: Any, seed: Any) -> None:
    with pytest.raises(ArgumentError, match=f"expected a seed from 0 to .*, got {seed!r}"):
        check(["sin"], seed=seed)


def test_a_name_that_a_large_module_lacks(tmp_path: Path) -> None:
    lines = ["from mgraph import UnaryNodeOp"]
    lines += [f"class Op{i}(UnaryNodeOp):\n    type = 'op{i}'\n    forward_ops = abs" for i in range(21)]
    (tmp_path / "many_ops.py").write_text("\n".join(lines))
    with pytest.raises(ArgumentError, match=r"no operator 'zz'; .*many_ops.py defines 21 others"):
        check_operators(["zz"], str(tmp_path / "many_ops.py"))


def test_fields_without_shapes_are_refused_where_the_cases_have_their_own() -> None:
    with pytest.raises(ArgumentError, match="fields need the shapes of the children, or values; cases have"):
        check_gradients(ClipNodeOp, fields={"c": 1.0})
    assert check_gradients(ClipNodeOp, (2,), fields={"c": 9.0}).ok


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (lambda: Case((5, 3), "index:5"), "a shape such as .*, got 'index:5'; domain='index:5' says where"),
        (lambda: Case((5, -3)), "cannot have negative sizes"),
        (lambda: Case((5, 3), (2,), domain=(None, "index:5")), "one of the domains .*, got None"),
        (lambda: Case((5, 3), (2,), domain=None), "one domain or 2, one per child, got None"),
        (lambda: Case((2,), domain="index:0"), "index:n with n from 1 to .*, got 'index:0'"),
        (lambda: Case((2,), domain="offsets:4294967296"), "offsets:n with n below .*, got 'offsets:4"),
        (lambda: Case((), domain="offsets:4"), r"needs a last axis with elements, got \(\)"),
        (lambda: Convention([1.0], gradients=0.0), "expected 1 gradients, one per child, got 0.0"),
        (lambda: Convention("index:5", gradients=(None,)), "the values of a child, got array"),
    ],
)
def test_cases_and_conventions_that_cannot_be_are_refused(declared: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        declared()


@pytest.mark.parametrize("cases", [Case((2, 3), (2, 3)), ((2, 3),)])
def test_cases_are_a_tuple(cases: Any) -> None:
    declared = type("Declared", (Product,), {"cases": cases})
    with pytest.raises(ArgumentError, match=r"Declared\.cases: expected a tuple such as \(Case\(\.\.\.\),\)"):
        check_gradients(declared)


# ---------------------------------------------------------------- a whole loss


class BfloatAdjoint(Product):
    """A right rule that has few right digits in float32."""

    def backward_ops(self, adj, val, a, b):
        cut = adj.astype(jnp.bfloat16).astype(adj.dtype) if adj.dtype == jnp.float32 else adj
        return cut * b * jnp.cos(a), adj * jnp.sin(a)


def test_a_loss_of_several_elements_is_their_sum() -> None:
    params = {"a": np.array([[1.0, -2.0, 3.0]]), "b": np.array([[0.5, 1.0, 2.0]])}

    def shaped(graph: ExpressionGraph) -> mgraph.Node:
        return mgraph.flatten(OnePercentOff(*(graph.param(name, (1, 3)) for name in params)))

    loss, checks = check_loss(shaped, params)
    assert loss == pytest.approx(np.sum(np.sin(params["a"]) * params["b"]))
    assert [check.gradient for check in checks if check.name == "b"] == pytest.approx([np.sin(2.0)])
    with pytest.raises(ArgumentError, match=r"check_loss: expected a function that returns .*, got \["):
        check_loss(lambda graph: [shaped(graph)], params)
    with pytest.raises(ArgumentError, match="check_loss: expected parameters by name, got None"):
        check_loss(shaped, None)
    with pytest.raises(ArgumentError, match="check_loss: parameter '.*' takes numbers, got an array .*<U1"):
        check_loss(shaped, dict.fromkeys(params, "a"))


@pytest.mark.parametrize(
    ("product", "verdicts"),
    [(Product, ["ok", "ok"]), (OnePercentOff, ["ok", "WRONG"]), (BfloatAdjoint, ["ok", "UNSTABLE"])],
)
def test_a_whole_loss_is_checked_in_both_types(product: type[NaryNodeOp], verdicts: list[str]) -> None:
    numbers = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    params = {"a": numbers / 7, "b": numbers / 3}

    def record(graph: ExpressionGraph) -> mgraph.Node:
        a, b = (graph.param(name, value.shape) for name, value in params.items())
        return mgraph.sum(mgraph.flatten(mgraph.square(product(a, b))))

    loss, checks = check_loss(record, params)
    report = LossReport("two parameters", checks, facts={"loss": loss})
    expected = np.sum((np.sin(params["a"]) * params["b"]) ** 2)
    assert loss == pytest.approx(expected) and report.as_json()["loss"] == loss
    assert sorted(check.verdict for check in checks) == sorted(verdicts)
    assert report.ok == (verdicts == ["ok", "ok"]) and checks[0].ok == report.ok, "the worst comes first"
    assert checks[0].differences.keys() == {"float64", "float32", "rounding"}
    assert report.worst("float32").name in report.table(1).splitlines()[-2]
    if not report.ok:
        with pytest.raises(mgraph.GradientError, match="1 of 2 gradients are wrong"):
            report.raise_if_wrong()
