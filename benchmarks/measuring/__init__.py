"""How the benchmarks measure: rounds in turn, medians with spread, ratios within a round, plain tables."""

from .children import Child, answering
from .machine import print_machine, share_gpu
from .options import positive
from .processes import Finished, ProcessError, finished
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
    "positive",
    "print_machine",
    "share_gpu",
]
