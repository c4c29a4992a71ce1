"""``check_mutants``: every mutant of the rules of operators, judged by all witnesses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax

from ...arrays import checked_seed
from ...node import NaryNodeOp
from ..report import NOTHING, problem_of
from ..survey import chosen_operators, rows_of
from .declared import declared_for
from .judge import judged
from .loops import ending_loops
from .report import MutantReport, MutantRow


def check_mutants(
    names: Sequence[str] = (),
    module: str | None = None,
    *,
    seed: int = 0,
    on_row: Callable[[MutantRow], None] | None = None,
) -> MutantReport:
    """Change the rules of operators in many small ways, and report which changes no witness sees.

    A mutant is a rule with one mistake: a sign, a factor, a term, an operand, an axis, a comparison, a cast,
    a gradient for the wrong child. Mutants that survive show which ``cases`` and ``conventions`` an operator
    lacks. ``names`` and ``module`` are as for ``check_operators``, and so are the errors. Operators without a
    rule of their own have no mutants. ``on_row`` is called with each row as soon as it is complete.
    """
    examined = functools.partial(_examined, seed=checked_seed(seed))
    return MutantReport(rows_of(examined, chosen_operators(names, module), on_row, side_by_side=False))


def _examined(cls: type[NaryNodeOp], seed: int) -> MutantRow:
    if cls.composite or not hasattr(cls, "backward_ops"):
        return MutantRow(cls.__name__, cls.type, (), note="no rule of its own")
    if cls.cases and all(case.is_empty for case in cls.cases):
        return MutantRow(cls.__name__, cls.type, (), problem=NOTHING)
    try:
        # Uncompiled, because each mutant runs only a few times; loops and branches are then Python's.
        with jax.enable_x64(True), jax.disable_jit(), ending_loops():
            verdicts = tuple(judged(cls, seed))
    except (Exception, SystemExit) as e:  # a user's operator may raise anything
        return MutantRow(cls.__name__, cls.type, (), problem=problem_of(e))
    used = {v.declared for v in verdicts}
    stale = tuple(change for change in declared_for(cls) if change not in used)
    return MutantRow(cls.__name__, cls.type, verdicts, stale)
