"""The translation service: samples in, translations out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nmt.search.bayes_risk import BayesRisk
from nmt.search.beam_search import BeamSearch
from nmt.search.results import Attention, Hypothesis, Printing, Translation
from nmt.search.schedule import Request
from nmt.text.sentences import Sentence


class TranslationService:
    """Translates samples with loaded models.

    search: finds the hypotheses. printing: if it prints alignments, the search collects attention.
    right_left: whether the models are right-to-left. forced: whether samples have, after their sources, the
    first words of their translations (``--force-decode``). risk: chooses among the hypotheses (``--mbr``); if
    these are drawn, each search draws one.
    """

    def __init__(
        self,
        search: BeamSearch,
        printing: Printing | None = None,
        *,
        right_left: bool = False,
        forced: bool = False,
        risk: BayesRisk | None = None,
    ) -> None:
        self.search, self.printing = search, printing or Printing()
        self.right_left, self.forced, self.risk = right_left, forced, risk

    def translate(
        self,
        samples: Sequence[Sentence],
        *,
        numbers: Sequence[int] | None = None,
        attention: bool = False,
        count: int | None = None,
    ) -> Iterator[Translation]:
        """Translate samples of any lengths, each as soon as it is done.

        attention: whether to return it. numbers, count: as for ``BeamSearch.found``. Further sequences, such
        as references, are ignored. A sample with a problem becomes an empty translation.
        """
        draws = self.draws
        places = [place for place, sample in enumerate(samples) if not sample.problem for _ in range(draws)]
        yield from (self.left_out(sample) for sample in samples if sample.problem)
        streams = list(zip(*(samples[place].sequences for place in places), strict=True))
        if not streams:
            return
        sources = self.search.streams
        found = self.search.found(
            *streams[:sources],
            prefixes=streams[sources] if self.forced else None,
            numbers=numbers and [numbers[place] * draws + k % draws for k, place in enumerate(places)],
            attention=self.attends(attention),
            count=self.searched(count),
        )
        gathered = Gathered(draws)
        for index, some in found:
            hypotheses = gathered.add(index, some)
            if hypotheses is not None:
                sample = samples[places[index]]
                yield self.translation(sample, hypotheses, attention=attention, count=count)

    @property
    def draws(self) -> int:
        """How many searches a sample needs."""
        return max(1, self.risk.samples) if self.risk else 1

    def searched(self, count: int | None) -> int | None:
        """How many hypotheses each search returns if ``count`` are wanted."""
        if self.risk is None:
            return count
        return 1 if self.risk.samples else self.search.beam_size

    def requests(self, sample: Sentence, number: int) -> list[Request]:
        """The ``draws`` requests for a sample without a problem, with indices from ``number * draws`` on.
        ``number`` determines the noise of sampling."""
        sources, first = self.search.streams, number * self.draws
        prefix = sample.sequences[sources] if self.forced else None
        return [
            self.search.request(index, sample.sequences[:sources], prefix, index)
            for index in range(first, first + self.draws)
        ]

    def attends(self, attention: bool) -> bool:
        """Whether the search must return attention: it is requested, or printed."""
        return attention or self.printing.alignment is not None

    def translation(
        self,
        sample: Sentence,
        hypotheses: Sequence[Hypothesis],
        *,
        attention: bool = False,
        count: int | None = None,
    ) -> Translation:
        """The translation of a sample from the hypotheses found for it; with ``risk`` the best ``count``.
        Without hypotheses it is empty, and has a problem."""
        if not hypotheses:
            return self.left_out(sample._replace(problem="the search found no translation"))
        texts = tuple(map(self._text, hypotheses))
        if self.risk is not None:
            hypotheses, texts = self.risk.ranked(hypotheses, texts)
            hypotheses, texts = hypotheses[:count], texts[:count]
        return Translation(
            sample.line,
            texts,
            tuple(hypotheses),
            attentions=tuple(self._attention(sample, h) for h in hypotheses) if attention else (),
        )

    def left_out(self, sample: Sentence) -> Translation:
        """The empty translation of a sample with a problem."""
        scores = (math.nan,) * len(self.search.models)
        hypothesis = Hypothesis((), (), math.nan, math.nan, scores, finished=False)
        return Translation(sample.line, ("",), (hypothesis,), sample.problem)

    def _text(self, hypothesis: Hypothesis) -> str:
        words = hypothesis.words
        text = self.search.target_vocab.decode(words[::-1] if self.right_left else words)
        return text.replace("\n", " ")  # the piece <0x0A> would make two lines of one

    def _attention(self, sample: Sentence, hypothesis: Hypothesis) -> Attention:
        return Attention(
            np.array(hypothesis.alignment, np.float32),
            tuple(self.search.source_vocab[word] for word in sample.sequences[0]),
            tuple(self.search.target_vocab[word] for word in hypothesis.words),
        )


class Gathered:
    """Collects the hypotheses that several searches find for each sample.

    draws: how many searches a sample has; their indices are consecutive.
    """

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._parts: dict[int, dict[int, list[Hypothesis]]] = {}

    def add(self, index: int, hypotheses: list[Hypothesis]) -> list[Hypothesis] | None:
        """Add what one search found. Returns all hypotheses of the sample, in the order of the draws, or None
        while some searches are missing."""
        parts = self._parts.setdefault(index // self._draws, {})
        parts[index] = hypotheses
        if len(parts) < self._draws:
            return None
        del self._parts[index // self._draws]
        return [one for _, found in sorted(parts.items()) for one in found]

    def remove(self, number: int) -> None:
        """Forget the sample of this number."""
        self._parts.pop(number, None)
