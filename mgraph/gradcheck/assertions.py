"""``assert_gradients``: a gradient check as one line of a test."""

from __future__ import annotations

from typing import Any

from ..errors import WrongGradientError
from .check import Target, check_gradients
from .report import GradientReport


def assert_gradients(target: Target, *args: Any, thorough: bool = True, **options: Any) -> GradientReport:
    """Check gradients, and fail with the table of witnesses if one is wrong.

    ``target``, ``args`` and ``options`` are those of ``check_gradients``; the check is thorough by default.
    Returns the report if all gradients are right. ``WrongGradientError``, an ``AssertionError`` that pytest
    and unittest count as a failure, if one is wrong.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    report = check_gradients(target, *args, thorough=thorough, **options)
    if not report.ok:
        raise WrongGradientError(f"wrong gradients\n{report}")
    return report
