"""Twins of the operators that move, select and order elements."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import mgraph
from mgraph import Slice
from mgraph.cases import Case

from .elementwise import X
from .twin import Twin

WORDS, DIM = 8000, 256
BATCH, LENGTH, _ = X

_X = Case(X)
_PARTS = Case(X, X)


def _shifted(x: Any) -> Any:
    return jnp.pad(x, [(0, 0), (1, 0), (0, 0)])[:, :-1]


MOVING = [
    Twin("reshape", _X, lambda x: mgraph.reshape(x, (64, 64, 8, 32)), lambda x: x.reshape(64, 64, 8, 32)),
    Twin("flatten", _X, mgraph.flatten, jnp.ravel),
    Twin("flatten_2d", _X, mgraph.flatten_2d, lambda x: x.reshape(-1, x.shape[-1])),
    Twin("atleast_nd", _X, lambda x: mgraph.atleast_nd(x, 4), lambda x: x[None]),
    Twin("atleast_1d", Case((1 << 20,)), mgraph.atleast_1d, jnp.atleast_1d),
    Twin("atleast_2d", Case((1 << 20,)), mgraph.atleast_2d, jnp.atleast_2d),
    Twin("atleast_3d", Case((1024, 1024)), mgraph.atleast_3d, lambda x: x[None]),
    Twin("atleast_4d", _X, mgraph.atleast_4d, lambda x: x[None]),
    Twin("transpose", _X, lambda x: mgraph.transpose(x, (1, 0, 2)), lambda x: x.transpose(1, 0, 2)),
    Twin("transpose", Case((1024, 1024)), mgraph.transpose, jnp.transpose, "matrix"),
    Twin("swap_axes", _X, lambda x: mgraph.swap_axes(x, 1, 2), lambda x: jnp.swapaxes(x, 1, 2)),
    Twin(
        "concatenate",
        _PARTS,
        lambda a, b: mgraph.concatenate([a, b], -1),
        lambda a, b: jnp.concatenate([a, b], -1),
    ),
    Twin("repeat", _X, lambda x: mgraph.repeat(x, 3, 1), lambda x: jnp.tile(x, (1, 3, 1))),
    Twin("slice", _X, lambda x: mgraph.slice(x, 1, Slice(1, -1)), lambda x: x[:, 1:-1]),
    Twin("narrow", _X, lambda x: mgraph.narrow(x, 2, 64, 128), lambda x: x[..., 64:192]),
    Twin("shift", _X, lambda x: mgraph.shift(x, (0, 1, 0)), _shifted),
    Twin("convert2cudnn_format", _X, mgraph.convert2cudnn_format, lambda x: x.transpose(1, 0, 2)[:, None]),
    Twin(
        "convert_from_cudnn_format",
        Case((BATCH, 1, LENGTH, DIM)),
        mgraph.convert_from_cudnn_format,
        lambda x: x[:, 0].transpose(1, 0, 2),
    ),
]

_TABLE = Case((WORDS, DIM), (4096,), domain=("real", f"index:{WORDS}"))
_BACKWARDS = [*range(BATCH * LENGTH)][::-1]
_PICKED = Case(X, (BATCH, LENGTH, 16), domain=("real", f"index:{DIM}"))
_ALIKE = Case(X, (1, 32, 1), domain=("real", f"index:{LENGTH}"))
_BUFFER = Case(X, (BATCH, 1, DIM), (), domain=("real", "real", f"index:{LENGTH}"))


def _put(x: Any, indices: Any, source: Any) -> Any:
    return jnp.put_along_axis(x, indices, source, -1, inplace=False)


SELECTING = [
    Twin("rows", _TABLE, mgraph.rows, lambda x, i: jnp.take(x, i, 0)),
    Twin(
        "cols",
        Case((1024, WORDS), (1000,), domain=("real", f"index:{WORDS}")),
        mgraph.cols,
        lambda x, i: jnp.take(x, i, 1),
    ),
    Twin(
        "index_select",
        Case(X, (32,), domain=("real", f"index:{LENGTH}")),
        lambda x, i: mgraph.index_select(x, 1, i),
        lambda x, i: jnp.take(x, i, 1),
    ),
    Twin("gather", _PICKED, lambda x, i: mgraph.gather(x, 2, i), lambda x, i: jnp.take_along_axis(x, i, -1)),
    Twin(
        "gather",
        _ALIKE,
        lambda x, i: mgraph.gather(x, 1, i),
        lambda x, i: jnp.take(x, i.reshape(-1), 1),
        "alike",
    ),
    Twin(
        "scatter",
        Case(X, (BATCH, LENGTH, 1), (BATCH, LENGTH, 1), domain=("real", f"index:{DIM}", "real")),
        lambda x, i, source: mgraph.scatter(x, 2, i, source),
        _put,
    ),
    Twin(
        "relocate",
        Case((BATCH * LENGTH, DIM)),
        lambda x: mgraph.relocate(x, *[x.graph.indices(_BACKWARDS)] * 2),
        lambda x: x[jnp.array(_BACKWARDS)],
    ),
    Twin(
        "insert",
        _BUFFER,
        lambda x, value, i: mgraph.insert(x, value, i, 1),
        lambda x, value, i: jax.lax.dynamic_update_slice_in_dim(x, value, i, 1),
    ),
    Twin(
        "select",
        Case(X, X, X, domain=("index:2", "real", "real")),
        mgraph.select,
        lambda which, a, b: jnp.where(which != 0, a, b),
    ),
    Twin(
        "one_hot",
        Case((4096,), domain=f"index:{DIM}"),
        lambda x: mgraph.one_hot(x, DIM),
        lambda x: jax.nn.one_hot(x, DIM),
        gradient=False,
    ),
]

_EDGES = ((0, 0), (1, 1), (0, 64))

REGIONS = [
    Twin("pad", _X, lambda x: mgraph.pad(x, _EDGES), lambda x: jnp.pad(x, _EDGES)),
    Twin("reverse", _X, lambda x: mgraph.reverse(x, 1), lambda x: jnp.flip(x, 1)),
    Twin(
        "broadcast_to",
        Case((1, LENGTH, DIM)),
        lambda x: mgraph.broadcast_to(x, X),
        lambda x: jnp.broadcast_to(x, X),
    ),
    Twin(
        "replace_slice",
        Case(X, (BATCH, 1, DIM)),
        lambda x, value: mgraph.replace_slice(x, (Slice(), 3), value),
        lambda x, value: x.at[:, 3:4].set(value),
    ),
]


def _best(pick: Any) -> Any:
    def both(x: Any) -> tuple[Any, Any]:
        positions = pick(x, -1, keepdims=True)
        return jnp.take_along_axis(x, positions, -1), positions

    return both


def _sorted(x: Any) -> tuple[Any, Any]:
    positions = jnp.argsort(x, -1, descending=True)
    return jnp.take_along_axis(x, positions, -1), positions


_ROWS = Case((256, 4000))

ORDERING = [
    Twin("argmax", _ROWS, lambda x: mgraph.argmax(x, -1), _best(jnp.argmax)),
    Twin("argmin", _ROWS, lambda x: mgraph.argmin(x, -1), _best(jnp.argmin)),
    Twin("topk", _ROWS, lambda x: mgraph.topk(x, 8, -1), lambda x: jax.lax.top_k(x, 8)),
    Twin("topk_values", _ROWS, lambda x: mgraph.topk_values(x, 8, -1), lambda x: jax.lax.top_k(x, 8)[0]),
    Twin(
        "topk_indices",
        _ROWS,
        lambda x: mgraph.topk_indices(x, 8, -1),
        lambda x: jax.lax.top_k(x, 8)[1],
        gradient=False,
    ),
    Twin("sort", _ROWS, lambda x: mgraph.sort(x, -1), _sorted),
]

TWINS = [*MOVING, *SELECTING, *REGIONS, *ORDERING]
