"""Load vocabularies of every kind; the file's name tells the kind, as in Marian."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import numpy as np

from layers import FactorGroups
from mgraph import ArgumentError
from mgraph.files.paths import path_text
from nmt.settings import OptionError
from nmt.settings.model_options import STREAM_TYPES
from nmt.text.lines import read_whole

from .base import Vocab, VocabError
from .factored import ENDING, FactoredVocab, Factors
from .sentence_piece import SegmentedVocab, SentencePieceVocab, load_processor
from .words import DefaultVocab, read_default

MAX_BYTES = 1 << 28


def load_vocab(
    path: str | os.PathLike[str],
    dim: int = 0,
    *,
    owner: str = "the model",
    input_type: str = "sequence",
    no_spm_encode: bool = False,
    no_spm_decode: bool = False,
) -> Vocab:
    """Load the vocabulary in the file ``path``.

    ``.spm`` is a SentencePiece model; ``.fsv`` has lemmas and factors; ``.yml``, ``.yaml`` and ``.json`` map
    words to ids; any other file is a list of words, one per line (``.gz`` too).

    dim: how many ids the model has (one of its ``dim-vocabs``), 0 for as many as the file. Words with higher
    ids are unknown, as in Marian, and a warning reports a different number; a SentencePiece model must have
    exactly ``dim`` pieces.
    owner: the model's file, for the warning.
    input_type: ``class`` for a list of labels without special words (``--input-types``).
    no_spm_encode: with a SentencePiece model, lines are already pieces separated by spaces.
    no_spm_decode: print pieces, not text (both Marian's options).

    Raises VocabError if the file does not fit, OSError if it cannot be read.
    """
    path = path_text(path)
    if not (isinstance(dim, int | np.integer) and dim >= 0):
        raise VocabError(f"{path}: expected a number of ids (dim-vocabs), 0 for all, got {dim!r}")
    if input_type not in STREAM_TYPES:
        raise VocabError(f"{path}: input-types are {' and '.join(STREAM_TYPES)}, got {input_type!r}")
    data = read_file(path)
    if path.endswith(ENDING):
        return _factored(Factors.read(data, path), path, dim, owner)
    if path.endswith(".spm"):
        return SentencePieceVocab(
            data, path, dim, owner=owner, no_spm_encode=no_spm_encode, no_spm_decode=no_spm_decode
        )
    return read_default(data, path, dim, input_type=input_type, owner=owner)


def load_segmented(
    path: str | os.PathLike[str],
    pieces: str | os.PathLike[str],
    dim: int = 0,
    *,
    owner: str = "the model",
    target: bool = False,
) -> SegmentedVocab:
    """Load the vocabulary of words ``path`` for raw text that the SentencePiece model ``pieces`` splits.

    OPUS-MT models need this: see ``SegmentedVocab``, also for ``target``. ``dim``, ``owner`` and errors as in
    ``load_vocab``.
    """
    words = load_vocab(path, dim, owner=owner)
    if not isinstance(words, DefaultVocab):
        raise VocabError(f"{os.fspath(path)}: is a SentencePiece model and needs no {os.fspath(pieces)}")
    name = os.fspath(pieces)
    return SegmentedVocab(words, load_processor(read_file(name), name), target=target)


def load_vocabs(
    paths: Sequence[str],
    dims: Sequence[int],
    *,
    owner: str = "the model",
    pieces: Sequence[str] = (),
    input_types: Sequence[str] = (),
    no_spm_encode: bool = False,
    no_spm_decode: bool = False,
) -> list[Vocab]:
    """Load the vocabularies of all streams, sources first; a shared file is read once.

    dims: the model's ``dim-vocabs``. pieces: SentencePiece models that split the raw text of each stream, as
    for OPUS-MT models. input_types: one for each stream; ``sequence`` for those missing. Other arguments and
    errors: see ``load_vocab``; also OptionError for a wrong number of paths or pieces, and for pieces
    together with the options of SentencePiece vocabularies.
    """
    require_number(len(_listed(paths)), len(dims))
    require_pieces(pieces, paths)
    if pieces and (no_spm_encode or no_spm_decode):
        raise OptionError("--no-spm-encode and --no-spm-decode need vocabularies that end in .spm")

    @cache
    def loaded(path: str, dim: int, model: str, input_type: str, target: bool) -> Vocab:
        if model:
            return load_segmented(path, model, dim, owner=owner, target=target)
        spm = {"no_spm_encode": no_spm_encode, "no_spm_decode": no_spm_decode}
        return load_vocab(path, dim, owner=owner, input_type=input_type, **spm)

    models = pieces or [""] * len(paths)
    types = [*input_types, *["sequence"] * (len(paths) - len(input_types))]
    targets = [*[False] * (len(paths) - 1), bool(pieces)]  # only with pieces do the sides differ
    return [loaded(*key) for key in zip(paths, dims, models, types[: len(paths)], targets, strict=True)]


def require_number(given: int, needed: int) -> None:
    """OptionError unless as many vocabularies are given as the model has."""
    if given != needed:
        raise OptionError(f"--vocabs: this model has {needed} vocabularies, got {given} path(s)")


def require_pieces(pieces: Sequence[str], vocabs: Sequence[str]) -> None:
    """OptionError unless there is a SentencePiece model for each vocabulary, or none at all."""
    if len(pieces) not in (0, len(vocabs)):
        raise OptionError(
            f"--pieces: expected one SentencePiece model for each of the {len(vocabs)} --vocabs, got "
            f"{len(pieces)}"
        )


def _factored(factors: Factors, path: str, dim: int, owner: str) -> FactoredVocab:
    words = factors.of_words(path).words
    if dim and dim != words:
        raise VocabError(
            f"{path}: {words:,} words of lemmas and factors, but {owner} has {dim:,} (dim-vocabs)"
        )
    return FactoredVocab(factors, path)


def factors_of(paths: Sequence[str]) -> tuple[FactorGroups | None, ...]:
    """The factor groups of each factored vocabulary (``.fsv``), None for others; empty if no vocabulary is
    factored. VocabError for a damaged file."""
    if not any(path.endswith(ENDING) for path in _listed(paths)):
        return ()
    return tuple(Factors.read(read_file(p), p).of_words(p) if p.endswith(ENDING) else None for p in paths)


def _listed(paths: Sequence[str]) -> Sequence[str]:
    if isinstance(paths, str | os.PathLike):
        raise ArgumentError(f"expected a list of the paths of vocabularies, got {paths!r}")
    return paths


def read_file(path: str) -> bytes:
    """The bytes of a vocabulary file; VocabError if it is too large."""
    data = read_whole(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise VocabError(f"{path}: too large for a vocabulary (at most {MAX_BYTES} bytes are read)")
    return data
