"""The texts that a metric compares, as word ids: with a start symbol, and joined if it reads one sequence."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.settings import OptionError
from nmt.settings.metric_options import MetricOptions
from nmt.text.sentences import LeftOut, Sentence, tab_fields
from nmt.text.vocabs.base import Vocab

logger = logging.getLogger(__name__)

START = 0
"""The id of the start symbol."""


@dataclass(frozen=True, slots=True)
class FieldEncoder:
    """Turns lines of several texts into sentences.

    vocabs: one for each text. metric: says what is added and joined. max_length: the most words in a
    sequence, ``</s>`` and the start symbol counted; a longer line is left out, or with ``max_length_crop``
    cropped, keeping ``</s>``. Joined texts that no longer fit are cropped or left out.
    tsv: a line holds all texts, separated by tabs. separator: the word between joined texts, if any
    (``comet-use-separator``).

    Source: Marian, ``addWordsToSentenceTuple`` in ``data/corpus_base.cpp``.
    """

    vocabs: Sequence[Vocab]
    metric: MetricOptions
    max_length: int
    max_length_crop: bool
    tsv: bool = False
    separator: str = ""

    def sentence(self, line: int, texts: Sequence[bytes]) -> Sentence:
        """The sentence of ``line`` (from 0), given its bytes in each text; logs a warning if left out."""
        try:
            texts = tab_fields(texts[0], len(self.vocabs)) if self.tsv else texts
            return Sentence(line, tuple(self._sequences(texts)))
        except LeftOut as problem:
            logger.warning("line %d is left out: %s", line + 1, problem.detail)
            return Sentence(line, (), problem.detail)

    def _sequences(self, texts: Sequence[bytes]) -> list[list[int]]:
        joined = self.metric.input_join_fields
        sequences: list[list[int]] = []
        for vocab, text in zip(self.vocabs, texts, strict=True):
            later = bool(joined and sequences)
            room = self.max_length
            words = vocab.encode(text)
            if self.metric.comet_prepend_zero and not later:
                words = [START, *words]
            if self.metric.comet_use_separator and later:
                words = [self._separator_id(vocab), *words]
                room = max(2, room - len(sequences[0]))
            elif later:
                room = max(1, room - len(sequences[0]))
            if len(words) > room and self.max_length_crop:
                words = [*words[: room - 1], vocab.eos_id]
            if later and len(sequences[0]) + len(words) <= self.max_length:
                sequences[0] += words
            elif later:
                logger.debug("a text does not fit any more into %d words", self.max_length)
            else:
                sequences.append(words)
        longest = max(map(len, sequences))
        if longest > self.max_length:
            detail = f"{longest} words with </s>, at most {self.max_length} are possible (--max-length)"
            raise LeftOut(detail, detail)
        return sequences

    def _separator_id(self, vocab: Vocab) -> int:
        found = vocab[self.separator]
        if found == vocab.unk_id:
            raise OptionError(f"--separator-symbol: {vocab.path} has no word {self.separator!r}")
        return found
