"""Vocabularies of subword pieces: raw text in, detokenized text out (Kudo and Richardson 2018)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from nmt.text.lines import as_bytes, is_utf8

from .base import Vocab, VocabError
from .piece_sampling import PieceSampler
from .pieces import check_size

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


class SentencePieceVocab(Vocab):
    """A SentencePiece model (Marian: ``SentencePieceVocab``, files ``.spm``).

    The model normalizes and splits raw text; what no piece covers, bytes that are not UTF-8
    included, is ``unk_id`` and prints as " ⁇ ". Its pieces must be as many as the model has ids.

    Args:
        processor: the loaded model.
        path: where it comes from.
        dim: how many ids the translation model has (``dim-vocabs``); 0 for as many as there are.
        owner: whose number that is, for the error.
        no_spm_encode: lines are pieces already, with spaces between (``--no-spm-encode``).
        no_spm_decode: print pieces with spaces between, not text (``--no-spm-decode``).
    """

    def __init__(
        self,
        processor: SentencePieceProcessor,
        path: str,
        dim: int = 0,
        *,
        owner: str = "the model",
        no_spm_encode: bool = False,
        no_spm_decode: bool = False,
    ):
        self.path = path
        self._processor = processor
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
        pieces = (processor.piece_to_id(f"<0x{i:02X}>") for i in range(32))
        self.control_ids = tuple(i for i in pieces if i != self.unk_id)

    def __len__(self) -> int:
        return self._size

    def _id_of(self, word: str | bytes) -> int:
        piece = as_bytes(word)
        return self._processor.piece_to_id(piece.decode()) if is_utf8(piece) else self.unk_id

    def _word_of(self, number: int) -> str:
        return self._processor.id_to_piece(number)

    def encode(self, line: str | bytes, add_eos: bool = True) -> list[int]:
        sentence: list[int] = (
            self._piece_ids(line) if self._takes_pieces else self._processor.encode(as_bytes(line))
        )
        if add_eos:
            sentence.append(self.eos_id)
        return sentence

    def sample(self, line: str | bytes, alpha: float, seed: int, add_eos: bool = True) -> list[int]:
        if not alpha or self._takes_pieces:
            return self.encode(line, add_eos)
        sentence = [number for number, _ in self._sampler.sample(as_bytes(line), alpha, seed)]
        if add_eos:
            sentence.append(self.eos_id)
        return sentence

    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The text of ``ids``, its pieces joined and the spaces put back."""
        kept = [int(i) for i in ids if not (ignore_eos and i == self.eos_id)]
        if self._prints_pieces:
            return " ".join(map(self._processor.id_to_piece, kept))
        return self._processor.decode(kept)

    @cached_property
    def _sampler(self) -> PieceSampler:
        return PieceSampler(self._processor, self.path)

    def _piece_ids(self, line: str | bytes) -> list[int]:
        return [self._id_of(piece) for piece in as_bytes(line).split(b" ") if piece]


def load_processor(data: bytes, path: str) -> SentencePieceProcessor:
    """The SentencePiece model serialized in ``data``; VocabError with ``path`` if there is none."""
    from sentencepiece import SentencePieceProcessor

    check_size(data, path)
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(data)
    except RuntimeError as error:
        raise VocabError(f"{path}: not a SentencePiece model, or damaged ({error})") from None
    return processor


def read_sentence_piece(
    data: bytes,
    path: str,
    dim: int = 0,
    *,
    owner: str = "the model",
    no_spm_encode: bool = False,
    no_spm_decode: bool = False,
) -> SentencePieceVocab:
    """The vocabulary in ``data``, a serialized SentencePiece model; see ``SentencePieceVocab``."""
    processor = load_processor(data, path)
    return SentencePieceVocab(
        processor, path, dim, owner=owner, no_spm_encode=no_spm_encode, no_spm_decode=no_spm_decode
    )
