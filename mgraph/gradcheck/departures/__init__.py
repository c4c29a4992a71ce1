"""A whole loss, operator by operator: which rule departs from JAX, and how far that spreads."""

from __future__ import annotations

from .check import check_layers as check_layers
from .nodes import ChildCheck as ChildCheck
from .nodes import LayerCheck as LayerCheck
from .nodes import NodeCheck as NodeCheck
from .report import DepartureReport as DepartureReport
