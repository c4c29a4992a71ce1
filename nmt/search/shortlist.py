"""Lexical shortlists: the few candidate target words of each source sentence (Marian's ``--shortlist``)."""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

import numpy as np

from mgraph import MGraphError
from mgraph.files.items import replacing
from mgraph.files.paths import path_text
from nmt.settings import OptionError
from nmt.text.lines import STANDARD_OUTPUT, open_output, read_whole
from nmt.text.vocabs.base import Vocab

MAGIC = 0xF11A48D5013417F5
QUICKSAND_MAGIC = 1234567890
HEADER = struct.Struct("<6Q")
"""The header of a binary file: magic, checksum, first, best, number of offsets, number of target words."""
MULTIPLE = 8
"""Marian fills up a sentence's candidates with further words to a multiple of this."""
ADDED = 0x9E3779B9
ALL_BITS = (1 << 64) - 1
MOST_WORDS = (1 << 31) - 1
"""The most words of a vocabulary; ids are int32."""
PART_BYTES = 1 << 20
_SPACE, _WORD = re.compile(rb"\s"), re.compile(rb"\S+")


class ShortlistError(MGraphError, ValueError):
    """A shortlist cannot be read, or does not fit the vocabularies."""


@dataclass(frozen=True)
class Lexicon:
    """Target words for every source word.

    offsets: int64 ``[source words + 1]``; source word ``s`` has ``words[offsets[s]:offsets[s + 1]]``.
    words: int32 target words.
    first: how many of the first words of the target vocabulary are candidates for every sentence.
    best: the maximum number of target words per source word when the lexicon was made.
    """

    offsets: np.ndarray
    words: np.ndarray
    first: int
    best: int

    def of(self, word: int) -> np.ndarray:
        """The target words of a source word; none for an unknown word."""
        if word + 1 >= len(self.offsets):
            return self.words[:0]
        return self.words[self.offsets[word] : self.offsets[word + 1]]


@dataclass(frozen=True)
class Shortlist:
    """Chooses the candidates of a sentence.

    size: of the target vocabulary.
    shared: whether source and target share a vocabulary, so that the source words are candidates, too.
    """

    lexicon: Lexicon
    size: int
    shared: bool = False

    def candidates(self, source: Sequence[int]) -> np.ndarray:
        """The candidates for these source words (ids, with ``</s>``) as sorted int32 ids.

        They are the first words of the vocabulary, the lexicon's words for each source word, the source
        words if ``shared``, and further words of the vocabulary up to a multiple of 8, if there are enough.
        There is always a candidate, where Marian aborts if a sentence has none.
        """
        chosen = np.zeros(self.size, bool)
        first = self.lexicon.first
        chosen[:first] = True
        for word in set(source):
            chosen[self.lexicon.of(word)] = True
            if self.shared and word < self.size:
                chosen[word] = True
        listed = int(chosen.sum())
        missing = -listed % MULTIPLE if listed else MULTIPLE
        free = np.flatnonzero(~chosen[first:])[:missing] + first
        chosen[free] = True
        return np.flatnonzero(chosen).astype(np.int32)


class Listed:
    """The union of some shortlists: at most ``most`` words of a vocabulary of ``size``.

    Word 0, with which shortlists are padded, is always included.
    """

    def __init__(self, size: int, most: int) -> None:
        self._inside, self._most = np.zeros(size, bool), most
        self._inside[0] = True

    def __len__(self) -> int:
        return int(np.count_nonzero(self._inside))

    def add(self, candidates: np.ndarray) -> bool:
        """Add a shortlist; False if there is no room for its words."""
        new = candidates[~self._inside[candidates]]
        if len(self) + len(new) > self._most:
            return False
        self._inside[new] = True
        return True


def load_shortlist(
    values: Sequence[str], source_vocab: Vocab, target_vocab: Vocab, *, size: int, shared: bool
) -> Shortlist:
    """Load the shortlist of ``--shortlist path [first [best [threshold]]]``.

    values: the option's words. For a text file the defaults are 100, 100 and 0. Of those for a binary file,
        only the word after the path counts: ``0`` or ``false`` skips the checksum.
    size: of the model's target vocabulary. shared: see ``Shortlist``.

    Raises ShortlistError for a file that is damaged, of another kind or for other vocabularies; OptionError
    for values that are not numbers; OSError for a file that cannot be read.
    """
    path, *rest = values
    data = read_whole(path)
    if int.from_bytes(data[:8], "little") == MAGIC:
        lexicon = read_binary(data, path, size, target_vocab, check=_flag(rest))
    elif path.endswith(".bin"):
        kind = "Microsoft's Quicksand shortlist" if _is_quicksand(data) else "no shortlist of Marian's"
        raise ShortlistError(f"{path}: expected a binary shortlist, this is {kind}")
    else:
        lexicon = read_text(data, path, source_vocab, target_vocab, *_limits(rest))
    return Shortlist(lexicon, size, shared)


def convert_shortlist(
    values: Sequence[str], source_vocab: Vocab, target_vocab: Vocab, target: str | os.PathLike[str]
) -> None:
    """Convert the text file in ``values``, the words of ``--shortlist``, to the binary file ``target``."""
    path, *rest = values
    data = read_whole(path)
    limits = _limits(rest)
    write_binary(target, read_text(data, path, source_vocab, target_vocab, *limits, converting=True))


def read_text(
    data: bytes,
    path: str,
    source_vocab: Vocab,
    target_vocab: Vocab,
    first: int = 100,
    best: int = 100,
    threshold: float = 0.0,
    *,
    converting: bool = False,
) -> Lexicon:
    """Read a lexicon from text of triples ``target source probability``.

    Pairs with the word ``NULL`` are skipped. Each source word keeps the ``best`` most probable target words
    with a probability above ``threshold``; among equals, the higher ids. Of repeated pairs the last counts.
    ``converting`` follows Marian's converter: the most probable of repeated pairs counts, and a probability
    equal to the threshold is enough (above 0 Marian compares the threshold with the word's id instead).
    """
    source_ids, target_ids = _Ids(source_vocab), _Ids(target_vocab)
    pairs: dict[tuple[int, int], np.float32] = {}
    for row, (target, source, number) in enumerate(_triples(data, path)):
        if source == b"NULL" or target == b"NULL":
            continue
        try:
            with np.errstate(over="ignore"):
                probability = np.float32(number)
        except ValueError:
            probability = np.float32("nan")
        if not 0 <= probability < np.inf:
            text = b" ".join((target, source, number)).decode("utf-8", "replace")
            raise ShortlistError(
                f"{path}: line {_line(data, 3 * row + 2)}: expected 'target source probability', with a "
                f"probability of at least 0, got '{text}'"
            )
        pair = source_ids[source], target_ids[target]
        if converting:
            probability = max(probability, pairs.get(pair, np.float32(0)))
        pairs[pair] = probability
    least = np.float32(threshold)
    kept = {pair: p for pair, p in pairs.items() if p > least or (converting and p == least)}
    return _lexicon(kept, len(source_vocab), first, best)


def _line(data: bytes, field: int) -> int:
    """The line number, from 1, of field ``field``, from 0."""
    found = next(islice(_WORD.finditer(data), field, field + 1))
    return data.count(b"\n", 0, found.start()) + 1


def _triples(data: bytes, path: str) -> Iterator[tuple[bytes, bytes, bytes]]:
    words = chain.from_iterable(map(bytes.split, _parts(data)))
    for first, second, third in zip_longest(words, words, words):
        if third is None:
            raise ShortlistError(
                f"{path}: expected triples 'target source probability', the last is incomplete"
            )
        yield first, second, third


def _parts(data: bytes) -> Iterator[bytes]:
    """A text in parts that end between words: a list of all words would need ten times its memory."""
    at = 0
    while at < len(data):
        space = _SPACE.search(data, at + PART_BYTES)
        end = space.start() if space else len(data)
        yield data[at:end]
        at = end


class _Ids(dict[bytes, int]):
    """Ids of words, each looked up once."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab

    def __missing__(self, word: bytes) -> int:
        self[word] = found = self.vocab[word]
        return found


def _lexicon(pairs: Mapping[tuple[int, int], np.float32], sources: int, first: int, best: int) -> Lexicon:
    ids = np.array(list(pairs), np.int64).reshape(-1, 2)
    source, target = ids[:, 0], ids[:, 1]
    order = np.lexsort((-target, -np.array(list(pairs.values()), np.float32), source))
    source, target = source[order], target[order]
    begin = np.searchsorted(source, np.arange(sources + 1))
    kept = np.arange(len(source)) - begin[source] < best
    source, target = source[kept], target[kept]
    order = np.lexsort((target, source))
    offsets = np.searchsorted(source, np.arange(sources + 1))
    return Lexicon(offsets.astype(np.int64), target[order].astype(np.int32), first, best)


def read_binary(data: bytes, path: str, size: int, vocab: Vocab, *, check: bool = True) -> Lexicon:
    """Read a lexicon from the bytes of Marian's binary file.

    size: of the model's target vocabulary. vocab: the target vocabulary; words of its file that the model
    lacks (``dim-vocabs``) become unknown words, as when text is read. check: whether to verify the checksum;
    offsets and words are always verified.
    """
    if len(data) < HEADER.size:
        raise ShortlistError(f"{path}: expected a header of {HEADER.size} bytes, got {len(data)} bytes")
    magic, checksum, first, best, offsets_size, words_size = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ShortlistError(f"{path}: expected the magic number of a binary shortlist, got {magic:#x}")
    expected = HEADER.size + 8 * offsets_size + 4 * words_size
    if expected != len(data):
        raise ShortlistError(f"{path}: expected {expected} bytes by its header, got {len(data)}")
    if check and checksum != _checksum(data):
        raise ShortlistError(f"{path}: the checksum does not match, so the file is damaged")
    if max(first, best) > MOST_WORDS:
        raise ShortlistError(
            f"{path}: by its header the first {first} and the best {best} words are candidates; expected at "
            f"most {MOST_WORDS}, so the file is damaged"
        )
    offsets = np.frombuffer(data, "<u8", offsets_size, HEADER.size)
    words = np.frombuffer(data, "<u4", words_size, HEADER.size + 8 * offsets_size)
    if not offsets_size or offsets[-1] != words_size or np.any(offsets[:-1] > offsets[1:]):
        raise ShortlistError(f"{path}: its offsets are not in order, so the file is damaged")
    if words_size and int(words.max()) >= max(size, vocab.ids_in_file):
        raise ShortlistError(f"{path}: it holds target word {words.max()}, the model has {size} words")
    words = np.where(words < size, words, vocab.unk_id)
    return Lexicon(offsets.astype(np.int64), words.astype(np.int32), first, best)


def write_binary(path: str | os.PathLike[str], lexicon: Lexicon) -> None:
    """Write Marian's binary file, as ``marian-conv --shortlist ... --dump-shortlist path`` does;
    ``stdout`` or ``-`` is standard output."""
    sizes = lexicon.first, lexicon.best, len(lexicon.offsets), len(lexicon.words)
    body = lexicon.offsets.astype("<u8").tobytes() + lexicon.words.astype("<u4").tobytes()
    checksum = _checksum(HEADER.pack(MAGIC, 0, *sizes) + body)
    name = path_text(path)
    with open_output(name) if name in STANDARD_OUTPUT else replacing(name) as stream:
        stream.write(HEADER.pack(MAGIC, checksum, *sizes) + body)


def _checksum(data: bytes) -> int:
    """``hash_combine`` of all whole groups of eight bytes after the checksum."""
    found = 0
    for value in np.frombuffer(data, "<u8", len(data) // 8 - 2, 16).tolist():
        found ^= (value + ADDED + (found << 6) + (found >> 2)) & ALL_BITS
    return found


def _limits(words: Sequence[str]) -> tuple[int, int, float]:
    if len(words) > 3:
        raise OptionError(f"--shortlist takes a path, first, best and threshold; unexpected: {words[3:]}")
    given = [*words, *("100", "100", "0")[len(words) :]]
    try:
        first, best, threshold = int(given[0]), int(given[1]), float(given[2])
    except ValueError:
        raise OptionError(
            f"--shortlist: first and best are whole numbers, threshold is a number; got {' '.join(given)}"
        ) from None
    if min(first, best) < 0 or max(first, best) > MOST_WORDS:
        raise OptionError(
            f"--shortlist: first and best are at least 0, and at most {MOST_WORDS}, got {first} {best}"
        )
    if not math.isfinite(threshold):
        raise OptionError(f"--shortlist: threshold is a number, got {given[2]}")
    return first, best, threshold


def _flag(words: Sequence[str]) -> bool:
    """Whether to verify the checksum of a binary file."""
    return not words or words[0].lower() not in ("0", "false")


def _is_quicksand(data: bytes) -> bool:
    return int.from_bytes(data[:4], "little") == QUICKSAND_MAGIC
