"""Long short-term memory."""

from __future__ import annotations

from mgraph import Node, dot, lstm_ops_c, lstm_ops_o

from ..products import product
from .base import Cell, State, normed
from .multiplier import Multiplier


class LSTM(Cell):
    """Long short-term memory.

    With ``x`` the input, ``s`` the output and ``c`` the cell of the state,
    ``f, i, g, o = x W + s U + b``, ``c' = sigmoid(f) * c + sigmoid(i) * tanh(g)``, or ``c`` where the mask
    is 0; the output is ``sigmoid(o) * tanh(c')``, whatever the mask.

    Parameters: ``{prefix}_W (dim_input, 4 dim_state)`` if there is an input, ``_U (dim_state, 4 dim_state)``,
    ``_b (1, 4 dim_state)``; with layer normalization ``_gamma1`` for ``x W`` and ``_gamma2`` for ``s U``,
    ``(1, 4 dim_state)`` each, eps 1e-9. A state is output and cell; there is no ``final`` variant.
    Source: Hochreiter and Schmidhuber 1997; Marian's ``lstm``.
    """

    states = 2

    def make_parameters(self) -> None:
        d = self.dim_state
        self.recurrent = self.weight("U", d, 4 * d)
        self.biases = self.bias("b", 4 * d)
        if self.dim_input:
            self.input_weight = self.weight("W", self.dim_input, 4 * d)
            self.input_gain = self.gain("gamma1", 4 * d)
        self.state_gain = self.gain("gamma2", 4 * d)

    def map_input(self, x: Node) -> tuple[Node, ...]:
        return (normed(product(self.dropped_input(x), self.input_weight), self.input_gain),)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        s, cell = state
        (mapped,) = inputs or (s.graph.zeros((1, 4 * self.dim_state)),)
        recurrent = normed(dot(self.dropped_state(s), self.recurrent.on(s.graph)), self.state_gain)
        biases = self.biases.on(s.graph)
        cell = lstm_ops_c(cell, mapped, recurrent, biases, mask)
        return lstm_ops_o(cell, mapped, recurrent, biases), cell


class MLSTM(LSTM):
    """An ``LSTM`` in which ``m = (x Wm + bwm) * (s Um + bm)`` takes the place of the output ``s``.

    Parameters: those of ``LSTM`` and of ``Multiplier``. Source: Krause et al. 2016; Marian's ``mlstm``.
    """

    transition = False

    def make_parameters(self) -> None:
        super().make_parameters()
        self.multiplier = Multiplier(self)

    def map_input(self, x: Node) -> tuple[Node, ...]:
        return *super().map_input(x), self.multiplier.map_input(x)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        *mapped, factor = inputs
        s, cell = state
        return super().apply_state(tuple(mapped), (self.multiplier(factor, s), cell), mask)
