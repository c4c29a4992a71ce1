"""The multiplicative factor of recurrent cells."""

from __future__ import annotations

from mgraph import Node, affine

from ..layer import Layer
from ..products import product
from .base import Cell, normed


class Multiplier(Layer):
    """``m = (x Wm + bwm) * (s Um + bm)`` of a cell's input ``x`` and state ``s``, neither dropped.

    Parameters: ``{prefix}_Wm (dim_input, dim_state)``, ``_Um (dim_state, dim_state)``, ``_bwm``, ``_bm``,
    both ``(1, dim_state)``; with layer normalization both factors are normalized after their biases, with
    the gains ``_gamma1m`` and ``_gamma2m (1, dim_state)``, eps 1e-9.
    Source: Krause et al. 2016; Marian's ``mlstm`` and ``mgru``.
    """

    def __init__(self, cell: Cell) -> None:
        d = cell.dim_state
        self.recurrent, self.weight = cell.weight("Um", d, d), cell.weight("Wm", cell.dim_input, d)
        self.state_bias, self.input_bias = cell.bias("bm", d), cell.bias("bwm", d)
        self.input_gain, self.state_gain = cell.gain("gamma1m", d), cell.gain("gamma2m", d)

    def map_input(self, x: Node) -> Node:
        """The factor of the input ``(..., dim_input)``, for all steps at once."""
        return normed(product(x, self.weight, self.input_bias), self.input_gain)

    def __call__(self, factor: Node, s: Node) -> Node:
        """``m (batch, dim_state)`` from one step of ``map_input`` and the state."""
        mapped = affine(s, self.recurrent.on(s.graph), self.state_bias.on(s.graph))
        return factor * normed(mapped, self.state_gain)
