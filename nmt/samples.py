"""Input lines as word ids: one line of each stream makes a sample."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.batches import Sample
from nmt.lines import is_utf8
from nmt.options import OptionError
from nmt.vocab import Vocab, load_vocab

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LineEncoder:
    """Turns lines into samples, and warns of a line that cannot be taken as it is.

    vocabs: one vocabulary for each stream.
    max_length: the longest sequence in words, ``</s>`` counted; a longer line is a problem, or
        with `max_length_crop` is cut, keeping ``</s>``.
    """

    vocabs: Sequence[Vocab]
    max_length: int
    max_length_crop: bool

    def sample(self, number: int, lines: Sequence[bytes]) -> Sample:
        """The sample of line `number` (from 0), given its bytes in each stream."""
        sequences, problems = [], []
        for line, vocab in zip(lines, self.vocabs, strict=True):
            if not is_utf8(line):
                logger.warning("line %d is not valid UTF-8: such words are unknown", number + 1)
            words = vocab.encode(line)
            if len(words) > self.max_length and self.max_length_crop:
                words = [*words[: self.max_length - 1], vocab.eos_id]
            if len(words) > self.max_length:
                problems.append(f"{len(words)} words with </s>, --max-length is {self.max_length}")
            sequences.append(words)
        if problems:
            logger.warning("line %d is left out: %s", number + 1, "; ".join(problems))
        return Sample(number, tuple(sequences), "; ".join(problems))


def load_vocabs(paths: Sequence[str], dims: Sequence[int]) -> list[Vocab]:
    """The vocabularies of source and target; one file in one size is read once.

    dims: the number of words that the model knows of each (``dim-vocabs``).
    """
    if len(paths) != len(dims):
        raise OptionError(f"--vocabs: this model has {len(dims)} vocabularies, got {len(paths)} path(s)")
    wanted = list(zip(paths, dims, strict=True))
    loaded = {key: load_vocab(*key) for key in dict.fromkeys(wanted)}
    return [loaded[key] for key in wanted]
