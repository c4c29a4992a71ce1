"""What every vocabulary promises: text to ids and ids to text, whatever its file looks like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import overload

from mgraph.errors import MGraphError
from nmt.text.lines import as_bytes

EOS_WORD = "</s>"
UNK_WORD = "<unk>"


ASKED = "--dim-vocabs"
"""The owner of a number of ids that was asked for, and so is no surprise if the vocabulary has another."""


class VocabError(MGraphError, ValueError):
    """A vocabulary file cannot be read, lacks what it must have, or does not fit the model."""


class Vocab(ABC):
    """Maps between text and the ids that index a model's embeddings (Marian: ``IVocab``).

    Text is ``str`` or the bytes of a line; bytes that are not UTF-8 are kept as surrogate escapes
    (PEP 383), so that no input is lost: write results with ``errors="surrogateescape"``.

    Attributes:
        path: the file it came from.
        eos_id, unk_id: the ids of the end of a sentence and of unknown words; they come from the
            file, not by convention. A class vocabulary without them has -1.
        control_ids: ids of the byte pieces ``<0x00>`` to ``<0x1F>``, which translation must not print.
    """

    path: str
    eos_id: int
    unk_id: int
    control_ids: tuple[int, ...]

    @abstractmethod
    def __len__(self) -> int:
        """How many ids there are: the highest plus one."""

    @overload
    def __getitem__(self, key: str | bytes) -> int: ...

    @overload
    def __getitem__(self, key: int) -> str: ...

    def __getitem__(self, key: str | bytes | int) -> int | str:
        """The id of a word (``unk_id`` for an unknown one), or the word of an id (``IndexError``)."""
        if isinstance(key, str | bytes):
            return self._id_of(key)
        if not 0 <= key < len(self):
            raise IndexError(f"{self.path}: id {key} of {len(self)}")
        return self._word_of(int(key))

    @abstractmethod
    def _id_of(self, word: str | bytes) -> int:
        """The id of a word."""

    @abstractmethod
    def _word_of(self, number: int) -> str:
        """The word of an id that there is."""

    def encode(self, line: str | bytes, add_eos: bool = True) -> list[int]:
        """The ids of one line of text, without its line end; ``eos_id`` after them if ``add_eos``."""
        ids = self._encoded(line)
        if add_eos and self.eos_id >= 0:
            ids.append(self.eos_id)
        return ids

    def sample(self, line: str | bytes, alpha: float, seed: int, add_eos: bool = True) -> list[int]:
        """The ids of one way to split a line, drawn at random: subword regularization (Kudo 2018).

        Only vocabularies of pieces know more than one way; others return ``encode``. For training
        (``--sentencepiece-alphas``), with one ``alpha`` for each stream.

        alpha: 0 for the best way, as ``encode``; a unigram model draws a way with the probability
            ``p(way) ** alpha`` over their sum; of a BPE model each merge is left out with
            probability ``alpha`` (Provilkov et al. 2020).
        seed: the same line with the same seed is split in the same way, in every process.
        """
        if not alpha:
            return self.encode(line, add_eos)
        ids = self._sampled(line, alpha, seed)
        return [*ids, self.eos_id] if add_eos and self.eos_id >= 0 else ids

    @abstractmethod
    def _encoded(self, line: str | bytes) -> list[int]:
        """The ids of a line, in a new list."""

    def _sampled(self, line: str | bytes, alpha: float, seed: int) -> list[int]:
        """The ids of one way to split a line."""
        return self._encoded(line)

    @abstractmethod
    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The text of ``ids``, without ``eos_id`` if ``ignore_eos``."""


def as_text(line: str | bytes) -> str:
    """A line as ``str``; what is not UTF-8 becomes surrogate escapes."""
    return line if isinstance(line, str) else as_bytes(line).decode("utf-8", "surrogateescape")
