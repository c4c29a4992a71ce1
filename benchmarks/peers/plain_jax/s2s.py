"""A recurrent model's training step in plain JAX: Marian's ``s2s``, as one writes it without an engine.

Bidirectional encoder, conditional decoder with attention, GRU or LSTM cells, any depths; no dropout, no
layer normalization. Parameters have Marian's names, so those of a model here can be passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from nmt.settings.model_options import ModelOptions

from .adam import Arrays, Batch

LOWEST = float(jnp.finfo(jnp.float32).min) / 2

Carry = tuple[jax.Array, ...]
Cell = Callable[..., Carry]
"""From ``(state, mapped input, mask)`` to the next state, output first; no input is 0, no mask is None."""


def loss(options: ModelOptions, label_smoothing: float, p: Arrays, batch: Batch) -> jax.Array:
    """The cross entropy, summed over the target's words."""
    source, source_mask, target, target_mask = batch
    tied = options.tied_embeddings_all or options.tied_embeddings_src
    words = p["Wemb" if tied else "encoder_Wemb"][source.T]
    context = _encoded(options, p, words, source_mask.T[..., None])
    mean = jnp.sum(context * source_mask.T[..., None], 0) / jnp.sum(source_mask, 1)[:, None]
    first = jnp.tanh(mean @ p["decoder_ff_state_W"] + p["decoder_ff_state_b"])
    table = p["Wemb" if tied else "decoder_Wemb"]
    previous = jnp.pad(table[target.T[:-1]], ((1, 0), (0, 0), (0, 0)))
    states, attended = _decoded(options, p, first, previous, context.swapaxes(0, 1), source_mask)
    terms = zip((previous, states, attended), range(3), strict=True)
    name = "decoder_ff_logit_l1"
    hidden = jnp.tanh(sum(x @ p[f"{name}_W{i}"] + p[f"{name}_b{i}"] for x, i in terms))
    output = table if options.tied_embeddings_all or options.tied_embeddings else p["decoder_ff_logit_l2_Wt"]
    logits = jnp.einsum("tbd,vd->tbv", hidden, output) + p["decoder_ff_logit_l2_b"]
    normalizer = jax.nn.logsumexp(logits, -1)
    gold = jnp.take_along_axis(logits, target.T[..., None], -1)[..., 0]
    costs = normalizer - (1 - label_smoothing) * gold
    if label_smoothing:
        costs = costs - label_smoothing * jnp.mean(logits, -1)
    return jnp.sum(costs * target_mask.T)


def _encoded(options: ModelOptions, p: Arrays, words: jax.Array, mask: jax.Array) -> jax.Array:
    """Both directions side by side: ``(time, batch, 2 dim-rnn)``."""
    zeros = jnp.zeros((words.shape[1], options.dim_rnn))
    outputs = []
    for stem, reverse in (("encoder_bi", False), ("encoder_bi_r", True)):
        x = words
        for layer in range(1, options.enc_depth + 1):
            prefix = stem if layer == 1 else f"{stem}_l{layer}"
            names = [f"{prefix}_cell{i}" for i in range(1, options.enc_cell_depth + 1)]
            if layer == 1:
                names[0] = stem
            x = _layer(options.enc_cell, p, names, x, zeros, mask, reverse)
        outputs.append(x)
    return jnp.concatenate(outputs, -1)


def _decoded(
    options: ModelOptions,
    p: Arrays,
    first: jax.Array,
    previous: jax.Array,
    context: jax.Array,
    mask: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The top layer's states and the attended contexts, both ``(time, batch, features)``."""
    kind = options.dec_cell
    names = [f"decoder_cell{i}" for i in range(1, options.dec_cell_base_depth + 1)]
    cells = [CELLS[kind](p, name, name != "decoder_cell1") for name in names]
    weights = _input_weights(kind, p, "decoder_cell2")
    keys = context @ p["decoder_Wc_att"] + p["decoder_b_att"]
    hidden = (1 - mask) * LOWEST

    def step(state: Carry, mapped: jax.Array) -> tuple[Carry, tuple[jax.Array, jax.Array]]:
        state = cells[0](state, mapped, None)
        query = state[0] @ p["decoder_W_comb_att"]
        energies = (jnp.tanh(keys + query[:, None]) @ p["decoder_U_att"])[..., 0]
        attended = jnp.einsum("bs,bsd->bd", jax.nn.softmax(energies + hidden), context)
        for cell, x in zip(cells[1:], (attended @ weights, *[0] * len(cells[2:])), strict=True):
            state = cell(state, x, None)
        return state, (state[0], attended)

    mapped = previous @ _input_weights(kind, p, names[0])
    x, attended = jax.lax.scan(step, (first,) * STATES[kind], mapped)[1]
    for layer in range(2, options.dec_depth + 1):
        names = [f"decoder_l{layer}_cell{i}" for i in range(1, options.dec_cell_high_depth + 1)]
        x = _layer(kind, p, names, x, first)
    return x, attended


def _layer(
    kind: str,
    p: Arrays,
    names: Sequence[str],
    x: jax.Array,
    first: jax.Array,
    mask: jax.Array | None = None,
    reverse: bool = False,
) -> jax.Array:
    """Cells one after another in each step, of which only the first has an input; the last one's outputs."""
    cells = [CELLS[kind](p, name, False) for name in names]

    def step(state: Carry, slices: tuple[jax.Array, Any]) -> tuple[Carry, jax.Array]:
        mapped, now = slices
        for cell, y in zip(cells, (mapped, *[0] * len(cells[1:])), strict=True):
            state = cell(state, y, now)
        return state, state[0]

    mapped = x @ _input_weights(kind, p, names[0])
    return jax.lax.scan(step, (first,) * STATES[kind], (mapped, mask), reverse=reverse)[1]


def _gru(p: Arrays, name: str, final: bool) -> Cell:
    weights = jnp.concatenate([p[f"{name}_U"], p[f"{name}_Ux"]], -1)
    gates_bias, bias = p[f"{name}_b"], p[f"{name}_bx"]

    def step(state: Carry, mapped: Any, mask: Any) -> Carry:
        (s,) = state
        d = s.shape[-1]
        recurrent = s @ weights
        x, inside, outside = (mapped, bias, 0) if final else (mapped, 0, bias)
        gates = jax.nn.sigmoid(recurrent[:, : 2 * d] + _columns(x, 0, 2 * d) + gates_bias)
        r, z = gates[:, :d], gates[:, d:]
        h = jnp.tanh(_columns(x, 2 * d, 3 * d) + r * (recurrent[:, 2 * d :] + inside) + outside)
        return (_kept(mask, (1 - z) * h + z * s, s),)

    return step


def _lstm(p: Arrays, name: str, final: bool) -> Cell:
    weights, bias = p[f"{name}_U"], p[f"{name}_b"]

    def step(state: Carry, mapped: Any, mask: Any) -> Carry:
        s, cell = state
        f, i, g, o = jnp.split(s @ weights + mapped + bias, 4, -1)
        cell = _kept(mask, jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g), cell)
        return jax.nn.sigmoid(o) * jnp.tanh(cell), cell

    return step


def _columns(x: Any, start: int, stop: int) -> Any:
    return x[:, start:stop] if jnp.ndim(x) else x


def _kept(mask: jax.Array | None, new: jax.Array, old: jax.Array) -> jax.Array:
    return new if mask is None else mask * new + (1 - mask) * old


def _input_weights(kind: str, p: Arrays, name: str) -> jax.Array:
    return p[f"{name}_W"] if kind == "lstm" else jnp.concatenate([p[f"{name}_W"], p[f"{name}_Wx"]], -1)


CELLS: dict[str, Callable[[Arrays, str, bool], Cell]] = {"gru": _gru, "lstm": _lstm}
STATES = {"gru": 1, "lstm": 2}
