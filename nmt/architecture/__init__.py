"""Which parameters each of Marian's models has, as data: names, shapes, how they begin, when they exist.

Rows make blocks (``dense``, ``cells``, ``s2s``, ``transformer``), blocks make model types (``types``).
Read for the options of one model (``table``) they say which parameters it has; that is how models are
created, files are checked, and the page "Model parameters" is written.
"""

from __future__ import annotations

from .checking import check_parameters as check_parameters
from .checking import completed as completed
from .creation import initial_values as initial_values
from .table import Parameter as Parameter
from .table import parameters as parameters
from .types import TYPES as TYPES
