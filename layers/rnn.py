"""Recurrent networks over whole sequences, as one loop per layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, overload

from mgraph import ArgumentError, Node, ShapeError, checkpoint, scan
from mgraph.names import meant
from mgraph.ops.operands import node

from .cells import Cell, StackedCell, State
from .choices import choose
from .layer import Layer, graph_of, size

DIRECTIONS = {
    "forward": (False, False),
    "backward": (True, True),
    "alternating-forward": (False, True),
    "alternating-backward": (True, False),
}
"""Whether the odd layers run backwards, and whether the even layers do, counted from 1."""


@dataclass(frozen=True)
class Transduced:
    """The result of an RNN over a sequence, or for one step.

    output: of the top layer, ``(time, batch, dim_state)``, or ``(batch, dim_state)`` for a step.
    states: of each layer, after its last step.
    given: the outputs of the cell inputs of all layers, in order (attended contexts, each followed by the
        attention's weights if requested), with the leading axes of ``output``.
    """

    output: Node
    states: tuple[State, ...]
    given: tuple[Node, ...]


class RNN(Layer):
    """Layers of recurrent cells, each running over the output of the one below.

    Made from a class of cells, ``RNN(GRU, prefix, dim_input, dim_state)``, or from existing cells,
    ``RNN([cell1, cell2])``. Sequences are time-major: ``(time, batch, features)``, masks
    ``(time, batch, 1)``. The parameters are those of the cells; made from a class, the first layer's are
    under ``{prefix}``, the others' under ``{prefix}_l2_cell1``, ``{prefix}_l3_cell1``, ... as in Marian's
    encoders.

    depth: number of layers. layer_normalization, dropout: for each cell, see ``Cell``.
    direction: ``forward``, ``backward``, or alternating from layer to layer, starting as
        ``alternating-forward`` or ``alternating-backward``.
    skip: whether to add a layer's input to its output, except in the first layer; skip_first: in the first,
        too.
    The output of each layer over a sequence is a checkpoint.

    ``ArgumentError`` for no layers, for invalid layers, and for unknown arguments; ``UnsupportedOptionError``
    for an unknown direction; ``ShapeError`` if an input that ``skip`` adds to a layer's output has another
    size; and the errors of the cells.
    Source: Marian, ``rnn/rnn.h``, and ``RNN<GRU>`` of its first versions.
    """

    @overload
    def __init__(
        self,
        layers: Sequence[Cell | StackedCell],
        /,
        *,
        direction: str = "forward",
        skip: bool = False,
        skip_first: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        cell: type[Cell],
        /,
        prefix: str,
        dim_input: int,
        dim_state: int,
        *,
        depth: int = 1,
        layer_normalization: bool = False,
        dropout: float = 0.0,
        direction: str = "forward",
        skip: bool = False,
        skip_first: bool = False,
    ) -> None: ...
    def __init__(
        self,
        *made_of: Any,
        direction: str = "forward",
        skip: bool = False,
        skip_first: bool = False,
        **sizes: Any,
    ) -> None:
        kind = made_of[0] if made_of else None
        if isinstance(kind, type) and issubclass(kind, Cell) and _fit(*made_of, **sizes):
            layers: Any = _layers(*made_of, **sizes)
        elif len(made_of) == 1 and not sizes:
            layers = kind
        else:
            known = (*signature(_layers).parameters, "direction", "skip", "skip_first")
            kinds = [f"class {a.__name__}" if isinstance(a, type) else type(a).__name__ for a in made_of]
            raise ArgumentError(
                "expected RNN(cell, prefix, dim_input, dim_state, ...) or RNN(layers, ...), got"
                f" {', '.join([*kinds, *sizes])}"
                + "".join(meant(name, known) for name in sizes if name not in known)
            )
        if not isinstance(layers, Sequence) or not all(isinstance(c, Cell | StackedCell) for c in layers):
            raise ArgumentError(
                f"the layers of an RNN are a list of cells and stacks of cells, got {layers!r}"
            )
        if not layers:
            raise ArgumentError("an RNN needs at least one layer")
        self.skip, self.skip_first = skip, skip_first
        self.layers = [StackedCell(cell) if isinstance(cell, Cell) else cell for cell in layers]
        self.reverse = choose("direction", direction, DIRECTIONS)
        for number, layer in enumerate(self.layers):
            cell = layer.first
            if self._skips(number) and cell.dim_input != cell.dim_state:
                raise ShapeError(
                    f"skip: layer {number + 1} of the RNN adds its input to its output, but its cell"
                    f" {cell.prefix!r} has an input of {cell.dim_input} features, and a state of"
                    f" {cell.dim_state}"
                )

    def __call__(
        self,
        x: Node,
        mask: Node | None = None,
        states: Sequence[State] | None = None,
        *,
        carried: tuple[Node, Node] | None = None,
    ) -> Transduced:
        """The network over ``x (time, batch, features)``.

        ``mask`` is 1 at words and 0 at padding; a cell's formula defines its state where the mask is 0.
        ``states`` are the initial states of the layers, by default zeros. ``carried`` multiplies states
        before each step, by its first node in layers that run forwards and by its second in the others, so
        that every sentence of a packed row starts from zeros (``carried_states``). ``ArgumentError`` for a
        state that is no tuple or has a wrong number of nodes, and for a mask with ``carried``; ``ShapeError``
        unless ``x`` has three axes, the mask is ``(time, batch, 1)`` and each state ``(batch, dim_state)``;
        ``ElementTypeError`` if one of them is no node.
        """
        graph = graph_of("RNN", x)
        if len(x.shape) != 3:
            raise ShapeError(f"an RNN runs over (time, batch, features), got {x.shape}")
        if mask is not None and carried is not None:
            raise ArgumentError("an RNN over packed sentences takes no mask")
        if mask is not None and node("mask of an RNN", mask).shape != (*x.shape[:2], 1):
            raise ShapeError(
                f"mask of an RNN: expected (time, batch, 1), {(*x.shape[:2], 1)} for an input {x.shape}, got"
                f" {mask.shape}"
            )
        for cell in self.layers:
            cell.draw_masks(graph)
        if states is None:
            states = [cell.start(graph, x.shape[1]) for cell in self.layers]
        firsts = self._checked(states, x.shape[1])
        has_more = mask is not None or carried is not None
        lasts: list[State] = []
        given: list[Node] = []
        for number, (cell, first) in enumerate(zip(self.layers, firsts, strict=True)):
            inputs, reverse = cell.apply_input(x), self.reverse[number % 2]

            def body(
                state: State, slices: tuple[Node, ...], cell: StackedCell = cell
            ) -> tuple[State, tuple[Node, ...]]:
                mapped, now = (slices[:-1], slices[-1]) if has_more else (slices, None)
                if carried is not None and now is not None:
                    state, now = tuple(part * now for part in state), None
                state, contexts = cell.step(mapped, state, now)
                return state, (state[0], *contexts)

            more = mask if carried is None else carried[reverse]
            sequences = inputs if more is None else (*inputs, more)
            last, (output, *contexts) = scan(body, first, sequences, reverse=reverse)
            x = checkpoint(self._joined(number, output, x))
            lasts.append(last)
            given.extend(contexts)
        return Transduced(x, tuple(lasts), tuple(given))

    def step(self, x: Node, states: Sequence[State]) -> Transduced:
        """One step for ``x (batch, features)`` from the states of the layers.

        ``ShapeError`` if ``x`` does not have two axes; other errors as above.
        """
        graph_of("RNN", x)
        if len(x.shape) != 2:
            raise ShapeError(f"a step of an RNN is over (batch, features), got {x.shape}")
        nexts: list[State] = []
        given: list[Node] = []
        firsts = self._checked(states, x.shape[0])
        for number, (cell, state) in enumerate(zip(self.layers, firsts, strict=True)):
            state, contexts = cell.step(cell.apply_input(x), state)
            x = self._joined(number, state[0], x)
            nexts.append(state)
            given.extend(contexts)
        return Transduced(x, tuple(nexts), tuple(given))

    def _checked(self, states: Sequence[State], batch: int) -> Sequence[State]:
        parts = [states, *states] if isinstance(states, Sequence) else [states]
        for part in parts:
            if not isinstance(part, Sequence):
                raise ArgumentError(f"the states of an RNN are a tuple of nodes for each layer, got {part!r}")
        expected, found = [cell.states for cell in self.layers], [len(state) for state in states]
        if found != expected:
            raise ArgumentError(
                f"an RNN whose layers have states of {expected} nodes got states of {found} nodes"
            )
        for number, (cell, state) in enumerate(zip(self.layers, states, strict=True), 1):
            shape = batch, cell.first.dim_state
            for given in state:
                if node("state of an RNN", given).shape != shape:
                    raise ShapeError(
                        f"state of layer {number} of an RNN: expected (batch, dim_state), {shape}, got"
                        f" {given.shape}"
                    )
        return states

    def _joined(self, number: int, output: Node, x: Node) -> Node:
        return output + x if self._skips(number) else output

    def _skips(self, number: int) -> bool:
        """Whether the layer's input is added to its output."""
        return self.skip and (self.skip_first or number > 0)


def _fit(*made_of: Any, **sizes: Any) -> bool:
    """Whether ``_layers`` takes these arguments."""
    try:
        signature(_layers).bind(*made_of, **sizes)
    except TypeError:
        return False
    return True


def _layers(
    cell: type[Cell],
    prefix: str,
    dim_input: int,
    dim_state: int,
    *,
    depth: int = 1,
    layer_normalization: bool = False,
    dropout: float = 0.0,
) -> list[Cell]:
    """Cells of one class for ``depth`` layers."""
    depth = size(f"depth of RNN {prefix!r}", depth, error=ArgumentError)
    prefixes = [prefix, *(f"{prefix}_l{i}_cell1" for i in range(2, depth + 1))]
    inputs = [dim_input, *(dim_state for _ in prefixes[1:])]
    return [
        cell(name, features, dim_state, layer_normalization=layer_normalization, dropout=dropout)
        for name, features in zip(prefixes, inputs, strict=True)
    ]
