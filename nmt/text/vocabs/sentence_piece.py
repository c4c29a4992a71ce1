"""Vocabularies of subword pieces: raw text in, detokenized text out (Kudo and Richardson 2018).

``SentencePieceVocab`` is a SentencePiece model. ``SegmentedVocab`` is a list of words with a separate
SentencePiece model that splits and joins text, as OPUS-MT models have.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from nmt.text.lines import as_bytes, is_utf8

from .base import Vocab, VocabError, as_text
from .pieces import SPACE, TAG, PieceSampler, check_size, damage_reported, read_piece_model
from .words import DefaultVocab

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

logger = logging.getLogger(__name__)

_TAGS = re.compile(rf" *((?:{TAG.pattern} *)+)")

_FULL_WIDTH = 0xFEE0  # from a character of ASCII to its full-width form
_PLAIN: dict[int, str] = {ord(c) + _FULL_WIDTH: c for c in "!%(),0123456789:;?~"}
_PLAIN |= zip(map(ord, "\u3001\u2236\u2019\u2501\u3008\u3009\u3010\u3011"), ",:'-<>[]", strict=True)
_PLAIN |= dict.fromkeys(map(ord, "\u201c\u201d\u300a\u300b\u300c\u300d"), '"')
_PLAIN |= {ord("\u2026"): "..."}
# A slip in Moses' script that the models have learned: the full-width 1 is a quotation mark.
_PLAIN |= {ord("\uff11"): '"'}
_FULL_STOP = re.compile("[\u3002\uff0e] *")


class SentencePieceVocab(Vocab):
    """A SentencePiece model (Marian: ``SentencePieceVocab``, files ``.spm``).

    The model normalizes and splits raw text; unknown characters and invalid UTF-8 become ``unk_id`` and print
    as " ⁇ ". The number of pieces must equal the number of ids of the translation model.

    data: the serialized model. path: for errors; VocabError if the model cannot be read.
    dim, owner, no_spm_encode, no_spm_decode: see ``load_vocab``.
    """

    def __init__(
        self,
        data: bytes,
        path: str,
        dim: int = 0,
        *,
        owner: str = "the model",
        no_spm_encode: bool = False,
        no_spm_decode: bool = False,
    ):
        self.path = path
        self._processor = processor = load_processor(data, path)
        self._takes_pieces = no_spm_encode
        self._prints_pieces = no_spm_decode
        self._size = processor.get_piece_size()
        if dim and dim != self._size:
            raise VocabError(
                f"{path}: {self._size} pieces, but {owner} has {dim} ids (dim-vocabs); expected "
                "the vocabulary that the model was trained with"
            )
        self.eos_id = processor.eos_id()
        self.unk_id = processor.unk_id()
        if self.eos_id < 0:
            raise VocabError(
                f"{path}: has no end of sentence; expected a model trained with --eos_id, as "
                "Marian trains them (--bos_id=-1 --eos_id=0 --unk_id=1)"
            )
        # Reading all pieces takes a while; for nearly all models, splitting "a" shows where blanks go.
        starts_blank = "".join(processor.encode("a", out_type=str)).startswith(SPACE)
        self._blank_last = not starts_blank and read_piece_model(data, path).blank_last
        pieces = (processor.piece_to_id(f"<0x{i:02X}>") for i in range(32))
        self.control_ids = tuple(i for i in pieces if i != self.unk_id)

    def __len__(self) -> int:
        return self._size

    def _id_of(self, word: str | bytes) -> int:
        piece = as_bytes(word)
        return self._processor.piece_to_id(piece.decode()) if is_utf8(piece) else self.unk_id

    def _word_of(self, number: int) -> str:
        return self._processor.id_to_piece(number)

    def _encoded(self, line: str | bytes) -> list[int]:
        if self._takes_pieces:
            return [self._id_of(piece) for piece in as_bytes(line).split(b" ") if piece]
        ids: list[int] = self._processor.encode(as_bytes(line))
        return ids

    def _sampled(self, line: str | bytes, alpha: float, seed: int) -> list[int]:
        if self._takes_pieces:
            return self._encoded(line)
        return [number for number, _ in self._sampler.sample(as_bytes(line), alpha, seed)]

    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The detokenized text of ``ids``."""
        kept = self._chosen(ids, ignore_eos)
        if self._prints_pieces:
            return " ".join(map(self._processor.id_to_piece, kept))
        text: str = self._processor.decode(kept)
        if self._blank_last and kept:  # then the library strips the blank at the start, not the end
            first = self._word_of(kept[0])
            text = (" " * first.startswith(SPACE) + text).removesuffix(" ")
        return text

    @cached_property
    def _sampler(self) -> PieceSampler:
        return PieceSampler(self._processor, self.path)


class SegmentedVocab(Vocab):
    """Raw text in, raw text out, for a vocabulary that lists the pieces of SentencePiece models.

    For OPUS-MT models: ``source.spm`` and ``target.spm`` split and join text, ``*.vocab.yml`` maps their
    pieces to ids. A line is normalized (``normalized``), split, and each piece looked up. Language tokens
    (``>>fra<<``) before the text stay whole if the vocabulary has any. Missing tokens and pieces are unknown.

    words: the ids of the pieces. pieces: the SentencePiece model of this side. target: whether lines are
    translations, which have no language tokens.
    """

    def __init__(self, words: DefaultVocab, pieces: SentencePieceProcessor, *, target: bool = False):
        self.path = words.path
        self.eos_id, self.unk_id = words.eos_id, words.unk_id
        self.control_ids = words.control_ids
        self.languages = frozenset(() if target else filter(TAG.fullmatch, words.words()))
        self._words = words
        self._pieces = pieces
        self._told: set[str] = set()

    def __len__(self) -> int:
        return len(self._words)

    @property
    def ids_in_file(self) -> int:
        return self._words.ids_in_file

    def _id_of(self, word: str | bytes) -> int:
        return self._words[word]

    def _word_of(self, number: int) -> str:
        return self._words[number]

    def _encoded(self, line: str | bytes) -> list[int]:
        tags, text = self._divided(line)
        return [self._words[word] for word in (*tags, *self._pieces.encode(text, out_type=str))]

    def _sampled(self, line: str | bytes, alpha: float, seed: int) -> list[int]:
        tags, text = self._divided(line)
        pieces = (piece for _, piece in self._sampler.sample(text, alpha, seed))
        return [self._words[word] for word in (*tags, *pieces)]

    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The detokenized text of ``ids``."""
        words = [self._words[i] for i in self._chosen(ids, ignore_eos)]
        text: str = self._pieces.decode(words) if words else ""
        # Pieces that only the other side's model has keep the mark of their blank.
        return text.removeprefix(SPACE).replace(SPACE, " ")

    @cached_property
    def _sampler(self) -> PieceSampler:
        return PieceSampler(self._pieces, self.path)

    def _divided(self, line: str | bytes) -> tuple[list[str], bytes]:
        """The language tokens before a line's text, and the normalized text."""
        text = as_text(line)
        tags: list[str] = []
        if self.languages:
            if match := _TAGS.match(text):
                tags, text = TAG.findall(match[1]), text[match.end() :]
            self._tell(tags or [""] * (not text.isspace() and text != ""))
        return tags, as_bytes(normalized(text))

    def _tell(self, tags: list[str]) -> None:
        """Warn of a missing or unknown language token, once for each."""
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


def normalized(line: str) -> str:
    """``line`` with plain punctuation and single spaces, without control and format characters.

    The scripts ``preprocess.sh`` in OPUS-MT's model directories do this to all training text, following
    Moses.
    """
    text = _FULL_STOP.sub(". ", line).translate(_PLAIN)
    if not text.isprintable():  # all others have neither control nor format characters
        text = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in text)
    return " ".join(word for word in text.split(" ") if word)


def load_processor(data: bytes, path: str) -> SentencePieceProcessor:
    """Load the SentencePiece model serialized in ``data``; VocabError with ``path`` if it is not one."""
    from sentencepiece import SentencePieceProcessor

    check_size(data, path)
    processor = SentencePieceProcessor()
    with damage_reported(path):
        processor.LoadFromSerializedProto(data)
    return processor
