"""A lane of beam search: rows of equal size, searched by one compiled loop, which sentences enter and leave.

Each row holds one sentence, searched as Marian searches it alone (``--mini-batch 1``): its beam has
``slots`` hypotheses, loses one with each ``</s>``, and stops at the sentence's length limit. If only the best
hypothesis is wanted, a sentence is done once no living hypothesis can become the best. Rows have positions of
their own: when some are done, sentences that wait take them, inside the loop. Sizes never change, so that few
programs serve all sentences of a lane; nothing that a row computes depends on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mgraph import Plan, compiled, register_arrays
from nmt.models import Model, PackedSource, Source
from nmt.models.functions import PackedEncoder
from nmt.search.choice import Rules
from nmt.search.trellis import NONE, Arrays, Beam, Ranking, Sentences, Trellis

T = TypeVar("T")
UNUSED = "jax"
"""The kind of derivatives for functions that are never differentiated: the fastest to trace."""
PART = 16
CUT = -1
"""The outcome of a sentence for which its lane has no room."""


@dataclass(frozen=True)
class LaneShape:
    """The sizes of a lane.

    rows: sentences that are searched at once. waiting: how many wait, encoded, for rows. entering: how many
    enter at once. beam: hypotheses of a sentence. sources, length: source streams, and their padded length.
    capacity: the maximum number of steps of a sentence. places: for the words of its hypotheses, if models
    keep them. bins: in how many bins of how many words those who wait are packed; None if each is padded.
    candidates: padded size of the shortlists; 0 without them. listed: how many words are in any of them, at
    most. forced: whether first words are
    forced. attention: whether to return the first model's attention. rules: how words are chosen.
    """

    rows: int
    waiting: int
    entering: int
    beam: int
    sources: int
    length: int
    capacity: int
    places: int
    bins: tuple[int, int] | None
    candidates: int
    listed: int
    forced: bool
    attention: bool
    rules: Rules

    @property
    def parts(self) -> tuple[int, ...]:
        """``places`` in parts: the last one is not read while all words have places before it."""
        first = -(-self.places // (3 * PART)) * PART
        return (first, self.places - first) if self.places > 2 * PART else (self.places,)

    @property
    def desks(self) -> int:
        """How many sentences may be known to the lane at once: a sentence keeps its trellis at its desk."""
        return self.rows + self.waiting

    def __str__(self) -> str:
        """``32 rows x 6 beams, 24 words, 56 steps``, for the log."""
        parts = [
            f"{self.rows} row{'s' * (self.rows > 1)} x {self.beam} beam{'s' * (self.beam > 1)}",
            f"{self.length} words",
            f"{self.capacity} steps",
        ]
        parts += [f"shortlists of {self.candidates}"] * bool(self.candidates)
        return ", ".join(parts + ["first words"] * self.forced + ["attention"] * self.attention)


@register_arrays
@dataclass(frozen=True)
class LaneState:
    """The arrays of a lane; axis 0 is the row, or ``row * beam + place in the beam``.

    desks int32 ``[rows]``: of the sentences, past the last one for rows without. trellis: by desk.
    """

    desks: Any
    sentences: Sentences
    encoded: tuple[Arrays, ...]
    beam: Beam
    trellis: Trellis


@register_arrays
@dataclass(frozen=True)
class Arrivals:
    """Sentences that wait for rows, the first ``count`` of these.

    desks int32 ``[waiting]``: for each. encoded: the encoder states of all models, or for packed sentences
    what these are arranged from (``Model.packed_encoder``).
    With shortlists: listed int32 ``[listed]``, the words in those of all sentences, in rows too; columns
    int32 ``[desks, candidates]``, the places of each sentence's candidates among them.
    """

    count: Any
    desks: Any
    sentences: Sentences
    encoded: tuple[Arrays, ...]
    listed: Any = None
    columns: Any = None


@register_arrays
@dataclass(frozen=True)
class LaneReport:
    """What the host reads after some steps; axis 0 is the desk.

    outcomes int32: how many steps a sentence took that is done, ``CUT``, or 0.
    """

    outcomes: Any
    trellis: Trellis


def params_of(models: Sequence[Model]) -> tuple[dict[str, jax.ShapeDtypeStruct], ...]:
    """The shapes and types of the parameters of models."""
    return tuple({name: _spec(*a.shape, kind=a.dtype) for name, a in m.params.items()} for m in models)


def _spec(*shape: int, kind: Any = np.int32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, kind)


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
            _spec(rows),
            self._sentences(rows),
            tuple(stepper.encoder_state for stepper in steppers),
            Beam(
                steps=_spec(rows),
                slots=_spec(rows),
                best=_spec(rows, kind=np.float32),
                words=_spec(rows, beam),
                paths=_spec(rows, beam, kind=np.float32),
                scores=_spec(rows, beam, models, kind=np.float32),
                decoders=tuple(stepper.decoder_state for stepper in steppers),
            ),
            Trellis(
                words=_spec(*every),
                origins=_spec(*every),
                paths=_spec(*every, kind=np.float32),
                scores=_spec(*every, models, kind=np.float32),
                attention=_spec(*every, shape.length, kind=np.float32) if shape.attention else None,
            ),
        )

    def arrivals(self) -> Arrivals:
        """Sentences that wait. Shapes only."""
        shape, waiting = self.shape, self.shape.waiting

        def of_those(array: Any) -> jax.ShapeDtypeStruct:
            first, *others = array.shape
            return _spec(first // shape.rows * waiting, *others, kind=array.dtype)

        if shape.bins:
            encoded: Any = tuple(encoder.projected for encoder in self.packed_encoders())
        else:
            known = tuple(stepper.encoder_state for stepper in self.steppers(shape.rows))
            encoded = jax.tree.map(of_those, known)
        arrivals = Arrivals(_spec(), _spec(waiting), self._sentences(waiting), encoded)
        if not shape.candidates:
            return arrivals
        return replace(arrivals, listed=_spec(shape.listed), columns=_spec(shape.desks, shape.candidates))

    def packed_encoders(self) -> list[PackedEncoder]:
        """The encoders of packed sentences, of all models."""
        shape = self.shape
        assert shape.bins is not None
        return packed_encoders(self.models, shape.waiting, shape.entering, shape.length, shape.bins)

    def _sentences(self, count: int) -> Sentences:
        """What is known of so many sentences. Shapes only."""
        shape, listed = self.shape, self.shape.candidates > 0
        return Sentences(
            limits=_spec(count),
            empty=_spec(count, kind=np.bool_),
            prefixes=_spec(count, shape.capacity) if shape.forced else None,
            candidates=_spec(count, shape.candidates) if listed else None,
            counts=_spec(count) if listed else None,
            keys=_spec(count, 2, kind=np.uint32) if shape.rules.sampling else None,
        )

    def advance(
        self,
        params: Sequence[Arrays],
        state: LaneState,
        waiting: Arrivals,
        weights: jax.Array,
        ranking: Ranking | None,
        enough: jax.Array,
    ) -> tuple[LaneState, LaneReport]:
        """Search until nothing waits, and at most ``enough`` rows are left with sentences that are not done.

        With a ``ranking`` a sentence is done once none of its living hypotheses can become the best by it.
        """
        shape = self.shape
        steppers = self.steppers(shape.rows)
        outcomes = jnp.zeros(shape.desks, jnp.int32)
        parameters = [self._with_listed(*each, waiting) for each in zip(self.models, params, strict=True)]

        def living(state: LaneState) -> jax.Array:
            return jnp.sum(state.beam.slots > 0, dtype=jnp.int32)

        def left(entered: jax.Array) -> jax.Array:
            return waiting.count - entered

        def unfinished(carry: tuple[jax.Array, LaneState, jax.Array]) -> jax.Array:
            entered, state, _ = carry
            return (left(entered) > 0) | (living(state) > enough)

        def turn(carry: tuple[jax.Array, LaneState, jax.Array]) -> tuple[jax.Array, LaneState, jax.Array]:
            entered, state, outcomes = carry
            entered, state = self._entered(params, entered, state, waiting)
            more = jnp.minimum(left(entered), shape.entering)
            until = jnp.where(more > 0, shape.rows - more, enough)

            def busy(carry: tuple[LaneState, jax.Array]) -> jax.Array:
                return living(carry[0]) > until

            def step(carry: tuple[LaneState, jax.Array]) -> tuple[LaneState, jax.Array]:
                return self._stepped(parameters, steppers, *carry, waiting.columns, weights, ranking)

            return entered, *lax.while_loop(busy, step, (state, outcomes))

        _, state, outcomes = lax.while_loop(unfinished, turn, (jnp.int32(0), state, outcomes))
        return state, LaneReport(outcomes, state.trellis)

    def _with_listed(self, model: Model, params: Arrays, waiting: Arrivals) -> Arrays:
        """The parameters of a model, with those of the listed words."""
        if self.shape.listed in (0, model.dim_vocabs[-1]):
            return params
        return {**params, **model.listing(self.shape.listed, derivatives=UNUSED)(params, waiting.listed)}

    def _entered(
        self, params: Sequence[Arrays], entered: jax.Array, state: LaneState, waiting: Arrivals
    ) -> tuple[jax.Array, LaneState]:
        """Put sentences that wait into free rows, with one empty hypothesis each."""
        shape, count = self.shape, self.shape.entering
        free = state.beam.slots == 0
        _, rows = lax.top_k(free.astype(jnp.float32), count)
        numbers = jnp.arange(count, dtype=jnp.int32)
        some = jnp.minimum(waiting.count - entered, jnp.sum(free, dtype=jnp.int32))
        rows = jnp.where(numbers < some, rows, shape.rows)  # past the last one nothing is written
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
        positions = jnp.where(before, beam.steps, 0)  # what is done keeps no words
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
        full = extended.steps >= shape.capacity
        for step in made:
            full |= False if step.full is None else step.full > 0
        full &= extended.slots > 0
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
            Beam(steps, slots, beam.best, words, living, total, decoders),
            Trellis(words, origins, paths, total, attention),
        )


def packed_encoders(
    models: Sequence[Model], waiting: int, entering: int, length: int, bins: tuple[int, int]
) -> list[PackedEncoder]:
    """The encoders of packed sentences for lanes of these sizes, see ``LaneShape``."""
    return [
        model.packed_encoder(waiting, entering, (length,) * model.sources, *bins, derivatives=UNUSED)
        for model in models
    ]


def encode(
    models: Sequence[Model], params: Sequence[Arrays], sources: Sequence[Source], length: int
) -> tuple[Arrays, ...]:
    """The encoder states of sentences, for a lane of sources of ``length`` words.

    sources: for each stream ids and mask ``[sentences, door]``, where the door is at most that length.
    """
    count, door = sources[0].ids.shape
    found = []
    for model, own in zip(models, params, strict=True):
        arrays = model.encoder(count, (door,) * model.sources, derivatives=UNUSED)(
            own, sources[: model.sources]
        )
        if door < length:
            whole = model.encoder(count, (length,) * model.sources, derivatives=UNUSED)
            arrays = _padded(arrays, whole.state)
        found.append(arrays)
    return tuple(found)


def _padded(arrays: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
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
class LanePlan(Plan, by_key=["models"], code=["layers", "nmt"]):
    """``LaneLoop.advance`` for models of these shapes.

    ranked: whether searches end early.
    """

    models: tuple[Model, ...]
    shape: LaneShape
    ranked: bool

    @property
    def donated(self) -> tuple[int, ...]:
        return (1,)

    def __str__(self) -> str:
        return f"beam search: {self.shape}"

    def inputs(self) -> tuple[Any, ...]:
        loop, number = LaneLoop(self.models, self.shape), _spec(kind=np.float32)
        ranking = Ranking(number, number) if self.ranked else None
        weights = _spec(len(self.models), kind=np.float32)
        return params_of(self.models), loop.empty(), loop.arrivals(), weights, ranking, _spec()

    def __call__(self, *arguments: Any) -> Any:
        return LaneLoop(self.models, self.shape).advance(*arguments)


@dataclass(frozen=True)
class EncodePlan(Plan, by_key=["models"], code=["layers", "nmt"]):
    """Encodes sentences that wait for a lane: ``encode``, or if they are packed what encoder states are
    arranged from.

    waiting, entering, sources, length: see ``LaneShape``. packed: whether sentences are. size: of the ids of
    a source, bins or sentences, and words.
    """

    models: tuple[Model, ...]
    waiting: int
    entering: int
    sources: int
    length: int
    packed: bool
    size: tuple[int, int]

    def __str__(self) -> str:
        """``encoding: 32 sentences of 48 words in 4 x 128``, for the log."""
        return f"encoding: {self.waiting} sentences of {self.length} words in {self.size[0]} x {self.size[1]}"

    def inputs(self) -> tuple[Any, ...]:
        ids, laid_out = _spec(*self.size), (self.waiting, self.length)
        source: Any = Source(ids, _spec(*self.size, kind=np.float32))
        if self.packed:
            source = PackedSource(ids, ids, ids, _spec(*laid_out), _spec(*laid_out, kind=np.float32))
        return params_of(self.models), [source] * self.sources

    def __call__(self, params: Sequence[Arrays], sources: Any) -> Any:
        if not self.packed:
            return encode(self.models, params, sources, self.length)
        encoders = packed_encoders(self.models, self.waiting, self.entering, self.length, self.size)
        parts = zip(encoders, self.models, params, strict=True)
        return tuple(encoder(own, sources[: model.sources]) for encoder, model, own in parts)


class Lane:
    """The rows of a lane on the device, and which of its desks are taken."""

    def __init__(self, models: tuple[Model, ...], shape: LaneShape, *, ranked: bool) -> None:
        self.shape, self._models = shape, models
        self._advance = compiled(LanePlan(models, shape, ranked))
        device, *_ = next(iter(models[0].params.values())).devices()
        # Put on a device by name, as what stored programs return is: otherwise JAX compiles for both.
        self._state = jax.tree.map(
            lambda spec: jax.device_put(np.zeros(spec.shape, spec.dtype), device), self._advance.inputs()[1]
        )
        self._waiting: Arrivals | None = None
        self.taken = np.zeros(shape.desks, bool)
        self._candidates = np.zeros((shape.desks, shape.candidates), np.int32)

    def wait(
        self,
        params: Sequence[Arrays],
        sources: Sequence[Source] | Sequence[PackedSource],
        sentences: Sentences,
        count: int,
    ) -> np.ndarray:
        """Encode the first ``count`` of the sentences, arrays of ``waiting`` rows, and let them wait at free
        desks; returns those."""
        shape, size = self.shape, sources[0].ids.shape
        sizes = shape.waiting, shape.entering, len(sources), shape.length
        plan = EncodePlan(self._models, *sizes, shape.bins is not None, size)
        encoded = compiled(plan)(params, sources)
        free = np.flatnonzero(~self.taken)[:count]
        desks = np.resize(free, self.shape.waiting).astype(np.int32)
        self._waiting = Arrivals(np.int32(count), desks, sentences, encoded)
        self.taken[free] = True
        if shape.candidates:
            self._candidates[free] = sentences.candidates[:count]
            listed, columns = self._listed()
            self._waiting = replace(self._waiting, listed=listed, columns=columns)
        return free

    def _listed(self) -> tuple[np.ndarray, np.ndarray]:
        """The words in any shortlist of those who wait or are in rows, and where each candidate is there."""
        size = self.shape.rules.words
        if self.shape.listed == size:
            return np.arange(size, dtype=np.int32), self._candidates.copy()
        places = np.zeros(size, np.int32)
        places[self._candidates[self.taken]] = 1
        words = np.flatnonzero(places).astype(np.int32)
        places[words] = np.arange(len(words))
        return np.resize(words, self.shape.listed), places[self._candidates]

    def advance(
        self, params: Sequence[Arrays], weights: np.ndarray, ranking: Ranking | None, enough: int
    ) -> tuple[np.ndarray, LaneReport]:
        """Search until nothing waits, and at most ``enough`` sentences are not done; returns the desks of
        those that are, which are free again, and the report about all, in NumPy arrays."""
        assert self._waiting is not None
        given = self._state, self._waiting, weights, ranking, np.int32(enough)
        self._waiting = replace(self._waiting, count=np.int32(0))
        self._state, report = self._advance(params, *given)
        report = jax.device_get(report)
        done = np.flatnonzero(report.outcomes)
        self.taken[done] = False
        return done, report
