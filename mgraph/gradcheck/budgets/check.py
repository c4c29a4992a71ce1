"""``check_budgets``: how far rounding takes values and gradients, ours and JAX's, from the exact ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...arrays import checked_seed
from ...cases import Case
from ...errors import ArgumentError, told
from ...platforms import as_wished
from ...specs import is_real
from ...types import as_type
from ..references.exact_witness import ExactProgram
from ..references.numpy_primitives import NoReferenceError
from ..report import NOTHING, problem_of
from ..subjects import Subject
from ..survey import Operator, chosen_operators
from .declared import declared_for
from .inputs import Stress, stress_inputs
from .report import VALUE_NOT_FINITE, Budget, BudgetReport, StressResult
from .units import Units

ELEMENT_TYPES = ("float32", "bfloat16", "float16")

RULE_SETS = ("rules", "jax")

_DRAWS = 2
"""How often all numbers are moved by a rounding, up or down at random, to see what that does to a result."""

Arrays = list[np.ndarray]
Results = dict[str, np.ndarray]


def check_budgets(
    names: Sequence[str] = (),
    module: str | None = None,
    *,
    element_types: Sequence[str] = ELEMENT_TYPES,
    seed: int = 0,
    on_operator: Callable[[Operator], None] | None = None,
    on_budget: Callable[[Budget], None] | None = None,
) -> BudgetReport:
    """Count the rounding errors of operators' values and gradients, and of JAX's gradients for comparison.

    Every operator is compiled and computed on its ``cases`` in each of the element types: the values, and the
    gradients by rule and by ``jax.grad`` of the same forward, for a random adjoint. Inputs are usual ones and
    stress inputs (``budgets.inputs.KINDS``), rounded to the element type first, so that only errors of the
    computation count. The exact results, of the rule and of JAX's derivative of the forward, are computed in
    decimals of 60 digits, or in float64 where decimals lack a primitive (the report says where).

    Errors are counted in

    - *units in the last place* of the exact number, but no less than the smallest number: the smallest normal
      number in float32 and bfloat16, where processors flush to zero, the smallest of all in float16;
    - *roundings*: the same units, but where moving all inputs and adjoints by one unit in their last place
      moves the exact result further than one unit, that move is the unit. No program can be held to more: a
      sum whose terms cancel has few roundings and many units in the last place.

    NaN and infinities count as infinitely many if the exact number is at most a quarter of the type's
    largest. ``VERDICTS`` in ``budgets.report`` says when a rule is better or worse than ``jax.grad``; the
    report fails where the rule is worse, not finite where JAX is, or another gradient, unless the operator's
    ``accepted_budgets`` say why.

    ``names`` and ``module`` are those of ``check_operators``. ``ArgumentError`` also for an element type that
    is not one of ``ELEMENT_TYPES``. ``on_operator`` is called with each operator before its rows are
    computed, which takes minutes for large cases, ``on_budget`` with each row as soon as it is complete.
    """
    if isinstance(element_types, str):
        element_types = [element_types]
    if strange := [t for t in element_types if t not in ELEMENT_TYPES]:
        raise ArgumentError(f"expected element types among {', '.join(ELEMENT_TYPES)}, got {strange[0]!r}")
    rows, seed = [], checked_seed(seed)
    with jax.enable_x64(True), ThreadPoolExecutor() as compiler:
        for cls, prepared in _one_ahead(chosen_operators(names, module), element_types, seed, compiler):
            if on_operator is not None:
                on_operator(cls)
            for row in prepared:
                if on_budget is not None:
                    on_budget(row)
                rows.append(row)
    return BudgetReport(tuple(rows))


def _one_ahead(
    operators: Sequence[Operator], element_types: Sequence[str], seed: int, compiler: Executor
) -> Iterator[tuple[Operator, Iterator[Budget]]]:
    """Each operator and its rows; while they are computed, the programs of the next operator are compiled."""
    ahead: list[tuple[Operator, Iterator[Budget]]] = []
    for cls in operators:
        ahead.append((cls, _prepared(cls, element_types, seed, compiler)))
        if len(ahead) > 1:
            yield ahead.pop(0)
    yield from ahead


def _prepared(cls: Operator, element_types: Sequence[str], seed: int, compiler: Executor) -> Iterator[Budget]:
    """The rows of an operator, yet to be computed, or one row that says why there are none."""
    if not cls.cases:
        return iter([Budget(cls.__name__, problem="declares no cases")])
    cases = [case for case in cls.cases if not case.is_empty]
    if not cases:
        return iter([Budget(cls.__name__, problem=NOTHING)])
    try:
        trials = [_Trial(cls, case, element_types, seed, compiler) for case in cases]
    except (Exception, SystemExit) as e:  # a user's operator may raise anything
        return iter([Budget(cls.__name__, problem=problem_of(e))])
    return _budgets(trials, element_types)


def _budgets(trials: Sequence[_Trial], element_types: Sequence[str]) -> Iterator[Budget]:
    """One row for each element type and quantity of an operator."""
    name = trials[0].operator
    for element_type in element_types:
        found: dict[str, list[StressResult]] = {}
        for trial in trials:
            try:
                results = list(trial.results(element_type))
            except Exception as e:  # programs may raise anything, and compilers may lack something
                yield Budget(name, element_type, problem=f"{element_type}, {trial.case}: {told(e)}")
                continue
            for result in results:
                found.setdefault(result.quantity, []).append(result)
        note = "; ".join(dict.fromkeys(trial.note for trial in trials if trial.note))
        for quantity, results in found.items():
            yield Budget(name, element_type, quantity, tuple(results), note, declared=trials[0].declared)


class _Trial:
    """An operator on one of its cases. Its programs start to compile immediately."""

    def __init__(
        self, cls: Operator, case: Case, element_types: Sequence[str], seed: int, compiler: Executor
    ) -> None:
        self.operator = cls.__name__
        self.declared = declared_for(cls)
        self._missing: dict[str, None] = {}
        self.case, self._seed = case, seed
        self._subject = Subject(cls.__name__, cls, case)
        self._usual = case.values(seed)
        self._floats = [i for i, a in enumerate(self._usual) if a.dtype.kind == "f"]
        self._outputs = {t: self._real_outputs(t) for t in (*element_types, "float64")}
        self._differentiable = cls.differentiable
        self._derivative = cls.gradient_is_derivative and cls.surrogate_ops is None
        self._compiled = {
            (element_type, rule_set): self._compile(element_type, rule_set, compiler)
            for element_type in element_types
            for rule_set in RULE_SETS
        }

    @property
    def note(self) -> str:
        """Which primitives made float64 stand in for exact arithmetic, if any did."""
        return f"against float64, for {' and '.join(self._missing)}" if self._missing else ""

    def results(self, element_type: str) -> Iterator[StressResult]:
        """The results for each kind of inputs, compared with the exact ones."""
        programs = {rule_set: self._compiled[element_type, rule_set].result() for rule_set in RULE_SETS}
        for stress in stress_inputs(self.case, element_type, self._seed):
            given = stress.arrays, self._adjoints(element_type, stress.adjoint)
            found = {rule_set: self._named(program(*given)) for rule_set, program in programs.items()}
            exact = {rule_set: self._named(self._exact[rule_set](*_wide(given))) for rule_set in RULE_SETS}
            moves = self._moves(given, exact, element_type)
            overflows = False
            for quantity in found["rules"]:
                compared = self._compared(
                    quantity,
                    stress,
                    {r: found[r][quantity] for r in RULE_SETS},
                    {r: exact[r][quantity] for r in RULE_SETS},
                    moves[quantity],
                )
                overflows |= compared.verdict == VALUE_NOT_FINITE
                yield replace(compared, overflows=overflows)

    def _compared(
        self,
        quantity: str,
        stress: Stress,
        found: Results,
        exact: Results,
        moves: np.ndarray,
    ) -> StressResult:
        """One quantity, by rule and by JAX."""
        units = Units(found["rules"].dtype, moves)
        is_value = quantity.startswith("value")
        if is_value:
            exact = dict.fromkeys(RULE_SETS, exact["jax"])
        comparable = self._derivative and not is_value
        apart = units.apart(exact["rules"], exact["jax"]) if comparable else None
        shown = apart if stress.kind == "usual" else None  # for another gradient: where it is another one
        ours, jaxs = (
            units.worst(found[own], np.where(np.isfinite(exact[own]), exact[own], exact[other]), shown)
            for own, other in (RULE_SETS, RULE_SETS[::-1])
        )
        return StressResult(
            str(self.case),
            stress.kind,
            quantity,
            _inputs_at(stress.arrays, moves.shape, ours.element),
            ours,
            jaxs if comparable else None,
            apart is not None,
        )

    def _program(self, element_type: str, rule_set: str) -> Callable[..., Any]:
        """The function of the children and the adjoints that gives outputs and gradients."""
        function = self._subject.function(element_type, rule_set)

        def computed(arrays: Arrays, adjoints: Arrays) -> Any:
            def outputs(moving: Arrays) -> Any:
                values = list(arrays)
                for i, value in zip(self._floats, moving, strict=True):
                    values[i] = value
                return [leaf for leaf in jax.tree.leaves(function(*values)) if is_real(leaf)]

            found, pull = jax.vjp(outputs, [arrays[i] for i in self._floats])
            return found, pull(adjoints)[0] if self._differentiable else []

        return computed

    def _compile(self, element_type: str, rule_set: str, compiler: Executor) -> Future[Any]:
        """Start to compile a program, as graphs compile theirs."""
        given = self._usual_in(element_type), self._adjoints(element_type)
        lowered = jax.jit(self._program(element_type, rule_set)).lower(*given)
        platform = jax.default_backend()
        return compiler.submit(as_wished, platform, lambda options: lowered.compile(options or None))

    @functools.cached_property
    def _exact(self) -> dict[str, Callable[..., Any]]:
        """For each rule set, the program in decimals, or in float64 where decimals lack a primitive."""
        given = self._usual, self._adjoints("float64")
        programs: dict[str, Callable[..., Any]] = {}
        for rule_set in RULE_SETS:
            program = self._program("float64", rule_set)
            try:
                programs[rule_set] = ExactProgram(program, *given)
                programs[rule_set](*given)
            except NoReferenceError as missing:
                self._missing[str(missing)] = None
                programs[rule_set] = jax.jit(program)
        return programs

    def _usual_in(self, element_type: str) -> Arrays:
        return next(stress_inputs(self.case, element_type, self._seed)).arrays

    def _adjoints(self, element_type: str, scale: float = 1.0) -> Arrays:
        """Random adjoints of the outputs, the same for all programs of an element type."""
        random = np.random.default_rng(self._seed + 2)
        return [
            (scale * random.standard_normal(s.shape)).astype(s.dtype) for s in self._outputs[element_type]
        ]

    def _real_outputs(self, element_type: str) -> list[Any]:
        """The specs of outputs that have a gradient."""
        given = self._usual if element_type == "float64" else self._usual_in(element_type)
        specs = jax.eval_shape(self._subject.function(element_type), *given)
        return [s for s in jax.tree.leaves(specs) if is_real(s)]

    def _named(self, results: Any) -> Results:
        values, gradients = ([np.asarray(a) for a in arrays] for arrays in results)
        names = ["value"] if len(values) == 1 else [f"value {i}" for i in range(len(values))]
        named = zip(self._floats, gradients, strict=False)
        return {
            **dict(zip(names, values, strict=True)),
            **{f"gradient by child {i}": g for i, g in named},
        }

    def _moves(self, given: Any, exact: dict[str, Results], element_type: str) -> Results:
        """How far each exact result moves when all inputs and adjoints are moved by about a rounding."""
        eps = float(jnp.finfo(as_type(element_type).dtype).eps)
        random = np.random.default_rng(self._seed + 3)
        moves: Results = {quantity: np.zeros(a.shape) for quantity, a in exact["jax"].items()}

        def moved(array: Any) -> Any:
            return array * (1 + eps * random.choice([-1.0, 1.0], array.shape)) if is_real(array) else array

        for _ in range(_DRAWS):
            there = jax.tree.map(moved, _wide(given))
            results = {rule_set: self._named(self._exact[rule_set](*there)) for rule_set in RULE_SETS}
            for quantity, most in moves.items():
                with np.errstate(invalid="ignore"):
                    steps = [np.abs(results[r][quantity] - exact[r][quantity]) for r in RULE_SETS]
                moves[quantity] = np.maximum(most, np.max(np.nan_to_num(steps, posinf=0.0), 0))
        return moves


def _wide(given: Any) -> Any:
    return jax.tree.map(lambda a: a.astype(np.float64) if is_real(a) else a, given)


def _inputs_at(arrays: Arrays, shape: tuple[int, ...], element: tuple[int, ...]) -> tuple[str, ...]:
    """Each child's number at an element of a result, or the range of its numbers if none belongs to that
    element."""
    found = []
    for array in arrays:
        numbers = array.astype(np.float64)
        try:
            found.append(f"{np.broadcast_to(numbers, shape)[element]:.9g}")
        except ValueError:
            found.append(f"{np.min(numbers):.3g} to {np.max(numbers):.3g}" if numbers.size else "none")
    return tuple(found)
