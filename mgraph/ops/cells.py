"""Elementwise cores of recurrent cells and attention, as single nodes.

``r``, ``z``, ``f``, ``i``, ``o`` are gates, ``h`` and ``g`` candidates. The backward rules recompute them
from the children, which is cheaper than storing them at every step of a loop. Everything is computed in
float32 or wider, so that sums of 16-bit numbers neither round nor overflow before a gate closes.
"""

from __future__ import annotations

import math
from typing import overload

import jax
import jax.numpy as jnp
from jax import Array

from ..arrays import flag
from ..cases import Case
from ..errors import ShapeError
from ..inits import glorot_uniform, zeros
from ..node import Node
from ..specs import Spec, Specs
from .elementwise import relu
from .operands import FloatNodeOp, Gradients, node, refusal
from .precision import in_float32
from .product import affine
from .shape import reshape

sigmoid = jax.nn.sigmoid


class CellNodeOp(FloatNodeOp):
    """Base of the cells. Children: state, xW, sU, b, and a mask where steps may be empty.

    xW, sU and b hold ``parts`` blocks of the state's size along the last axis.
    """

    color = "yellow"
    parts = 4

    def new_spec(self, state: Spec, *blocks: Spec) -> Specs:
        width = self.parts * state.shape[-1]
        for name, block in zip(("xW", "sU", "b"), blocks, strict=False):
            if block.shape[-1:] != (width,):
                raise ShapeError(
                    f"expected {name} with {self.parts} times {state.shape[-1]} columns, got {block.shape}"
                )
        return super().new_spec(state, *blocks)


def _blocks(x: Array, count: int) -> list[Array]:
    return jnp.split(x, count, -1)


def _sums(*operands: Array) -> list[Array]:
    """The four blocks of a sum, split before the addition, so that XLA vectorizes what follows."""
    blocks = zip(*(_blocks(x, 4) for x in operands), strict=True)
    return [sum(parts[1:], parts[0]) for parts in blocks]


def _masked(mask: tuple[Array, ...], new: Array, old: Array) -> Array:
    """``mask * new + (1 - mask) * old`` if there is a mask."""
    return mask[0] * new + (1 - mask[0]) * old if mask else new


class GRUFastNodeOp(CellNodeOp):
    type = "GRU-ops"
    parts = 3
    final: bool = False
    cases = (
        Case((4, 2), (4, 6), (4, 6), (1, 6)),
        Case((4, 2), (1, 6), (4, 6), (1, 6), (4, 1), domain=("real",) * 4 + ("mask",), final=True),
    )

    @in_float32
    def forward_ops(self, state: Array, xW: Array, sU: Array, b: Array, *mask: Array) -> Array:
        _, z, h, _ = self._gates(xW, sU, b)
        return _masked(mask, (1 - z) * h + z * state, state)

    @in_float32
    def backward_ops(
        self, adj: Array, val: Array, state: Array, xW: Array, sU: Array, b: Array, *mask: Array
    ) -> Gradients:
        r, z, h, s = self._gates(xW, sU, b)
        dy = adj * mask[0] if mask else adj
        dh = dy * (1 - z) * (1 - h * h)
        dr = dh * s * r * (1 - r)
        dz = dy * (state - h) * z * (1 - z)
        dx = jnp.concatenate([dr, dz, dh], -1)
        ds = jnp.concatenate([dr, dz, dh * r], -1)
        dstate = dy * z + adj * (1 - mask[0]) if mask else dy * z
        dmask = [adj * ((1 - z) * h + z * state - state) for _ in mask]
        return dstate, dx, ds, ds if self.final else dx, *dmask

    def _gates(self, xW: Array, sU: Array, b: Array) -> tuple[Array, ...]:
        """Reset and update gate, candidate, and the factor that the reset gate multiplies."""
        (xr, xz, xh), (sr, sz, s), (br, bz, bh) = (_blocks(v, 3) for v in (xW, sU, b))
        r, z = sigmoid(xr + sr + br), sigmoid(xz + sz + bz)
        if self.final:
            s = s + bh
            return r, z, jnp.tanh(xh + r * s), s
        return r, z, jnp.tanh(xh + r * s + bh), s


def gru_ops(state: Node, xW: Node, sU: Node, b: Node, mask: Node | None = None, final: bool = False) -> Node:
    """One step of a gated recurrent unit, after its products: the new state.

    With ``r, z = sigmoid(xW + sU + b)`` of the first two blocks and ``h = tanh(xW + r sU + b)`` of the
    third (``tanh(xW + r (sU + b))`` if ``final``): ``y = (1 - z) h + z state``. A mask of zeros and ones
    keeps the old state where it is 0. ``ShapeError`` if the blocks do not fit the state.

    Shape: state (..., batch, d), xW and sU (..., batch, 3 d), b (1, 3 d), mask (batch, 1) to (..., batch, d).
    Gradient: with ``d = adj mask``: ``d z + adj (1 - mask)`` for ``state``; for the blocks of xW, sU and b
    ``d (state - h) z (1 - z)`` in z, ``e = d (1 - z) (1 - h^2)`` in h (``r e`` for sU, and for b if
    ``final``) and ``e sU r (1 - r)`` in r (``e (sU + b) r (1 - r)`` if ``final``).
    Source: Cho et al. 2014; Marian, ``gruOps``.
    """
    children = (state, xW, sU, b) if mask is None else (state, xW, sU, b, mask)
    return GRUFastNodeOp(*children, final=flag("gru_ops", "final", final))


class LSTMCellNodeOp(CellNodeOp):
    type = "LSTM-cell-ops"
    cases = (
        Case((4, 2), (4, 8), (4, 8), (1, 8)),
        Case((4, 2), (4, 8), (4, 8), (1, 8), (4, 1), domain=("real",) * 4 + ("mask",)),
    )

    @in_float32
    def forward_ops(self, cell: Array, xW: Array, sU: Array, b: Array, *mask: Array) -> Array:
        f, i, g, _ = _sums(xW, sU, b)
        return _masked(mask, sigmoid(f) * cell + sigmoid(i) * jnp.tanh(g), cell)

    @in_float32
    def backward_ops(
        self, adj: Array, val: Array, cell: Array, xW: Array, sU: Array, b: Array, *mask: Array
    ) -> Gradients:
        f, i, g, o = _sums(xW, sU, b)
        f, i, g = sigmoid(f), sigmoid(i), jnp.tanh(g)
        dy = adj * mask[0] if mask else adj
        df, di, dg = dy * cell * f * (1 - f), dy * g * i * (1 - i), dy * i * (1 - g * g)
        dx = jnp.concatenate([df, di, dg, jnp.zeros_like(o)], -1)
        dcell = dy * f + adj * (1 - mask[0]) if mask else dy * f
        dmask = [adj * (f * cell + i * g - cell) for _ in mask]
        return dcell, dx, dx, dx, *dmask


def lstm_ops_c(cell: Node, xW: Node, sU: Node, b: Node, mask: Node | None = None) -> Node:
    """One step of an LSTM's cell, after its products: ``sigmoid(f) cell + sigmoid(i) tanh(g)``.

    ``f, i, g`` are the first three of the four blocks of ``xW + sU + b``. A mask of zeros and ones keeps
    the old cell where it is 0. ``ShapeError`` if the blocks do not fit the cell.

    Shape: cell (..., batch, d), xW and sU (..., batch, 4 d), b (1, 4 d), mask (batch, 1) to (..., batch, d).
    Gradient: with ``d = adj mask`` and ``s = sigmoid``: ``d s(f) + adj (1 - mask)`` for ``cell``; for the
    blocks of xW, sU and b alike ``d cell s(f) (1 - s(f))`` in f, ``d tanh(g) s(i) (1 - s(i))`` in i and
    ``d s(i) (1 - tanh(g)^2)`` in g.
    Source: Hochreiter and Schmidhuber 1997; Marian, ``lstmOpsC``.
    """
    return LSTMCellNodeOp(*((cell, xW, sU, b) if mask is None else (cell, xW, sU, b, mask)))


class LSTMOutputNodeOp(CellNodeOp):
    type = "LSTM-output-ops"
    cases = (Case((4, 2), (4, 8), (4, 8), (1, 8)),)

    @in_float32
    def forward_ops(self, cell: Array, xW: Array, sU: Array, b: Array) -> Array:
        *_, o = _sums(xW, sU, b)
        return sigmoid(o) * jnp.tanh(cell)

    @in_float32
    def backward_ops(self, adj: Array, val: Array, cell: Array, xW: Array, sU: Array, b: Array) -> Gradients:
        *others, o = _sums(xW, sU, b)
        o, t = sigmoid(o), jnp.tanh(cell)
        do = adj * t * o * (1 - o)
        dx = jnp.concatenate([*map(jnp.zeros_like, others), do], -1)
        return adj * o * (1 - t * t), dx, dx, dx


def lstm_ops_o(cell: Node, xW: Node, sU: Node, b: Node) -> Node:
    """The output of an LSTM step: ``sigmoid(o) tanh(cell)`` with ``o`` the fourth block of ``xW + sU + b``.

    Errors as for ``lstm_ops_c``.

    Shape: cell (..., batch, d), xW and sU (..., batch, 4 d), b (1, 4 d) to (..., batch, d).
    Gradient: with ``s = sigmoid(o)``: ``adj s (1 - tanh(cell)^2)`` for ``cell``; for the block o of xW, sU
    and b alike ``adj tanh(cell) s (1 - s)``.
    Source: Hochreiter and Schmidhuber 1997; Marian, ``lstmOpsO``.
    """
    return LSTMOutputNodeOp(cell, xW, sU, b)


class AttentionNodeOp(FloatNodeOp):
    type = "Att-ops"
    stored_by_loops = True
    color = "yellow"
    cases = (Case((5, 1), (3, 4, 5), (1, 4, 5)), Case((5, 1), (3, 4, 5), (2, 1, 4, 5)))

    def new_spec(self, va: Spec, context: Spec, state: Spec) -> Specs:
        if va.shape != (context.shape[-1], 1) or state.shape[-1:] != context.shape[-1:]:
            raise ShapeError("expected va of shape (d, 1) for a context and a state of d features")
        return super().new_spec(va, context, state)

    @in_float32
    def forward_ops(self, va: Array, context: Array, state: Array) -> Array:
        return jnp.tanh(context + state) @ va

    @in_float32
    def backward_ops(self, adj: Array, val: Array, va: Array, context: Array, state: Array) -> Gradients:
        t = jnp.tanh(context + state)
        rows = t.reshape(math.prod(t.shape[:-1]), t.shape[-1])
        dva = (adj.reshape(1, adj.size) @ rows).reshape(va.shape)
        dsum = adj * va.reshape(-1) * (1 - t * t)
        return dva, dsum, dsum


def att_ops(va: Node, context: Node, state: Node) -> Node:
    """Scores of additive attention, before the softmax: ``sum(va tanh(context + state))`` over features.

    ``ShapeError`` if the numbers of features differ.

    Shape: va (d, 1), context (words, batch, d) and state (1, batch, d) or (beam, 1, batch, d) to
    (beam, 1, words, batch), with beam 1 for the former.
    Gradient: ``adj va (1 - t^2)`` for ``context`` and ``state``, ``adj t`` for ``va``, with
    ``t = tanh(context + state)``.
    Differs: Marian's gradients are right only where beam is 1.
    Source: Bahdanau et al. 2015; Marian, ``attOps``.
    """
    va, context, state = (node("att_ops", x) for x in (va, context, state))
    if len(context.shape) < 3:
        raise refusal("att_ops", "expected a context of (words, batch, features)", va, context, state)
    words, batch = context.shape[-3:-1]
    beam = state.shape[-4] if len(state.shape) > 3 else 1
    return reshape(AttentionNodeOp(va, context, state), (beam, 1, words, batch))


class HighwayNodeOp(FloatNodeOp):
    type = "highway"
    broadcasts = True
    cases = (Case((3, 5), (3, 5), (3, 5)), Case((3, 5), (3, 5), (3, 1)))

    @in_float32
    def forward_ops(self, y: Array, x: Array, t: Array) -> Array:
        s = sigmoid(t)
        return s * y + (1 - s) * x

    @in_float32
    def backward_ops(self, adj: Array, val: Array, y: Array, x: Array, t: Array) -> Gradients:
        s = sigmoid(t)
        return adj * s, adj * (1 - s), adj * s * (1 - s) * (y - x)


@overload
def highway(y: Node, x: Node, t: Node) -> Node: ...
@overload
def highway(y: str, x: Node) -> Node: ...
def highway(y: Node | str, x: Node, t: Node | None = None) -> Node:
    """``s y + (1 - s) x`` with ``s = sigmoid(t)``; ``highway(prefix, x)`` is a whole layer around ``x``.

    The layer's ``y = relu(x W2 + b2)`` and ``t = x W1 + b1`` have the parameters ``{prefix}_highway_d2_W``
    (d, d) and ``_b`` (1, d), ``{prefix}_highway_d1_W`` and ``_b``, for d features.

    Shape: broadcast of all.
    Gradient: ``adj s`` for ``y``, ``adj (1 - s)`` for ``x``, ``adj s (1 - s) (y - x)`` for ``t``.
    Source: Srivastava et al. 2015; Marian, ``highway``.
    """
    if isinstance(y, str):
        return HighwayNodeOp(relu(_dense(f"{y}_highway_d2", x)), x, _dense(f"{y}_highway_d1", x))
    return HighwayNodeOp(y, x, node("highway", t))


def _dense(prefix: str, x: Node) -> Node:
    if not node("highway", x).shape:
        raise refusal("highway", "expected rows of features, got a scalar", x)
    size = x.shape[-1]
    weight = x.graph.param(f"{prefix}_W", (size, size), glorot_uniform(), x.value_type)
    return affine(x, weight, x.graph.param(f"{prefix}_b", (1, size), zeros(), x.value_type))
