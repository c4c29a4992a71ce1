"""Sampling of translations: the output distribution pruned, and noise that makes the best word a draw.

A word drawn from a distribution is the best of all after Gumbel noise was added to their
log-probabilities, so the search stays as it is (Marian's ``--output-sampling``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from nmt.settings import OptionError

FULL, TOPK, NUCLEUS, EPSILON = "full", "topk", "nucleus", "epsilon"
DEFAULTS = {TOPK: 10.0, NUCLEUS: 0.9, EPSILON: 0.02}
GUMBEL_EPSILON = 1e-5
"""Noise comes from uniform numbers from this to 1 minus this, as in Marian."""


@dataclass(frozen=True)
class Sampling:
    """How words are drawn.

    method: ``full``, the whole distribution; ``topk``, the ``value`` most probable words; ``nucleus``,
        the most probable words up to a total probability of ``value``, and the one that exceeds it;
        ``epsilon``, words with at least the probability ``value``, and the most probable one.
        What is left is normalized to 1. (On a CPU Marian's ``nucleus`` leaves nothing out.)
    temperature: log-probabilities are divided by it.
    """

    method: str = FULL
    value: float = 0.0
    temperature: float = 1.0

    def pruned(self, scores: jax.Array) -> jax.Array:
        """Log-probabilities of the words that may be drawn, minus infinity for the others.

        scores: ``[..., words]``, log-probabilities or other logarithms of weights.
        """
        if self.method == TOPK:
            best, places = jax.lax.top_k(scores, min(int(self.value), scores.shape[-1]))
            none = jnp.full_like(scores, -jnp.inf)
            return jnp.put_along_axis(none, places, jax.nn.log_softmax(best), axis=-1, inplace=False)
        scores = jax.nn.log_softmax(scores)
        if self.method == NUCLEUS:
            order = jnp.argsort(scores, axis=-1, descending=True)
            probs = jnp.exp(jnp.take_along_axis(scores, order, axis=-1))
            before = jnp.concatenate([jnp.zeros_like(probs[..., :1]), probs[..., :-1]], axis=-1)
            kept = jnp.cumsum(before, axis=-1) <= self.value
            kept = jnp.take_along_axis(kept, jnp.argsort(order, axis=-1), axis=-1)
        elif self.method == EPSILON:
            least = jnp.minimum(jnp.max(scores, axis=-1, keepdims=True), jnp.log(self.value))
            kept = scores >= least
        else:
            return scores
        return jax.nn.log_softmax(jnp.where(kept, scores, -jnp.inf))

    def drawn(self, scores: jax.Array, noise: jax.Array) -> jax.Array:
        """Scores of which the highest is a draw: the pruned distribution with ``noise``, normalized.

        noise: of ``gumbel``, in the shape of ``scores``.
        """
        return jax.nn.log_softmax(self.pruned(scores) / self.temperature + noise)


def gumbel(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Gumbel noise, float32, of this key."""
    uniform = jax.random.uniform(key, shape, minval=GUMBEL_EPSILON, maxval=1 - GUMBEL_EPSILON)
    return -jnp.log(-jnp.log(uniform))


def read_sampling(words: Sequence[str]) -> Sampling | None:
    """The option ``--output-sampling [full [T] | topk [k [T]] | nucleus [p [T]] | epsilon [e [T]]]``.

    None if it is not given or ``0``; ``1`` and ``true`` are ``full``. OptionError for any other value.
    """
    words = [part for word in words for part in word.split()]
    if not words or words[0] in ("0", "false"):
        return None
    method, *rest = words
    if method in ("1", "true"):
        method = FULL
    if method != FULL and method not in DEFAULTS:
        raise OptionError(f"--output-sampling is full, topk, nucleus or epsilon, got '{method}'")
    given = [_number(word) for word in rest]
    value = 0.0
    if method != FULL:
        value, *given = given or [DEFAULTS[method]]
    temperature, *more = given or [1.0]
    if more:
        raise OptionError(f"--output-sampling {method}: too many numbers: {' '.join(words[1:])}")
    if method == TOPK and not (value >= 1 and value.is_integer()):
        raise OptionError(f"--output-sampling topk takes a whole number from 1, got {value:g}")
    if method in (NUCLEUS, EPSILON) and not 0 < value <= 1:
        raise OptionError(f"--output-sampling {method} takes a probability above 0, got {value:g}")
    if not 0 < temperature < math.inf:
        raise OptionError(f"--output-sampling: the temperature is a number above 0, got {temperature:g}")
    return Sampling(method, value, temperature)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise OptionError(f"--output-sampling takes numbers after the method, got '{word}'") from None
