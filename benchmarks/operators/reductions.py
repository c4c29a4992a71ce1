"""Twins of reductions, products, normalizations, losses, windows, cells and loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import sparse

import mgraph
from mgraph.cases import Case

from .elementwise import X
from .twin import Twin

_X = Case(X)


def _last(reduce: Any) -> Any:
    return lambda x: reduce(x, -1)


def _along(reduce: Any) -> Any:
    return lambda x: reduce(x, -1, keepdims=True)


def _average(x: Any, weights: Any) -> Any:
    return jnp.sum(x * weights, 1, keepdims=True) / jnp.sum(weights, 1, keepdims=True)


def _fake_quantized(x: Any) -> Any:
    step = jnp.max(jnp.abs(x)) / 32767
    return jnp.rint(x / step) * step


def _affine_int8(x: Any, values: Any, scales: Any) -> Any:
    step = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
    integers = jnp.rint(x / step).astype(jnp.int8)
    return lax.dot(integers, values, preferred_element_type=jnp.int32) * step * scales


REDUCTIONS = [
    *(
        Twin(name, _X, _last(getattr(mgraph, name)), _along(getattr(jnp, name)))
        for name in ("sum", "mean", "max", "min", "std", "var")
    ),
    Twin("sum", _X, mgraph.sum, lambda x: jnp.sum(x, 0, keepdims=True), "first axis"),
    Twin("prod", Case(X, domain="positive"), lambda x: mgraph.prod(x, -1), _along(jnp.prod)),
    Twin("logsumexp", _X, lambda x: mgraph.logsumexp(x, -1), _along(jax.nn.logsumexp)),
    Twin(
        "scalar_product",
        Case(X, X),
        lambda a, b: mgraph.scalar_product(a, b, -1),
        lambda a, b: jnp.sum(a * b, -1, keepdims=True),
    ),
    Twin(
        "weighted_average",
        Case(X, (64, 64, 1), domain=("real", "positive")),
        lambda x, w: mgraph.weighted_average(x, w, 1),
        _average,
    ),
    Twin(
        "reduce",
        _X,
        lambda x: mgraph.reduce(jnp.logaddexp, x, 1),
        lambda x: lax.associative_scan(jnp.logaddexp, x, axis=1)[:, -1:],
    ),
    Twin("cumsum", _X, lambda x: mgraph.cumsum(x, 1), lambda x: jnp.cumsum(x, 1)),
    Twin("logcumsumexp", _X, lambda x: mgraph.logcumsumexp(x, 1), lambda x: lax.cumlogsumexp(x, 1)),
]

_MATRICES = Case((1024, 256), (256, 1024))
_BATCHES = Case((512, 64, 32), (512, 32, 64))


def _dense(x: Any, w: Any, b: Any) -> Any:
    return x @ w + b


def _legacy(a: Any, b: Any) -> Any:
    return a @ jnp.tile(b, (len(a) // len(b), 1, 1))


def _attention(query: Any, keys: Any, values: Any) -> Any:
    """``jax.nn``'s attention has the axis of heads after that of places."""
    by_place = (x.swapaxes(1, 2) for x in (query, keys, values))
    return jax.nn.dot_product_attention(*by_place, implementation="xla").swapaxes(1, 2)


def _cached(query: Any, used: Any, *kept: Any) -> Any:
    """All places are in use."""
    keys, values = (jnp.concatenate(kept[i : i + 2], 2) for i in (0, 2))
    bias = jnp.concatenate(kept[4:], 3)
    by_place = (x.swapaxes(1, 2) for x in (query, keys, values))
    return jax.nn.dot_product_attention(*by_place, bias=bias, implementation="xla").swapaxes(1, 2)


def _csr(values: Any, indices: Any, offsets: Any) -> Any:
    return sparse.BCSR((values, indices.astype(jnp.int32), offsets.astype(jnp.int32)), shape=(1024, 4000))


_ENTRIES = 32768
_SPARSE = ("real", "index:4000", f"offsets:{_ENTRIES}", "real")

PRODUCTS = [
    Twin("dot", _MATRICES, mgraph.dot, jnp.matmul),
    Twin(
        "dot",
        Case((1024, 256), (1024, 256)),
        lambda a, b: mgraph.dot(a, b, trans_b=True),
        lambda a, b: a @ b.T,
        "b transposed",
    ),
    Twin("dot", Case((16, 64, 256), (256, 256)), mgraph.dot, jnp.matmul, "of sentences"),
    Twin(
        "affine_int8",
        Case((64, 256), (256, 1536), (1, 1536), domain=("real", "int8", "positive")),
        mgraph.affine_int8,
        _affine_int8,
        gradient=False,
    ),
    Twin("fake_quantize", _X, lambda x: mgraph.fake_quantize(x, 16), _fake_quantized, gradient=False),
    Twin("affine", Case((16, 64, 256), (256, 1024), (1, 1024)), mgraph.affine, _dense),
    Twin("bdot", _BATCHES, mgraph.bdot, jnp.matmul),
    Twin("bdot_legacy", Case((512, 64, 32), (64, 32, 64)), mgraph.bdot_legacy, _legacy),
    Twin(
        "dot_product_attention",
        Case((16, 8, 32, 32), (16, 8, 32, 32), (16, 8, 32, 32)),
        mgraph.dot_product_attention,
        _attention,
    ),
    Twin(
        "cached_attention",
        Case(
            *((16, 8, 4, 32), (999,), *[(16, 8, 32, 32), (16, 8, 64, 32)] * 2),
            *((16, 1, 4, 32), (16, 1, 4, 64)),
            domain=("real", "index:96", *["real"] * 6),
        ),
        lambda q, used, *kept: mgraph.cached_attention(q, used, kept[:2], kept[2:4], kept[4:]),
        _cached,
    ),
    Twin(
        "affine_with_relu_dropout",
        Case((1024, 256), (256, 1024), (1, 1024)),
        mgraph.affine_with_relu_dropout,
        lambda x, w, b: jax.nn.relu(_dense(x, w, b)),
    ),
    Twin(
        "csr_dot",
        Case((_ENTRIES,), (_ENTRIES,), (1025,), (4000, 64), domain=_SPARSE),
        lambda v, i, o, dense: mgraph.csr_dot((1024, 4000), v, i, o, dense),
        lambda v, i, o, dense: _csr(v, i, o) @ dense,
    ),
    Twin(
        "dot_csr",
        Case((_ENTRIES,), (_ENTRIES,), (1025,), (64, 1024), domain=_SPARSE),
        lambda v, i, o, dense: mgraph.dot_csr(dense, (1024, 4000), v, i, o),
        lambda v, i, o, dense: dense @ _csr(v, i, o).to_bcoo(),
    ),
]


def _layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-9) * gamma + beta


def _rms_norm(x: Any, gamma: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-9) * gamma


def _sparsemax(x: Any) -> Any:
    falling = jnp.sort(x, -1, descending=True)
    sums, places = jnp.cumsum(falling, -1), jnp.arange(1, x.shape[-1] + 1)
    count = jnp.sum(1 + places * falling > sums, -1, keepdims=True)
    threshold = (jnp.take_along_axis(sums, count - 1, -1) - 1) / count
    return jax.nn.relu(x - threshold)


def _gold(x: Any, labels: Any) -> Any:
    return jnp.take_along_axis(x, labels[..., None], -1)


def _cross_entropy(x: Any, labels: Any) -> Any:
    log_p = jax.nn.log_softmax(x)
    return -0.9 * _gold(log_p, labels) - 0.1 * jnp.mean(log_p, -1, keepdims=True)


_LOGITS = Case((512, 4000), (512,), domain=("real", "index:4000"))

LOSSES = [
    Twin("layer_norm", Case(X, (1, 256), (1, 256)), mgraph.layer_norm, _layer_norm),
    Twin("rms_norm", Case(X, (1, 256)), mgraph.rms_norm, _rms_norm),
    Twin("softmax", _X, mgraph.softmax, jax.nn.softmax),
    Twin(
        "softmax",
        Case(X, (64, 1, 256), domain=("real", "mask")),
        mgraph.softmax,
        lambda x, mask: jax.nn.softmax(x + (1 - mask) * -1.7e38),
        "masked",
    ),
    Twin("logsoftmax", _X, mgraph.logsoftmax, jax.nn.log_softmax),
    Twin("sparsemax", Case((512, 256)), mgraph.sparsemax, _sparsemax),
    Twin("cross_entropy", _LOGITS, lambda x, i: mgraph.cross_entropy(x, i, 0.1), _cross_entropy),
    Twin(
        "affine_cross_entropy",
        Case((512, 256), (256, 20_000), (512,), domain=("real", "real", "index:20000")),
        lambda x, matrix, labels: mgraph.affine_cross_entropy(x, matrix, labels, None, 0.1),
        lambda x, matrix, labels: _cross_entropy(x @ matrix, labels),
    ),
    Twin(
        "softmax_cross_entropy",
        Case((512, 4000), (512, 4000), domain=("real", "positive")),
        mgraph.softmax_cross_entropy,
        lambda x, labels: -jnp.sum(labels * jax.nn.log_softmax(x), -1, keepdims=True),
    ),
    Twin(
        "unlikelihood",
        _LOGITS,
        mgraph.unlikelihood,
        lambda x, labels: -jnp.log1p(-_gold(jax.nn.softmax(x), labels)),
    ),
]

_IMAGES = (16, 8, 64, 64)


def _windows(x: Any, start: float, combine: Any) -> Any:
    return lax.reduce_window(x, start, combine, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def _convolution(x: Any, kernel: Any, bias: Any) -> Any:
    numbers = ("NCHW", "IOHW", "NCHW")
    return lax.conv_general_dilated(x, kernel, (1, 1), [(1, 1), (1, 1)], dimension_numbers=numbers) + bias


def _masked_pooling(x: Any, mask: Any) -> Any:
    masked = x * mask
    return jnp.max(masked.reshape(*masked.shape[:2], -1, 5), -1)


WINDOWS = [
    Twin(
        "convolution",
        Case(_IMAGES, (8, 16, 3, 3), (1, 16, 1, 1)),
        lambda x, k, b: mgraph.convolution(x, k, b, 1, 1),
        _convolution,
    ),
    Twin(
        "avg_pooling",
        Case(_IMAGES),
        lambda x: mgraph.avg_pooling(x, 2, 2, stride_height=2, stride_width=2),
        lambda x: _windows(x, 0.0, lax.add) / 4,
    ),
    Twin(
        "max_pooling",
        Case(_IMAGES),
        lambda x: mgraph.max_pooling(x, 2, 2, stride_height=2, stride_width=2),
        lambda x: _windows(x, -jnp.inf, lax.max),
    ),
    Twin(
        "pooling_with_masking",
        Case((32, 256, 100), (32, 1, 100), domain=("real", "positive")),
        lambda x, mask: mgraph.pooling_with_masking(x, mask, 5),
        _masked_pooling,
    ),
]


def _highway(y: Any, x: Any, t: Any) -> Any:
    s = jax.nn.sigmoid(t)
    return s * y + (1 - s) * x


def _gru(state: Any, xW: Any, sU: Any, b: Any) -> Any:
    (xr, xz, xh), (sr, sz, s), (br, bz, bh) = (jnp.split(v, 3, -1) for v in (xW, sU, b))
    r, z = jax.nn.sigmoid(xr + sr + br), jax.nn.sigmoid(xz + sz + bz)
    return (1 - z) * jnp.tanh(xh + r * s + bh) + z * state


def _lstm_cell(cell: Any, xW: Any, sU: Any, b: Any) -> Any:
    f, i, g, _ = jnp.split(xW + sU + b, 4, -1)
    return jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)


def _lstm_output(cell: Any, xW: Any, sU: Any, b: Any) -> Any:
    return jax.nn.sigmoid(jnp.split(xW + sU + b, 4, -1)[3]) * jnp.tanh(cell)


def _additive_attention(va: Any, context: Any, state: Any) -> Any:
    return (jnp.tanh(context + state) @ va)[None, None, ..., 0]


def _step(state: Any, x: Any) -> tuple[Any, Any]:
    after = 0.9 * state + x
    return after, after


_STATE = (256, 512)

CELLS = [
    Twin("highway", Case(X, X, X), mgraph.highway, _highway),
    Twin("gru_ops", Case(_STATE, (256, 1536), (256, 1536), (1, 1536)), mgraph.gru_ops, _gru),
    Twin("lstm_ops_c", Case(_STATE, (256, 2048), (256, 2048), (1, 2048)), mgraph.lstm_ops_c, _lstm_cell),
    Twin("lstm_ops_o", Case(_STATE, (256, 2048), (256, 2048), (1, 2048)), mgraph.lstm_ops_o, _lstm_output),
    Twin("att_ops", Case((256, 1), X, (1, 64, 256)), mgraph.att_ops, _additive_attention),
    Twin(
        "scan",
        Case(X[1:], X),
        lambda state, xs: mgraph.scan(_step, state, xs)[::-1],
        lambda state, xs: lax.scan(_step, state, xs)[::-1],
    ),
]

TWINS = [*REDUCTIONS, *PRODUCTS, *LOSSES, *WINDOWS, *CELLS]
