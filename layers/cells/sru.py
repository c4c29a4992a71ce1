"""Simple recurrent units: gates depend on the input only, so a step has no matrix product."""

from __future__ import annotations

from mgraph import Node, ShapeError, highway, relu, tanh

from ..layer import Parameter
from ..products import product
from .base import Cell, State, erased, normed


class SSRU(Cell):
    """The simpler simple recurrent unit.

    With ``x`` the input and ``c`` the cell of the state, ``f = sigmoid(x Wf + bf)`` and
    ``c' = f * c + (1 - f) * (x W)``; the output is ``relu(c')``. Output and cell are 0 where the mask is 0.
    The input has as many features as the state.

    Parameters: ``{prefix}_W``, ``_Wf``, both ``(dim_state, dim_state)``, ``_bf (1, dim_state)``; with layer
    normalization the gains ``_gamma`` for ``x W`` and ``_gammaf`` for ``x Wf`` with ``bf`` as bias,
    ``(1, dim_state)`` each, eps 1e-9. A state is output and cell. Source: Kim et al. 2019; Marian's ``ssru``.
    """

    states = 2
    transition = False

    def make_parameters(self) -> None:
        d = self.dim_state
        if self.dim_input != d:
            raise ShapeError(
                f"cell {self.prefix!r}: {type(self).__name__} needs an input with as many features as its"
                f" state, got {self.dim_input} and {d}"
            )
        self.candidate, self.candidate_gain = self.weight("W", d, d), self.gain("gamma", d)
        self.forget = self.weight("Wf", d, d), self.bias("bf", d), self.gain("gammaf", d)

    def map_input(self, x: Node) -> tuple[Node, ...]:
        dropped = self.dropped_input(x)
        candidate = normed(product(dropped, self.candidate), self.candidate_gain)
        return candidate, _gate(dropped, *self.forget)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        cell = highway(state[1], *inputs)
        return erased(mask, relu(cell)), erased(mask, cell)


class SRU(SSRU):
    """The simple recurrent unit.

    With ``c'`` as in ``SSRU`` and ``r = sigmoid(x Wr + br)`` the output is ``r * tanh(c') + (1 - r) * x``,
    where the last ``x`` is never dropped.

    Parameters: those of ``SSRU``, ``{prefix}_Wr (dim_state, dim_state)``, ``_br (1, dim_state)``; with layer
    normalization the gain ``_gammar (1, dim_state)`` for ``x Wr`` with ``br`` as bias.
    Source: Lei et al. 2018; Marian's ``sru``.
    """

    def make_parameters(self) -> None:
        super().make_parameters()
        d = self.dim_state
        self.reset = self.weight("Wr", d, d), self.bias("br", d), self.gain("gammar", d)

    def map_input(self, x: Node) -> tuple[Node, ...]:
        return *super().map_input(x), _gate(self.dropped_input(x), *self.reset), x

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        candidate, forget, reset, x = inputs
        cell = highway(state[1], candidate, forget)
        return erased(mask, highway(tanh(cell), x, reset)), erased(mask, cell)


def _gate(x: Node, weight: Parameter, bias: Parameter, gain: Parameter | None) -> Node:
    """The argument of a gate's sigmoid."""
    if gain is None:
        return product(x, weight, bias)
    return normed(product(x, weight), gain, bias)
