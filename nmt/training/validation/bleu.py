"""BLEU and chrF of translations of the validation set."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.factored import FactoredVocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab
from nmt.training.schedule.state import TrainingState
from nmt.training.validation.evaluation import Evaluation
from nmt.training.validation.metrics import Announcements, Metric, OutputName, valid_log

BETA_SQUARE = np.float32(4)
"""chrF's weight of recall relative to precision."""


class NGramCounts:
    """Counts n-grams of 1 to ``order`` segments over pairs of hypothesis and reference.

    Attributes, each float64 ``[order]``:
        matches: n-grams of hypotheses found in their references, clipped to the count there.
        hypotheses, references: all n-grams of each side.
    """

    def __init__(self, order: int) -> None:
        self.order = order
        self.matches, self.hypotheses, self.references = np.zeros((3, order))

    def add(self, hypothesis: Sequence[Any], reference: Sequence[Any]) -> None:
        """Count a pair of tuples, or of strings, whose characters are the segments."""
        for n in range(1, self.order + 1):
            ours, theirs = _ngrams(hypothesis, n), _ngrams(reference, n)
            self.matches[n - 1] += (ours & theirs).total()
            self.hypotheses[n - 1] += ours.total()
            self.references[n - 1] += theirs.total()

    def bleu(self) -> float:
        """Corpus BLEU (Papineni et al. 2002), from 0 to 100:
        ``100 exp(min(0, 1 - r / h) + mean_n log(matches_n / hypotheses_n))``.

        ``r`` and ``h`` count the segments of the references and the hypotheses. Not smoothed: 0 if no n-gram
        of some length matches. Computed in float32, as in Marian.
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

        Precision ``p`` and recall ``r`` are means over the n-gram lengths that both sides have; 0 if nothing
        matches. Computed in float32, as in Marian.
        """
        both = (self.hypotheses > 0) & (self.references > 0)
        if not self.matches.any():
            return 0.0
        matches, hypotheses, references = (
            counts[both].astype(np.float32) for counts in (self.matches, self.hypotheses, self.references)
        )
        count = np.float32(both.sum())
        precision, recall = np.float32(0), np.float32(0)
        for both_have, ours, theirs in zip(matches, hypotheses, references, strict=True):
            precision += both_have / ours
            recall += both_have / theirs
        precision, recall = precision / count, recall / count
        score = (1 + BETA_SQUARE) * (precision * recall) / (BETA_SQUARE * precision + recall)
        return float(score * np.float32(100))


def _ngrams(segments: Sequence[Any], n: int) -> Counter[Any]:
    return Counter(segments[first : first + n] for first in range(len(segments) - n + 1))


_ENTITIES = {"<skipped>": "", "&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}
_WORD_RULES = tuple(
    (re.compile(pattern, re.ASCII), replacement)
    for pattern, replacement in (
        (r"([{-~\[-` -&(-+:-@/])", r" \1 "),
        (r"([^0-9])([.,])", r"\1 \2 "),
        (r"([.,])([^0-9])", r" \1 \2"),
        (r"([0-9])(-)", r"\1 \2 "),
        (r"\s+", " "),
    )
)
# First and last characters in ascending order. Source: Marian, isContinuousScript.
_CONTINUOUS = (
    (0x0E00, 0x0E7F),  # Thai
    (0x2E80, 0x2E99),  # Han, and so on
    (0x2E9B, 0x2EF3),
    (0x2F00, 0x2FD5),
    (0x3005, 0x3005),
    (0x3007, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303B),
    (0x3040, 0x30FF),  # kana
    (0x3200, 0x32FF),
    (0x3400, 0x4DB5),
    (0x4E00, 0x9FEF),
    (0xF900, 0xFA6D),
    (0xFA70, 0xFAD9),
    (0x1B000, 0x1B0FF),  # kana
    (0x1B130, 0x1B16F),
    (0x20000, 0x2A6D6),
    (0x2A700, 0x2B734),
    (0x2B740, 0x2B81D),
    (0x2B820, 0x2CEA1),
    (0x2CEB0, 0x2EBE0),
    (0x2F800, 0x2FA1D),
)
_FIRST = tuple(first for first, _ in _CONTINUOUS)


def tokenized(text: str) -> str:
    """Raw text tokenized by the rules of mteval-v13a, which sacreBLEU uses."""
    for entity, replacement in _ENTITIES.items():
        text = text.replace(entity, replacement)
    text = f" {text} "
    for pattern, replacement in _WORD_RULES:
        text = pattern.sub(replacement, text)
    return text.strip(" ")


def separated(text: str) -> str:
    """``text`` with spaces around each character of a script without spaces: Han, kana, Thai."""
    return "".join(f" {character} " if is_continuous(character) else character for character in text)


def is_continuous(character: str) -> bool:
    """Whether the character's script does not put spaces between words."""
    code = ord(character)
    place = bisect_right(_FIRST, code) - 1
    return place >= 0 and code <= _CONTINUOUS[place][1]


def words(text: str) -> tuple[str, ...]:
    """``text`` split at spaces, U+0020 only."""
    return tuple(word for word in text.split(" ") if word)


def characters(text: str) -> str:
    """``text`` without spaces, U+0020 only."""
    return text.replace(" ", "")


TEXT_METRICS = ("bleu", "bleu-detok", "bleu-segmented", "chrf")
ORDERS = {"chrf": 6}
BLEU_ORDER = 4


class TextMetric(Metric):
    """``bleu`` (``bleu-detok`` is the same), ``bleu-segmented`` and ``chrf``; higher is better.

    The references are the targets as the model reads them: cut to ``--valid-max-length``, with ``<unk>`` for
    unknown words. With a SentencePiece or factored vocabulary ``bleu`` compares words after sacreBLEU's
    tokenization, with Chinese, Japanese and Thai characters split; with other vocabularies it compares their
    words. ``bleu-segmented`` compares words or pieces as they are, including ``</s>`` of the translations.
    ``chrf`` compares characters other than spaces.

    vocab: of the target. quiet: do not log a sample of the segments (``--quiet-validation``).
    announcements: remembers what has been logged already.

    Source: Marian, ``--valid-metrics``. The numbers equal sacreBLEU's for the same segments, except ``chrf``
    with references of fewer than six characters, where sacreBLEU omits the longer n-grams of the translation.
    """

    def __init__(
        self,
        kind: str,
        epsilon: float,
        vocab: Vocab,
        output: OutputName,
        *,
        quiet: bool = False,
        announcements: Announcements | None = None,
    ) -> None:
        super().__init__(kind, epsilon)
        self.vocab, self.output, self.quiet = vocab, output, quiet
        self.announcements = announcements or Announcements()

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        counts = NGramCounts(ORDERS.get(self.kind, BLEU_ORDER))
        for translation in evaluation.translations():
            ours = translation.hypotheses[0].words
            theirs = tuple(evaluation.data.samples[translation.line].sequences[-1])
            theirs = theirs[: theirs.index(self.vocab.eos_id)]
            self._announce(ours, theirs)
            if self.kind == "bleu-segmented":
                counts.add(ours, theirs)
            else:
                counts.add(self.segments(ours), self.segments(theirs))
        if path := self.output.of(state):
            evaluation.write(path, n_best=False)
        return counts.chrf() if self.kind == "chrf" else counts.bleu()

    def segments(self, ids: Sequence[int]) -> Sequence[str]:
        """The segments of the words ``ids``, as they are compared."""
        text = self.vocab.surface(ids) if isinstance(self.vocab, FactoredVocab) else self.vocab.decode(ids)
        raw, name = isinstance(self.vocab, FactoredVocab | SentencePieceVocab), type(self.vocab).__name__
        if raw:
            if self.announcements.first("segments"):
                valid_log.info("Decoding validation set with %s for scoring", name)
            text = tokenized(text)
        elif self.announcements.first("segments"):
            valid_log.info("%s keeps original segments for scoring", name)
        if self.kind == "chrf":
            return characters(text)
        if raw:
            text = separated(text)
        return words(text)

    def _announce(self, ours: Sequence[int], theirs: Sequence[int]) -> None:
        if self.vocab.unk_id in theirs and self.announcements.first("unknown"):
            valid_log.info("References contain unknown word, metric scores may be inaccurate")
        if not self.quiet and self.announcements.first("sample"):
            valid_log.info("First sentence's tokens as scored:")
            valid_log.info("  Hyp: %s", " ".join(self.segments(ours)))
            valid_log.info("  Ref: %s", " ".join(self.segments(theirs)))
