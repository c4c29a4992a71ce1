"""Texts for alignment, and alignments as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from mgraph.errors import MGraphError
from nmt.alignments.symmetrization import Link
from nmt.text.lines import open_input, read_lines
from nmt.text.parallel import Row
from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.loading import load_vocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab

_BETWEEN = re.compile(rb"\t|(?<![^ ])\|\|\|(?![^ ])")
_LINK = re.compile(rb"(\d{1,9})-(\d{1,9})")

Splitter = Callable[[bytes], list[bytes]]


class AlignmentError(MGraphError, ValueError):
    """A line is not an alignment or not a pair of sentences, or its links do not fit its sentences."""


def words(line: bytes) -> list[bytes]:
    """The words of a line, separated by spaces as in Marian's vocabularies of words."""
    return [word for word in line.split(b" ") if word]


def splitters(vocabs: Sequence[str]) -> tuple[Splitter, Splitter]:
    """How lines of the source and of the target are split: into pieces with SentencePiece models, else at
    spaces. vocabs: the paths of both vocabularies, or empty."""
    source, target = (_splitter(load_vocab(path)) for path in vocabs) if vocabs else (words, words)
    return source, target


def _splitter(vocab: Vocab) -> Splitter:
    if not isinstance(vocab, SentencePieceVocab):
        return words
    return lambda line: [vocab[number].encode() for number in vocab.encode(line, add_eos=False)]


def joint_rows(path: str) -> Iterator[Row]:
    """The sides of lines ``source ||| target`` (or with a tab between); two empty ones for an empty line.

    AlignmentError, with the number of the line, for words without a separator.
    """
    with open_input(path) as stream:
        for number, line in enumerate(read_lines(stream), 1):
            between = _BETWEEN.search(line)
            if between:
                yield line[: between.start()], line[between.end() :]
            elif words(line):
                shown = line[:80].decode("utf-8", "replace")
                raise AlignmentError(f"{path}: line {number}: expected 'source ||| target', got '{shown}'")
            else:
                yield b"", b""


def split_rows(rows: Iterable[Row], vocabs: Sequence[str]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The words of both sides of each row; vocabs as for ``splitters``."""
    source, target = splitters(vocabs)
    return ((source(row[0]), target(row[1])) for row in rows)


def pharaoh(links: Iterable[Link]) -> str:
    """``0-0 1-2``: source and target positions, from 0."""
    return " ".join(f"{source}-{target}" for source, target in links)


def read_pharaoh(line: bytes, where: str) -> list[Link]:
    """The links in text like ``0-0 1-2``. AlignmentError, beginning with ``where``, for anything else."""
    links = []
    for word in line.split():
        link = _LINK.fullmatch(word)
        if link is None:
            shown = word[:40].decode("utf-8", "replace")
            raise AlignmentError(f"{where}: expected links such as 0-0 1-2, got '{shown}'")
        links.append((int(link[1]), int(link[2])))
    return links
