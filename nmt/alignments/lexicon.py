"""Lexical tables: translation probabilities of words, computed from links as by extract_lex."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nmt.alignments.symmetrization import Link
from nmt.alignments.texts import AlignmentError
from nmt.search.shortlist import read_text, write_binary
from nmt.text.vocabs.base import Vocab

NULL = b"NULL"
"""The word to which words without a link are linked."""
_BITS = 32


class LinkCounts:
    """Counts of the linked word pairs of a parallel text."""

    def __init__(self) -> None:
        self._source, self._target = {NULL: 0}, {NULL: 0}
        self._counts: Counter[int] = Counter()

    def add(self, source: Sequence[bytes], target: Sequence[bytes], links: Iterable[Link]) -> None:
        """Count the links of a sentence pair; AlignmentError for a link past the end of a sentence."""
        s = [self._source.setdefault(word, len(self._source)) for word in source]
        t = [self._target.setdefault(word, len(self._target)) for word in target]
        free_s, free_t = set(range(len(s))), set(range(len(t)))
        for i, j in links:
            if i >= len(s) or j >= len(t):
                raise AlignmentError(
                    f"link {i}-{j}, but the source has {len(s)} words and the target {len(t)}"
                )
            self._counts[s[i] << _BITS | t[j]] += 1
            free_s.discard(i)
            free_t.discard(j)
        self._counts.update([s[i] << _BITS for i in free_s])
        self._counts.update([t[j] for j in free_t])

    def table(
        self, *, best: int | None = None, threshold: float = 0.0, turned: bool = False
    ) -> Iterator[bytes]:
        """The lines ``target source probability`` of the table from source to target, which Marian reads.

        The probability is ``count(source, target) / count(source)``, in float32, with seven decimals. Source
        words come in the order in which they first occur in the text, the most probable target words first.
        ``count(source)`` includes links to ``NULL``, but lines with it are left out, because Marian skips
        them. Words with a tab or other white space in them are left out, too: such lines cannot hold them.

        best: the largest number of target words for a source word. threshold: only probabilities above it.
        turned: the table from target to source, with lines ``source target probability``.
        """
        keys = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float64, len(self._counts))
        of, word = keys >> _BITS, keys & ((1 << _BITS) - 1)
        names, words = list(self._source), list(self._target)
        if turned:
            of, word, names, words = word, of, words, names
        share = counts.astype(np.float32) / np.bincount(of, counts, len(names)).astype(np.float32)[of]
        kept = (of > 0) & (word > 0) & (share > np.float32(threshold))
        kept &= _writable(names)[of] & _writable(words)[word]
        of, word, share = of[kept], word[kept], share[kept]
        order = np.lexsort((word, -share, of))
        of, word, share = of[order], word[order], share[order]
        if best is not None:
            rank = np.arange(len(of)) - np.searchsorted(of, of)
            of, word, share = of[rank < best], word[rank < best], share[rank < best]
        for place, other, number in zip(of.tolist(), word.tolist(), share.tolist(), strict=True):
            yield b"%s %s %.7f" % (words[other], names[place], number)


def _writable(words: Sequence[bytes]) -> np.ndarray:
    """Whether each word is free of white space, which separates the fields of a table."""
    return np.array([word.split() == [word] for word in words], bool)


def dump_shortlist(
    path: str | os.PathLike[str],
    counts: LinkCounts,
    source: Vocab,
    target: Vocab,
    *,
    first: int = 100,
    best: int = 100,
    threshold: float = 0.0,
) -> None:
    """Write Marian's binary shortlist, as its converter makes it from the text of ``counts.table``.

    first, best: see ``Lexicon``; ``best`` limits the table, too. threshold: only probabilities above it.
    """
    text = b"\n".join(counts.table(best=best, threshold=threshold))
    write_binary(path, read_text(text, os.fspath(path), source, target, first, best, converting=True))
