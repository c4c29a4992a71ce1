"""Vocabularies of pieces that a SentencePiece model of its own makes and joins, as OPUS-MT's."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from nmt.text.lines import as_bytes

from .base import Vocab, as_text
from .default import DefaultVocab
from .piece_sampling import PieceSampler
from .punctuation import normalized

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

logger = logging.getLogger(__name__)

_TAG = re.compile(r">>[^<> ]+<<")
_TAGS = re.compile(rf" *((?:{_TAG.pattern} *)+)")


class SegmentedVocab(Vocab):
    """Raw text in, text out, for a model whose vocabulary lists the pieces of SentencePiece models.

    OPUS-MT's models come so: ``source.spm`` and ``target.spm`` split and join text, ``*.vocab.yml``
    gives the ids of their pieces. A line is normalized (``normalized``), split, and each piece is
    looked up. Language tokens (``>>fra<<``) before the text stay whole, if the vocabulary has any;
    one that it lacks is an unknown word, and so is a piece.

    Args:
        words: the ids of the pieces.
        pieces: the SentencePiece model of this side.
    """

    def __init__(self, words: DefaultVocab, pieces: SentencePieceProcessor):
        self.path = words.path
        self.eos_id, self.unk_id = words.eos_id, words.unk_id
        self.control_ids = words.control_ids
        self.languages = frozenset(filter(_TAG.fullmatch, words.words()))
        self._words = words
        self._pieces = pieces
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._words)

    def _id_of(self, word: str | bytes) -> int:
        return self._words[word]

    def _word_of(self, number: int) -> str:
        return self._words[number]

    def encode(self, line: str | bytes, add_eos: bool = True) -> list[int]:
        tags, text = self._divided(line)
        return self._ids(tags, self._pieces.encode(text, out_type=str), add_eos)

    def sample(self, line: str | bytes, alpha: float, seed: int, add_eos: bool = True) -> list[int]:
        if not alpha:
            return self.encode(line, add_eos)
        tags, text = self._divided(line)
        return self._ids(tags, [piece for _, piece in self._sampler.sample(text, alpha, seed)], add_eos)

    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The text of ``ids``: their pieces joined and the spaces put back."""
        words = [self._words[int(i)] for i in ids if not (ignore_eos and i == self.eos_id)]
        return self._pieces.decode(words) if words else ""

    @cached_property
    def _sampler(self) -> PieceSampler:
        return PieceSampler(self._pieces, self.path)

    def _divided(self, line: str | bytes) -> tuple[list[str], bytes]:
        """The language tokens before a line's text, and the text, normalized."""
        text = as_text(line)
        tags: list[str] = []
        if self.languages:
            if match := _TAGS.match(text):
                tags, text = _TAG.findall(match[1]), text[match.end() :]
            self._tell(tags or [""] * (not text.isspace() and text != ""))
        return tags, as_bytes(normalized(text))

    def _ids(self, tags: list[str], pieces: list[str], add_eos: bool) -> list[int]:
        ids = [self._words[word] for word in (*tags, *pieces)]
        if add_eos:
            ids.append(self.eos_id)
        return ids

    def _tell(self, tags: list[str]) -> None:
        """Warns of a line that a multilingual model cannot take as it is meant, once for each reason."""
        for tag in tags:
            if tag in self.languages or tag in self._told:
                continue
            self._told.add(tag)
            logger.warning(
                "%s: %s; this model translates into the language that a token before the line names: %s",
                self.path,
                f"it has no token {tag}" if tag else "a line has no language token",
                " ".join(sorted(self.languages)),
            )
