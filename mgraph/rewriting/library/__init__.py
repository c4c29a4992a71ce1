"""The rewrites that come with mgraph; ``DEFAULT`` holds all of them.

They hold in real arithmetic; where a number, a shape or an axis decides, they look at it. What they do to
rounding is to leave some of it out.
"""

from __future__ import annotations

from .. import rule as _rule
from .algebra import ALGEBRA, FOLDING, PRODUCTS, SHAPES
from .softmax import LOSSES, SOFTMAX

DEFAULT: tuple[_rule.Rule, ...] = (*FOLDING, *ALGEBRA, *SHAPES, *PRODUCTS, *SOFTMAX, *LOSSES)
