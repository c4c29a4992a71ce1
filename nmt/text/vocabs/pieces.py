"""The pieces of a SentencePiece model: its file, and random segmentation.

SentencePiece can sample too, but its generator cannot be seeded; here a seed gives the same segmentation in
every process.
"""

from __future__ import annotations

import heapq
import math
import random
import re
import struct
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .base import VocabError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

MAX_PIECES = 1 << 19
MAX_OTHER_BYTES = 1 << 22
_PIECES, _TRAINER = 1, 2  # of the model
_TEXT, _SCORE, _KIND = 1, 2, 3  # of a piece
_MODEL_TYPE, _BLANK_LAST, _BYTE_FALLBACK = 3, 24, 35  # of the options that it was trained with
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_MOST_BITS = 63

SPACE = "▁"
TAG = re.compile(r">>[^<> ]+<<")
"""A language token of OPUS-MT's models, which is a word of its own before the text."""
UNKNOWN_PENALTY = 10.0  # SentencePiece's, below the lowest score
USER_DEFINED_SCORE = -0.1  # SentencePiece's, above the score of any other segmentation
WORDS_KEPT = 1 << 13

Part = tuple[int, str]
"""The id of a piece and its text."""

Edges = tuple[list[Part], list[float]]
"""The pieces that may end at a position, and the cumulative probabilities of all but the last."""


class PieceKind(IntEnum):
    """The kind of a piece."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class SplitterType(IntEnum):
    """How a model splits text."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece; its id is its place in the model."""

    text: str
    score: float
    kind: PieceKind


@dataclass(frozen=True)
class PieceModel:
    """A SentencePiece model.

    pieces: by id. model_type: how it splits. byte_fallback: whether unknown characters become byte pieces.
    blank_last: whether a blank belongs to the word before it (``--treat_whitespace_as_suffix``).
    """

    pieces: tuple[Piece, ...]
    model_type: SplitterType
    byte_fallback: bool
    blank_last: bool


@contextmanager
def damage_reported(path: str) -> Iterator[None]:
    """Turn errors from reading a SentencePiece model into VocabError with ``path``."""
    try:
        yield
    except (IndexError, KeyError, ValueError, TypeError, RuntimeError, struct.error) as error:
        raise VocabError(f"{path}: not a SentencePiece model, or damaged ({error})") from None


def read_piece_model(data: bytes, path: str) -> PieceModel:
    """The model in ``data``, a serialized ``ModelProto``; VocabError with ``path`` if it is damaged.

    SentencePiece's Python API tells neither the type of a model nor which of its pieces are user-defined.
    """
    pieces, model_type, byte_fallback, blank_last = [], SplitterType.UNIGRAM, False, False
    with damage_reported(path):
        for number, value in _fields(data):
            if number == _PIECES:
                pieces.append(_piece(value))
            elif number == _TRAINER:
                options = dict(_fields(value))
                model_type = SplitterType(options.get(_MODEL_TYPE, SplitterType.UNIGRAM))
                byte_fallback = bool(options.get(_BYTE_FALLBACK, False))
                blank_last = bool(options.get(_BLANK_LAST, False))
    return PieceModel(tuple(pieces), model_type, byte_fallback, blank_last)


def check_size(data: bytes, path: str) -> None:
    """VocabError if the model in ``data`` would take far more memory than its size.

    SentencePiece makes an object of a hundred bytes from each piece and each other string, even if it takes
    only two bytes in the file.
    """
    if len(data) <= MAX_OTHER_BYTES:
        return
    pieces = others = 0
    with damage_reported(path):
        for number, value in _fields(data):
            pieces += number == _PIECES
            others += 0 if number == _PIECES or isinstance(value, int) else len(value)
            if pieces > MAX_PIECES or others > MAX_OTHER_BYTES:
                break
    if pieces > MAX_PIECES or others > MAX_OTHER_BYTES:
        raise VocabError(
            f"{path}: SentencePiece models of more than {MAX_PIECES} pieces, or more than "
            f"{MAX_OTHER_BYTES} bytes of other data, are not supported"
        )


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    score = struct.unpack("<f", fields.get(_SCORE, bytes(4)))[0]
    text = fields.get(_TEXT, b"").decode("utf-8", "replace")
    return Piece(text, score, PieceKind(fields.get(_KIND, PieceKind.NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The field numbers and values of a Protocol Buffers message; varints as int, all else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _LENGTH:
            size, at = _varint(data, at)
        else:
            size = {_FIXED_64: 8, _FIXED_32: 4}[wire]
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _MOST_BITS:
            raise ValueError("a varint does not end")


class PieceSampler:
    """Draws segmentations of a line, as described in ``Vocab.sample``.

    processor: the model. path: for messages. VocabError if the model is neither unigram nor BPE, and so knows
    only one segmentation.
    """

    def __init__(self, processor: SentencePieceProcessor, path: str) -> None:
        model = read_piece_model(processor.serialized_model_proto(), path)
        if model.model_type not in (SplitterType.UNIGRAM, SplitterType.BPE):
            raise VocabError(
                f"{path}: --sentencepiece-alphas is for unigram and bpe models, this is a "
                f"{model.model_type.name.lower()} model"
            )
        self._processor = processor
        self._unknown = processor.unk_id()
        self._bytes = _byte_ids(model) if model.byte_fallback else {}
        # If no piece spans a space, words are split separately: they repeat, and ``_Unigram`` caches them.
        self._by_words = not any(
            SPACE in piece.text[1:]
            for piece in model.pieces
            if piece.kind in (PieceKind.NORMAL, PieceKind.USER_DEFINED)
        )
        splitter = _Unigram if model.model_type is SplitterType.UNIGRAM else _Merges
        self._splitter: _Unigram | _Merges = splitter(model, self._unknown)

    def sample(self, line: bytes, alpha: float, seed: int) -> list[Part]:
        """The ids and texts of the pieces of ``line``, drawn with ``seed``."""
        text = self._processor.normalize(line)
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        draw = random.Random(seed).random
        parts: list[Part] = []
        for word in _words(text) if self._by_words else [text]:
            parts += self._splitter.split(word, alpha, draw)
        return self._with_unknown(parts)

    def _with_unknown(self, parts: list[Part]) -> list[Part]:
        """Replace unknown characters by byte pieces, or each run of them by one unknown piece."""
        if not any(number == self._unknown for number, _ in parts):
            return parts
        joined: list[Part] = []
        for number, text in parts:
            if number != self._unknown:
                joined.append((number, text))
            elif self._bytes:
                joined += [(self._bytes[byte], f"<0x{byte:02X}>") for byte in text.encode()]
            elif joined and joined[-1][0] == self._unknown:
                joined[-1] = (number, joined[-1][1] + text)
            else:
                joined.append((number, text))
        return joined


class _Unigram:
    """Segments by a unigram model: forward filtering, backward sampling."""

    def __init__(self, model: PieceModel, unknown: int) -> None:
        normal = [piece.score for piece in model.pieces if piece.kind is PieceKind.NORMAL]
        lowest = min(normal, default=0.0)
        self._pieces: dict[str, tuple[int, float]] = {}
        for number, piece in enumerate(model.pieces):
            if piece.kind is PieceKind.NORMAL:
                self._pieces[piece.text] = number, piece.score
            elif piece.kind is PieceKind.USER_DEFINED:
                self._pieces[piece.text] = number, USER_DEFINED_SCORE
        self._unknown = unknown, lowest - UNKNOWN_PENALTY
        self._longest = max(map(len, self._pieces), default=1)
        self._edges = lru_cache(WORDS_KEPT)(self._new_edges)

    def split(self, word: str, alpha: float, draw: Callable[[], float]) -> list[Part]:
        edges = self._edges(word, alpha)
        parts: list[Part] = []
        end = len(word)
        while end:
            choices, shares = edges[end]
            part = choices[bisect(shares, draw())] if shares else choices[0]
            parts.append(part)
            end -= len(part[1])
        return parts[::-1]

    def _new_edges(self, word: str, alpha: float) -> list[Edges]:
        """The pieces that may end at each position of a word."""
        totals = [0.0]  # log of the sum over all segmentations up to a position
        edges: list[Edges] = [([], [])]
        for end in range(1, len(word) + 1):
            parts, weights = [], []
            for start in range(max(0, end - self._longest), end):
                text = word[start:end]
                found = self._pieces.get(text)
                if found is None and end - start == 1:
                    found = self._unknown
                if found is not None:
                    parts.append((found[0], text))
                    weights.append(totals[start] + alpha * found[1])
            most = max(weights)
            cumulated = list(accumulate(math.exp(weight - most) for weight in weights))
            totals.append(most + math.log(cumulated[-1]))
            edges.append((parts, [share / cumulated[-1] for share in cumulated[:-1]]))
        return edges


class _Merges:
    """Segments by merging neighbours, highest score first; a merge may be dropped."""

    def __init__(self, model: PieceModel, unknown: int) -> None:
        kinds = (PieceKind.NORMAL, PieceKind.USER_DEFINED, PieceKind.UNUSED)
        self._pieces = {piece.text: (i, piece) for i, piece in enumerate(model.pieces) if piece.kind in kinds}
        self._whole = sorted(
            (piece.text for piece in model.pieces if piece.kind is PieceKind.USER_DEFINED),
            key=len,
            reverse=True,
        )
        self._unknown = unknown

    def split(self, word: str, alpha: float, draw: Callable[[], float]) -> list[Part]:
        symbols, frozen = self._symbols(word)
        after = list(range(1, len(symbols) + 1))
        before = list(range(-1, len(symbols) - 1))
        made_of: dict[str, tuple[str, str]] = {}
        agenda: list[tuple[float, int, int, int]] = []

        def offer(left: int, right: int) -> None:
            if left < 0 or right >= len(symbols) or frozen[left] or frozen[right]:
                return
            text = symbols[left] + symbols[right]
            if text in self._pieces:
                piece = self._pieces[text][1]
                heapq.heappush(agenda, (-piece.score, left, right, len(text)))
                if piece.kind is PieceKind.UNUSED:
                    made_of[text] = symbols[left], symbols[right]

        for left in range(len(symbols) - 1):
            offer(left, left + 1)
        while agenda:
            _, left, right, length = heapq.heappop(agenda)
            stale = not symbols[left] or not symbols[right]
            if stale or len(symbols[left]) + len(symbols[right]) != length or draw() < alpha:
                continue
            symbols[left] += symbols[right]
            symbols[right] = ""
            after[left] = after[right]
            if after[right] < len(symbols):
                before[after[right]] = left
            offer(before[left], left)
            offer(left, after[left])
        return [part for symbol in symbols if symbol for part in self._parts(symbol, made_of)]

    def _symbols(self, word: str) -> tuple[list[str], list[bool]]:
        """The characters and user-defined pieces of a word, and which are user-defined: these never merge."""
        symbols: list[str] = []
        frozen: list[bool] = []
        at = 0
        while at < len(word):
            whole = next((text for text in self._whole if word.startswith(text, at)), "")
            symbols.append(whole or word[at])
            frozen.append(bool(whole))
            at += len(symbols[-1])
        return symbols, frozen

    def _parts(self, symbol: str, made_of: dict[str, tuple[str, str]]) -> Iterator[Part]:
        """A symbol as pieces that may be used."""
        if symbol not in self._pieces:
            yield self._unknown, symbol
        elif symbol in made_of:
            for half in made_of[symbol]:
                yield from self._parts(half, made_of)
        else:
            yield self._pieces[symbol][0], symbol


def _words(text: str) -> Iterator[str]:
    """``text`` cut before each space."""
    start = 0
    while start < len(text):
        end = text.find(SPACE, start + 1)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end


def _byte_ids(model: PieceModel) -> dict[int, int]:
    return {
        int(piece.text[3:5], 16): number
        for number, piece in enumerate(model.pieces)
        if piece.kind is PieceKind.BYTE
    }
