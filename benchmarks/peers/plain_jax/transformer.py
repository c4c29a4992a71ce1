"""A transformer's training step in plain JAX: Marian's model, as one writes it without an engine.

Post-norm (``transformer-postprocess dan``), sinusoids, relu or swish, no dropout; Adam with Marian's
defaults and clipping by the norm. Parameters have Marian's names, so those of a model here can be passed in.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nmt.settings.model_options import ModelOptions

from .adam import Arrays, Batch

ACTIVATIONS = {"relu": jax.nn.relu, "swish": jax.nn.swish}
NORM_EPS = 1e-6
HIDDEN = -1e8


def loss(options: ModelOptions, label_smoothing: float, parameters: Arrays, batch: Batch) -> jax.Array:
    """The cross entropy, summed over the target's words."""
    source, source_mask, target, target_mask = batch
    hidden = jnp.where(source_mask > 0, 0, HIDDEN)[:, None, None, :]
    context = _embedded(options, parameters, "encoder", source)
    for i in range(1, options.enc_depth + 1):
        name = f"encoder_l{i}"
        context = _attended(options, parameters, f"{name}_self", context, context, hidden)
        context = _fed_forward(options, parameters, name, context)
    time = target.shape[1]
    later = jnp.where(np.tri(time, dtype=bool), 0, HIDDEN)
    x = _embedded(options, parameters, "decoder", target, shifted=True)
    for i in range(1, options.dec_depth + 1):
        name = f"decoder_l{i}"
        x = _attended(options, parameters, f"{name}_self", x, x, later)
        x = _attended(options, parameters, f"{name}_context", x, context, hidden)
        x = _fed_forward(options, parameters, name, x)
    table = parameters[_output_table(options)]
    logits = jnp.einsum("btd,vd->btv", x, table) + parameters["decoder_ff_logit_out_b"]
    normalizer = jax.nn.logsumexp(logits, -1)
    gold = jnp.take_along_axis(logits, target[..., None], -1)[..., 0]
    costs = normalizer - (1 - label_smoothing) * gold
    if label_smoothing:
        costs = costs - label_smoothing * jnp.mean(logits, -1)
    return jnp.sum(costs * target_mask)


def _output_table(options: ModelOptions) -> str:
    if options.tied_embeddings_all:
        return "Wemb"
    return "decoder_Wemb" if options.tied_embeddings else "decoder_ff_logit_out_Wt"


def _embedded(
    options: ModelOptions, parameters: Arrays, side: str, ids: Any, shifted: bool = False
) -> jax.Array:
    shared = options.tied_embeddings_src or options.tied_embeddings_all
    x = parameters["Wemb" if shared else f"{side}_Wemb"][ids]
    if shifted:
        x = jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)))
    return x * math.sqrt(options.dim_emb) + _sinusoids(*x.shape[1:])


def _sinusoids(time: int, dim: int) -> np.ndarray:
    half = dim // 2
    step = np.log(np.float32(10000)) / np.float32(dim / 2 - 1)
    angles = np.arange(time, dtype=np.float32)[:, None] * np.exp(np.arange(half, dtype=np.float32) * -step)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def _attended(
    options: ModelOptions, p: Arrays, name: str, x: jax.Array, memory: jax.Array, mask: jax.Array
) -> jax.Array:
    heads = options.transformer_heads
    depth = options.dim_emb // heads

    def projected(part: str, y: jax.Array) -> jax.Array:
        y = _affine(p, f"{name}_W{part}", f"{name}_b{part}", y)
        return y.reshape(*y.shape[:2], heads, depth).transpose(0, 2, 1, 3)

    query, key, value = projected("q", x), projected("k", memory), projected("v", memory)
    scores = jnp.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(depth) + mask
    found = (jax.nn.softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
    return _normalized(p, f"{name}_Wo", x + _affine(p, f"{name}_Wo", f"{name}_bo", found))


def _fed_forward(options: ModelOptions, p: Arrays, name: str, x: jax.Array) -> jax.Array:
    activation = ACTIVATIONS[options.transformer_ffn_activation]
    y = activation(_affine(p, f"{name}_ffn_W1", f"{name}_ffn_b1", x))
    return _normalized(p, f"{name}_ffn_ffn", x + _affine(p, f"{name}_ffn_W2", f"{name}_ffn_b2", y))


def _affine(p: Arrays, weight: str, bias: str, x: jax.Array) -> jax.Array:
    """``x W + b`` as a product of matrices, whose gradients are such products too: XLA copies less."""
    y = x.reshape(-1, x.shape[-1]) @ p[weight] + p[bias]
    return y.reshape(*x.shape[:-1], y.shape[-1])


def _normalized(p: Arrays, name: str, x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    h = centred * jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + NORM_EPS)
    return h * p[f"{name}_ln_scale"] + p[f"{name}_ln_bias"]
