"""Recurrent cells without gates (Elman 1990)."""

from __future__ import annotations

from abc import abstractmethod

from mgraph import Node, Slice, dot, inits, layer_norm, relu, slice, tanh

from ..dense import LAYER_NORM_EPS
from ..layer import Parameter
from ..products import product
from .base import Cell, State, erased, normed


class ElmanCell(Cell):
    """``act(x W + s U + b)``, with ``x`` the input and ``s`` the state; 0 where the mask is 0."""

    def make_parameters(self) -> None:
        d = self.dim_state
        self.recurrent = self.make_recurrent()
        self.biases = self.bias("b", d)
        if self.dim_input:
            self.input_weight = self.weight("W", self.dim_input, d)
            self.input_gain = self.gain("gamma1", d)
        self.state_gain = self.gain("gamma2", d)

    @abstractmethod
    def make_recurrent(self) -> Parameter:
        """Declare the parameter ``U``."""

    def normed(self, x: Node, gain: Parameter | None) -> Node:
        """``x`` normalized with ``gain``, or ``x`` without one."""
        return normed(x, gain)

    @abstractmethod
    def activation(self, *terms: Node) -> Node:
        """``act`` of the sum of the terms."""

    def map_input(self, x: Node) -> tuple[Node, ...]:
        return (self.normed(product(self.dropped_input(x), self.input_weight), self.input_gain),)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        s, *rest = state
        recurrent = self.normed(dot(self.dropped_state(s), self.recurrent.on(s.graph)), self.state_gain)
        return erased(mask, self.activation(*inputs, recurrent, self.biases.on(s.graph))), *rest


class Tanh(ElmanCell):
    """``tanh(x W + s U + b)``, with ``x`` the input and ``s`` the state; 0 where the mask is 0.

    Parameters: ``{prefix}_W (dim_input, dim_state)`` if there is an input, ``_U (dim_state, dim_state)``,
    ``_b (1, dim_state)``; with layer normalization ``_gamma1`` for ``x W`` and ``_gamma2`` for ``s U``, eps
    1e-9. These are ``(1, 3 dim_state)`` as in Marian; the last two thirds do nothing. There is no ``final``
    variant. Source: Elman 1990; Marian's ``tanh``.
    """

    def make_recurrent(self) -> Parameter:
        return self.weight("U", self.dim_state, self.dim_state)

    def gain(self, name: str, columns: int) -> Parameter | None:
        return super().gain(name, 3 * columns)

    def normed(self, x: Node, gain: Parameter | None) -> Node:
        if gain is None:
            return x
        return layer_norm(x, slice(gain.on(x.graph), -1, Slice(0, self.dim_state)), eps=LAYER_NORM_EPS)

    def activation(self, *terms: Node) -> Node:
        return tanh(*terms)


class ReLU(ElmanCell):
    """``relu(x W + s U + b)``, with ``x`` the input and ``s`` the state; 0 where the mask is 0.

    Parameters: those of ``Tanh``, but gains are ``(1, dim_state)`` and ``U`` is initialized to the identity.
    Source: Le et al. 2015; Marian's ``relu``.
    """

    def make_recurrent(self) -> Parameter:
        return self.weight("U", self.dim_state, self.dim_state, inits.eye())

    def activation(self, *terms: Node) -> Node:
        return relu(terms)
