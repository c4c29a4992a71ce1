"""Input lines as word ids: one line of each stream makes a sample."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.text.batches import Sample
from nmt.text.lines import is_utf8, tab_fields
from nmt.text.vocabs.base import Vocab, VocabError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LineEncoder:
    """Turns lines into samples, and warns of a line that cannot be taken as it is.

    vocabs: one vocabulary for each stream.
    max_length: the longest sequence in words, ``</s>`` counted; a longer line is a problem, or
        with ``max_length_crop`` is cut, keeping ``</s>``.
    right_left: the words of every stream are reversed, but ``</s>`` (Marian's ``--right-left``).
    tsv: a line holds all streams, a tab between them (``--tsv``). Streams that are not there are
        empty, as in Marian; a line with too many is a problem.
    """

    vocabs: Sequence[Vocab]
    max_length: int
    max_length_crop: bool
    right_left: bool = False
    tsv: bool = False

    def sample(self, number: int, lines: Sequence[bytes]) -> Sample:
        """The sample of line ``number`` (from 0), given its bytes in each stream; one line with ``tsv``."""
        if self.tsv:
            (line,) = lines
            needed = len(self.vocabs)
            lines = tab_fields(line, needed)
            if len(lines) > needed:
                return _left_out(number, (), f"{len(lines)} fields separated by tabs, {needed} are expected")
        sequences, problems = [], []
        for line, vocab in zip(lines, self.vocabs, strict=True):
            if not is_utf8(line):
                logger.warning("line %d is not valid UTF-8: such words are unknown", number + 1)
            try:
                words = vocab.encode(line)
            except VocabError as error:  # a label that a class vocabulary does not have
                words = []
                problems.append(str(error))
            if self.max_length_crop:
                words = cropped(words, vocab, self.max_length)
            if len(words) > self.max_length:
                problems.append(f"{len(words)} words with </s>, --max-length is {self.max_length}")
            sequences.append(reversed_words(words) if self.right_left else words)
        if problems:
            return _left_out(number, tuple(sequences), "; ".join(problems))
        return Sample(number, tuple(sequences))


def cropped(words: list[int], vocab: Vocab, most: int) -> list[int]:
    """The first ``most`` of the words, the last of them ``</s>`` (``--max-length-crop``)."""
    if len(words) > most:
        words = words[:most]
        if vocab.eos_id >= 0:
            words[-1] = vocab.eos_id
    return words


def reversed_words(words: list[int]) -> list[int]:
    """The words from last to first, but for ``</s>`` (``--right-left``)."""
    return [*words[-2::-1], *words[-1:]]


def _left_out(number: int, sequences: tuple[list[int], ...], problem: str) -> Sample:
    logger.warning("line %d is left out: %s", number + 1, problem)
    return Sample(number, sequences, problem)
