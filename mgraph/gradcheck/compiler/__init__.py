"""What the compiler does to values and gradients: compiled programs compared with NumPy."""

from __future__ import annotations

from .check import check_compiled as check_compiled
from .report import CompiledReport as CompiledReport
from .report import CompiledRow as CompiledRow
from .report import Difference as Difference
