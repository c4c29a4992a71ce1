"""The rewrites that come with mgraph; ``DEFAULT`` holds all of them.

They hold in real arithmetic and check the numbers, shapes and axes that they depend on; in floating point
they round less.
"""

from __future__ import annotations

from .. import rule as _rule
from .algebra import ALGEBRA, FOLDING, PRODUCTS, SHAPES
from .softmax import LOSSES, SOFTMAX

DEFAULT: tuple[_rule.Rule, ...] = (*FOLDING, *ALGEBRA, *SHAPES, *PRODUCTS, *SOFTMAX, *LOSSES)
