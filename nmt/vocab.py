"""Vocabularies: the file's name says which kind it is, as in Marian."""

from __future__ import annotations

import os

from nmt.lines import open_input
from nmt.vocabs.base import Vocab as Vocab
from nmt.vocabs.base import VocabError as VocabError
from nmt.vocabs.default import DefaultVocab as DefaultVocab
from nmt.vocabs.default import read_default
from nmt.vocabs.sentence_piece import SentencePieceVocab as SentencePieceVocab
from nmt.vocabs.sentence_piece import read_sentence_piece

MAX_BYTES = 1 << 28


def load_vocab(path: str | os.PathLike[str], dim: int = 0) -> Vocab:
    """The vocabulary in the file `path`.

    `.spm` is a SentencePiece model, `.yml`, `.yaml` and `.json` map words to ids, any other name
    is a list of words, one per line (also packed, `.gz`).

    dim: how many ids the model has (one of its `dim-vocabs`), 0 for as many as the file. Words
    with ids at or above it are unknown words, as in Marian; a SentencePiece model must have
    exactly as many pieces.

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
    with open_input(path) as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise VocabError(f"{path}: too large for a vocabulary (at most {MAX_BYTES} bytes are read)")
    if path.endswith(".spm"):
        return read_sentence_piece(data, path, dim)
    return read_default(data, path, dim)
