"""Recurrent cells: what happens in one step of an RNN.

A cell splits its work as Marian's do: ``apply_input`` maps the inputs of all steps in one product, and
``apply_state`` does one step. A state is a tuple of nodes ``(batch, dim_state)``, the first of which is
the cell's output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from mgraph import ExpressionGraph, GraphError, Node, concatenate, dot, dropout, gru_ops, inits, layer_norm

from .choices import choose
from .dense import LAYER_NORM_EPS
from .dropping import shared_mask

State = tuple[Node, ...]


class Cell(ABC):
    """Base of recurrent cells. Source: Marian, ``rnn/cells.h``.

    dim_input: features of the input; 0 for a cell without input (a transition cell).
    dim_state: features of each node of the state.
    layer_normalization: whether the products are normalised, Marian's ``layer-normalization``.
    dropout: probability of dropping features, one mask for all steps and sentences of a batch
        (``dropout-rnn``).
    final: whether this cell comes after an attention; see the cell's formula.
    """

    states: ClassVar[int] = 1
    """Number of nodes of a state."""

    def __init__(
        self,
        graph: ExpressionGraph,
        prefix: str,
        dim_input: int,
        dim_state: int,
        *,
        layer_normalization: bool = False,
        dropout: float = 0.0,
        final: bool = False,
    ) -> None:
        self.graph, self.prefix, self.dim_input, self.dim_state = graph, prefix, dim_input, dim_state
        self.layer_normalization, self.final = layer_normalization, final
        self.input_mask = shared_mask(graph, dropout, (1, dim_input)) if dim_input else None
        self.state_mask = shared_mask(graph, dropout, (1, dim_state))
        self.make_parameters()

    @abstractmethod
    def make_parameters(self) -> None:
        """Ask the graph for the cell's parameters; called once."""

    @abstractmethod
    def apply_input(self, x: Node) -> tuple[Node, ...]:
        """What steps need of the input ``x (..., dim_input)``, for all steps at once."""

    @abstractmethod
    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        """The next state, from one step of ``apply_input`` (``()`` for a cell without input).

        ``mask (batch, 1)`` is 0 for sentences that have ended.
        """

    def start(self, batch: int) -> State:
        """The state of zeros."""
        return (self.graph.zeros((batch, self.dim_state)),) * self.states


class GRU(Cell):
    """The gated recurrent unit.

    With ``x`` the input and ``s`` the state, ``r, z = sigmoid(x W + s U + b)``,
    ``h = tanh(x Wx + r * (s Ux) + bx)``, or ``h = tanh(x Wx + r * (s Ux + bx))`` in a ``final`` cell;
    the next state is ``(1 - z) * h + z * s``, or ``s`` where the mask is 0.

    Parameters: ``{prefix}_W (dim_input, 2 dim_state)``, ``_Wx (dim_input, dim_state)`` if there is an
    input; ``_U (dim_state, 2 dim_state)``, ``_Ux (dim_state, dim_state)``, ``_b (1, 2 dim_state)``,
    ``_bx (1, dim_state)``; with layer normalization ``_gamma1`` for ``x [W Wx]`` and ``_gamma2`` for
    ``s [U Ux]``, ``(1, 3 dim_state)`` each, eps 1e-9. Source: Cho et al. 2014; Marian's ``gru``.
    """

    def make_parameters(self) -> None:
        d = self.dim_state
        self.weight = self._matrix("W", self.dim_input) if self.dim_input else None
        self.recurrent = self._matrix("U", d)
        bias = self.graph.param(f"{self.prefix}_b", (1, 2 * d), inits.zeros())
        candidate_bias = self.graph.param(f"{self.prefix}_bx", (1, d), inits.zeros())
        self.bias = concatenate([bias, candidate_bias], -1)
        normed = self.layer_normalization
        self.input_gain = self._gain("gamma1") if normed and self.dim_input else None
        self.state_gain = self._gain("gamma2") if normed else None

    def apply_input(self, x: Node) -> tuple[Node, ...]:
        if self.weight is None:
            raise GraphError(f"cell {self.prefix!r} has no input: it was made with dim_input=0")
        return (self._normed(dot(dropout(x, self.input_mask), self.weight), self.input_gain),)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        (s,) = state
        recurrent = self._normed(dot(dropout(s, self.state_mask), self.recurrent), self.state_gain)
        (mapped,) = inputs or (self.graph.zeros((1, 3 * self.dim_state)),)
        return (gru_ops(s, mapped, recurrent, self.bias, mask, final=self.final),)

    def _matrix(self, letter: str, rows: int) -> Node:
        """Gates and candidate side by side: ``(rows, 3 dim_state)``."""
        gates = self.graph.param(f"{self.prefix}_{letter}", (rows, 2 * self.dim_state))
        candidate = self.graph.param(f"{self.prefix}_{letter}x", (rows, self.dim_state))
        return concatenate([gates, candidate], -1)

    def _gain(self, name: str) -> Node:
        return self.graph.param(f"{self.prefix}_{name}", (1, 3 * self.dim_state), inits.ones())

    @staticmethod
    def _normed(x: Node, gain: Node | None) -> Node:
        return x if gain is None else layer_norm(x, gain, eps=LAYER_NORM_EPS)


CELLS: dict[str, type[Cell]] = {"gru": GRU}
"""Cells by the value of Marian's options ``enc-cell`` and ``dec-cell``."""

MARIAN_CELLS = ("gru", "gru-nematus", "lstm", "mlstm", "mgru", "tanh", "relu", "sru", "ssru")


def find_cell(name: str, option: str = "dec-cell") -> type[Cell]:
    """The class of a cell; ``UnsupportedOptionError`` that names ``option`` for what there is not."""
    return choose(option, name, CELLS, MARIAN_CELLS)


class CellInput(Protocol):
    """What a cell of a stack gets as input beside the state, such as an attention."""

    @property
    def dim_output(self) -> int:
        """Features of the input."""
        ...

    def apply(self, state: State) -> Node:
        """The input ``(batch, dim_output)`` for a state."""
        ...


class StackedCell:
    """Cells that one step goes through one after another, with inputs computed in between.

    ``first`` gets the input of the stack. Of the other ``parts``, a ``CellInput`` reads the state so far,
    and what it gives is the input of the next cell, several side by side; other cells have none. The
    conditional GRU of Sennrich et al. 2017 is ``StackedCell(gru1, [attention, gru2])``.
    Source: Marian's ``rnn::StackedCell``.
    """

    def __init__(self, first: Cell, parts: Sequence[Cell | CellInput] = ()) -> None:
        self.first, self.parts = first, tuple(parts)

    def apply_input(self, x: Node) -> tuple[Node, ...]:
        """What steps need of the input ``x (..., dim_input)``, for all steps at once."""
        return self.first.apply_input(x)

    def step(
        self, inputs: tuple[Node, ...], state: State, mask: Node | None = None
    ) -> tuple[State, tuple[Node, ...]]:
        """One step: the next state, and what each ``CellInput`` has given."""
        state = self.first.apply_state(inputs, state, mask)
        given: list[Node] = []
        waiting: list[Node] = []
        for part in self.parts:
            if isinstance(part, Cell):
                mapped = part.apply_input(concatenate(waiting, -1)) if waiting else ()
                state = part.apply_state(mapped, state, mask)
                waiting = []
            else:
                waiting.append(part.apply(state))
                given.append(waiting[-1])
        return state, tuple(given)

    def start(self, batch: int) -> State:
        """The state of zeros."""
        return self.first.start(batch)
