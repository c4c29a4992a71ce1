"""Gradient checks that compare three witnesses: hand-written rules, JAX's own derivatives, and differences.

Everything is computed in float64, whatever the graph's element type, so a rule that is one per cent wrong
cannot hide behind rounding. ``check_gradients`` checks one operator, node or graph, or a JAX function with
custom rules; ``assert_gradients`` is the same check as one line of a test. ``check_operators`` checks every
operator of mgraph or of a module of yours, ``check_loss`` a whole loss with respect to all its parameters,
also in float32, and ``check_layers`` a loss operator by operator. ``check_compiled`` examines what these take
for granted, the compiler; ``check_budgets`` counts what rounding does to correct rules in float32 and in 16
bits; ``check_mutants`` examines the checks themselves: whether they would notice a wrong rule.
``smallest_failure`` shrinks a failure and prints it as a test; ``write_page`` shows a report as a page.
"""

from __future__ import annotations

from .assertions import assert_gradients as assert_gradients
from .budgets import Budget as Budget
from .budgets import BudgetReport as BudgetReport
from .budgets import check_budgets as check_budgets
from .check import check_gradients as check_gradients
from .compiler import CompiledReport as CompiledReport
from .compiler import CompiledRow as CompiledRow
from .compiler import Difference as Difference
from .compiler import check_compiled as check_compiled
from .departures import DepartureReport as DepartureReport
from .departures import check_layers as check_layers
from .loss import check_loss as check_loss
from .mutation import Mutant as Mutant
from .mutation import MutantReport as MutantReport
from .mutation import MutantRow as MutantRow
from .mutation import Verdict as Verdict
from .mutation import check_mutants as check_mutants
from .page import write_page as write_page
from .report import GradientCheck as GradientCheck
from .report import GradientReport as GradientReport
from .report import LossReport as LossReport
from .report import ParameterCheck as ParameterCheck
from .shrinking import SmallestFailure as SmallestFailure
from .shrinking import gradients_at as gradients_at
from .shrinking import smallest_failure as smallest_failure
from .survey import OperatorReport as OperatorReport
from .survey import OperatorRow as OperatorRow
from .survey import check_operators as check_operators
from .survey import chosen_operators as chosen_operators
from .survey import with_failures as with_failures
