"""Beam search on the device: one compiled loop that extends the hypotheses of a whole batch.

Each sentence is searched as Marian searches it alone (``--mini-batch 1``): its beam has ``slots`` hypotheses,
loses one with each ``</s>``, and stops at the sentence's length limit. Arrays keep their size within the
loop; an empty beam place has a path score of minus infinity. If only the best hypothesis is wanted, a
sentence is done once no living hypothesis can become the best. When few sentences are left, the loop ends and
continues with them in smaller arrays. The host reads only the final ``Trellis``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from nmt.models import Model
from nmt.search.choice import Rules
from nmt.search.trellis import NONE, Arrays, Beam, Ranking, Sentences, Trellis

T = TypeVar("T")
FEW_HYPOTHESES = 32
"""Fewer hypotheses are hardly faster."""
BATCH_MULTIPLE = 8
"""Batches shrink to a multiple of this many sentences."""
UNUSED = "jax"
"""The kind of derivatives for functions that are never differentiated: the fastest to trace."""
LARGE = 1024
"""Numbers per hypothesis. If there are fewer, moving all rows is faster than choosing which to move."""


@dataclass(frozen=True)
class BeamShape:
    """The static shape of a search program.

    batch, beam, lengths: sentences, hypotheses per sentence, padded length of each source stream.
    candidates: padded size of the shortlists; 0 without them. capacity: the maximum number of steps.
    attention: whether to return the first model's attention. rules: how words are chosen.
    """

    batch: int
    beam: int
    lengths: tuple[int, ...]
    candidates: int
    capacity: int
    attention: bool
    rules: Rules

    def __str__(self) -> str:
        """``64 sentences x 6 beams, 32 words, 24 steps``, for the log."""
        parts = [
            f"{self.batch} sentence{'s' * (self.batch > 1)} x {self.beam} beam{'s' * (self.beam > 1)}",
            f"{' and '.join(map(str, self.lengths)) or 'no'} words",
            f"{self.capacity} steps",
        ]
        parts += [f"shortlists of {self.candidates}"] * bool(self.candidates) + ["attention"] * self.attention
        return ", ".join(parts)

    @property
    def smaller_batch(self) -> int:
        """The size to shrink the batch to when so few sentences are left: about a third. Each size is a
        program to compile, so there are few; small batches do not shrink."""
        if self.batch * self.beam <= FEW_HYPOTHESES:
            return self.batch
        third = -(-self.batch // (3 * BATCH_MULTIPLE)) * BATCH_MULTIPLE
        return min(self.batch, third)


class BeamLoop:
    """The search for fixed shapes, as pure functions to compile.

    models: one or more with the same target vocabulary. The score of a word is the weighted sum of their
        log-probabilities. Each model reads its first ``sources`` streams.
    """

    def __init__(self, models: Sequence[Model], shape: BeamShape) -> None:
        self.models, self.shape = models, shape
        self.steppers = [
            model.stepper(
                shape.batch,
                shape.beam,
                shape.lengths[: model.sources],
                shape.capacity,
                attention=shape.attention and number == 0,
                candidates=shape.candidates,
                derivatives=UNUSED,
            )
            for number, model in enumerate(models)
        ]

    def begin(self, params: Sequence[Arrays], sentences: Sentences) -> tuple[tuple[Arrays, ...], Beam]:
        """The encoded sentences, and beams with one empty hypothesis each."""
        batch, beam = self.shape.batch, self.shape.beam
        encoded = tuple(
            model.encoder(batch, self.shape.lengths[: model.sources], derivatives=UNUSED)(
                own, sentences.sources[: model.sources]
            )
            for model, own in zip(self.models, params, strict=True)
        )
        paths = jnp.where(jnp.arange(beam) == 0, jnp.float32(0), jnp.float32(NONE))
        return encoded, Beam(
            step=jnp.int32(0),
            slots=jnp.where(sentences.limits > 0, jnp.int32(beam), jnp.int32(0)),
            best=jnp.full(batch, NONE, jnp.float32),
            words=jnp.zeros((batch, beam), jnp.int32),
            paths=jnp.broadcast_to(paths, (batch, beam)),
            scores=jnp.zeros((batch, beam, len(self.steppers)), jnp.float32),
            decoders=self._decoders(params, encoded),
        )

    def regroup(
        self,
        params: Sequence[Arrays],
        sentences: Sentences,
        encoded: tuple[Arrays, ...],
        beam: Beam,
        kept: jax.Array,
    ) -> tuple[Sentences, tuple[Arrays, ...], Beam]:
        """Move a search with a larger batch or smaller capacity to this shape.

        kept int32 ``[batch]``: the rows of ``sentences``, ``encoded`` and ``beam`` to keep.
        """
        decoders = beam.decoders
        rest = replace(beam, step=None, decoders=())
        sentences, encoded, rest = jax.tree.map(lambda a: a[kept], (sentences, encoded, rest))
        hypotheses = kept[:, None] * self.shape.beam + jnp.arange(self.shape.beam, dtype=jnp.int32)
        room = jax.eval_shape(self._decoders, params, encoded)
        decoders = jax.tree.map(
            lambda a, larger: _enlarged(rows_of(a, hypotheses.reshape(-1)), larger.shape), decoders, room
        )
        return sentences, encoded, replace(rest, step=beam.step, decoders=decoders)

    def _decoders(self, params: Sequence[Arrays], encoded: Sequence[Arrays]) -> tuple[Arrays, ...]:
        parts = zip(self.steppers, params, encoded, strict=True)
        return tuple(stepper.start(own, source) for stepper, own, source in parts)

    def advance(
        self,
        params: Sequence[Arrays],
        weights: jax.Array,
        ranking: Ranking | None,
        sentences: Sentences,
        encoded: tuple[Arrays, ...],
        beam: Beam,
    ) -> tuple[Beam, Trellis]:
        """Search until the remaining sentences fit into a smaller batch, or the capacity is exhausted.

        With a ``ranking`` a sentence is done once none of its living hypotheses can become the best by it.
        The trellis has a row for each step of the capacity; rows before this loop's first step are empty.
        """
        shape = self.shape
        enough = shape.smaller_batch if shape.smaller_batch < shape.batch else 0

        def unfinished(carry: tuple[Beam, Trellis]) -> jax.Array:
            beam, _ = carry
            return (beam.step < shape.capacity) & (jnp.sum(beam.slots > 0) > enough)

        def extend(carry: tuple[Beam, Trellis]) -> tuple[Beam, Trellis]:
            beam, trellis = carry
            parts = zip(self.steppers, params, encoded, beam.decoders, strict=True)
            made = [
                stepper.step(own, source, state, beam.words.reshape(-1), beam.step, sentences.candidates)
                for stepper, own, source, state in parts
            ]
            extended, column = self._extended(weights, sentences, beam, made)
            if ranking is not None:
                extended = _without_hopeless(extended, column, sentences, ranking)
            return extended, jax.tree.map(
                lambda all, new: lax.dynamic_update_index_in_dim(all, new, beam.step, 0), trellis, column
            )

        attention = jnp.zeros((*beam.words.shape, shape.lengths[0])) if shape.attention else None
        empty = Trellis(beam.words, beam.words, beam.paths, beam.scores, attention)
        trellis = jax.tree.map(lambda like: jnp.zeros((shape.capacity, *like.shape), like.dtype), empty)
        return lax.while_loop(unfinished, extend, (beam, trellis))

    def _extended(
        self, weights: jax.Array, sentences: Sentences, beam: Beam, steps: Sequence[Any]
    ) -> tuple[Beam, Trellis]:
        """Extend each beam by its best words, and free the places of finished hypotheses."""
        rules, width = self.shape.rules, self.shape.beam
        scores = [rules.scores(sentences, step.logits) for step in steps]
        columns, origins, paths = rules.best(sentences, beam, scores, weights)
        dropped = (sentences.empty & (beam.step == 0))[:, None]
        columns = jnp.where(dropped, rules.column_of_eos(sentences), columns)
        rows = jnp.arange(self.shape.batch, dtype=jnp.int32)[:, None]
        words = columns if sentences.candidates is None else sentences.candidates[rows, columns]
        words = jnp.where(dropped, jnp.int32(rules.eos), words)
        paths = jnp.where(dropped, jnp.float32(0), paths)
        paths = jnp.where(jnp.arange(width) < beam.slots[:, None], paths, NONE)

        added = [score[rows, origins, columns] for score in scores]
        total = beam.scores[rows, origins] + jnp.stack(added, axis=-1)
        number = beam.step + 1
        ended = (words == rules.eos) | (number >= sentences.limits)[:, None]
        living = jnp.where(ended, NONE, paths)
        # A forced word leaves one hypothesis, but the beam stays as wide for the next steps.
        left = beam.slots - jnp.sum(ended & (paths != NONE), axis=1, dtype=jnp.int32)
        slots = jnp.where(jnp.any(living != NONE, axis=1), left, 0)
        decoders = reordered(tuple(step.state for step in steps), origins, living != NONE)
        attention = None
        if self.shape.attention:
            chosen = (rows * width + origins).reshape(-1)
            attention = rows_of(steps[0].attention, chosen).reshape(*words.shape, -1)
        return (
            Beam(number, slots, beam.best, words, living, total, decoders),
            Trellis(words, origins, paths, total, attention),
        )


def _without_hopeless(beam: Beam, made: Trellis, sentences: Sentences, ranking: Ranking) -> Beam:
    """Remove from ``beam`` the sentences whose best hypothesis is found, after a step that ``made`` some."""
    finished = jnp.where(beam.paths == NONE, made.paths, NONE)
    best = jnp.maximum(beam.best, jnp.max(ranking.scores(finished, beam.step), axis=1))
    bound = ranking.bound(jnp.max(beam.paths, axis=1), sentences.limits)
    return replace(beam, best=best, slots=jnp.where(best >= bound, 0, beam.slots))


def _enlarged(array: jax.Array, shape: Sequence[int]) -> jax.Array:
    """``array`` padded with zeros to ``shape``."""
    more = [(0, new - old) for old, new in zip(array.shape, shape, strict=True)]
    return jnp.pad(array, more)


def reordered(states: T, origins: jax.Array, living: jax.Array) -> T:
    """Reorder ``states``, arrays ``[batch * beam, ...]``, so that each living hypothesis has its origin's.

    origins int32 ``[batch, beam]``: the beam place that a hypothesis extends. living bool ``[batch, beam]``:
    the states of other hypotheses are arbitrary.

    Most of the cost is moving caches. On a CPU they are changed in place, and only where the order changes.
    """
    batch, beam = origins.shape
    if beam == 1:
        return states
    places = jnp.arange(beam, dtype=jnp.int32)
    chosen = jnp.where(living, origins, places)
    rows = (jnp.arange(batch, dtype=jnp.int32)[:, None] * beam + chosen).reshape(-1)
    leaves, structure = jax.tree.flatten(states)
    large = [leaf.size >= LARGE * batch * beam for leaf in leaves]
    caches = [leaf for leaf, is_large in zip(leaves, large, strict=True) if is_large]
    moved = iter(lax.platform_dependent(caches, chosen, rows, cpu=_in_place, default=_gathered))
    others = (rows_of(leaf, rows) for leaf, is_large in zip(leaves, large, strict=True) if not is_large)
    return jax.tree.unflatten(structure, [next(moved if is_large else others) for is_large in large])


def rows_of(array: jax.Array, chosen: jax.Array) -> jax.Array:
    """The chosen rows, all in bounds: without the check a gather is a plain copy."""
    return array.at[chosen].get(mode="promise_in_bounds")


def _gathered(caches: list[jax.Array], chosen: jax.Array, rows: jax.Array) -> list[jax.Array]:
    return [rows_of(cache, rows) for cache in caches]


def _in_place(caches: list[jax.Array], chosen: jax.Array, rows: jax.Array) -> list[jax.Array]:
    """Reorder sentence by sentence, reordered ones first; the loop ends before the others."""
    batch, beam = chosen.shape
    unmoved = jnp.all(chosen == jnp.arange(beam), axis=1)
    sentences = jnp.argsort(unmoved)

    def move(i: jax.Array, caches: list[jax.Array]) -> list[jax.Array]:
        sentence = sentences[i]
        first, places = sentence * beam, chosen[sentence]
        blocks = [lax.dynamic_slice_in_dim(cache, first, beam) for cache in caches]
        return [
            lax.dynamic_update_slice_in_dim(cache, rows_of(block, places), first, 0)
            for cache, block in zip(caches, blocks, strict=True)
        ]

    return lax.fori_loop(0, batch - jnp.sum(unmoved, dtype=jnp.int32), move, caches)
