"""Rewriting: rules applied to a graph until none fits any more, without changing what it computes.

``optimize(graph)`` applies the rules that come with mgraph; ``rule`` and ``rewriting.patterns`` make more.
``rewriting.library`` has the rules. Source: nGraph, ``pass::GraphRewrite``.
"""

from __future__ import annotations

from .library import DEFAULT as DEFAULT
from .optimize import optimize as optimize
from .rule import Change as Change
from .rule import Report as Report
from .rule import Rule as Rule
from .rule import again as again
from .rule import over as over
from .rule import rule as rule
