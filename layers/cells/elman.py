"""Recurrent cells without gates (Elman 1990)."""

from __future__ import annotations

from abc import abstractmethod

from mgraph import Node, Slice, dot, inits, relu, slice, tanh

from .base import Cell, State, erased, normed


class ElmanCell(Cell):
    """``act(x W + s U + b)``, with ``x`` the input and ``s`` the state; 0 where the mask is 0."""

    def make_parameters(self) -> None:
        d = self.dim_state
        self.recurrent = self.make_recurrent()
        self.biases = self.bias("b", d)
        if self.dim_input:
            self.weight = self.param("W", self.dim_input, d)
            self.input_gain = self.gain("gamma1", d)
        self.state_gain = self.gain("gamma2", d)

    @abstractmethod
    def make_recurrent(self) -> Node:
        """Ask for the parameter ``U``."""

    @abstractmethod
    def activation(self, *terms: Node) -> Node:
        """``act`` of the sum of the terms."""

    def map_input(self, x: Node) -> tuple[Node, ...]:
        return (normed(dot(self.dropped_input(x), self.weight), self.input_gain),)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        s, *rest = state
        recurrent = normed(dot(self.dropped_state(s), self.recurrent), self.state_gain)
        return erased(mask, self.activation(*inputs, recurrent, self.biases)), *rest


class Tanh(ElmanCell):
    """``tanh(x W + s U + b)``, with ``x`` the input and ``s`` the state; 0 where the mask is 0.

    Parameters: ``{prefix}_W (dim_input, dim_state)`` if there is an input, ``_U (dim_state, dim_state)``,
    ``_b (1, dim_state)``; with layer normalization ``_gamma1`` for ``x W`` and ``_gamma2`` for ``s U``, eps
    1e-9. These are ``(1, 3 dim_state)`` as in Marian; the last two thirds do nothing. There is no ``final``
    variant. Source: Elman 1990; Marian's ``tanh``.
    """

    def make_recurrent(self) -> Node:
        return self.param("U", self.dim_state, self.dim_state)

    def gain(self, name: str, columns: int) -> Node | None:
        whole = super().gain(name, 3 * columns)
        return None if whole is None else slice(whole, -1, Slice(0, columns))

    def activation(self, *terms: Node) -> Node:
        return tanh(*terms)


class ReLU(ElmanCell):
    """``relu(x W + s U + b)``, with ``x`` the input and ``s`` the state; 0 where the mask is 0.

    Parameters: those of ``Tanh``, but gains are ``(1, dim_state)`` and ``U`` begins as the identity.
    Source: Le et al. 2015; Marian's ``relu``.
    """

    def make_recurrent(self) -> Node:
        return self.param("U", self.dim_state, self.dim_state, inits.eye())

    def activation(self, *terms: Node) -> Node:
        return relu(terms)
