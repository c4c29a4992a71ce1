"""Input lines as word ids: one line of each stream makes a sample."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from nmt.settings import OptionError
from nmt.text.batches import Sample
from nmt.text.lines import is_utf8, tab_fields
from nmt.text.vocab import Vocab, VocabError, load_segmented, load_vocab

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


def load_vocabs(
    paths: Sequence[str],
    dims: Sequence[int],
    *,
    owner: str = "the model",
    pieces: Sequence[str] = (),
    input_types: Sequence[str] = (),
    no_spm_encode: bool = False,
    no_spm_decode: bool = False,
) -> list[Vocab]:
    """The vocabularies of the streams, sources first; one file read in one way is read once.

    dims: the number of words that the model knows of each (``dim-vocabs``). owner: the model, for messages.
    pieces: SentencePiece models that split the raw text of each stream, as with OPUS-MT's models.
    input_types, no_spm_encode, no_spm_decode: Marian's options, see ``load_vocab``.
    """
    if len(paths) != len(dims):
        raise OptionError(f"--vocabs: this model has {len(dims)} vocabularies, got {len(paths)} path(s)")
    if pieces and len(pieces) != len(paths):
        raise OptionError(f"pieces: one SentencePiece model for each vocabulary is needed, got {len(pieces)}")
    if pieces and (no_spm_encode or no_spm_decode):
        raise OptionError("--no-spm-encode and --no-spm-decode are for vocabularies that end in .spm")

    @cache
    def loaded(path: str, dim: int, model: str, input_type: str) -> Vocab:
        if model:
            return load_segmented(path, model, dim, owner=owner)
        return load_vocab(
            path,
            dim,
            owner=owner,
            input_type=input_type,
            no_spm_encode=no_spm_encode,
            no_spm_decode=no_spm_decode,
        )

    models = pieces or [""] * len(paths)
    types = [*input_types, *["sequence"] * (len(paths) - len(input_types))]
    return [loaded(*key) for key in zip(paths, dims, models, types[: len(paths)], strict=True)]
