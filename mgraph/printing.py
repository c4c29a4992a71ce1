"""Values and gradients in Marian's debug layout (``TensorBase::debug`` in ``tensors/tensor.cpp``)."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from .device import device_name
from .node import Node

log = logging.getLogger("mgraph.debug")

_PRECISION = 8
_EDGE = 5


def print_value(node: Node) -> None:
    """Print a node's value, as ``debug`` asked for."""
    _print("Debug", node, node.val())


def print_gradient(node: Node) -> None:
    """Print a node's gradient, as ``debug`` asked for."""
    _print("Debug Grad", node, node.grad())


def _print(title: str, node: Node, value: Any) -> None:
    head = f"{title}: {node.debug_message} op={node.type}"
    for array in jax.tree.leaves(value):
        text = f"{head}\n{describe(array)}"
        if log.hasHandlers() and log.isEnabledFor(logging.INFO):
            log.info(text)
        else:
            print(text, file=sys.stderr)


def describe(array: jax.Array) -> str:
    """Shape, size, type, device, pointer, bytes, minimum, maximum, l2 norm, and the elements with 8
    decimals, at most 5 at each edge of an axis."""
    values = np.asarray(array)
    shape = values.shape or (1,)
    floating = jax.numpy.issubdtype(values.dtype, jax.numpy.floating)
    wide = values.astype(np.float64)
    # float64 does not hold every int64
    exact, form = (wide, f".{_PRECISION}f") if floating else (values.astype(object), "d")
    low, high = (f"{end:{form}}" for end in (exact.min(), exact.max())) if exact.size else ("nan", "nan")
    device = device_name(next(iter(array.devices())) if isinstance(array, jax.Array) else None)
    pointer = array.unsafe_buffer_pointer() if isinstance(array, jax.Array) else 0
    head = (
        f"shape={'x'.join(map(str, shape))} size={values.size} type={values.dtype.name} "
        f"device={device} ptr={pointer} bytes={values.nbytes}\n"
        f"min: {low} max: {high} l2-norm: {np.sqrt((wide**2).sum()):.{_PRECISION if floating else 0}f}\n"
    )
    return head + "".join(_elements(exact.reshape(shape), form))


def _elements(values: np.ndarray, form: str) -> list[str]:
    """The lines of the elements; ``form`` is how a number is formatted."""
    shape = values.shape
    shown = [list(range(n)) if n <= 2 * _EDGE else [*range(_EDGE), *range(n - _EDGE, n)] for n in shape]
    text: list[str] = []
    for place in itertools.product(*shown):
        if place[-1] == 0:
            opened = _run_length(j == 0 for j in reversed(place))
            text.append(" " * (len(shape) - opened) + "[" * opened + " ")
        text.append(f"{values[place]:{_PRECISION + 4}{form}} ")
        closed = _run_length(j + 1 == n for j, n in zip(reversed(place), reversed(shape), strict=True))
        if closed:
            text.append("]" * closed + "\n")
        text.append(_gap(place, shape, closed))
    return [*text, "\n"]


def _run_length(flags: Iterable[bool]) -> int:
    return sum(1 for _ in itertools.takewhile(bool, flags))


def _gap(place: tuple[int, ...], shape: tuple[int, ...], closed: int) -> str:
    """The dots for elements omitted after this one, which closes ``closed`` blocks."""
    for j in reversed(range(len(shape) - 1 - closed, len(shape))):
        if j >= 0 and place[j] + 1 == _EDGE and shape[j] > 2 * _EDGE:
            return "... " if j == len(shape) - 1 else " " * (j + 1) + "... \n"
    return ""
