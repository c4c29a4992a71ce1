"""``BeamSearch``: beam search with Marian's results."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import jax
import numpy as np

from mgraph import callers_settings
from mgraph.device import memory_of, platform_of
from nmt.models import Model, PackedSource, Source
from nmt.search.choice import Rules, Sampling
from nmt.search.ids import require_ids
from nmt.search.lane import Lane
from nmt.search.lane_sizes import MOST_LANES, LaneRows, LaneSize, Lengths
from nmt.search.lane_state import CUT, LaneReport, LaneShape
from nmt.search.results import Hypothesis
from nmt.search.schedule import Found, Request, Searches, Waiting
from nmt.search.shortlist import MULTIPLE, Listed, Shortlist
from nmt.search.trellis import FREE, Arrays, Ranking, Sentences, best_hypotheses
from nmt.search.work import SearchWork
from nmt.settings import OptionError
from nmt.settings.sections import BeamOptions
from nmt.text.batches import pad, table
from nmt.text.packing import Bins
from nmt.text.parallel import source_names
from nmt.text.shapes import length_bucket
from nmt.text.vocabs.base import Vocab

logger = logging.getLogger(__name__)

MORE_STEPS = 16
BIN, PACKED = 128, 16  # words per bin, at least; words in all bins per waiting sentence
WAITING, ENTERING = 2, 8  # rows of a lane per waiting sentence, and per sentence entering at the same time
MOST_LISTED = 0.7  # share of the vocabulary; above it, the whole output matrix is multiplied
IDLE_BYTES = 1 << 28  # memory that idle lanes may keep; one call's lanes are kept even if they need more
NO_LIMIT = 1e6  # target words per source word
MOST_WORDS = MOST_STEPS = 1 << 30  # of a translation; counted in int32
SEEDS = 1 << 32


class BeamSearch:
    """Finds the best translations of sentences under one or several models.

    The result for each sentence is Marian's for that sentence alone (``--mini-batch 1``), whatever else is in
    the batch.

    - A beam holds ``beam_size`` hypotheses. Each step extends them by one word and keeps the best extensions
      by path score (float32 sum of log-probabilities). A hypothesis that ends in ``</s>`` is finished and
      narrows the beam by one. The search ends when all are finished, or, if only the best is wanted, when no
      live hypothesis can become the best.
    - A sentence of ``n`` source words, ``</s>`` included, gets at most ``max_length_factor * n`` target words
      (rounded up, at least one); hypotheses still live at that length count as finished.
    - Hypotheses are ranked by ``(path_score - word_penalty * m) / m ** normalize`` with ``m`` target words,
      ``</s>`` included. Among equals, the one found first wins.
    - A source without words becomes ``</s>`` with score 0, ``beam_size`` times.
    - Forced first words (``--force-decode``) are the only choice at their steps; the beam keeps its width for
      later steps. They may be unknown words, and they get the models' scores.
    - With a shortlist, probabilities are normalized over a sentence's candidates.
    - With sampling, a path score is the sum of the noisy, normalized scores by which words were drawn.

    models: share a target vocabulary; each reads the first ``model.sources`` streams.
    weights: of the models' log-probabilities; 1 each if None or empty.
    source_vocab, target_vocab: say which ids are ``</s>``, the unknown word and control characters.
    options: the sizes and the ranking above. Unknown words are never chosen without ``allow_unk``, nor
        control characters without allow_special; the probabilities of other words do not change.
    skip_cost: rank by the models' unnormalized logits.
    n_best: return ``beam_size`` hypotheses of each sentence instead of one.
    shortlist: chooses the candidates of each sentence from its first source.
    sampling: how words are drawn. seed: of the noise; 0 takes it from the clock.
    searches: how many lanes are searched at the same time, each in a thread. devices: used by the searches in
        turn; unless there are several, all use the device that holds the parameters.

    Raises OptionError, a ValueError, for models that do not fit together.
    """

    def __init__(
        self,
        models: Sequence[Model],
        weights: Sequence[float] | None = None,
        *,
        source_vocab: Vocab,
        target_vocab: Vocab,
        options: BeamOptions | None = None,
        allow_special: bool = False,
        skip_cost: bool = False,
        n_best: bool = False,
        shortlist: Shortlist | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        searches: int = 1,
        devices: Sequence[jax.Device] = (),
    ) -> None:
        options = options or BeamOptions()
        _check(models, weights)
        self.models = tuple(models)
        self.weights = np.asarray(weights or [1.0] * len(models), np.float32)
        self.beam_size = options.beam_size
        self.ranking = Ranking(np.float32(options.normalize), np.float32(options.word_penalty))
        self.max_length_factor = np.float32(min(options.max_length_factor, NO_LIMIT))
        self.count = self.beam_size if n_best else 1
        self.source_vocab, self.target_vocab = source_vocab, target_vocab
        self.shortlist = shortlist
        self.seed = (seed or time.time_ns()) % SEEDS
        self.streams = max(1, *(model.sources for model in self.models))
        dim = self.models[0].dim_vocabs[-1]
        unwanted = {
            *(() if options.allow_unk else (target_vocab.unk_id,)),
            *(() if allow_special else target_vocab.control_ids),
            *range(len(target_vocab), dim),  # a model may have more ids than its vocabulary
        }
        suppressed = tuple(sorted(word for word in unwanted if 0 <= word < dim))
        self.rules = Rules(dim, target_vocab.eos_id, suppressed, skip_cost, sampling)
        probable = not skip_cost and sampling is None and bool(np.all(self.weights >= 0))
        self._bounded = probable and self.ranking.bounded  # scores of words are at most 0
        self.searches = searches
        self._devices = tuple(devices) if len(devices) > 1 else (None,)
        self._lock = threading.Lock()
        self._copies: dict[jax.Device, tuple[tuple[Arrays, ...], tuple[Arrays, ...]]] = {}
        self._idle: list[tuple[Hashable, Lane]] = []
        platform = platform_of(None)
        self.lengths = Lengths(platform)
        memory = math.inf if platform == "cpu" else memory_of(None)
        self.rows = LaneRows(self.beam_size, platform, memory)
        self._candidates = 0
        self._listed: dict[int, int] = {}

    def search(
        self,
        *streams: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]] | None = None,
        numbers: Sequence[int] | None = None,
        attention: bool = False,
        count: int | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first. Arguments and errors as for ``found``."""
        results = dict(
            self.found(*streams, prefixes=prefixes, numbers=numbers, attention=attention, count=count)
        )
        return [results[index] for index in range(len(results))]

    def found(
        self,
        *streams: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]] | None = None,
        numbers: Sequence[int] | None = None,
        attention: bool = False,
        count: int | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The index of each sentence and its best hypotheses, best first, as soon as they are found.

        streams: for each source of the models (at least one), the word ids of the sentences, each ending in
            ``</s>``; any number of sentences of any length.
        prefixes: the first words of each translation; ``</s>`` leaves its position free.
        numbers: the sentences' numbers, which with the seed determine their noise; 0, 1, ... if None.
        attention: whether to return the first model's attention to the words of the first source.
        count: the maximum number of hypotheses per sentence; None for the number that ``n_best`` implies.

        Raises OptionError for streams that do not fit the models or each other, for sources without ids and
        ids that no vocabulary has, for too few numbers, for a count below 1, and for attention of a model
        without sources.
        """
        self._check_streams(streams, prefixes, attention)
        if numbers is not None and len(numbers) < len(streams[0]):
            raise OptionError(f"expected {len(streams[0])} numbers of sentences, got {len(numbers)}")
        count = self.count if count is None else count
        if not (isinstance(count, int) and count >= 1):
            raise OptionError(f"expected a count of hypotheses of at least 1, got {count!r}")
        requests = self._requests(streams, prefixes, numbers)
        if not requests:
            return
        job = Job(self, requests, prefixes is not None, attention, count)
        searches = Searches(job.searches, callers_settings())
        for found in searches.run(job.turns):
            yield from found
        work = job.work
        logger.debug("[search] %s", work, extra={"work": work})

    def limit(self, length: int) -> int:
        """The maximum number of target words for ``length`` source words, in float32 as in Marian."""
        return min(max(1, math.ceil(self.max_length_factor * np.float32(length))), MOST_WORDS)

    def _check_streams(
        self,
        streams: Sequence[Sequence[Sequence[int]]],
        prefixes: Sequence[Sequence[int]] | None,
        attention: bool,
    ) -> None:
        if len(streams) != self.streams:
            raise OptionError(f"the models need {self.streams} source stream(s), got {len(streams)}")
        sizes = {len(stream) for stream in [*streams, *([] if prefixes is None else [prefixes])]}
        if len(sizes) > 1:
            raise OptionError(f"expected streams with the same number of sentences, got {sorted(sizes)}")
        for place, (name, stream) in enumerate(zip(source_names(self.streams), streams, strict=True)):
            size = max((m.ids[place] for m in self.models if m.sources > place), default=math.inf)
            for number, source in enumerate(stream):
                require_ids(number, name, source, size, OptionError)
        if attention:
            self.require_attention()
        if prefixes is not None:
            self.require_prefixes()
            for number, prefix in enumerate(prefixes):
                require_ids(number, "prefix", prefix, self.models[0].ids[-1], OptionError, empty=True)

    def require_attention(self) -> None:
        """OptionError if the first model has no attention."""
        if not self.models[0].attends:
            raise OptionError("--alignment: the first model has no attention to a source")

    def require_prefixes(self) -> None:
        """OptionError if first words cannot be forced."""
        if self.shortlist is not None:
            raise OptionError("--force-decode cannot go with --shortlist, as in Marian")

    def _requests(
        self,
        streams: Sequence[Sequence[Sequence[int]]],
        prefixes: Sequence[Sequence[int]] | None,
        numbers: Sequence[int] | None,
    ) -> list[Request]:
        return [
            self.request(
                index,
                sources,
                None if prefixes is None else prefixes[index],
                index if numbers is None else numbers[index],
            )
            for index, sources in enumerate(zip(*streams, strict=True))
        ]

    def request(
        self, index: int, sources: Sequence[Sequence[int]], prefix: Sequence[int] | None, number: int
    ) -> Request:
        """The search request for one sentence; arguments as for ``found``."""
        candidates = None if self.shortlist is None else self.shortlist.candidates(sources[0])
        return Request(index, tuple(sources), self.limit(len(sources[0])), prefix, candidates, number)

    def sizes(self, requests: Sequence[Request]) -> list[LaneSize]:
        """The lanes for these sentences, shortest first."""
        lanes = self.lengths.lanes(request.length for request in requests)
        return [self.size(length) for length in lanes]

    def candidates(self, requests: Sequence[Request]) -> int:
        """The padded size of the sentences' shortlists, never less than in earlier calls; 0 without any."""
        found = [request.candidates for request in requests if request.candidates is not None]
        if not found:
            return 0
        most = -(-self.rules.words // MULTIPLE) * MULTIPLE
        needed = min(most, length_bucket(max(map(len, found))))
        with self._lock:
            self._candidates = max(self._candidates, needed)
            return self._candidates

    def listed(self, requests: Sequence[Request], rows: int) -> int:
        """The padded size of the union of the shortlists in a lane of ``rows`` rows that holds the longest of
        these sentences. Never less than in earlier calls; the whole vocabulary if most of it is listed."""
        words = self.rules.words
        union = Listed(words, words)
        longest = sorted(requests, key=lambda request: -request.length)
        for request in longest[: rows + max(1, rows // WAITING)]:
            if request.candidates is not None:
                union.add(request.candidates)
        needed = max(length_bucket(len(union)), self._candidates + 1)
        with self._lock:
            known = self._listed.get(rows, 0)
            self._listed[rows] = max(known, needed if needed < MOST_LISTED * words else words)
            return self._listed[rows]

    def size(self, length: int) -> LaneSize:
        """The lane for sources of ``length`` words, with room for nearly all of their translations."""
        capacity = min(self.limit(length), -(-(length * 5 // 4 + MORE_STEPS) // 8) * 8)
        places = capacity if self.beam_size == 1 else capacity * 2
        return LaneSize(length, capacity, min(places, capacity * self.beam_size))

    def whole(self, length: int) -> LaneSize:
        """The lane for sources of at most ``length`` words, with room for any translation: one lane for all
        unusually long translations, so that they share its programs."""
        capacity = self.limit(length)
        return LaneSize(length, capacity, capacity * self.beam_size)

    def bins(self, waiting: int, length: int) -> tuple[int, int] | None:
        """The number of bins for ``waiting`` sentences, and their width; None unless all models pack bins."""
        if not all(model.packs_bins for model in self.models):
            return None
        width = length if waiting == 1 else max(BIN, length)
        return -(-waiting * PACKED // width), width

    def device(self, number: int) -> jax.Device | None:
        """The device of search ``number``; None for the device that holds the parameters."""
        return self._devices[number % len(self._devices)]

    def params(self, device: jax.Device | None) -> tuple[Arrays, ...]:
        """The parameters of the models on a device."""
        own = tuple(model.params for model in self.models)
        if device is None:
            return own
        with self._lock:
            known = self._copies.get(device)
            if known is None or any(one is not other for one, other in zip(known[0], own, strict=True)):
                known = self._copies[device] = own, jax.device_put(own, device)
            return known[1]

    @contextmanager
    def lane(self, shape: LaneShape, ranked: bool, device: jax.Device | None) -> Iterator[Lane]:
        """A lane for this search alone until the block ends. The last lanes used are kept for later calls."""
        key = shape, ranked, device
        with self._lock:
            place = next((place for place, (known, _) in enumerate(self._idle) if known == key), None)
            lane = None if place is None else self._idle.pop(place)[1]
        if lane is None:
            lane = Lane(self.models, shape, ranked=ranked, device=device)
        yield lane
        with self._lock:  # not reached after an error, so such a lane is not reused
            self._idle.append((key, lane))
            held = np.cumsum([other.bytes for _, other in reversed(self._idle)])
            kept = max(MOST_LANES * self.searches, int(np.sum(held <= IDLE_BYTES)))
            del self._idle[:-kept]

    def ranking_for(self, count: int) -> Ranking | None:
        """The ranking by which a search for ``count`` hypotheses may end early; None if it may not."""
        return self.ranking if count == 1 and self._bounded else None


class Job:
    """Finds translations of some sentences, in one search or several at the same time.

    forced: whether first words are forced. attention, count: see ``BeamSearch.found``.
    """

    def __init__(
        self, search: BeamSearch, requests: Sequence[Request], forced: bool, attention: bool, count: int
    ) -> None:
        self.search, self.forced, self.attention, self.count = search, forced, attention, count
        self.candidates = search.candidates(requests)
        self.waiting = Waiting(requests, search.sizes(requests), search.beam_size)
        lengths = self.waiting.lengths()
        each = max(1, search.searches // len(lengths))
        self.rows = {size: search.rows.of_lane(size, own, each) for size, own in lengths.items()}
        turns = sum(-(-len(own) // self.rows[size]) for size, own in lengths.items())
        self.searches = min(search.searches, turns)
        self.work = SearchWork()
        self._noting = threading.Lock()
        self.listed = {
            rows: search.listed(requests, rows) if self.candidates else 0 for rows in {1, *self.rows.values()}
        }

    @property
    def whole(self) -> LaneSize:
        """The lane for unusually long translations."""
        return self.search.whole(self.search.lengths.longest)

    def turns(self, number: int) -> Generator[Found]:
        """Run search ``number``: yield what it finds, turn by turn, until no sentence waits."""
        while (size := self.waiting.next_lane()) is not None:
            rows = self.rows.get(size, 1)
            shape = self._shape(size, rows, self.candidates, self.listed[rows])
            try:
                yield from self._searched(shape, size, number, {})
            finally:
                self.waiting.leave(size)

    def _searched(
        self, shape: LaneShape, size: LaneSize, number: int, taken: dict[int, Request]
    ) -> Generator[Found]:
        """Search the sentences that wait for a lane until the lane is empty.

        taken: keeps, by index, the sentences that the lane has taken but not finished.
        """
        device, ranking = self.search.device(number), self.search.ranking_for(self.count)
        with self.search.lane(shape, ranking is not None, device) as lane:
            yield from self._drained(lane, self.search.params(device), size, ranking, taken)

    def _shape(self, size: LaneSize, rows: int, candidates: int, listed: int) -> LaneShape:
        search = self.search
        waiting = max(1, rows // WAITING)
        return LaneShape(
            rows=rows,
            waiting=waiting,
            entering=max(1, rows // ENTERING),
            beam=search.beam_size,
            sources=search.streams,
            length=size.length,
            capacity=size.capacity,
            places=size.places,
            bins=search.bins(waiting, size.length),
            candidates=candidates,
            listed=listed,
            forced=self.forced,
            attention=self.attention,
            rules=search.rules,
        )

    def _drained(
        self,
        lane: Lane,
        params: Sequence[Arrays],
        size: LaneSize,
        ranking: Ranking | None,
        taken: dict[int, Request],
    ) -> Iterator[Found]:
        held: dict[int, Request] = {}
        while True:
            shape, weights = lane.shape, self.search.weights
            own = sum(size.length // 2 < request.length for request in held.values())
            bins = [Bins(*shape.bins) for _ in range(shape.sources)] if shape.bins else []
            listed = self._listed(shape, held.values())
            fits = partial(_put, bins, listed)
            requests = self._take(size, shape, fits, list(held.values()), full=2 * own > shape.rows)
            taken |= {request.index: request for request in requests}
            sources: Sequence[Source | PackedSource] = ()
            if requests:
                sources = self._sources(shape, requests, bins)
                desks = lane.wait(params, sources, self._sentences(shape, requests), len(requests))
                held |= dict(zip(desks.tolist(), requests, strict=True))
            if not held:
                return
            living = min(shape.rows, len(held))
            # If more sentences wait, this call ends once those at desks have rows; otherwise it searches on.
            refilled = bool(requests) and not self.waiting.empty(size)
            enough = living if refilled else max(0, living - shape.entering)
            done, report = lane.advance(params, weights, ranking, *self._until(size, living, enough))
            self._note(shape, requests, sources, report)
            found: Found = []
            for desk in done.tolist():
                request = held.pop(desk)
                del taken[request.index]
                if report.outcomes[desk] == CUT:
                    self.waiting.again(request, self.whole)
                else:
                    found.append((request.index, self._hypotheses(request, desk, report)))
            yield found

    def _take(
        self,
        size: LaneSize,
        shape: LaneShape,
        fits: Callable[[Request], bool],
        held: Sequence[Request],
        full: bool,
    ) -> list[Request]:
        """The sentences to enter a lane that already holds ``held``; see ``Waiting.take``."""
        return self.waiting.take(size, shape.waiting, fits, full=full and shape.rows > 1)

    def _until(self, size: LaneSize, living: int, enough: int) -> tuple[int, int]:
        """When a lane returns to the host: how many of its ``living`` sentences may be left, by default
        ``enough``, and the most steps until then."""
        return enough, MOST_STEPS

    def _note(
        self,
        shape: LaneShape,
        requests: Sequence[Request],
        sources: Sequence[Source | PackedSource],
        report: LaneReport,
    ) -> None:
        """Count the work of a turn in which these sentences were encoded."""
        done = SearchWork(
            steps=int(report.steps) * shape.rows,
            busy=int(report.busy),
            positions=sum(source.ids.size for source in sources),
            words=sum(len(source) for request in requests for source in request.sources),
        )
        with self._noting:
            self.work += done

    def _hypotheses(self, request: Request, desk: int, report: LaneReport) -> list[Hypothesis]:
        search, steps = self.search, int(report.outcomes[desk])
        trellis = jax.tree.map(lambda a: a[desk, :steps], report.trellis)
        length = len(request.sources[0])
        return best_hypotheses(trellis, request.limit, length, search.ranking, search.rules.eos, self.count)

    def _listed(self, shape: LaneShape, held: Iterable[Request]) -> Listed | None:
        """The words listed for the sentences in a lane; None without shortlists."""
        if not shape.listed:
            return None
        found = Listed(self.search.rules.words, shape.listed)
        for request in held:
            if request.candidates is not None:
                found.add(request.candidates)
        return found

    def _sources(
        self, shape: LaneShape, requests: Sequence[Request], bins: list[Bins]
    ) -> list[Source] | list[PackedSource]:
        """The sources of sentences that wait for a lane."""
        streams = list(zip(*(request.sources for request in requests), strict=True))
        if bins:
            if shape.waiting == 1:
                door = self.search.lengths.row_door(shape.length, requests[0].length)
                bins = [own.narrowed(door) for own in bins]
            sizes = shape.waiting, shape.length
            return [
                PackedSource(*own.filled(stream, sizes)) for own, stream in zip(bins, streams, strict=True)
            ]
        door = self.search.lengths.door(shape.length, max(request.length for request in requests))
        batch = pad(streams, (shape.waiting, *[door] * shape.sources))
        return list(map(Source, batch.ids, batch.masks))

    def _sentences(self, shape: LaneShape, requests: Sequence[Request]) -> Sentences:
        """What a lane knows of sentences that wait for it."""
        search, count = self.search, shape.waiting
        first = np.array([request.sources[0][0] for request in requests])
        sentences = Sentences(
            limits=np.resize([request.limit for request in requests], count).astype(np.int32),
            empty=np.resize(first == search.source_vocab.eos_id, count),
        )
        if shape.forced:
            rows = [(request.prefix or [])[: shape.capacity] for request in requests]
            forced, _ = table(rows, (count, shape.capacity), FREE)
            sentences = replace(sentences, prefixes=np.where(forced == search.rules.eos, FREE, forced))
        if shape.candidates:
            lists = [request.candidates for request in requests if request.candidates is not None]
            candidates, inside = table(lists, (count, shape.candidates))
            sentences = replace(sentences, candidates=candidates, counts=inside.sum(1, dtype=np.int32))
        if search.rules.sampling is not None:
            own = np.resize([request.number for request in requests], count)
            keys = np.stack([np.full_like(own, search.seed), own], axis=1)
            sentences = replace(sentences, keys=keys.astype(np.uint32))
        return sentences


def _put(bins: Sequence[Bins], listed: Listed | None, request: Request) -> bool:
    """Put a sentence into the bins and its candidates into ``listed``, where given; False unless both fit."""
    lengths = list(map(len, request.sources))
    if any(own.find(length) is None for own, length in zip(bins, lengths, strict=False)):
        return False
    if listed is not None and request.candidates is not None and not listed.add(request.candidates):
        return False
    for own, length in zip(bins, lengths, strict=False):
        own.add(length)
    return True


def check_weights(weights: Sequence[float], models: int) -> None:
    """OptionError unless there is one weight for each model, or none at all."""
    if len(weights) not in (0, models):
        raise OptionError(f"expected one weight for each of {models} model(s), got {len(weights)}")


def _check(models: Sequence[Model], weights: Sequence[float] | None) -> None:
    if not models:
        raise OptionError("beam search needs at least one model")
    check_weights(weights or (), len(models))
    dims = [model.dim_vocabs[-1] for model in models]
    if len(set(dims)) > 1:
        raise OptionError(f"models of an ensemble need the same target vocabulary, got {dims} words")
