"""The prior of a link, which is likelier the nearer it is to the diagonal (Dyer et al. 2013).

For target word ``i`` of ``m`` and source word ``j`` of ``n``, both counted from 1, it is
``exp(tension * feature(i, j, m, n)) / partition(i, m, n, tension)``. All functions take arrays of float64
that broadcast.
"""

from __future__ import annotations

import numpy as np

LEAST_TENSION, MOST_TENSION = 0.1, 14.0
STEPS = 8
"""How many steps the tension takes after each pass over the text."""
RATE = 20.0


def feature(i: np.ndarray, j: np.ndarray, m: np.ndarray, n: np.ndarray) -> np.ndarray:
    """``-|j / n - i / m|``: the negative distance from the diagonal."""
    return -np.abs(j / n - i / m)


def partition(i: np.ndarray, m: np.ndarray, n: np.ndarray, tension: float) -> np.ndarray:
    """``sum_j exp(tension * feature(i, j, m, n))`` over ``j = 1 ... n``: two geometric series, below the
    diagonal and above it. A tension of 0 gives ``n``."""
    if not tension:
        return np.broadcast_to(n, np.broadcast_shapes(i.shape, m.shape, n.shape)).astype(np.float64)
    below = np.floor(i * n / m)
    # With the lengths exchanged (``slope``), fast_align's unsigned n - below wraps around to a huge number.
    above = np.where(below > n, np.inf, n - below)
    ratio = np.exp(-tension / n)

    def series(first: np.ndarray, terms: np.ndarray) -> np.ndarray:
        found = np.exp(feature(i, first, m, n) * tension) * (1.0 - ratio**terms) / (1.0 - ratio)
        return np.where(terms > 0, found, 0.0)

    return series(below, below) + series(below + 1, above)


def slope(i: np.ndarray, m: np.ndarray, n: np.ndarray, tension: float) -> np.ndarray:
    """The derivative of ``log(partition)`` with respect to the tension, which is the expected feature, as
    fast_align computes it: divided by the partition with the lengths of source and target exchanged."""
    below = np.floor(i * n / m)
    ratio = np.exp(-tension / n)

    def series(first: np.ndarray, terms: np.ndarray) -> np.ndarray:
        distance = feature(i, first, m, n)
        weight = np.exp(distance * tension)
        last = distance - (terms - 1) / n
        ends = (last * weight * ratio**terms - distance * weight) / (ratio - 1)
        inner = (weight * ratio**terms - weight * ratio) / n / (ratio - 1) ** 2
        return np.where(terms > 0, ends + inner, 0.0)

    return (series(below, below) + series(below + 1, n - below)) / partition(i, n, m, tension)


def fitted(tension: float, wanted: float, sizes: np.ndarray, counts: np.ndarray) -> float:
    """The tension after ``STEPS`` steps towards an expected feature of ``wanted``, within its bounds.

    sizes: ``[sizes, 2]``, lengths of target and source. counts: how many pairs have each.
    """
    m, n = (np.repeat(column, sizes[:, 0]).astype(np.float64) for column in sizes.T)
    starts = np.repeat(np.cumsum(sizes[:, 0]) - sizes[:, 0], sizes[:, 0])
    i = np.arange(len(m)) - starts + 1.0
    weights = np.repeat(counts, sizes[:, 0])
    words = float(weights.sum())
    tension = tension or LEAST_TENSION
    for _ in range(STEPS):
        expected = float((weights * slope(i, m, n, tension)).sum()) / words
        tension = min(max(tension + (wanted - expected) * RATE, LEAST_TENSION), MOST_TENSION)
    return tension
