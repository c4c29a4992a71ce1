"""A lane of beam search: rows of equal size, searched by one compiled loop; sentences enter and leave rows.

Each row holds one sentence, searched as Marian searches it alone (``--mini-batch 1``): its beam has
``slots`` hypotheses, loses one with each ``</s>``, and stops at the sentence's length limit. If only the best
hypothesis is wanted, a sentence is done once no live hypothesis can become the best. Each row has its own
position: when some rows are done, waiting sentences take them, inside the loop. Sizes never change, so a few
programs serve all sentences of a lane; nothing that a row computes depends on other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from nmt.models import Model
from nmt.models.functions import PackedEncoder
from nmt.search.encoding import UNUSED, packed_encoders
from nmt.search.lane_state import CUT, Arrivals, LaneReport, LaneShape, LaneState, spec
from nmt.search.trellis import NONE, Arrays, Beam, Ranking, Sentences, Trellis

T = TypeVar("T")
Noted = tuple[jax.Array, jax.Array]
"""The outcomes so far, and two counts: of steps, and of rows with sentences, summed over the steps."""


class LaneLoop:
    """The search of a lane, as pure functions to compile.

    models: one or more with the same target vocabulary. The score of a word is the weighted sum of their
        log-probabilities. Each model reads the first ``model.sources`` streams.
    """

    def __init__(self, models: Sequence[Model], shape: LaneShape) -> None:
        self.models, self.shape = models, shape

    def steppers(self, rows: int) -> list[Any]:
        """The decoders of all models for this many rows."""
        shape = self.shape
        return [
            model.stepper(
                rows,
                shape.beam,
                (shape.length,) * model.sources,
                shape.parts,
                attention=shape.attention and number == 0,
                candidates=shape.candidates,
                by_sentence=True,
                listed=shape.listed,
                derivatives=UNUSED,
            )
            for number, model in enumerate(self.models)
        ]

    def empty(self) -> LaneState:
        """Rows and desks without sentences: all arrays are zeros. Shapes only."""
        shape, models = self.shape, len(self.models)
        steppers, beam, rows = self.steppers(shape.rows), shape.beam, shape.rows
        every = shape.desks, shape.capacity, beam
        return LaneState(
            spec(rows),
            self._sentences(rows),
            tuple(stepper.encoder_state for stepper in steppers),
            Beam(
                steps=spec(rows),
                slots=spec(rows),
                best=spec(rows, kind=np.float32),
                words=spec(rows, beam),
                paths=spec(rows, beam, kind=np.float32),
                scores=spec(rows, beam, models, kind=np.float32),
                decoders=tuple(stepper.decoder_state for stepper in steppers),
            ),
            Trellis(
                words=spec(*every),
                origins=spec(*every),
                paths=spec(*every, kind=np.float32),
                scores=spec(*every, models, kind=np.float32),
                attention=spec(*every, shape.length, kind=np.float32) if shape.attention else None,
            ),
        )

    def arrivals(self) -> Arrivals:
        """Sentences that wait. Shapes only."""
        shape, waiting = self.shape, self.shape.waiting

        def of_those(array: Any) -> jax.ShapeDtypeStruct:
            first, *others = array.shape
            return spec(first // shape.rows * waiting, *others, kind=array.dtype)

        if shape.bins:
            encoded: Any = tuple(encoder.projected for encoder in self.packed_encoders())
        else:
            known = tuple(stepper.encoder_state for stepper in self.steppers(shape.rows))
            encoded = jax.tree.map(of_those, known)
        arrivals = Arrivals(spec(), spec(waiting), self._sentences(waiting), encoded)
        if not shape.candidates:
            return arrivals
        return replace(arrivals, listed=spec(shape.listed), columns=spec(shape.desks, shape.candidates))

    def packed_encoders(self) -> list[PackedEncoder]:
        """The encoders of packed sentences, of all models."""
        shape = self.shape
        assert shape.bins is not None
        return packed_encoders(self.models, shape.waiting, shape.entering, shape.length, shape.bins)

    def _sentences(self, count: int) -> Sentences:
        """The ``Sentences`` of ``count`` rows. Shapes only."""
        shape, listed = self.shape, self.shape.candidates > 0
        return Sentences(
            limits=spec(count),
            empty=spec(count, kind=np.bool_),
            prefixes=spec(count, shape.capacity) if shape.forced else None,
            candidates=spec(count, shape.candidates) if listed else None,
            counts=spec(count) if listed else None,
            keys=spec(count, 2, kind=np.uint32) if shape.rules.sampling else None,
        )

    def advance(
        self,
        params: Sequence[Arrays],
        state: LaneState,
        waiting: Arrivals,
        weights: jax.Array,
        ranking: Ranking | None,
        enough: jax.Array,
        most: jax.Array,
    ) -> tuple[LaneState, LaneReport]:
        """Search until no sentence waits, and at most ``enough`` sentences are unfinished or ``most`` steps
        are done.

        With a ``ranking``, a sentence is done once none of its live hypotheses can become the best by it.
        """
        shape = self.shape
        steppers = self.steppers(shape.rows)
        nothing = jnp.zeros(shape.desks, jnp.int32), jnp.zeros(2, jnp.int32)
        parameters = [self._with_listed(*each, waiting) for each in zip(self.models, params, strict=True)]

        def living(state: LaneState) -> jax.Array:
            return jnp.sum(state.beam.slots > 0, dtype=jnp.int32)

        def still_waiting(entered: jax.Array) -> jax.Array:
            return waiting.count - entered

        def unfinished(carry: tuple[jax.Array, LaneState, Noted]) -> jax.Array:
            entered, state, (_, counts) = carry
            return (still_waiting(entered) > 0) | ((living(state) > enough) & (counts[0] < most))

        def turn(carry: tuple[jax.Array, LaneState, Noted]) -> tuple[jax.Array, LaneState, Noted]:
            entered, state, noted = carry
            entered, state = self._entered(params, entered, state, waiting)
            more = jnp.minimum(still_waiting(entered), shape.entering)
            until = jnp.where(more > 0, shape.rows - more, enough)

            def busy(carry: tuple[LaneState, Noted]) -> jax.Array:
                state, (_, counts) = carry
                return (living(state) > until) & ((more > 0) | (counts[0] < most))

            def step(carry: tuple[LaneState, Noted]) -> tuple[LaneState, Noted]:
                state, (outcomes, counts) = carry
                counts += jnp.stack([jnp.int32(1), living(state)])
                known = state, outcomes, waiting.columns, weights, ranking
                state, outcomes = self._stepped(parameters, steppers, *known)
                return state, (outcomes, counts)

            return entered, *lax.while_loop(busy, step, (state, noted))

        _, state, noted = lax.while_loop(unfinished, turn, (jnp.int32(0), state, nothing))
        outcomes, (steps, taken) = noted
        return state, LaneReport(outcomes, state.trellis, steps, taken)

    def _with_listed(self, model: Model, params: Arrays, waiting: Arrivals) -> Arrays:
        """The parameters of a model, with those of the listed words."""
        if self.shape.listed in (0, model.dim_vocabs[-1]):
            return params
        return {**params, **model.listing(self.shape.listed, derivatives=UNUSED)(params, waiting.listed)}

    def _entered(
        self, params: Sequence[Arrays], entered: jax.Array, state: LaneState, waiting: Arrivals
    ) -> tuple[jax.Array, LaneState]:
        """Put waiting sentences into free rows, with one empty hypothesis each."""
        shape, count = self.shape, self.shape.entering
        free = state.beam.slots == 0
        _, rows = lax.top_k(free.astype(jnp.float32), count)
        numbers = jnp.arange(count, dtype=jnp.int32)
        some = jnp.minimum(waiting.count - entered, jnp.sum(free, dtype=jnp.int32))
        rows = jnp.where(numbers < some, rows, shape.rows)  # past the last row nothing is written
        chosen = jnp.minimum(entered + numbers, shape.waiting - 1)
        sentences, desks = jax.tree.map(lambda a: rows_of(a, chosen), (waiting.sentences, waiting.desks))
        encoded = self._encoded(params, waiting, chosen)
        parts = zip(self.models, self.steppers(count), params, encoded, strict=True)
        paths = jnp.where(jnp.arange(shape.beam) == 0, jnp.float32(0), jnp.float32(NONE))
        beam = Beam(
            steps=jnp.zeros(count, jnp.int32),
            slots=jnp.full(count, shape.beam, jnp.int32),
            best=jnp.full(count, NONE, jnp.float32),
            words=jnp.zeros((count, shape.beam), jnp.int32),
            paths=jnp.broadcast_to(paths, (count, shape.beam)),
            scores=jnp.zeros((count, shape.beam, len(self.models)), jnp.float32),
            decoders=tuple(
                {} if model.starts_blank else stepper.start(own, source)
                for model, stepper, own, source in parts
            ),
        )

        def put(before: jax.Array, new: jax.Array) -> jax.Array:
            by_row = before.reshape(shape.rows, -1, *before.shape[1:])
            new = new.reshape(count, -1, *new.shape[1:])
            return by_row.at[rows].set(new, mode="drop").reshape(before.shape)

        known = state.beam.decoders
        starting = tuple({k: all[k] for k in new} for all, new in zip(known, beam.decoders, strict=True))
        changed = jax.tree.map(
            put,
            (state.desks, state.sentences, state.encoded, replace(state.beam, decoders=starting)),
            (desks, sentences, encoded, beam),
        )
        desks, sentences, encoded, beam = changed
        decoders = tuple({**all, **new} for all, new in zip(known, beam.decoders, strict=True))
        beam = replace(beam, decoders=decoders)
        return entered + jnp.minimum(some, count), LaneState(desks, sentences, encoded, beam, state.trellis)

    def _encoded(self, params: Sequence[Arrays], waiting: Arrivals, chosen: jax.Array) -> tuple[Arrays, ...]:
        """The encoder states of some sentences that wait."""
        if not self.shape.bins:
            found: tuple[Arrays, ...] = jax.tree.map(lambda a: rows_of(a, chosen), waiting.encoded)
            return found
        parts = zip(self.packed_encoders(), params, waiting.encoded, strict=True)
        return tuple(encoder.arranged(own, projected, chosen) for encoder, own, projected in parts)

    def _stepped(
        self,
        params: Sequence[Arrays],
        steppers: Sequence[Any],
        state: LaneState,
        outcomes: jax.Array,
        columns: jax.Array | None,
        weights: jax.Array,
        ranking: Ranking | None,
    ) -> tuple[LaneState, jax.Array]:
        """One step of all rows."""
        shape, sentences, beam = self.shape, state.sentences, state.beam
        before = beam.slots > 0
        positions = jnp.where(before, beam.steps, 0)  # a finished row keeps no words
        if columns is not None:
            columns = rows_of(columns, jnp.minimum(state.desks, shape.desks - 1))
        parts = zip(steppers, params, state.encoded, beam.decoders, strict=True)
        made = [
            stepper.step(own, source, decoder, beam.words.reshape(-1), positions, columns)
            for stepper, own, source, decoder in parts
        ]
        extended, column = self._extended(weights, sentences, beam, made)
        if ranking is not None:
            extended = _without_hopeless(extended, column, sentences, ranking)
        full = (extended.steps >= shape.capacity) & (extended.slots > 0)
        for step in made:  # if its words found no place, the step itself is wrong
            full |= False if step.full is None else before & (step.full > 0)
        extended = replace(extended, slots=jnp.where(full, 0, extended.slots))
        # Past the end of an array nothing is written.
        desks = jnp.where(before, state.desks, shape.desks)
        trellis = jax.tree.map(
            lambda all, new: all.at[desks, positions].set(new, mode="drop"), state.trellis, column
        )
        done = jnp.where(extended.slots == 0, desks, shape.desks)
        outcome = jnp.where(full, jnp.int32(CUT), extended.steps)
        outcomes = outcomes.at[done].set(outcome, mode="drop")
        return LaneState(desks, sentences, state.encoded, extended, trellis), outcomes

    def _extended(
        self, weights: jax.Array, sentences: Sentences, beam: Beam, made: Sequence[Any]
    ) -> tuple[Beam, Trellis]:
        """Extend each beam by its best words, and free the places of finished hypotheses."""
        rules, width = self.shape.rules, self.shape.beam
        scores = [rules.scores(sentences, step.logits) for step in made]
        columns, origins, paths = rules.best(sentences, beam, scores, weights)
        dropped = (sentences.empty & (beam.steps == 0))[:, None]
        columns = jnp.where(dropped, rules.column_of_eos(sentences), columns)
        rows = jnp.arange(self.shape.rows, dtype=jnp.int32)[:, None]
        words = columns if sentences.candidates is None else sentences.candidates[rows, columns]
        words = jnp.where(dropped, jnp.int32(rules.eos), words)
        paths = jnp.where(dropped, jnp.float32(0), paths)
        paths = jnp.where(jnp.arange(width) < beam.slots[:, None], paths, NONE)

        added = [score[rows, origins, columns] for score in scores]
        total = beam.scores[rows, origins] + jnp.stack(added, axis=-1)
        steps = beam.steps + (beam.slots > 0).astype(beam.steps.dtype)
        ended = (words == rules.eos) | (steps >= sentences.limits)[:, None]
        living = jnp.where(ended, NONE, paths)
        # A forced word leaves one hypothesis, but the beam keeps its width for later steps.
        left = beam.slots - jnp.sum(ended & (paths != NONE), axis=1, dtype=jnp.int32)
        slots = jnp.where(jnp.any(living != NONE, axis=1), left, 0)
        decoders = reordered(tuple(step.state for step in made), origins)
        attention = None
        if self.shape.attention:
            chosen = (rows * width + origins).reshape(-1)
            attention = rows_of(made[0].attention, chosen).reshape(*words.shape, -1)
        return (
            Beam(steps, slots, beam.best, words, living, total, decoders),
            Trellis(words, origins, paths, total, attention),
        )


def _without_hopeless(beam: Beam, made: Trellis, sentences: Sentences, ranking: Ranking) -> Beam:
    """End the search of sentences whose best hypothesis is found; ``made`` are the last step's hypotheses."""
    finished = jnp.where(beam.paths == NONE, made.paths, NONE)
    best = jnp.maximum(beam.best, jnp.max(ranking.scores(finished, beam.steps[:, None]), axis=1))
    bound = ranking.bound(jnp.max(beam.paths, axis=1), sentences.limits)
    return replace(beam, best=best, slots=jnp.where(best >= bound, 0, beam.slots))


def reordered(states: T, origins: jax.Array) -> T:
    """``states`` after hypotheses have changed places: each gets the state of its origin.

    Arrays ``[batch * beam, ...]`` are reordered; arrays ``[batch, ...]``, which the hypotheses of a sentence
    share, stay. origins int32 ``[batch, beam]``: the place in the beam of the hypothesis that each extends.
    """
    batch, beam = origins.shape
    if beam == 1:
        return states
    rows = (jnp.arange(batch, dtype=jnp.int32)[:, None] * beam + origins).reshape(-1)
    return jax.tree.map(lambda a: rows_of(a, rows) if len(a) == batch * beam else a, states)


def rows_of(array: jax.Array, chosen: jax.Array) -> jax.Array:
    """The chosen rows, which must be in bounds: without a check, a gather is a plain copy."""
    return array.at[chosen].get(mode="promise_in_bounds")
