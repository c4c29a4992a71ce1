"""Base of recurrent cells: inputs are projected for all steps at once, then steps run one by one."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from mgraph import ArgumentError, GraphError, Node, ShapeError, concatenate, dropout, inits, layer_norm
from mgraph.files.intgemm import is_quantized
from mgraph.inits import Initializer
from mgraph.operators import signature_of, takes
from mgraph.tape import Graph

from ..dense import LAYER_NORM_EPS
from ..dropping import FeatureMask, probability
from ..layer import Layer, Parameter, size

State = tuple[Node, ...]


class Cell(Layer):
    """Base of recurrent cells. Source: Marian, ``rnn/cells.h``.

    dim_input: features of all inputs; 0 for a transition cell, which has no input.
    dim_state: features of each node of the state.
    layer_normalization: whether to normalize products, Marian's ``layer-normalization``.
    dropout: probability of dropping features, one mask for all steps and sentences of a batch
        (``dropout-rnn``).
    final: whether this cell follows an attention; see the cell's formula.
    in_encoder: whether it reads a source; only ``GRUNematus`` uses it.

    ``ShapeError`` for sizes that are not ints of at least 1, or at least 0 for ``dim_input``;
    ``ArgumentError`` unless ``0 <= dropout < 1``; ``GraphError`` for a transition cell of a class that needs
    an input.
    """

    states: ClassVar[int] = 1
    """Number of nodes of a state."""
    transition: ClassVar[bool] = True
    """Whether this class supports cells without input."""

    def __init__(
        self,
        prefix: str,
        dim_input: int,
        dim_state: int,
        *,
        layer_normalization: bool = False,
        dropout: float = 0.0,
        final: bool = False,
        in_encoder: bool = False,
    ) -> None:
        dim_input = size(f"dim_input of cell {prefix!r}", dim_input, 0)
        dim_state = size(f"dim_state of cell {prefix!r}", dim_state)
        dropout = probability(f"dropout of cell {prefix!r}", dropout)
        if not (dim_input or self.transition):
            raise GraphError(
                f"cell {prefix!r}: {type(self).__name__} needs an input and cannot be a transition cell"
                " (enc-cell-depth, dec-cell-base-depth, dec-cell-high-depth)"
            )
        self.prefix, self.dim_input, self.dim_state = prefix, dim_input, dim_state
        self.layer_normalization, self.final, self.in_encoder = layer_normalization, final, in_encoder
        self.input_mask, self.state_mask = FeatureMask(dropout, dim_input), FeatureMask(dropout, dim_state)
        self.make_parameters()

    @abstractmethod
    def make_parameters(self) -> None:
        """Declare the cell's parameters; called once."""

    @abstractmethod
    def map_input(self, x: Node) -> tuple[Node, ...]:
        """Project the input ``x (..., dim_input)`` for all steps; the results keep its leading axes."""

    @abstractmethod
    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        """The next state, from one step of ``apply_input`` (``()`` for a cell without input).

        ``mask (batch, 1)`` is 0 for finished sentences. Further nodes of the state pass through unchanged.
        """

    def apply_input(self, *inputs: Node) -> tuple[Node, ...]:
        """Project the inputs ``(..., features)`` for all steps at once.

        Several inputs are concatenated. ``GraphError`` if the cell has no input or none is given,
        ``ShapeError`` unless they have ``dim_input`` features together.
        """
        if not self.dim_input:
            raise GraphError(f"cell {self.prefix!r} has no input: it was made with dim_input=0")
        if not inputs:
            raise GraphError(f"cell {self.prefix!r} has an input of {self.dim_input} features, got none")
        x = concatenate(inputs, -1)
        if x.shape[-1] != self.dim_input:
            raise ShapeError(
                f"cell {self.prefix!r}: expected an input of {self.dim_input} features, got {x.shape}"
            )
        mapped = self.map_input(x)
        if not isinstance(mapped, tuple):
            raise self._no_tuple("map_input", "nodes", mapped)
        return mapped

    def next_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        """``apply_state``; ``ArgumentError`` if a user-defined cell takes other arguments, or does not return
        a tuple of as many nodes as ``state`` has."""
        try:
            following = self.apply_state(inputs, state, mask)
        except TypeError:
            if takes(self.apply_state, 3):
                raise
            given = signature_of("apply_state", type(self).apply_state)
            raise ArgumentError(
                f"cell {self.prefix!r}: expected {type(self).__name__}.apply_state(self, inputs, state, "
                f"mask=None), got {given}"
            ) from None
        if not isinstance(following, tuple) or len(following) != len(state):
            raise self._no_tuple("apply_state", f"{len(state)} nodes, the next state", following)
        return following

    def _no_tuple(self, method: str, expected: str, got: object) -> ArgumentError:
        name = f"{type(self).__name__}.{method}"
        return ArgumentError(f"cell {self.prefix!r}: {name} must return a tuple of {expected}, got {got!r}")

    def start(self, graph: Graph, batch: int) -> State:
        """The initial state, all zeros."""
        return (graph.zeros((batch, self.dim_state)),) * self.states

    def draw_masks(self, graph: Graph) -> None:
        """Draw the dropout masks, which all steps of a recording share."""
        if self.dim_input:
            self.input_mask.on(graph)
        self.state_mask.on(graph)

    def weight(self, name: str, rows: int, columns: int, init: Initializer | None = None) -> Parameter:
        """The parameter ``{prefix}_{name}``; an input's matrix, ``W`` or ``W`` and a letter, may be int8."""
        contracted = 0 if is_quantized(f"_{name}") else None
        return self.param(f"{self.prefix}_{name}", rows, columns, init, contracted=contracted)

    def bias(self, name: str, columns: int) -> Parameter:
        """A row initialized to zeros."""
        return self.weight(name, 1, columns, inits.zeros())

    def gain(self, name: str, columns: int) -> Parameter | None:
        """A gain of layer normalization, or ``None`` without it."""
        return self.weight(name, 1, columns, inits.ones()) if self.layer_normalization else None

    def dropped_input(self, x: Node) -> Node:
        """``x`` with the cell's dropout mask applied to the input's features."""
        return dropout(x, self.input_mask.on(x.graph))

    def dropped_state(self, s: Node) -> Node:
        """``s`` with the cell's dropout mask applied to the state's features."""
        return dropout(s, self.state_mask.on(s.graph))


def normed(x: Node, gain: Parameter | None, bias: Parameter | None = None) -> Node:
    """``gain * (x - mean) / sqrt(var + 1e-9) + bias`` over the last axis, or ``x`` without a gain."""
    if gain is None:
        return x
    shift = None if bias is None else bias.on(x.graph)
    return layer_norm(x, gain.on(x.graph), shift, LAYER_NORM_EPS)


def kept(mask: Node | None, new: Node, old: Node) -> Node:
    """``new`` where the mask is 1, ``old`` where it is 0."""
    return new if mask is None else mask * new + (1 - mask) * old


def erased(mask: Node | None, new: Node) -> Node:
    """``new`` where the mask is 1, 0 where it is 0."""
    return new if mask is None else mask * new
