"""Vocabularies of whole words, separated by spaces."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property

from nmt.text.lines import without_end

from .base import ASKED, EOS_WORD, UNK_WORD, Vocab, VocabError, as_text
from .pieces import SPACE, TAG
from .yaml_words import YAML_ENDINGS, parse_word_ids

logger = logging.getLogger(__name__)

MAX_SIZE = 1 << 24
_PIECES = 5
"""A vocabulary lists pieces if one word in so many has SentencePiece's mark of a space."""
# Names and ids of the special words in Nematus.
NEMATUS_WORDS = {EOS_WORD: ("eos", 0), UNK_WORD: ("UNK", 1)}


class DefaultVocab(Vocab):
    """A list of words, from a ``word: id`` file or one word per line (Marian: ``DefaultVocab``).

    Only U+0020 separates words: a tab, a no-break space, U+2028 or a byte-order mark belongs to its word. A
    word that is not in the list, or whose id is ``dim`` or above, is ``unk_id``.

    words: the ids of the words. path: the file.
    dim: how many ids the model has (``dim-vocabs``); 0 for as many as the file. A different number gives a
        warning: Marian allows it in training, but the file may belong to another model.
    nematus: accept ``eos`` and ``UNK``, or an id without a word, for ids 0 and 1.
    owner: the source of ``dim``, for messages; no warning for ``ASKED``.

    VocabError for a list without words below ``dim``, without ``</s>`` or ``<unk>``, or with ids above 2^24.
    """

    def __init__(
        self,
        words: Mapping[str, int],
        path: str,
        dim: int = 0,
        nematus: bool = False,
        owner: str = "the model",
    ):
        self.path = path
        self._in_file = max(words.values(), default=-1) + 1
        self._ids = {word: i for word, i in words.items() if not dim or i < dim}
        if not self._ids:
            raise VocabError(
                f"{path}: {len(words)} words, none with an id below {dim}"
                if words
                else f"{path}: a vocabulary without words"
            )
        self._words = _words_by_id(self._ids)
        self._size = max(self._words) + 1
        if self._size > MAX_SIZE:
            last = self._words[self._size - 1]
            raise VocabError(
                f"{path}: {last[:80]!r} has the id {self._size - 1}; a vocabulary has at most {MAX_SIZE} ids"
            )
        if dim and dim != self._in_file:
            _report_size(path, self._in_file, dim, owner)
        self.control_ids = tuple(
            self._ids[piece] for i in range(32) if (piece := f"<0x{i:02X}>") in self._ids
        )
        self.eos_id = self._special_id(EOS_WORD, nematus, dim)
        self.unk_id = self._special_id(UNK_WORD, nematus, dim)

    def _special_id(self, word: str, nematus: bool, dim: int) -> int:
        alias, alias_id = NEMATUS_WORDS[word]
        if nematus and alias_id < self._size and self._words.get(alias_id, "") in ("", alias):
            return alias_id
        if word not in self._ids:
            below = f" with an id below {dim} (dim-vocabs)" if dim else ""
            also = f" (or {alias!r} as id {alias_id})" if nematus else ""
            raise VocabError(
                f"{self.path}: a vocabulary needs the word {word}{also}{below}; it is not among "
                f"these {len(self._ids)} words, of which the first is {next(iter(self._ids))[:80]!r}"
            )
        return self._ids[word]

    @cached_property
    def _lists_pieces(self) -> bool:
        return _PIECES * sum(SPACE in word for word in self._ids) > len(self._ids)

    def words(self) -> Iterable[str]:
        """All words; there may be far fewer than ids."""
        return self._words.values()

    def __len__(self) -> int:
        return self._size

    @property
    def ids_in_file(self) -> int:
        return self._in_file

    def _id_of(self, word: str | bytes) -> int:
        return self._ids.get(as_text(word), self.unk_id)

    def _word_of(self, number: int) -> str:
        return self._words.get(number, "")

    def _encoded(self, line: str | bytes) -> list[int]:
        ids, unk_id, text = self._ids, self.unk_id, as_text(line)
        words = [word for word in text.split(" ") if word]
        if self._lists_pieces and SPACE not in text and not all(map(TAG.fullmatch, words)):
            self._lists_pieces = False  # told once
            logger.warning(
                "[data] WRONG TEXT? %s lists SentencePiece pieces, but this line has none: %.80r. The text "
                "must be split into pieces; decode, score and server do so with --pieces",
                self.path,
                text,
            )
        return [ids.get(word, unk_id) for word in words]

    def decode(self, ids: Iterable[int], ignore_eos: bool = True) -> str:
        """The words of ``ids``, separated by spaces; an id without a word gives an empty word."""
        words = self._words
        return " ".join(words.get(i, "") for i in ids if not (ignore_eos and i == self.eos_id))


class ClassVocab(DefaultVocab):
    """Labels of a classifier's stream (Marian: ``ClassVocab``, ``--input-types class``).

    There are no special words: ``eos_id`` and ``unk_id`` are -1, and an unknown label is a VocabError.
    """

    def _special_id(self, word: str, nematus: bool, dim: int) -> int:
        return -1

    def _id_of(self, word: str | bytes) -> int:
        text = as_text(word)
        if text not in self._ids:
            known = ", ".join(list(self._ids)[:10])
            raise VocabError(f"{self.path}: {text!r} is not one of the {len(self._ids)} classes ({known})")
        return self._ids[text]

    def _encoded(self, line: str | bytes) -> list[int]:
        return [self._id_of(word) for word in as_text(line).split(" ") if word]


def read_default(
    data: bytes, path: str, dim: int = 0, *, input_type: str = "sequence", owner: str = "the model"
) -> DefaultVocab:
    """Read a vocabulary: ``word: id`` if ``path`` ends in .yml, .yaml or .json, else a list of words.

    input_type: ``class`` for a ``ClassVocab``. dim, owner: see ``DefaultVocab``.
    """
    kind = ClassVocab if input_type == "class" else DefaultVocab
    if path.endswith(YAML_ENDINGS):
        return kind(parse_word_ids(data, path), path, dim, nematus=True, owner=owner)
    return kind(_listed_words(data, path), path, dim, owner=owner)


def _report_size(path: str, size: int, dim: int, owner: str) -> None:
    """Report that a vocabulary has ``size`` ids, not ``dim``."""
    effect = f"words with ids from {dim:,} on are unknown"
    if size < dim:
        effect = f"the ids from {size:,} on have no words and are never chosen"
    if owner == ASKED:
        logger.info("[data] %s has %s ids, %s is %s: %s", path, f"{size:,}", owner, f"{dim:,}", effect)
        return
    logger.warning(
        "[data] WRONG VOCABULARY? %s has %s ids, but %s has %s (dim-vocabs): %s. Unless the model was "
        "trained with this vocabulary and --dim-vocabs %d, what comes out is nonsense; give --vocabs the "
        "files that it was trained with",
        path,
        f"{size:,}",
        owner,
        f"{dim:,}",
        effect,
        dim,
    )


def _listed_words(data: bytes, path: str) -> dict[str, int]:
    """One word per line, the first has id 0. A carriage return before the line's end is dropped."""
    words: dict[str, int] = {}
    for number, line in enumerate(io.BytesIO(data), 1):
        word = as_text(without_end(line))
        if not word:
            raise VocabError(f"{path}:{number}: empty line; expected one word per line")
        if word in words:
            raise VocabError(f"{path}:{number}: {word[:80]!r} occurs twice, first in line {words[word] + 1}")
        words[word] = len(words)
    return words


def _words_by_id(ids: Mapping[str, int]) -> dict[int, str]:
    """The word of each id; if several words share one, the last in byte order, as in Marian."""
    words = {i: word for word, i in ids.items()}
    if len(words) < len(ids):
        for word in sorted(ids, key=lambda word: word.encode("utf-8", "surrogateescape")):
            words[ids[word]] = word
    return words
