"""Custom rules of other libraries, as our witnesses see them.

Needs ``pip install ott-jax optax distrax jaxopt lineax flash-attention-jax``; missing ones are left out.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measuring import Table
from mgraph import check_gradients

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function, its arguments, and those of ``check_gradients``."""

_random = np.random.default_rng(0)


def _normal(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape)


def _positive_definite(size: int) -> np.ndarray:
    half = _normal(size, size)
    return half @ half.T + size * np.eye(size)


def _ott() -> Iterator[tuple[str, Call]]:
    from ott.math import matrix_square_root, utils

    points = _normal(4, 3)
    yield "ott.math.utils.norm", (utils.norm, (points,), {"argnums": 0})
    yield "ott.math.utils.norm, at 0", (utils.norm, (np.zeros(3),), {"argnums": 0})
    yield "ott.math.utils.logsumexp", (partial(utils.logsumexp, axis=1), (points,), {})
    yield "ott.math.utils.softmin", (utils.softmin, (points, 0.7, 1), {"argnums": 0})
    yield "ott.math.utils.softmin, by gamma", (utils.softmin, (points, 0.7, 1), {"argnums": 1})
    root = partial(matrix_square_root.sqrtm_only, threshold=1e-14, min_iterations=20)
    yield "ott.math.matrix_square_root.sqrtm_only", (root, (_positive_definite(3),), {})


def _optax() -> Iterator[tuple[str, Call]]:
    import optax

    scores, labels = _normal(3, 4), np.eye(4)[:3] * 0.7 + 0.075
    yield (
        "optax.losses.safe_softmax_cross_entropy",
        (optax.losses.safe_softmax_cross_entropy, (scores, labels), {}),
    )
    yield "optax.projections.projection_simplex", (optax.projections.projection_simplex, (_normal(5),), {})
    yield "optax.safe_norm, at 0", (partial(optax.safe_norm, min_norm=0.1), (np.zeros(3),), {})
    yield "optax.scale_gradient", (optax.scale_gradient, (_normal(3), 0.5), {"argnums": 0})


def _distrax() -> Iterator[tuple[str, Call]]:
    math = importlib.import_module("distrax._src.utils.math")
    yield "distrax multiply_no_nan", (math.multiply_no_nan, (_normal(3), _normal(3)), {})
    yield "distrax multiply_no_nan, by 0", (math.multiply_no_nan, (_normal(3), np.zeros(3)), {})
    yield "distrax power_no_nan", (math.power_no_nan, (np.abs(_normal(3)), _normal(3)), {})


def _jaxopt() -> Iterator[tuple[str, Call]]:
    from jaxopt import isotonic, projection

    yield "jaxopt.projection.projection_simplex", (projection.projection_simplex, (_normal(5),), {})
    yield "jaxopt.projection.projection_l1_sphere", (projection.projection_l1_sphere, (_normal(5),), {})
    yield "jaxopt.isotonic.isotonic_l2_pav", (isotonic.isotonic_l2_pav, (np.sort(_normal(6)),), {})


def _lineax() -> Iterator[tuple[str, Call]]:
    import lineax

    yield "lineax.two_norm", (lineax.internal.two_norm, (_normal(4),), {})
    yield "lineax.max_norm", (lineax.internal.max_norm, (_normal(4),), {})


def _flash() -> Iterator[tuple[str, Call]]:
    import flash_attention_jax

    query, key, value = (_normal(1, 2, 8, 4) for _ in range(3))
    mask = np.ones((1, 8), bool)
    yield (
        "flash_attention_jax.flash_attention",
        (flash_attention_jax.flash_attention, (query, key, value, mask), {}),
    )
    yield (
        "flash_attention_jax.causal_flash_attention",
        (flash_attention_jax.causal_flash_attention, (query, key, value), {}),
    )


LIBRARIES = (_ott, _optax, _distrax, _jaxopt, _lineax, _flash)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    table = Table(("function", "rule - jax", "rule - diff", "value", "verdict"), 44)
    for library in LIBRARIES:
        try:
            calls = list(library())
        except ImportError as missing:
            print(f"left out: {missing}")
            continue
        for name, (function, args, options) in calls:
            report = check_gradients(function, *args, **options)
            worst = max(report.checks, key=lambda check: (not check.ok, check.finite_difference))
            witnesses = ("jax", "differences", "value")
            shown = (worst.differences.get(witness, math.nan) for witness in witnesses)
            table.row(name, *(f"{d:.1e}" if d >= 0 else "-" for d in shown), worst.verdict)


if __name__ == "__main__":
    main()
