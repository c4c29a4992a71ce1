"""The translation service: samples in, translations out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nmt.search.beam_search import BeamSearch
from nmt.search.results import Attention, Hypothesis, Printing, Translation
from nmt.text.sentences import Sentence


class TranslationService:
    """Translates samples with loaded models.

    search: finds the hypotheses. printing: if it prints alignments, the search collects attention.
    right_left: whether the models are right-to-left. forced: whether samples have, after their sources, the
    first words of their translations (``--force-decode``).
    """

    def __init__(
        self,
        search: BeamSearch,
        printing: Printing | None = None,
        *,
        right_left: bool = False,
        forced: bool = False,
    ) -> None:
        self.search, self.printing = search, printing or Printing()
        self.right_left, self.forced = right_left, forced

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
        places = [place for place, sample in enumerate(samples) if not sample.problem]
        yield from (self._nothing(sample) for sample in samples if sample.problem)
        streams = list(zip(*(samples[place].sequences for place in places), strict=True))
        if not streams:
            return
        sources = self.search.streams
        found = self.search.found(
            *streams[:sources],
            prefixes=streams[sources] if self.forced else None,
            numbers=None if numbers is None else [numbers[place] for place in places],
            attention=attention or self.printing.alignment is not None,
            count=count,
        )
        for index, hypotheses in found:
            sample = samples[places[index]]
            yield Translation(
                sample.line,
                tuple(map(self._text, hypotheses)),
                tuple(hypotheses),
                attentions=tuple(self._attention(sample, h) for h in hypotheses) if attention else (),
            )

    def _text(self, hypothesis: Hypothesis) -> str:
        words = hypothesis.words
        return self.search.target_vocab.decode(words[::-1] if self.right_left else words)

    def _attention(self, sample: Sentence, hypothesis: Hypothesis) -> Attention:
        return Attention(
            np.array(hypothesis.alignment, np.float32),
            tuple(self.search.source_vocab[word] for word in sample.sequences[0]),
            tuple(self.search.target_vocab[word] for word in hypothesis.words),
        )

    def _nothing(self, sample: Sentence) -> Translation:
        scores = (math.nan,) * len(self.search.models)
        hypothesis = Hypothesis((), (), math.nan, math.nan, scores, finished=False)
        return Translation(sample.line, ("",), (hypothesis,), sample.problem)
