"""The interface of all vocabularies: text to ids and ids to text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import overload

from mgraph.errors import MGraphError
from nmt.text.lines import as_bytes

EOS_WORD = "</s>"
UNK_WORD = "<unk>"
ASKED = "--dim-vocabs"
"""The ``owner`` if the user asks for a number of ids; no warning if the vocabulary has another."""


class VocabError(MGraphError, ValueError):
    """A vocabulary file cannot be read, is incomplete, or does not fit the model."""


class WordIdError(VocabError, IndexError):
    """A vocabulary has no such id."""


class Vocab(ABC):
    """Maps between text and the ids that index a model's embeddings (Marian: ``IVocab``).

    Text is ``str`` or the bytes of a line. Bytes that are not UTF-8 are kept as surrogate escapes (PEP 383),
    so no input is lost: write results with ``errors="surrogateescape"``.

    Attributes:
        path: the file.
        eos_id, unk_id: the ids of ``</s>`` and of unknown words, from the file; -1 in a class vocabulary
            without them.
        control_ids: ids of the byte pieces ``<0x00>`` to ``<0x1F>``, which translation must not print.
    """

    path: str
    eos_id: int
    unk_id: int
    control_ids: tuple[int, ...]

    @abstractmethod
    def __len__(self) -> int:
        """The highest id plus one."""

    @property
    def ids_in_file(self) -> int:
        """The highest id of the file plus one; above ``len`` if the model has fewer ids."""
        return len(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, {len(self):,} ids)"

    @overload
    def __getitem__(self, key: str | bytes) -> int: ...

    @overload
    def __getitem__(self, key: int) -> str: ...

    def __getitem__(self, key: str | bytes | int) -> int | str:
        """The id of a word (``unk_id`` for an unknown one), or the word of an id (``WordIdError``)."""
        if isinstance(key, str | bytes):
            return self._id_of(key)
        return self._word_of(self._existing(key))

    def _existing(self, number: int) -> int:
        """``number`` as an id; ``WordIdError`` if there is no such id."""
        if not 0 <= number < len(self):
            raise WordIdError(f"{self.path}: expected an id from 0 to {len(self) - 1}, got {number}")
        return int(number)

    def _chosen(self, ids: Iterable[int], ignore_eos: bool) -> list[int]:
        """``ids`` without ``eos_id`` if ``ignore_eos``; ``WordIdError`` unless all exist."""
        return [self._existing(i) for i in ids if not (ignore_eos and i == self.eos_id)]

    @abstractmethod
    def _id_of(self, word: str | bytes) -> int: ...

    @abstractmethod
    def _word_of(self, number: int) -> str:
        """The word of an existing id."""

    def encode(self, line: str | bytes, add_eos: bool = True) -> list[int]:
        """The ids of one line of text, without its line end; ``eos_id`` after them if ``add_eos``."""
        ids = self._encoded(line)
        if add_eos and self.eos_id >= 0:
            ids.append(self.eos_id)
        return ids

    def sample(self, line: str | bytes, alpha: float, seed: int, add_eos: bool = True) -> list[int]:
        """The ids of a random segmentation of a line: subword regularization (Kudo 2018).

        Used in training (``--sentencepiece-alphas``). Vocabularies without pieces return ``encode``.

        alpha: 0 for the best segmentation, as ``encode``. A unigram model draws a segmentation with
            probability proportional to ``p ** alpha``; a BPE model drops each merge with probability
            ``alpha`` (Provilkov et al. 2020).
        seed: the same line and seed give the same segmentation in every process.
        """
        if not alpha:
            return self.encode(line, add_eos)
        ids = self._sampled(line, alpha, seed)
        return [*ids, self.eos_id] if add_eos and self.eos_id >= 0 else ids

    @abstractmethod
    def _encoded(self, line: str | bytes) -> list[int]:
        """The ids of a line, in a new list."""

    def _sampled(self, line: str | bytes, alpha: float, seed: int) -> list[int]:
        return self._encoded(line)

    @abstractmethod
    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The text of ``ids``, without ``eos_id`` if ``ignore_eos``. ``WordIdError`` for an id that does not
        exist, except in a list of words, where it gives an empty word."""


def as_text(line: str | bytes) -> str:
    """A line as ``str``; invalid UTF-8 becomes surrogate escapes."""
    return line if isinstance(line, str) else as_bytes(line).decode("utf-8", "surrogateescape")
