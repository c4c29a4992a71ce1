"""Exponential smoothing of parameters (``exponential-smoothing``)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from nmt.training.update import Tensors


def smoothed(average: Tensors, params: Tensors, decay: Any) -> Tensors:
    """``(1 - decay) average + decay params``."""
    return jax.tree.map(lambda a, p: (1 - decay) * a + decay * p, average, params)


def decay_of_update(share: float, number: int, words: int, reference: int = 0) -> float:
    """The share of the new parameters in the average after the update ``number``, from 1.

    ``max(1 - b, 1 - t / (t + 9))`` with ``b = 1 - share`` and ``t = number``: early averages follow the
    parameters closely. Where the update has more than ``reference`` target words, if that is not 0, ``b`` is
    taken to the power ``words / reference`` and the updates before this one count so many times more.
    Rounded as in Marian, ``optimizers/exponential_smoothing.cpp``; ``exponential-smoothing`` and
    ``mini-batch-words-ref``.
    """
    kept = 1.0 - float(np.float32(share))
    before = number - 1
    if 0 < reference < words:
        kept **= words / reference
        before = int(before * words / reference)
    one = np.float32(1)
    return float(max(one - np.float32(kept), one - np.float32(before + 1) / np.float32(before + 10)))
