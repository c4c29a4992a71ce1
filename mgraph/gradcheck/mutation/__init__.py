"""Mutation testing of rules: how well witnesses and cases would see a wrong one."""

from __future__ import annotations

from .check import check_mutants as check_mutants
from .mutant import Mutant as Mutant
from .report import MutantReport as MutantReport
from .report import MutantRow as MutantRow
from .report import Verdict as Verdict
