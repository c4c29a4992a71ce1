"""Recurrent networks over whole sequences, as one loop per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgraph import ExpressionGraph, Node, scan

from .cells import Cell, StackedCell, State
from .choices import choose

DIRECTIONS = {
    "forward": (False, False),
    "backward": (True, True),
    "alternating-forward": (False, True),
    "alternating-backward": (True, False),
}
"""Whether the odd and the even layers, counted from 1, run from the last step to the first."""


@dataclass(frozen=True)
class Transduced:
    """What an RNN makes of a sequence, or of one step of it.

    output: the top layer's, ``(time, batch, dim_state)``, or ``(batch, dim_state)`` for a step.
    states: of each layer, after the last step that it ran.
    given: what the cell inputs of all layers gave (attended contexts), shaped like ``output``.
    """

    output: Node
    states: tuple[State, ...]
    given: tuple[Node, ...]


class RNN:
    """Layers of recurrent cells, each running over the output of the one below.

    Sequences are time-major: ``(time, batch, features)``, masks ``(time, batch, 1)``. ``direction`` is
    ``forward``, ``backward``, or alternates from layer to layer beginning as ``alternating-forward`` or
    ``alternating-backward``. With ``skip`` the input of each layer but the first is added to its output,
    with ``skip_first`` that of the first too. No parameters of its own. Source: Marian, ``rnn/rnn.h``.
    """

    def __init__(
        self,
        graph: ExpressionGraph,
        layers: Sequence[Cell | StackedCell],
        *,
        direction: str = "forward",
        skip: bool = False,
        skip_first: bool = False,
    ) -> None:
        self.graph, self.skip, self.skip_first = graph, skip, skip_first
        self.layers = [StackedCell(cell) if isinstance(cell, Cell) else cell for cell in layers]
        self.reverse = choose("direction", direction, DIRECTIONS)

    def __call__(
        self, x: Node, mask: Node | None = None, states: Sequence[State] | None = None
    ) -> Transduced:
        """The network over ``x (time, batch, features)``; a state is kept where the mask is 0.

        ``states`` are the first states of the layers, zeros without them.
        """
        firsts = states if states is not None else [cell.start(x.shape[1]) for cell in self.layers]
        lasts: list[State] = []
        given: list[Node] = []
        for number, (cell, first) in enumerate(zip(self.layers, firsts, strict=True)):
            inputs = cell.apply_input(x)

            def body(
                state: State, slices: tuple[Node, ...], cell: StackedCell = cell
            ) -> tuple[State, tuple[Node, ...]]:
                mapped, now = (slices, None) if mask is None else (slices[:-1], slices[-1])
                state, contexts = cell.step(mapped, state, now)
                return state, (state[0], *contexts)

            sequences = inputs if mask is None else (*inputs, mask)
            last, (output, *contexts) = scan(body, first, sequences, reverse=self.reverse[number % 2])
            x = self._joined(number, output, x)
            lasts.append(last)
            given.extend(contexts)
        return Transduced(x, tuple(lasts), tuple(given))

    def step(self, x: Node, states: Sequence[State]) -> Transduced:
        """One step for ``x (batch, features)`` from the states of the layers."""
        nexts: list[State] = []
        given: list[Node] = []
        for number, (cell, state) in enumerate(zip(self.layers, states, strict=True)):
            state, contexts = cell.step(cell.apply_input(x), state)
            x = self._joined(number, state[0], x)
            nexts.append(state)
            given.extend(contexts)
        return Transduced(x, tuple(nexts), tuple(given))

    def _joined(self, number: int, output: Node, x: Node) -> Node:
        return output + x if self.skip and (self.skip_first or number > 0) else output
