"""BLEU and chrF of a corpus, from counts of n-grams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

BETA_SQUARE = np.float32(4)
"""Of chrF: how much more recall counts than precision."""


class NGramCounts:
    """Counts over pairs of a hypothesis and its reference, for n-grams of 1 to ``order`` segments.

    Attributes, each float64 ``[order]``:
        matches: n-grams of the hypotheses that are in their references, each as often as in both.
        hypotheses, references: n-grams of each.
    """

    def __init__(self, order: int) -> None:
        self.order = order
        self.matches, self.hypotheses, self.references = np.zeros((3, order))

    def add(self, hypothesis: Sequence[Any], reference: Sequence[Any]) -> None:
        """Count a pair of tuples of whatever can be compared, or of strings, whose characters then are."""
        for n in range(1, self.order + 1):
            ours, theirs = _ngrams(hypothesis, n), _ngrams(reference, n)
            self.matches[n - 1] += (ours & theirs).total()
            self.hypotheses[n - 1] += ours.total()
            self.references[n - 1] += theirs.total()

    def bleu(self) -> float:
        """Corpus BLEU (Papineni et al. 2002), from 0 to 100:
        ``100 exp(min(0, 1 - r / h) + mean_n log(matches_n / hypotheses_n))``.

        ``r`` and ``h`` count the segments of the references and the hypotheses. There is no smoothing: it is
        0 if no n-gram of some length matches. Computed in float32, as in Marian.
        """
        if not self.matches.all():
            return 0.0
        matches, hypotheses = self.matches.astype(np.float32), self.hypotheses.astype(np.float32)
        mean = np.float32(0)
        for ours, all_ours in zip(np.log(matches), np.log(hypotheses), strict=True):
            mean += ours - all_ours
        mean /= np.float32(self.order)
        ratio = np.float32(self.references[0]) / hypotheses[0]
        brevity = np.float32(1) - max(ratio, np.float32(1))
        return float(np.exp(mean + brevity) * np.float32(100))

    def chrf(self) -> float:
        """chrF (Popovic 2015) from counts of characters, from 0 to 100: ``100 * 5 p r / (4 p + r)``.

        Precision ``p`` and recall ``r`` are means over the lengths of n-grams that both sides have; 0 if
        there are none, or none match. Computed in float32, as in Marian.
        """
        both = (self.hypotheses > 0) & (self.references > 0)
        if not self.matches.any():
            return 0.0
        matches, hypotheses, references = (
            counts[both].astype(np.float32) for counts in (self.matches, self.hypotheses, self.references)
        )
        count = np.float32(both.sum())
        precision, recall = np.float32(0), np.float32(0)
        for place in range(len(matches)):
            precision += matches[place] / hypotheses[place]
            recall += matches[place] / references[place]
        precision, recall = precision / count, recall / count
        score = (1 + BETA_SQUARE) * (precision * recall) / (BETA_SQUARE * precision + recall)
        return float(score * np.float32(100))


def _ngrams(segments: Sequence[Any], n: int) -> Counter[Any]:
    return Counter(segments[first : first + n] for first in range(len(segments) - n + 1))
