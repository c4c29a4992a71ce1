"""Stacked recurrent cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mgraph import ArgumentError, Node, ShapeError
from mgraph.tape import Graph

from ..layer import Layer, of_class
from .base import Cell, State


class CellInput(Protocol):
    """The input of a cell within a stack, such as an attention."""

    @property
    def dim_output(self) -> int:
        """Features of the input."""
        ...

    def apply(self, state: State) -> Node | tuple[Node, ...]:
        """The input ``(batch, dim_output)`` for a state, or a tuple that starts with it."""
        ...


class StackedCell(Layer):
    """Cells that run one after another in each step, with inputs computed in between.

    ``first`` gets the input of the stack. Of the other ``parts``, a ``CellInput`` reads the current state and
    produces the input of the next cell (several are concatenated); other cells have no input. The conditional
    GRU of Sennrich et al. 2017 is ``StackedCell(gru1, [attention, gru2])``. ``ShapeError`` if a cell's input
    has the wrong size, ``ArgumentError`` for other parts.
    Source: Marian's ``rnn::StackedCell``.
    """

    def __init__(self, first: Cell, parts: Sequence[Cell | CellInput] = ()) -> None:
        self.first: Cell = of_class("first cell of a StackedCell", first, Cell)
        self.parts = self._checked(parts)
        self._check_inputs()
        self.states = max([first.states, *(part.states for part in self.parts if isinstance(part, Cell))])
        """Number of nodes of a state: the most that any of the cells has."""

    @staticmethod
    def _checked(parts: Any) -> tuple[Cell | CellInput, ...]:
        found = tuple(parts) if isinstance(parts, Sequence) else (None,)
        if not all(isinstance(part, Cell) or hasattr(part, "dim_output") for part in found):
            raise ArgumentError(
                f"parts of a StackedCell: expected a list of cells and of inputs of cells, got {parts!r}"
            )
        return found

    def _check_inputs(self) -> None:
        given = 0
        for part in self.parts:
            if not isinstance(part, Cell):
                given += part.dim_output
                continue
            if part.dim_input != given:
                raise ShapeError(
                    f"cell {part.prefix!r} has an input of {part.dim_input} features, and gets {given} from"
                    " what is before it in the stack"
                )
            given = 0

    def apply_input(self, *inputs: Node) -> tuple[Node, ...]:
        """Project the inputs ``(..., features)`` for all steps at once."""
        return self.first.apply_input(*inputs)

    def step(
        self, inputs: tuple[Node, ...], state: State, mask: Node | None = None
    ) -> tuple[State, tuple[Node, ...]]:
        """One step: the next state, and the outputs of each ``CellInput``."""
        state = self.first.next_state(inputs, state, mask)
        given: list[Node] = []
        waiting: list[Node] = []
        for part in self.parts:
            if isinstance(part, Cell):
                mapped = part.apply_input(*waiting) if waiting else ()
                state = part.next_state(mapped, state, mask)
                waiting = []
            else:
                found = part.apply(state)
                nodes = found if isinstance(found, tuple) else (found,)
                waiting.append(nodes[0])
                given.extend(nodes)
        return state, tuple(given)

    def start(self, graph: Graph, batch: int) -> State:
        """The initial state, all zeros."""
        return (graph.zeros((batch, self.first.dim_state)),) * self.states

    def draw_masks(self, graph: Graph) -> None:
        """Draw the dropout masks of all cells."""
        for part in (self.first, *self.parts):
            if isinstance(part, Cell):
                part.draw_masks(graph)
