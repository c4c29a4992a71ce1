"""A lane of beam search: rows of equal size, searched by one compiled loop, which sentences enter and leave.

Each row holds one sentence, searched as Marian searches it alone (``--mini-batch 1``): its beam has
``slots`` hypotheses, loses one with each ``</s>``, and stops at the sentence's length limit. If only the best
hypothesis is wanted, a sentence is done once no living hypothesis can become the best. Rows have positions of
their own: when some are done, the loop ends, and sentences that wait take their rows. Sizes never change, so
that two programs serve all sentences of a lane; nothing that a row computes depends on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mgraph import Plan, compiled
from nmt.models import Model, Source
from nmt.search.choice import Rules
from nmt.search.trellis import NONE, Arrays, Beam, Ranking, Sentences, Trellis

T = TypeVar("T")
UNUSED = "jax"
"""The kind of derivatives for functions that are never differentiated: the fastest to trace."""


@dataclass(frozen=True)
class LaneShape:
    """The sizes of a lane.

    rows: sentences at once. entering: how many enter at once. beam: hypotheses of a sentence.
    sources, length: source streams, and their padded length. capacity: the maximum number of steps of a
    sentence. places: for the words of its hypotheses, if models keep them.
    candidates: padded size of the shortlists; 0 without them. forced: whether first words are forced.
    attention: whether to return the first model's attention. rules: how words are chosen.
    """

    rows: int
    entering: int
    beam: int
    sources: int
    length: int
    capacity: int
    places: int
    candidates: int
    forced: bool
    attention: bool
    rules: Rules

    def __str__(self) -> str:
        """``32 rows x 6 beams, 24 words, 56 steps``, for the log."""
        parts = [
            f"{self.rows} row{'s' * (self.rows > 1)} x {self.beam} beam{'s' * (self.beam > 1)}",
            f"{self.length} words",
            f"{self.capacity} steps",
        ]
        parts += [f"shortlists of {self.candidates}"] * bool(self.candidates)
        return ", ".join(parts + ["first words"] * self.forced + ["attention"] * self.attention)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LaneState:
    """The arrays of a lane; axis 0 is the row, or ``row * beam + place in the beam``."""

    sentences: Sentences
    encoded: tuple[Arrays, ...]
    beam: Beam
    trellis: Trellis


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LaneReport:
    """What the host reads after some steps: as in ``Beam`` and ``LaneState``."""

    steps: Any
    slots: Any
    cut: Any
    trellis: Trellis


class LaneLoop:
    """The search of a lane, as pure functions to compile.

    models: one or more with the same target vocabulary. The score of a word is the weighted sum of their
        log-probabilities. Each model reads its first ``sources`` streams.
    """

    def __init__(self, models: Sequence[Model], shape: LaneShape) -> None:
        self.models, self.shape = models, shape

    def steppers(self, rows: int) -> list[Any]:
        """The decoders of all models for so many rows."""
        shape = self.shape
        return [
            model.stepper(
                rows,
                shape.beam,
                (shape.length,) * model.sources,
                shape.places,
                attention=shape.attention and number == 0,
                candidates=shape.candidates,
                by_sentence=True,
                derivatives=UNUSED,
            )
            for number, model in enumerate(self.models)
        ]

    def empty(self, rows: int) -> LaneState:
        """Rows without sentences: all arrays are zeros. Shapes only."""
        shape, models = self.shape, len(self.models)

        def array(*sizes: int, kind: Any = jnp.int32) -> Any:
            return jax.ShapeDtypeStruct((rows, *sizes), kind)

        def floats(*sizes: int) -> Any:
            return array(*sizes, kind=jnp.float32)

        steppers, beam, every = self.steppers(rows), shape.beam, (shape.capacity, shape.beam)
        listed = shape.candidates > 0
        return LaneState(
            Sentences(
                limits=array(),
                empty=array(kind=jnp.bool_),
                prefixes=array(shape.capacity) if shape.forced else None,
                candidates=array(shape.candidates) if listed else None,
                counts=array() if listed else None,
                keys=array(2, kind=jnp.uint32) if shape.rules.sampling else None,
            ),
            tuple(stepper.encoder_state for stepper in steppers),
            Beam(
                steps=array(),
                slots=array(),
                cut=array(kind=jnp.bool_),
                best=floats(),
                words=array(beam),
                paths=floats(beam),
                scores=floats(beam, models),
                decoders=tuple(stepper.decoder_state for stepper in steppers),
            ),
            Trellis(
                words=array(*every),
                origins=array(*every),
                paths=floats(*every),
                scores=floats(*every, models),
                attention=floats(*every, shape.length) if shape.attention else None,
            ),
        )

    def enter(
        self,
        params: Sequence[Arrays],
        state: LaneState,
        sources: Sequence[Source],
        sentences: Sentences,
        rows: jax.Array,
    ) -> LaneState:
        """Encode sentences, and put them into ``rows`` with one empty hypothesis each.

        sources: for each stream ids and mask ``[entering, door]``, where the door is a length at most that of
        the lane. rows int32 ``[entering]``: those past the last row of the lane are for sentences that do not
        exist.
        """
        shape, count = self.shape, self.shape.entering
        door = sources[0].ids.shape[1]
        steppers = self.steppers(count)
        encoded = tuple(
            _padded(
                model.encoder(count, (door,) * model.sources, derivatives=UNUSED)(
                    own, sources[: model.sources]
                ),
                stepper.encoder_state,
            )
            for model, own, stepper in zip(self.models, params, steppers, strict=True)
        )
        starts = zip(steppers, params, encoded, strict=True)
        paths = jnp.where(jnp.arange(shape.beam) == 0, jnp.float32(0), jnp.float32(NONE))
        beam = Beam(
            steps=jnp.zeros(count, jnp.int32),
            slots=jnp.full(count, shape.beam, jnp.int32),
            cut=jnp.zeros(count, bool),
            best=jnp.full(count, NONE, jnp.float32),
            words=jnp.zeros((count, shape.beam), jnp.int32),
            paths=jnp.broadcast_to(paths, (count, shape.beam)),
            scores=jnp.zeros((count, shape.beam, len(self.models)), jnp.float32),
            decoders=tuple(stepper.start(own, source) for stepper, own, source in starts),
        )

        def put(before: jax.Array, new: jax.Array) -> jax.Array:
            by_row = before.reshape(shape.rows, -1, *before.shape[1:])
            new = new.reshape(count, -1, *new.shape[1:])
            return by_row.at[rows].set(new, mode="drop").reshape(before.shape)

        return LaneState(
            jax.tree.map(put, state.sentences, sentences),
            jax.tree.map(put, state.encoded, encoded),
            jax.tree.map(put, state.beam, beam),
            state.trellis,
        )

    def advance(
        self,
        params: Sequence[Arrays],
        state: LaneState,
        weights: jax.Array,
        ranking: Ranking | None,
        enough: jax.Array,
    ) -> tuple[LaneState, LaneReport]:
        """Search until at most ``enough`` rows are left with sentences that are not done.

        With a ``ranking`` a sentence is done once none of its living hypotheses can become the best by it.
        """
        shape, sentences, encoded = self.shape, state.sentences, state.encoded
        steppers = self.steppers(shape.rows)
        rows = jnp.arange(shape.rows)

        def unfinished(carry: tuple[Beam, Trellis]) -> jax.Array:
            beam, _ = carry
            return jnp.sum(beam.slots > 0) > enough

        def extend(carry: tuple[Beam, Trellis]) -> tuple[Beam, Trellis]:
            beam, trellis = carry
            positions = jnp.where(beam.slots > 0, beam.steps, 0)  # what is done keeps no words
            parts = zip(steppers, params, encoded, beam.decoders, strict=True)
            made = [
                stepper.step(own, source, state, beam.words.reshape(-1), positions, sentences.candidates)
                for stepper, own, source, state in parts
            ]
            extended, column = self._extended(weights, sentences, beam, made)
            if ranking is not None:
                extended = _without_hopeless(extended, column, sentences, ranking)
            full = extended.steps >= shape.capacity
            for step in made:
                full |= False if step.full is None else step.full > 0
            full &= extended.slots > 0
            extended = replace(extended, slots=jnp.where(full, 0, extended.slots), cut=extended.cut | full)
            # A row that is done has nothing more to write: past the end of an array it is dropped.
            at = jnp.where(beam.slots > 0, beam.steps, shape.capacity)
            trellis = jax.tree.map(lambda all, new: all.at[rows, at].set(new, mode="drop"), trellis, column)
            return extended, trellis

        beam, trellis = lax.while_loop(unfinished, extend, (state.beam, state.trellis))
        return LaneState(sentences, encoded, beam, trellis), LaneReport(
            beam.steps, beam.slots, beam.cut, trellis
        )

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
        steps = beam.steps + (beam.slots > 0)
        ended = (words == rules.eos) | (steps >= sentences.limits)[:, None]
        living = jnp.where(ended, NONE, paths)
        # A forced word leaves one hypothesis, but the beam stays as wide for the next steps.
        left = beam.slots - jnp.sum(ended & (paths != NONE), axis=1, dtype=jnp.int32)
        slots = jnp.where(jnp.any(living != NONE, axis=1), left, 0)
        decoders = reordered(tuple(step.state for step in made), origins)
        attention = None
        if self.shape.attention:
            chosen = (rows * width + origins).reshape(-1)
            attention = rows_of(made[0].attention, chosen).reshape(*words.shape, -1)
        return (
            Beam(steps, slots, beam.cut, beam.best, words, living, total, decoders),
            Trellis(words, origins, paths, total, attention),
        )


def _padded(arrays: Arrays, shapes: Mapping[str, Any]) -> Arrays:
    """``arrays`` with zeros at the end of the axes that are longer in ``shapes``."""

    def padded(array: jax.Array, shape: Sequence[int]) -> jax.Array:
        return jnp.pad(array, [(0, new - old) for old, new in zip(array.shape, shape, strict=True)])

    return {name: padded(array, shapes[name].shape) for name, array in arrays.items()}


def _without_hopeless(beam: Beam, made: Trellis, sentences: Sentences, ranking: Ranking) -> Beam:
    """Remove from ``beam`` the sentences whose best hypothesis is found, after a step that ``made`` some."""
    finished = jnp.where(beam.paths == NONE, made.paths, NONE)
    best = jnp.maximum(beam.best, jnp.max(ranking.scores(finished, beam.steps[:, None]), axis=1))
    bound = ranking.bound(jnp.max(beam.paths, axis=1), sentences.limits)
    return replace(beam, best=best, slots=jnp.where(best >= bound, 0, beam.slots))


def reordered(states: T, origins: jax.Array) -> T:
    """``states`` after hypotheses have changed places: each has its origin's.

    Arrays ``[batch * beam, ...]`` are reordered; arrays ``[batch, ...]`` are what hypotheses share, and stay.
    origins int32 ``[batch, beam]``: the beam place that a hypothesis extends.
    """
    batch, beam = origins.shape
    if beam == 1:
        return states
    rows = (jnp.arange(batch, dtype=jnp.int32)[:, None] * beam + origins).reshape(-1)
    return jax.tree.map(lambda a: rows_of(a, rows) if len(a) == batch * beam else a, states)


def rows_of(array: jax.Array, chosen: jax.Array) -> jax.Array:
    """The chosen rows, all in bounds: without the check a gather is a plain copy."""
    return array.at[chosen].get(mode="promise_in_bounds")


@dataclass(frozen=True)
class LanePlan(Plan, by_key=["models"]):
    """A function of ``LaneLoop`` for models of these shapes.

    ranked: whether searches end early. door: the length of sentences that enter.
    """

    name: str
    models: tuple[Model, ...]
    shape: LaneShape
    ranked: bool = False
    door: int = 0

    @property
    def donated(self) -> tuple[int, ...]:
        return (1,)

    def __str__(self) -> str:
        entering = f", {self.shape.entering} sentences of {self.door} words" * bool(self.door)
        return f"beam search ({self.name}): {self.shape}{entering}"

    def __call__(self, *arguments: Any) -> Any:
        return getattr(LaneLoop(self.models, self.shape), self.name)(*arguments)


class Lane:
    """The rows of a lane on the device, and which of them are taken."""

    def __init__(self, models: tuple[Model, ...], shape: LaneShape, *, ranked: bool) -> None:
        self.shape, self._models = shape, models
        self._advance = compiled(LanePlan("advance", models, shape, ranked))
        empty = LaneLoop(models, shape).empty(shape.rows)
        self._state = jax.tree.map(lambda spec: jax.device_put(np.zeros(spec.shape, spec.dtype)), empty)
        self.taken = np.zeros(shape.rows, bool)

    @property
    def living(self) -> int:
        """How many rows are taken."""
        return int(self.taken.sum())

    def enter(
        self, params: Sequence[Arrays], sources: Sequence[Source], sentences: Sentences, count: int
    ) -> np.ndarray:
        """Put the first ``count`` of the sentences, arrays of ``entering`` rows, into free rows; returns
        those."""
        free = np.flatnonzero(~self.taken)[:count]
        rows = np.full(self.shape.entering, self.shape.rows, np.int32)
        rows[:count] = free
        plan = LanePlan("enter", self._models, self.shape, door=sources[0].ids.shape[1])
        self._state = compiled(plan)(params, self._state, sources, sentences, rows)
        self.taken[free] = True
        return free

    def advance(
        self, params: Sequence[Arrays], weights: np.ndarray, ranking: Ranking | None, enough: int
    ) -> tuple[np.ndarray, LaneReport]:
        """Search until at most ``enough`` taken rows are not done; returns those that are, which are free
        again, and the report about all rows, in NumPy arrays."""
        self._state, report = self._advance(params, self._state, weights, ranking, np.int32(enough))
        report = jax.device_get(report)
        done = np.flatnonzero(self.taken & (report.slots == 0))
        self.taken[done] = False
        return done, report
