"""Vocabularies of subword pieces: raw text in, detokenised text out (Kudo and Richardson 2018)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nmt.lines import as_bytes

from .base import Vocab, VocabError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor


class SentencePieceVocab(Vocab):
    """A SentencePiece model (Marian: `SentencePieceVocab`, files `.spm`).

    The model normalises and splits raw text; what no piece covers, bytes that are not UTF-8
    included, is `unk_id` and prints as " ⁇ ". Its pieces must be as many as the model has ids.

    Args:
        processor: the loaded model.
        path: where it comes from.
        dim: how many ids the translation model has (`dim-vocabs`); 0 for as many as there are.
    """

    def __init__(self, processor: SentencePieceProcessor, path: str, dim: int = 0):
        self.path = path
        self._processor = processor
        self._size = processor.get_piece_size()
        if dim and dim != self._size:
            raise VocabError(
                f"{path}: {self._size} pieces, but the model has {dim} ids (dim-vocabs); expected "
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
        return self._processor.piece_to_id(as_bytes(word).decode("utf-8", "replace"))

    def _word_of(self, number: int) -> str:
        return self._processor.id_to_piece(number)

    def encode(self, line: str | bytes, add_eos: bool = True) -> list[int]:
        sentence: list[int] = self._processor.encode(as_bytes(line), out_type=int)
        if add_eos:
            sentence.append(self.eos_id)
        return sentence

    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The text of `ids`, its pieces joined and the spaces put back."""
        return self._processor.decode([int(i) for i in ids if not (ignore_eos and i == self.eos_id)])


def read_sentence_piece(data: bytes, path: str, dim: int = 0) -> SentencePieceVocab:
    """The vocabulary in `data`, a serialised SentencePiece model."""
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(data)
    except RuntimeError as error:
        raise VocabError(f"{path}: not a SentencePiece model, or damaged ({error})") from None
    return SentencePieceVocab(processor, path, dim)
