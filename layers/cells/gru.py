"""Gated recurrent units."""

from __future__ import annotations

from mgraph import Node, concatenate, gru_ops, inits, layer_norm
from mgraph.tape import Graph

from ..dense import NEMATUS_EPS
from ..layer import Parameter
from ..products import product, products
from .base import Cell, State, kept, normed
from .multiplier import Multiplier


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
        if self.dim_input:
            self.weights = self.pair("W", self.dim_input)
        self.recurrent = self.pair("U", d)
        self.biases = self.bias("b", 2 * d), self.bias("bx", d)
        self.make_gains()

    def make_gains(self) -> None:
        """Declare the parameters of layer normalization."""
        if self.dim_input:
            self.input_gain = self.gain("gamma1", 3 * self.dim_state)
        self.state_gain = self.gain("gamma2", 3 * self.dim_state)

    def pair(self, letter: str, rows: int) -> tuple[Parameter, Parameter]:
        """The matrices of the gates and of the candidate."""
        return self.weight(letter, rows, 2 * self.dim_state), self.weight(f"{letter}x", rows, self.dim_state)

    def map_input(self, x: Node) -> tuple[Node, ...]:
        return (normed(products(self.dropped_input(x), self.weights), self.input_gain),)

    def map_state(self, s: Node) -> Node:
        """``s [U Ux]`` of a state ``(batch, dim_state)``."""
        return normed(products(self.dropped_state(s), self.recurrent), self.state_gain)

    def step_bias(self, graph: Graph) -> Node:
        """The bias of gates and candidate in each step, ``(1, 3 dim_state)``."""
        return _beside(self.biases, graph)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        s, *rest = state
        (mapped,) = inputs or (s.graph.zeros((1, 3 * self.dim_state)),)
        bias = self.step_bias(s.graph)
        return (gru_ops(s, mapped, self.map_state(s), bias, mask, final=self.final), *rest)


class GRUNematus(GRU):
    """The gated recurrent unit with the layer normalization of Nematus; without it, the same as ``GRU``.

    Every product of ``GRU`` is normalized separately, with its own gain and bias and eps 1e-5. The biases
    ``b`` and ``bx`` are added before normalization: to ``x W`` and ``x Wx``, or in a ``final`` cell and in
    one without input to ``s U`` and ``s Ux``. In an encoder (``in_encoder``) a cell without input adds them
    after normalization, ``bx`` outside ``r * (...)``, and a ``final`` cell with input has none.

    Parameters: those of ``GRU`` without gains; with layer normalization ``{prefix}_W_lns``, ``_W_lnb``,
    ``_U_lns``, ``_U_lnb``, all ``(1, 2 dim_state)``, ``_Wx_lns``, ``_Wx_lnb``, ``_Ux_lns``, ``_Ux_lnb``,
    all ``(1, dim_state)``: gains and biases; those for W exist only if there is an input.
    Source: Sennrich et al. 2017; Marian's ``gru-nematus``.
    """

    def make_gains(self) -> None:
        self.input_gain = self.state_gain = None
        if self.layer_normalization:
            self.state_norms = self._norms("U")
            if self.dim_input:
                self.input_norms = self._norms("W")

    def map_input(self, x: Node) -> tuple[Node, ...]:
        if not self.layer_normalization:
            return super().map_input(x)
        biases = () if self.final else self.biases
        return (_normed_apart(self.dropped_input(x), self.weights, biases, self.input_norms),)

    def map_state(self, s: Node) -> Node:
        if not self.layer_normalization:
            return super().map_state(s)
        inside = not self.in_encoder and (self.final or not self.dim_input)
        biases = self.biases if inside else ()
        return _normed_apart(self.dropped_state(s), self.recurrent, biases, self.state_norms)

    def step_bias(self, graph: Graph) -> Node:
        after = self.in_encoder and not self.dim_input
        if after or not self.layer_normalization:
            return super().step_bias(graph)
        return graph.zeros((1, 3 * self.dim_state))

    def _norms(self, letter: str) -> tuple[tuple[Parameter, Parameter], ...]:
        """Gain and bias for the gates' product and for the candidate's."""
        sizes = {letter: 2 * self.dim_state, f"{letter}x": self.dim_state}
        return tuple(
            (self.weight(f"{name}_lns", 1, size, inits.ones()), self.bias(f"{name}_lnb", size))
            for name, size in sizes.items()
        )


class MGRU(GRU):
    """A ``GRU`` in which ``m = (x Wm + bwm) * (s Um + bm)`` takes the place of the state ``s``.

    The old state ``s`` stays where the mask is 0. Parameters: those of ``GRU`` and of ``Multiplier``.
    Differs: where the mask is 0 Marian continues from ``m``, so padding changes its encoders' results
    unless the batch has a single sentence. Source: Krause et al. 2016; Marian's ``mgru``.
    """

    transition = False

    def make_parameters(self) -> None:
        super().make_parameters()
        self.multiplier = Multiplier(self)

    def map_input(self, x: Node) -> tuple[Node, ...]:
        return *super().map_input(x), self.multiplier.map_input(x)

    def apply_state(self, inputs: tuple[Node, ...], state: State, mask: Node | None = None) -> State:
        *mapped, factor = inputs
        s, *rest = state
        new, *_ = super().apply_state(tuple(mapped), (self.multiplier(factor, s),))
        return kept(mask, new, s), *rest


def _beside(parameters: tuple[Parameter, ...], graph: Graph) -> Node:
    return concatenate([parameter.on(graph) for parameter in parameters], -1)


def _normed_apart(
    x: Node,
    weights: tuple[Parameter, ...],
    biases: tuple[Parameter, ...],
    norms: tuple[tuple[Parameter, Parameter], ...],
) -> Node:
    """``LN(x W_i + b_i)`` for each of the weights, concatenated."""
    graph = x.graph
    if biases:
        mapped = [product(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)]
    else:
        mapped = [product(x, weight) for weight in weights]
    return concatenate(
        [
            layer_norm(y, gain.on(graph), bias.on(graph), NEMATUS_EPS)
            for y, (gain, bias) in zip(mapped, norms, strict=True)
        ],
        -1,
    )
