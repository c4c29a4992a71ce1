"""Recurrent cells: one step of an RNN.

A cell splits its work as Marian's do: ``apply_input`` projects the inputs of all steps in one product, and
``apply_state`` does one step. A state is a tuple of nodes ``(batch, dim_state)``, the first of which is
the cell's output.
"""

from __future__ import annotations

from ..choices import choose
from .base import Cell as Cell
from .base import State as State
from .elman import ReLU as ReLU
from .elman import Tanh as Tanh
from .gru import GRU as GRU
from .gru import MGRU as MGRU
from .gru import GRUNematus as GRUNematus
from .lstm import LSTM as LSTM
from .lstm import MLSTM as MLSTM
from .sru import SRU as SRU
from .sru import SSRU as SSRU
from .stack import CellInput as CellInput
from .stack import StackedCell as StackedCell

CELLS: dict[str, type[Cell]] = {
    "gru": GRU,
    "gru-nematus": GRUNematus,
    "lstm": LSTM,
    "mlstm": MLSTM,
    "mgru": MGRU,
    "tanh": Tanh,
    "relu": ReLU,
    "sru": SRU,
    "ssru": SSRU,
}
"""Cells by the value of Marian's options ``enc-cell`` and ``dec-cell``."""


def find_cell(name: str, option: str = "cell") -> type[Cell]:
    """The class of a cell; ``UnsupportedOptionError``, which names ``option``, if it does not exist."""
    return choose(option, name, CELLS)
