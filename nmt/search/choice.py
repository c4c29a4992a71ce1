"""One step of beam search: which words extend which hypotheses.

The order is Marian's: the models' scores, their weighted sum, forced words, sampling, suppressed words, the
best extensions; but words are drawn only among those that are not suppressed. Sampling adds Gumbel noise to
log-probabilities and takes the best, so the search itself does not change (Marian's ``--output-sampling``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mgraph import threefry
from mgraph.names import meant
from mgraph.platforms import kept_apart
from nmt.search.trellis import FREE, NONE, Beam, Sentences
from nmt.settings import OptionError

FULL, TOPK, NUCLEUS, EPSILON = "full", "topk", "nucleus", "epsilon"
DEFAULTS = {TOPK: 10.0, NUCLEUS: 0.9, EPSILON: 0.02}
GUMBEL_EPSILON = 1e-5
"""Gumbel noise is made from uniform numbers between this and 1 minus this, as in Marian."""
LOWEST = float(np.finfo(np.float32).min)
LANES = 16
"""Float32 numbers in an AVX-512 register."""


@dataclass(frozen=True)
class Sampling:
    """How words are drawn.

    method: ``full``, the whole distribution; ``topk``, the ``value`` most probable words; ``nucleus``,
        the most probable words up to a total probability of ``value``, and the one that exceeds it;
        ``epsilon``, words with at least the probability ``value``, and the most probable one.
        The rest is renormalized. (On a CPU Marian's ``nucleus`` prunes nothing.)
    temperature: divides log-probabilities.
    """

    method: str = FULL
    value: float = 0.0
    temperature: float = 1.0

    def pruned(self, scores: jax.Array) -> jax.Array:
        """Log-probabilities of the words that may be drawn, minus infinity for others.

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
        """Scores whose maximum is a sample: pruned log-probabilities, divided by the temperature, plus
        ``gumbel`` ``noise``; normalized."""
        return jax.nn.log_softmax(self.pruned(scores) / self.temperature + noise)


def gumbel(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Float32 Gumbel noise."""
    uniform = threefry.uniform(key, tuple(shape)) * (1 - 2 * GUMBEL_EPSILON) + GUMBEL_EPSILON
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
        hint = meant(method, (FULL, *DEFAULTS))
        raise OptionError(f"--output-sampling must be full, topk, nucleus or epsilon, got '{method}'{hint}")
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
        raise OptionError(f"--output-sampling: the temperature must be above 0, got {temperature:g}")
    return Sampling(method, value, temperature)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise OptionError(f"--output-sampling takes numbers after the method, got '{word}'") from None


@dataclass(frozen=True)
class Rules:
    """The rules for choosing words, the same for all sentences.

    words: size of the target vocabulary. eos: the id of ``</s>``.
    suppressed: ids that are chosen only if forced, or if there are no others.
    skip_cost: score by the models' logits, not log-probabilities.
    sampling: how words are drawn; None to take the best.
    """

    words: int
    eos: int
    suppressed: tuple[int, ...] = ()
    skip_cost: bool = False
    sampling: Sampling | None = None

    def scores(self, sentences: Sentences, logits: jax.Array) -> jax.Array:
        """A model's scores, float32 ``[batch, beam, columns]``. A column is a word, or with shortlists a
        candidate of the sentence."""
        batch = len(sentences.limits)
        # Keep XLA from fusing the product into both the maximum and the sum, which would compute it twice.
        logits = kept_apart(logits.astype(jnp.float32).reshape(batch, -1, logits.shape[-1]))
        if sentences.candidates is not None:
            logits = jnp.where(_listed(sentences), logits, NONE)
        return logits if self.skip_cost else jax.nn.log_softmax(logits)

    def best(
        self, sentences: Sentences, beam: Beam, scores: Sequence[jax.Array], weights: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Column, origin (place in the beam) and path score, each ``[batch, beam]``, of the best extensions,
        given the ``scores`` of each model."""
        total = weights[0] * scores[0]
        for i, other in enumerate(scores[1:], start=1):
            total = total + weights[i] * other
        _, count, columns = total.shape
        open_, free = self._open(sentences, beam.steps, columns)
        total = jnp.where(open_, total, NONE)
        suppressed = self._suppressed(sentences, columns) & free
        if self.sampling is not None:
            # Else pruning may leave suppressed words alone. Not NONE: there may be no others.
            total = jnp.where(suppressed & open_, LOWEST, total)
            total = self.sampling.drawn(total, self._noise(sentences, beam.steps, count))
        paths = beam.paths[:, :, None]
        # Pruned words rank last but remain available, so that the beam keeps its width.
        extended = jnp.maximum(paths + total, LOWEST)
        extended = jnp.where(suppressed, LOWEST, extended)
        extended = jnp.where(open_ & (paths != NONE), extended, NONE)
        if count == 1:
            column, best = first_best(extended[:, 0])
            return column, jnp.zeros_like(column), best
        return best_extensions(extended)

    def column_of_eos(self, sentences: Sentences) -> jax.Array:
        """The column of ``</s>``, int32 ``[batch, 1]``."""
        if sentences.candidates is None:
            return jnp.full((len(sentences.limits), 1), self.eos, jnp.int32)
        before = _listed(sentences)[:, 0] & (sentences.candidates < self.eos)
        return jnp.sum(before, axis=1, keepdims=True, dtype=jnp.int32)

    def _open(self, sentences: Sentences, steps: jax.Array, columns: int) -> tuple[jax.Array, jax.Array]:
        """Which columns may be chosen, and which sentences have no forced word; both ``[batch, 1, ...]``."""
        batch = len(sentences.limits)
        open_ = jnp.ones((batch, 1, 1), bool)
        if sentences.candidates is not None:
            open_ = _listed(sentences)
        if sentences.prefixes is None:
            return open_, jnp.ones((batch, 1, 1), bool)
        last = sentences.prefixes.shape[1] - 1
        word = jnp.take_along_axis(sentences.prefixes, jnp.minimum(steps, last)[:, None], axis=1)
        free = (word == FREE) | (steps > last)[:, None] | (sentences.empty & (steps == 0))[:, None]
        word, free = word[:, :, None], free[:, :, None]
        return open_ & (free | (jnp.arange(columns) == word)), free

    def _suppressed(self, sentences: Sentences, columns: int) -> jax.Array:
        """Which columns hold suppressed words, ``[columns]`` or ``[batch, 1, columns]``."""
        if sentences.candidates is None:
            suppressed = np.zeros(columns, bool)
            suppressed[list(self.suppressed)] = True
            return jnp.asarray(suppressed)
        words = np.asarray(self.suppressed, np.int32)
        return jnp.any(sentences.candidates[:, None, :, None] == words, axis=-1)

    def _noise(self, sentences: Sentences, steps: jax.Array, count: int) -> jax.Array:
        """Noise ``[batch, beam, columns]``; a word's noise does not depend on the shortlist."""

        def of_sentence(key: jax.Array, step: jax.Array) -> jax.Array:
            key = threefry.fold_in(jax.random.wrap_key_data(key, impl=threefry.NAME), step)
            return gumbel(key, (count, self.words))

        noise = jax.vmap(of_sentence)(sentences.keys, steps)
        if sentences.candidates is None:
            return noise
        return jnp.take_along_axis(noise, sentences.candidates[:, None, :], axis=-1)


def first_best(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first index of the highest score of each row, int32 ``[rows, 1]``, and that score.

    Like ``argmax``, which XLA's CPU compiler does not vectorize: two plain reductions take a tenth of the
    time.
    """
    columns = scores.shape[-1]
    best = jnp.max(scores, axis=-1, keepdims=True)
    numbers = jnp.where(scores == best, jnp.arange(columns, dtype=jnp.int32), columns - 1)
    return jnp.min(numbers, axis=-1, keepdims=True), best


def best_extensions(scores: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Column, origin (place in the beam) and score of the ``beam`` best extensions of each sentence, each
    ``[batch, beam]``, in descending order of score; ties in any order.

    scores: float32 ``[batch, beam, columns]``.

    Columns are cut into blocks. The ``beam`` best extensions lie in the ``beam`` blocks with the highest
    maxima, so all other blocks are read only once. On a CPU with 4 beams of 32,000 words this takes a tenth
    of the time of a plain top-k.
    """
    batch, beam, columns = scores.shape
    blocks = min(-(-math.isqrt(columns) // LANES) * LANES, columns)
    whole = columns // blocks
    # Block b holds columns b, b + blocks, b + 2 * blocks, ...; the first blocks may have one more.
    most = jnp.max(scores[..., : whole * blocks].reshape(batch, beam, whole, blocks), axis=2)
    if more := columns - whole * blocks:
        first = jnp.maximum(most[..., :more], scores[..., whole * blocks :])
        most = jnp.concatenate([first, most[..., more:]], axis=-1)
    _, promising = lax.top_k(most.reshape(batch, -1), beam)
    steps = jnp.arange(-(-columns // blocks), dtype=jnp.int32) * blocks
    column = (promising % blocks)[:, :, None] + steps
    origin = jnp.broadcast_to((promising // blocks)[:, :, None], column.shape)
    inside = jnp.minimum(column, columns - 1)
    kept = jnp.take_along_axis(
        scores.reshape(batch, -1), (origin * columns + inside).reshape(batch, -1), axis=1
    )
    best, places = lax.top_k(jnp.where((column < columns).reshape(batch, -1), kept, NONE), beam)
    column, origin = (jnp.take_along_axis(a.reshape(batch, -1), places, axis=1) for a in (inside, origin))
    return column, origin, best


def _listed(sentences: Sentences) -> jax.Array:
    """Which columns are candidates, not padding, ``[batch, 1, candidates]``."""
    columns = jnp.arange(sentences.candidates.shape[1])
    return (columns < sentences.counts[:, None])[:, None, :]
