"""What rounding does to correct rules: values and gradients of few bits compared with exact ones."""

from __future__ import annotations

from .check import check_budgets as check_budgets
from .report import Budget as Budget
from .report import BudgetReport as BudgetReport
