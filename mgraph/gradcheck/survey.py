"""``check_operators``: every operator of mgraph, or of a user's module, against all witnesses."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from .. import ops
from ..arrays import checked_seed, is_series, text
from ..cases import check_declared
from ..errors import ArgumentError, MGraphError
from ..names import counted, meant
from ..node import NaryNodeOp
from ..tables import table
from .check import QUICK_CASES, check_gradients, check_quickly
from .report import NOTHING, GradientReport, cells, columns_of, finite, largest, problem_of, verdict
from .shrinking.smallest import SECONDS, SmallestFailure, smallest_failure

Operator = type[NaryNodeOp]
T = TypeVar("T")
Row = TypeVar("Row")

_DERIVATIVES = ("jax", "differences", "second", "one-hot", "missing")
"""Witnesses about derivatives; some rules, such as that of ``clip_gradient``, are not derivatives by
design, and some operators let no gradient pass."""


_LISTED = 20
"""The most operators that an error lists."""
_MOST_THREADS = 8
"""The most operators that are checked at the same time."""


@dataclass(frozen=True)
class OperatorRow:
    """One operator, compared with the witnesses on all of its cases."""

    operator: str
    """Name of the node class."""
    type: str
    """Its friendly type."""
    cases: int
    differences: Mapping[str, float]
    """For each witness the largest relative difference."""
    problem: str = ""
    """Why it could not be checked, if it could not."""
    report: GradientReport | None = None
    """The rows of the cases."""
    failure: SmallestFailure | None = None
    """The smallest failing example that was found, if one was searched for."""

    @property
    def objections(self) -> tuple[str, ...]:
        """The witnesses that disagree with the rule on some case, except by design."""
        if self.report is None:
            return ()
        found = dict.fromkeys(w for check in self.report.checks for w in check.objections)
        return tuple(w for w in found if w in self.differences)

    @property
    def ok(self) -> bool:
        """Whether the rule agrees with all witnesses on all cases."""
        return not self.problem and not self.objections

    @property
    def verdict(self) -> str:
        """``ok``, the problem, or which witnesses say that the rule is wrong, and by how much."""
        if self.report is None:
            return verdict(self.problem, self.objections)
        if self.ok and self.report.note:
            return f"ok ({self.report.note})"
        judged = {"jax", "differences", "convention"} & set(self.objections)
        found = (check.finding for check in self.report.checks if check.finding and judged)
        judgement = verdict(self.problem, self.objections, next(found, None))
        return f"{judgement}; {self.report.note}" if self.objections and self.report.note else judgement


@dataclass(frozen=True)
class OperatorReport:
    """What ``check_operators`` found; prints as a table."""

    rows: tuple[OperatorRow, ...]

    @property
    def ok(self) -> bool:
        """Whether there are operators and every one agrees with all witnesses."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    def __str__(self) -> str:
        columns = columns_of(row.differences for row in self.rows)
        rows = [("operator", "type", "cases", *columns, "verdict")]
        rows += [
            (r.operator, r.type, str(r.cases), *cells(r.differences, columns), r.verdict) for r in self.rows
        ]
        wrong = sum(not row.ok for row in self.rows)
        cases = counted(sum(row.cases for row in self.rows), "case")
        total = f"{counted(len(self.rows), 'operator')}, {cases}, {wrong} wrong"
        worst = cells(largest(row.differences for row in self.rows), columns)
        rows.append(("largest", "", "", *worst, ""))
        return "\n".join([*table(rows, f"<<>{'>' * len(columns)}<"), total])

    __repr__ = __str__  # for prompts and notebooks

    def as_json(self) -> dict[str, Any]:
        """The table as data for JSON; a difference that is not finite is ``None``."""
        return {
            "ok": self.ok,
            "operators": [
                {
                    "operator": row.operator,
                    "type": row.type,
                    "cases": row.cases,
                    "differences": {w: finite(d) for w, d in row.differences.items()},
                    "ok": row.ok,
                    "verdict": row.verdict,
                    **({"failure": row.failure.as_json()} if row.failure else {}),
                }
                for row in self.rows
            ],
        }


def check_operators(
    names: Sequence[str] = (),
    module: str | None = None,
    *,
    quick: bool = False,
    seed: int = 0,
    on_row: Callable[[OperatorRow], None] | None = None,
) -> OperatorReport:
    """Compare the rules of operators with all witnesses, each on all of its ``cases``.

    ``names`` are node classes or friendly types (case does not matter); without names, all operators are
    checked. ``module``, a module's name or the path of a Python file, selects the operators that it defines
    instead of mgraph's own. An operator without cases, or whose cases cannot be recorded, fails. ``quick``
    takes the first two cases and checks only first derivatives, by JAX, by differences and for a zero
    cotangent; it skips second derivatives, transformations, frozen children, other cotangents, repetitions
    and conventions. ``on_row`` is called with each row, in order, as soon as it is complete. Operators are
    checked in parallel, one per core: most of the time goes into compiling. ``ArgumentError`` for an unknown
    name, for a module that cannot be imported or that has no operators, and for ``cases`` that are not a
    tuple of cases.
    """
    chosen = chosen_operators(names, module)
    check = functools.partial(check_operator, seed=checked_seed(seed), quick=quick)
    return OperatorReport(rows_of(check, chosen, on_row, side_by_side=True))


def rows_of(
    check: Callable[[T], Row], each: Iterable[T], on_row: Callable[[Row], None] | None, *, side_by_side: bool
) -> tuple[Row, ...]:
    """The row that ``check`` makes of each item, in parallel, one per core, if ``side_by_side``; ``on_row``
    is called with the rows in order, as soon as each is complete."""
    rows = []
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        for row in (pool.map if side_by_side else map)(check, each):
            if on_row is not None:
                on_row(row)
            rows.append(row)
    return tuple(rows)


def chosen_operators(names: Sequence[str], module: str | None = None) -> list[Operator]:
    """The operators that ``check_operators`` checks for these arguments; raises its errors."""
    chosen = _chosen(names, own_operators() if module is None else _of_module(module), module)
    for cls in chosen:
        check_declared(cls)
    return chosen


def check_operator(cls: Operator, seed: int = 0, *, quick: bool = False) -> OperatorRow:
    """One operator on all of its cases; ``quick`` as for ``check_operators``."""
    cases = min(len(cls.cases), QUICK_CASES) if quick else len(cls.cases)
    if not cases:
        return OperatorRow(cls.__name__, cls.type, 0, {}, "declares no cases")
    try:
        report = check_quickly(cls, seed) if quick else check_gradients(cls, seed=seed, thorough=True)
    except (Exception, SystemExit) as e:  # a user's operator may raise anything
        return OperatorRow(cls.__name__, cls.type, cases, {}, problem_of(e))
    skipped = () if cls.gradient_is_derivative and cls.differentiable else _DERIVATIVES
    differences = largest(check.differences for check in report.checks)
    differences = {w: d for w, d in differences.items() if w not in skipped}
    nothing = NOTHING if NOTHING in report.note.split("; ") else ""
    problem = next((check.problem for check in report.checks if check.problem), nothing)
    return OperatorRow(cls.__name__, cls.type, cases, differences, problem, report)


def with_failures(report: OperatorReport, seconds: float = SECONDS) -> OperatorReport:
    """The report with the smallest failure of each wrong operator; each search takes at most ``seconds``."""
    return replace(report, rows=tuple(_with_failure(row, seconds) for row in report.rows))


def _with_failure(row: OperatorRow, seconds: float) -> OperatorRow:
    if row.ok or row.report is None:
        return row
    witnesses = row.objections
    return replace(row, failure=smallest_failure(row.report, witnesses=witnesses, seconds=seconds))


def own_operators() -> list[Operator]:
    """mgraph's operators, sorted by module and name."""
    for found in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{found.name}")
    return _defined_in(lambda name: name.startswith(f"{ops.__name__}."))


def _of_module(name: str) -> list[Operator]:
    name = text("module, the name of a module or a Python file,", name)
    # A file is run again each time: it may have changed since the last run.
    stale = set(_subclasses(NaryNodeOp)) if name.endswith(".py") else set()
    module = _imported(name)
    found = [cls for cls in _defined_in(lambda other: other == module.__name__) if cls not in stale]
    if not found:
        raise ArgumentError(f"{name} defines no operator")
    return found


def _imported(name: str) -> Any:
    """The module of this name, or the one in this file; the current folder is searched first."""
    path, is_file = Path(name), name.endswith(".py")
    try:
        if not is_file:
            if "" not in sys.path and str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ArgumentError(f"{name} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as e:
        known = isinstance(e, MGraphError | ImportError | OSError | SyntaxError)
        kind = "" if known else f"{type(e).__name__}: "
        line = _line_in(path.stem if is_file else name, e)
        raise ArgumentError(f"cannot import {name}: {kind}{e}{line}") from e


def _line_in(module: str, error: BaseException) -> str:
    """`` (file:line)`` of the last line of a module that an error passed through; empty if there is none, or
    if the error already says it."""
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    return f" ({lines[-1]})" if lines and lines[-1] not in str(error) else ""


def _defined_in(chosen: Callable[[str], bool]) -> list[Operator]:
    """Operators of the chosen modules: classes that can be recorded, without their abstract bases."""
    found = {
        cls
        for cls in _subclasses(NaryNodeOp)
        if chosen(cls.__module__)
        and hasattr(cls, "forward_ops")
        and ("type" in vars(cls) or not any(chosen(child.__module__) for child in cls.__subclasses__()))
    }
    return sorted(found, key=lambda c: (c.__module__, c.__name__))


def _subclasses(cls: Any) -> Iterator[Any]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _chosen(names: Sequence[str], known: Iterable[Operator], module: str | None) -> list[Operator]:
    known = list(known)
    given = [names] if isinstance(names, str) or not is_series(names) else list(names)
    if not given:
        return known
    chosen: dict[Operator, None] = {}
    for name in given:
        if not isinstance(name, str):
            raise ArgumentError(
                f"expected names of operators, got {name!r}; check_gradients(cls) takes a class, "
                "and module= the file of your own"
            )
        found = [c for c in known if name.lower() in (c.__name__.lower(), c.type.lower())]
        if not found:
            hint = meant(name.lower(), {c.type.lower() for c in known}, repr)
            if len(known) <= _LISTED:
                others = f"there are {', '.join(c.__name__ for c in known)}"
            elif module is None:
                others = "mgraph operators lists all"
            else:
                others = f"{module} defines {len(known)} others"
            raise ArgumentError(f"there is no operator {name!r}{hint or f'; {others}'}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)
