"""What a SentencePiece model file holds: its pieces, with their scores and kinds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from .base import VocabError

MAX_PIECES = 1 << 19
MAX_OTHER_BYTES = 1 << 22
_PIECES, _TRAINER = 1, 2  # of the model
_TEXT, _SCORE, _KIND = 1, 2, 3  # of a piece
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35  # of the options that it was trained with
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_MOST_BITS = 63


class PieceKind(IntEnum):
    """Kinds of pieces."""

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

    pieces: by id. model_type: how it splits. byte_fallback: whether it writes what no piece covers as bytes.
    """

    pieces: tuple[Piece, ...]
    model_type: SplitterType
    byte_fallback: bool


def read_piece_model(data: bytes, path: str) -> PieceModel:
    """The model in ``data``, a serialized ``ModelProto``; VocabError with ``path`` if it is damaged.

    SentencePiece's Python functions do not tell the type of a model, nor which pieces its user defined.
    """
    pieces, model_type, byte_fallback = [], SplitterType.UNIGRAM, False
    try:
        for number, value in _fields(data):
            if number == _PIECES:
                pieces.append(_piece(value))
            elif number == _TRAINER:
                options = dict(_fields(value))
                model_type = SplitterType(options.get(_MODEL_TYPE, SplitterType.UNIGRAM))
                byte_fallback = bool(options.get(_BYTE_FALLBACK, False))
    except (IndexError, KeyError, ValueError, TypeError, struct.error) as error:
        raise VocabError(f"{path}: not a SentencePiece model, or damaged ({error})") from None
    return PieceModel(tuple(pieces), model_type, byte_fallback)


def check_size(data: bytes, path: str) -> None:
    """VocabError if the model in ``data`` would become far larger in memory than it is.

    SentencePiece makes an object of a hundred bytes of each piece, and of each text elsewhere, though two
    bytes are enough for one in the file.
    """
    if len(data) <= MAX_OTHER_BYTES:
        return
    pieces = others = 0
    try:
        for number, value in _fields(data):
            pieces += number == _PIECES
            others += 0 if number == _PIECES or isinstance(value, int) else len(value)
            if pieces > MAX_PIECES or others > MAX_OTHER_BYTES:
                break
    except (IndexError, KeyError, ValueError) as error:
        raise VocabError(f"{path}: not a SentencePiece model, or damaged ({error})") from None
    if pieces > MAX_PIECES or others > MAX_OTHER_BYTES:
        raise VocabError(
            f"{path}: a SentencePiece model of more than {MAX_PIECES} pieces, or of more than "
            f"{MAX_OTHER_BYTES} bytes beside them, is not read"
        )


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    score = struct.unpack("<f", fields.get(_SCORE, bytes(4)))[0]
    return Piece(
        fields.get(_TEXT, b"").decode("utf-8", "replace"),
        score,
        PieceKind(fields.get(_KIND, PieceKind.NORMAL)),
    )


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The numbers and values of a message of Protocol Buffers; numbers as int, all else as bytes."""
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
            raise ValueError("a number that does not end")
