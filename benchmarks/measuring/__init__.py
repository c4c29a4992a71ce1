"""How the benchmarks measure: rounds in turn, medians with spread, ratios within a round, plain tables."""

from .children import Child, answering
from .machine import print_machine, share_gpu
from .options import positive
from .processes import Finished, ProcessError, finished, lines_of
from .rounds import Samples, alternate
from .table import Table

__all__ = [
    "Child",
    "Finished",
    "ProcessError",
    "Samples",
    "Table",
    "alternate",
    "answering",
    "finished",
    "lines_of",
    "positive",
    "print_machine",
    "share_gpu",
]
