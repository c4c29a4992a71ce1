"""Vocabularies: the file's name says which kind it is, as in Marian."""

from __future__ import annotations

import os

from nmt.text.lines import read_whole
from nmt.text.vocabs.base import ASKED as ASKED
from nmt.text.vocabs.base import Vocab as Vocab
from nmt.text.vocabs.base import VocabError as VocabError
from nmt.text.vocabs.default import ClassVocab as ClassVocab
from nmt.text.vocabs.default import DefaultVocab as DefaultVocab
from nmt.text.vocabs.default import read_default
from nmt.text.vocabs.segmented import SegmentedVocab as SegmentedVocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab as SentencePieceVocab
from nmt.text.vocabs.sentence_piece import load_processor, read_sentence_piece

MAX_BYTES = 1 << 28
INPUT_TYPES = ("sequence", "class")


def load_vocab(
    path: str | os.PathLike[str],
    dim: int = 0,
    *,
    owner: str = "the model",
    input_type: str = "sequence",
    no_spm_encode: bool = False,
    no_spm_decode: bool = False,
) -> Vocab:
    """The vocabulary in the file ``path``.

    ``.spm`` is a SentencePiece model, ``.yml``, ``.yaml`` and ``.json`` map words to ids, any other name
    is a list of words, one per line (also packed, ``.gz``).

    dim: how many ids the model has (one of its ``dim-vocabs``), 0 for as many as the file. Words
    with ids at or above it are unknown words, as in Marian, and a warning says if there are more ids or
    fewer; a SentencePiece model must have exactly as many pieces.
    owner: whose number that is, for the warning: the model's file.
    input_type: ``class`` for a list of labels without special words (``--input-types``).
    no_spm_encode, no_spm_decode: Marian's options; they concern SentencePiece models alone.

    Raises VocabError, which names the file, what was expected and what was got; OSError where the
    file cannot be read.
    """
    path = os.fspath(path)
    if path.endswith(".fsv"):
        raise VocabError(
            f"{path}: factored vocabularies (.fsv) cannot be read; expected .spm, .yml, "
            ".yaml, .json or a list of words"
        )
    if dim < 0:
        raise VocabError(f"{path}: expected a number of ids (dim-vocabs), 0 for all, got {dim}")
    if input_type not in INPUT_TYPES:
        raise VocabError(f"{path}: input-types are {' and '.join(INPUT_TYPES)}, got {input_type!r}")
    data = read_file(path)
    if path.endswith(".spm"):
        return read_sentence_piece(
            data, path, dim, owner=owner, no_spm_encode=no_spm_encode, no_spm_decode=no_spm_decode
        )
    return read_default(data, path, dim, input_type=input_type, owner=owner)


def load_segmented(
    path: str | os.PathLike[str], pieces: str | os.PathLike[str], dim: int = 0, *, owner: str = "the model"
) -> SegmentedVocab:
    """The vocabulary of words in ``path``, for raw text that the SentencePiece model ``pieces`` splits.

    That is how OPUS-MT models are made: see ``SegmentedVocab``. ``dim``, ``owner`` and errors as in
    ``load_vocab``.
    """
    words = load_vocab(path, dim, owner=owner)
    if not isinstance(words, DefaultVocab):
        raise VocabError(f"{os.fspath(path)}: is SentencePiece itself, and needs no {os.fspath(pieces)}")
    name = os.fspath(pieces)
    return SegmentedVocab(words, load_processor(read_file(name), name))


def read_file(path: str) -> bytes:
    """The bytes of a vocabulary file; VocabError if there are too many."""
    data = read_whole(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise VocabError(f"{path}: too large for a vocabulary (at most {MAX_BYTES} bytes are read)")
    return data
