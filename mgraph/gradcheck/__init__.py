"""Gradients held against three witnesses: the hand-written rules, JAX's own derivatives, differences.

Everything is computed in float64, whatever the element type of the graph, so that a rule that is one per
cent wrong cannot hide behind rounding. ``check_gradients`` checks one operator, node or graph,
``check_operators`` every operator of mgraph or of a module of yours, ``check_loss`` a whole loss by all of
its parameters, also in float32. ``check_compiled`` examines what these take for granted, the compiler, and
``check_mutants`` the checks themselves: whether they would see a rule that is wrong.
"""

from __future__ import annotations

from .check import check_gradients as check_gradients
from .compiled import check_compiled as check_compiled
from .compiled_report import CompiledReport as CompiledReport
from .compiled_report import CompiledRow as CompiledRow
from .compiled_report import Difference as Difference
from .loss import check_loss as check_loss
from .mutation import Mutant as Mutant
from .mutation import MutantReport as MutantReport
from .mutation import MutantRow as MutantRow
from .mutation import Verdict as Verdict
from .mutation import check_mutants as check_mutants
from .report import GradientCheck as GradientCheck
from .report import GradientReport as GradientReport
from .report import LossReport as LossReport
from .report import ParameterCheck as ParameterCheck
from .survey import OperatorReport as OperatorReport
from .survey import OperatorRow as OperatorRow
from .survey import check_operators as check_operators
from .survey import chosen_operators as chosen_operators
