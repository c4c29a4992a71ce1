"""``check_gradients``: from an operator, a node or a graph to a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import as_array, checked_seed, described, flag, is_series, real
from ..cases import Case, check_declared
from ..errors import ArgumentError, GraphError, MGraphError, ShapeError, told
from ..graph import ExpressionGraph
from ..leaves import ConstantNode, ParamNode
from ..node import NaryNodeOp, Node
from ..places import here, place
from ..rules import check_rule_set
from ..running.planner import one_top
from ..shape import Shape, as_shape
from ..specs import has_float
from .conventions import convention_checks
from .example import Example, record_case, title_of
from .functions.arguments import are_shapes
from .functions.problem import FunctionProblem
from .functions.traced import traced_function
from .report import NOTHING, TOLERANCES, GradientCheck, GradientReport, largest, with_rounding
from .witnesses.agreement import Answer
from .witnesses.problem import Problem
from .witnesses.recorded import RecordedFunction, check_numbers, wide

COTANGENTS = ("random", "zero", "one-hot", "missing")
"""The cotangents that have names."""
QUICK_CASES = 2
"""The most cases of an operator that a quick check takes."""
_ASKED = {
    "second_order": "second",
    "transformed": "vmap, scan, remat, frozen",
    "cotangents": "zero, one-hot, missing",
    "repeated": "repeat",
    "compiled": "jit",
}
"""The witnesses that each question after the first asks, as reports name them."""

Target = ExpressionGraph | Node | type[NaryNodeOp] | Callable[..., Any]


@dataclass(frozen=True)
class _Settings:
    seed: int
    rule_set: str
    thorough: bool
    eager: bool = True
    """Whether a thorough check also runs uncompiled, which takes long."""
    cotangents: Any = "random"
    nondet_tol: float = 0.0


def check_gradients(
    target: Target,
    *args: Any,
    fields: Mapping[str, Any] | None = None,
    values: Sequence[Any] | None = None,
    argnums: int | Sequence[int] | None = None,
    only: str | Sequence[str] = (),
    seed: int = 0,
    rule_set: str = "rules",
    thorough: bool = False,
    cotangents: Any = "random",
    nondet_tol: float = 0.0,
) -> GradientReport:
    """Compare hand-written gradients with ``jax.grad`` of the same forward and with differences.

    ``target`` is one of

    - a node: its gradients with respect to every trainable leaf below it, at the leaves' present values (or
      to every floating point leaf if none is trainable);
    - a graph: the same for its one top node;
    - a node class, yours or a built-in one, or a function of nodes: called on fresh nodes of the shapes
      ``args`` (drawn from a normal distribution, or ``values``) with ``fields`` as keywords. A class given
      without shapes is checked on each of its ``cases``;
    - a function of arrays with ``jax.custom_vjp`` or ``jax.custom_jvp`` rules, called with ``args``, pytrees
      of which at least one is not a shape (see below).

    The output is contracted with a cotangent: random numbers, or ``cotangents``, an array like the output.
    Besides the random cotangent, ``"zero"`` tries a zero one, ``"one-hot"`` each element of the output alone
    (up to 256), and ``"missing"``, where there are several outputs, all of them but one.

    Every number has its own bound. An element must be within 1e-10 of JAX's, relative to itself; one that is
    small compared with others, within 1e-6 plus rounding, which is measured. Differences are extrapolated
    along lines, and may be off by the rest of the series and by the rounding of the outputs that move: a
    report says ``wrong by 3e-04, can see 1e-09``. At a kink (``relu`` at 0, ties of ``max``) any number
    between the slopes of the two sides is right, and the report shows JAX's choice next to it; steps that
    cross a kink are ignored. ``report.checks[0].taylor`` has Taylor remainders. Output elements that are NaN
    or infinite are left out; where the rest agrees, the report says so and is still not ``ok``.

    ``thorough`` also compares second derivatives and the gradient under ``vmap``, ``scan`` and ``remat``,
    with each input frozen in turn, for zero, one-hot and missing cotangents, computed twice, and uncompiled
    (of several cases, only the first). Each must agree to 1e-10, but a zero cotangent must give exactly zero.
    A gradient that is computed twice must have the same bits, or differ by no more than ``nondet_tol`` of the
    largest gradient.

    Operators whose forward casts to a narrower type than float64 cast to float64 here, and a note says so;
    constants that their code rounds to that type may put gradients off by 4 units in its last place.

    The report prints as a table; ``report.ok`` is the verdict. The rule of an operator that declares
    ``surrogate_ops`` is judged with that smooth function as its forward, and the report says so.

    ``target`` is taken for a function of arrays, and called with ``args`` as they are, if an argument is not
    a shape (an int or a sequence of ints), if ``argnums`` or ``only`` is given, or if it is itself a
    ``jax.custom_vjp`` or ``jax.custom_jvp``. Fix keyword and static arguments with ``functools.partial``. The
    function is differentiated with respect to every floating point leaf of ``args``, or of the arguments that
    ``argnums`` names as in ``jax.grad``; Python floats are such leaves, other leaves keep their values. Its
    outputs may be any pytree; ``cotangents`` is then a pytree of the same structure, with ``None`` for an
    output that is left out.

    JAX's own derivative of such a function is the one without the custom rules named in ``only``; by default
    without all rules except those of JAX's functions (``jax.nn.relu``), and without these too if there are no
    others. The report names the rules; differences judge the whole gradient. Where JAX cannot differentiate
    without the rules (a ``while`` loop, a callback), the report says so, and differences remain. With
    ``custom_jvp``, forward mode is compared with JAX's own and with reverse mode. A function that does not
    take float64, or casts to a less precise type, has the limits of that type. ``ArgumentError`` where the
    function raises, or takes or returns no floating point numbers; ``ElementTypeError`` for complex ones.

    ``ArgumentError`` also for arguments that the target does not take; ``ShapeError`` for ``values`` or
    ``cotangents`` of other shapes; ``GraphError`` for a class without cases, for a function of nodes that
    returns no node, and for a graph without exactly one top node.
    """
    _check_cotangents(cotangents)
    thorough = flag("check_gradients", "thorough", thorough)
    tolerance = real("check_gradients", "nondet_tol", nondet_tol)
    if not isinstance(fields, Mapping | None) or not all(isinstance(name, str) for name in fields or ()):
        raise ArgumentError(f"check_gradients: expected fields by name, got {described(fields)}{here()}")
    if not isinstance(only, Sequence) or not all(isinstance(name, str) for name in only):
        raise ArgumentError(f"check_gradients: expected names of rules only, got {described(only)}{here()}")
    if values is not None and (not is_series(values) or isinstance(values, str | Mapping)):
        raise ArgumentError(
            f"check_gradients: expected a list of values, one per child, got {described(values)}{here()}"
        )
    if values is not None:
        values = [as_array("check_gradients", value) for value in values]
    if not tolerance >= 0:
        raise ArgumentError(f"check_gradients: expected a nondet_tol of at least 0, got {tolerance}{here()}")
    settings = _Settings(
        checked_seed(seed), check_rule_set(rule_set), thorough, cotangents=cotangents, nondet_tol=tolerance
    )
    if isinstance(target, ExpressionGraph | Node):
        beside = {"arguments": args, "fields": fields, "only": only, "argnums": argnums is not None}
        _refuse_beside(target, {**beside, "values": values is not None})
    if isinstance(target, ExpressionGraph):
        top = target.tape.nodes[one_top(target.tape)]
        return _check_node(top, settings)
    if isinstance(target, Node):
        return _check_node(target, settings)
    if not callable(target):
        raise ArgumentError(
            f"expected a function, an operator's class, a node or a graph, got {target!r}{here()}"
        )
    if values is not None and _is_of_arrays(target, (), argnums, only):
        raise ArgumentError(
            f"{title_of(target)}: values are for operators and functions of nodes; a function of arrays is "
            f"called with its arguments{here()}"
        )
    if _is_of_arrays(target, args, argnums, only) and values is None:
        if fields:
            raise ArgumentError(
                f"{title_of(target)}: fields are for operators; fix keywords with functools.partial"
            )
        return _check_function(target, args, argnums, only, settings)
    if args or values is not None:
        if not are_shapes(args):
            raise ArgumentError(
                f"{title_of(target)}: expected the shapes of its children, got {described(args[0])}; "
                f"check_gradients({title_of(target)}, values=[...]) checks it at values{here()}"
            )
        sizes = [as_shape(s) for s in args]
        given = [v.shape for v in values] if values is not None else sizes
        if sizes and given != sizes:
            raise ShapeError(f"{title_of(target)}: values of the shapes {given} were given for {sizes}")
        case = Case(*given, **(fields or {}))
        return _check_case(target, case, settings, values)
    if fields:
        raise ArgumentError(
            f"{title_of(target)}: fields need the shapes of the children, or values; cases have their own"
            f"{here()}"
        )
    check_declared(target)
    cases = getattr(target, "cases", ())
    if not cases:
        raise GraphError(
            f"{title_of(target)} declares no cases; "
            "give the shapes of its children, or a function's arguments"
        )
    return _check_cases(target, cases, settings)


def _refuse_beside(target: ExpressionGraph | Node, given: Mapping[str, Any]) -> None:
    """``ArgumentError`` for arguments that a node or a graph, which is checked as it is, does not take."""
    unused = [name for name, value in given.items() if value]
    if unused:
        what = "node" if isinstance(target, Node) else "graph"
        raise ArgumentError(
            f"check_gradients: a {what} is checked at the present values of its leaves; got also "
            f"{', '.join(unused)}{here()}"
        )


def _check_cotangents(cotangents: Any) -> None:
    """``ArgumentError`` for an unknown name, and for numbers that are complex or not finite."""
    if isinstance(cotangents, str):
        if cotangents not in COTANGENTS:
            known = ", ".join(map(repr, COTANGENTS))
            raise ArgumentError(f"cotangents: expected an array or one of {known}, got {cotangents!r}")
        return
    for leaf in jax.tree.leaves(cotangents):
        array = as_array("cotangents", leaf)
        real_numbers = jnp.issubdtype(array.dtype, np.floating) or array.dtype.kind in "bui"
        if not real_numbers or not np.isfinite(array.astype(np.float64)).all():
            raise ArgumentError(f"cotangents: expected finite real numbers, got {array!r:.80}{here()}")


def check_quickly(target: type[NaryNodeOp], seed: int = 0) -> GradientReport:
    """Check first derivatives of an operator on the first two of its cases, and with a zero cotangent."""
    return _check_cases(
        target, target.cases[:QUICK_CASES], _Settings(seed, "rules", False, cotangents="zero")
    )


def _check_cases(target: Callable[..., Node], cases: Sequence[Case], settings: _Settings) -> GradientReport:
    reports = [
        _check_case(target, case, replace(settings, seed=settings.seed + i, eager=i == 0))
        for i, case in enumerate(cases)
    ]
    some = any(NOTHING not in report.note for report in reports)
    each = [
        report.note.replace(NOTHING, f"{NOTHING} in {case}") if some else report.note
        for case, report in zip(cases, reports, strict=True)
    ]
    notes = dict.fromkeys(filter(None, each))
    checks = tuple(
        replace(c, name=f"{case} {c.name}")
        for case, report in zip(cases, reports, strict=True)
        for c in report.checks
    )
    if settings.thorough and isinstance(target, type):
        checks += tuple(convention_checks(target))
    return GradientReport(title_of(target), checks, "; ".join(notes))


def _is_of_arrays(target: Any, args: Sequence[Any], argnums: Any, only: Any) -> bool:
    """Whether a target is a function of arrays, not of nodes whose shapes are given."""
    if isinstance(target, jax.custom_vjp | jax.custom_jvp) or argnums is not None or only:
        return True
    return not (isinstance(target, type) and issubclass(target, NaryNodeOp)) and not are_shapes(args)


def _check_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    argnums: int | Sequence[int] | None,
    only: str | Sequence[str],
    settings: _Settings,
) -> GradientReport:
    title = title_of(function)
    traced, narrow = traced_function(function, title, args, argnums, only, settings.cotangents)
    names, notes = traced.arguments.names, [*traced.described_rules()]
    notes += [f"does not take float64: {narrow}"] if narrow else []
    if traced.problem:
        checks = tuple(
            GradientCheck(name, shape, {}, traced.problem)
            for name, shape in zip(names, traced.shapes, strict=True)
        )
        return GradientReport(title, checks, "\n  ".join(notes))
    with jax.enable_x64(traced.x64):
        problem = FunctionProblem(traced, settings.seed)
        checks = _checks(problem, names, traced.shapes, settings)
    return GradientReport(title, checks, "\n  ".join([*notes, *problem.notes]))


def _check_case(
    target: Callable[..., Node], case: Case, settings: _Settings, values: Sequence[np.ndarray] | None = None
) -> GradientReport:
    arrays = case.values(settings.seed) if values is None else list(values)
    graph = ExpressionGraph(seed=settings.seed + 1)
    node, _ = record_case(graph, target, case, arrays)
    way_out = ': give others, by values= or Case(..., domain="positive")'
    report = _check_node(node, settings, way_out)
    example = Example(target, case, tuple(arrays), settings.seed, settings.rule_set)
    checks = tuple(replace(check, example=example) for check in report.checks)
    return GradientReport(f"{title_of(target)} {case}", checks, report.note)


def _check_node(node: Node, settings: _Settings, way_out: str = "") -> GradientReport:
    """Check a node; ``way_out`` says what to do where the value is not finite."""
    graph, tape = node.graph, node.tape()
    excerpt = tape.below([node.id])
    nodes = [tape.nodes[i] for i in excerpt.inputs]
    chosen = [k for k, n in enumerate(nodes) if n.trainable] or [
        k for k, n in enumerate(nodes) if n.value_type.is_float
    ]
    title = f"{node.type} {list(node.shape)} made at {place(node.where)}"
    if not has_float(node.spec):
        return GradientReport(title, (), f"a node of {node.value_type} has no gradient")
    if not chosen:
        return GradientReport(title, (), "nothing below this node can have a gradient")
    below = [n for n in tape.nodes[: node.id + 1] if n.id in excerpt.row_of]
    by_design = sorted({n.type for n in below if not n.gradient_is_derivative})
    by_design += [f"frozen {n.type}" for n in below if n.children and tape.overrides.get(n.id) is False]
    straight = sorted({n.type for n in below if n.surrogate_ops is not None})
    # A rule that came with a function of from_jax may well be meant as its derivative.
    notes = [f"rules that need not be derivatives: {', '.join(by_design)}"] if by_design else []
    notes += [f"straight through, as derivatives of surrogates: {', '.join(straight)}"] if straight else []
    with jax.enable_x64(True):
        leaves = [wide(n.leaf_value()) for n in nodes]
        recorded = excerpt, excerpt.row_of[node.id], chosen, leaves, graph.seed
        function = RecordedFunction(*recorded)
        cotangent = None if isinstance(settings.cotangents, str) else settings.cotangents
        problem = Problem(function, [leaves[k] for k in chosen], settings.seed, cotangent)
        names, shapes = [_leaf_name(nodes[k]) for k in chosen], [nodes[k].shape for k in chosen]
        checks = _checks(problem, names, shapes, settings, way_out)
        unknown = _failure(partial(check_numbers, *recorded, settings.rule_set))
    notes += _narrower(function)
    checks = tuple(
        replace(c, problem=c.problem or unknown, allowed=with_rounding(c.allowed, function.widening.rounding))
        for c in checks
    )
    derived = [n for n in below if n.children and n.gradient_is_derivative]
    stops = sorted({n.type for n in derived if not n.differentiable})
    if stops and any("differences" in c.objections for c in checks):
        notes.append(f"no gradient by design: {', '.join(stops)}")
    return GradientReport(title, checks, "; ".join([*notes, *problem.notes]))


def _narrower(function: RecordedFunction) -> list[str]:
    """A note if something computes in a narrower type than float64, which all inputs have."""
    if function.widening.narrow is None:
        return []
    if function.widening.inside:
        return [f"computes in {function.widening.narrow}: checked as if it were float64"]
    cast = f"x.astype(jnp.promote_types(x.dtype, jnp.{function.widening.narrow}))"
    return [f"computed in {function.widening.narrow}, whose rounding is wrong for float64: cast by {cast}"]


def _failure(numbers: Callable[[], None]) -> str:
    """Why a rule fails where the numbers of ``runtime_fields`` are not known; empty if none fails."""
    try:
        numbers()
    except Exception as e:  # the user's rule may raise anything
        return told(e)
    return ""


def _leaf_name(node: Node) -> str:
    if isinstance(node, ParamNode | ConstantNode) and node.name != "none":
        return node.name
    return f"{node.type} {node.id}"


def _checks(
    problem: Problem, names: Sequence[str], shapes: Sequence[Shape], settings: _Settings, way_out: str = ""
) -> tuple[GradientCheck, ...]:
    """One check per input. If a rule cannot be evaluated for a witness, all checks report that; if the value
    is not finite, the checks that find nothing else wrong report that."""
    questions = [problem.first_order]
    if settings.thorough:
        questions += [problem.second_order, problem.transformed, problem.cotangents, problem.repeated]
        questions += [problem.compiled] if settings.eager else []
    if isinstance(settings.cotangents, str) and settings.cotangents != "random":
        questions.append(getattr(problem, settings.cotangents.replace("-", "_")))
    known: list[list[Answer]] = [[] for _ in names]
    problems = []
    for question in questions:
        try:
            answers = question(settings.rule_set)
        except Exception as e:  # the user's rule may raise anything
            asked = _ASKED.get(question.__name__)
            problems.append(f"{asked}: {told(e)}" if asked and not isinstance(e, MGraphError) else told(e))
            if question == problem.first_order:
                break  # the others build on what it found
            continue
        for answer, of_input in zip(answers, known, strict=True):
            of_input.append(answer)
        if problem.undefined:
            break  # the others would find only NaN
    problem_found = "; ".join(dict.fromkeys(problems))
    checks = _accused_alone(
        [
            _check_of(name, shape, answers, problem_found, settings)
            for name, shape, answers in zip(names, shapes, known, strict=True)
        ]
    )
    if problem.is_empty:
        problem.note(NOTHING)
    if not problem.undefined:
        return checks
    undefined = f"NaN or infinity in the value at these inputs{way_out}"
    return tuple(c if c.objections or c.problem else replace(c, problem=undefined) for c in checks)


def _accused_alone(checks: Sequence[GradientCheck]) -> tuple[GradientCheck, ...]:
    """The checks; where a first derivative is wrong, without the objections of ``second`` to inputs to which
    no other witness objects: ``second`` differentiates the gradients with respect to all inputs together."""
    if not any({"jax", "differences"}.intersection(c.objections) for c in checks):
        return tuple(checks)
    return tuple(
        replace(c, differences={w: d for w, d in c.differences.items() if w != "second"})
        if c.objections == ("second",)
        else c
        for c in checks
    )


def _check_of(
    name: str, shape: Shape, answers: Sequence[Answer], problem: str, settings: _Settings
) -> GradientCheck:
    """The check of one input from all answers about it."""
    differences = largest(a.differences for a in answers)
    allowed = {**TOLERANCES, "repeat": settings.nondet_tol}
    for answer in answers:
        allowed.update(answer.allowed)
    return GradientCheck(
        name,
        shape,
        differences,
        problem,
        allowed,
        {witness: finding for a in answers for witness, finding in a.findings.items()},
        tuple(kink for a in answers for kink in a.kinks),
        next((a.taylor for a in answers if a.taylor), None),
    )
