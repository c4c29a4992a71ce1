"""``assert_gradients``: a check of gradients as a line of a test."""

from __future__ import annotations

from typing import Any

from ..errors import WrongGradientError
from .check import Target, check_gradients
from .report import GradientReport


def assert_gradients(target: Target, *args: Any, thorough: bool = True, **options: Any) -> GradientReport:
    """Check gradients, and fail with the table of witnesses if one is wrong.

    ``target``, ``args`` and ``options`` are those of ``check_gradients``; by default it is thorough.
    ``WrongGradientError``, an ``AssertionError``, if a gradient is wrong, so that pytest and unittest count a
    failure; the report if all are right.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    report = check_gradients(target, *args, thorough=thorough, **options)
    if not report.ok:
        raise WrongGradientError(f"wrong gradients\n{report}")
    return report
