"""Vocabularies for HuggingFace's ``MarianTokenizer``, ``vocab.json`` and ``.spm``, and back to Marian's."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nmt.files.huggingface.configuration import ConversionError
from nmt.text.vocabs.base import EOS_WORD, UNK_WORD, Vocab, VocabError
from nmt.text.vocabs.loading import load_vocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab
from nmt.text.vocabs.yaml_words import yaml_word

logger = logging.getLogger(__name__)

PAD_WORD = "<pad>"
PIECES = ("source.spm", "target.spm")
WORDS = ("vocab.json", "target_vocab.json")


class Tokenizer(NamedTuple):
    """What ``MarianTokenizer`` is made of: words and ids of each side, its settings, pieces by file name."""

    words: tuple[dict[str, int], dict[str, int]]
    settings: dict[str, Any]
    pieces: dict[str, bytes]

    @property
    def eos_id(self) -> int:
        """The id of the end of a target sentence."""
        return self.words[1][self.settings["eos_token"]]

    @property
    def unk_id(self) -> int:
        """The id of unknown words of the target."""
        return self.words[1][self.settings["unk_token"]]


def to_tokenizer(paths: Sequence[str], dim_vocabs: Sequence[int]) -> Tokenizer:
    """The tokenizer for Marian's vocabularies of source and target.

    ``paths`` are those of ``--vocabs``: two files; where these list the pieces of SentencePiece models
    (``.yml``), the two ``.spm`` may follow, or are looked for beside the first, as ``source.spm`` and
    ``target.spm``. ``<pad>`` gets the id behind both vocabularies.
    """
    if len(paths) not in (2, 4):
        raise ConversionError(
            "--vocabs: expected the vocabularies of source and target, and after those that list pieces two "
            f".spm, got {len(paths)} files"
        )
    vocabs = [load_vocab(path, dim) for path, dim in zip(paths, dim_vocabs, strict=False)]
    pad = max(dim_vocabs)
    special = [(vocab[vocab.eos_id], vocab[vocab.unk_id]) for vocab in vocabs]
    if special[0] != special[1]:
        raise ConversionError(
            "--vocabs: MarianTokenizer has one name for </s> and <unk> on both sides, here are "
            f"{special[0]} and {special[1]}"
        )
    words = [{word: number for number in range(len(vocab)) if (word := vocab[number])} for vocab in vocabs]
    pad_word = PAD_WORD
    while any(pad_word in side for side in words):
        pad_word = f"<{pad_word}>"
    source, target = ({**side, pad_word: pad} for side in words)
    pieces = _pieces(paths)
    if not pieces:
        logger.warning("MarianTokenizer needs %s and %s, which there are not", *PIECES)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": source != target,
        "eos_token": special[0][0] or EOS_WORD,
        "unk_token": special[0][1] or UNK_WORD,
        "pad_token": pad_word,
    }
    return Tokenizer((source, target), settings, pieces)


def _pieces(paths: Sequence[str]) -> dict[str, bytes]:
    """The SentencePiece models of both sides, under HuggingFace's names; none where there are none."""
    files = list(paths[2:]) or list(paths)
    if not all(path.endswith(".spm") for path in files):
        folder = os.path.dirname(paths[0])
        files = [os.path.join(folder, name) for name in PIECES]
        if not all(map(os.path.exists, files)):
            return {}
    found = {}
    for name, path in zip(PIECES, files, strict=True):
        with open(path, "rb") as stream:
            found[name] = stream.read()
    return found


def marian_files(
    words: Sequence[Mapping[str, int]], pieces: Mapping[str, bytes], dim_vocabs: Sequence[int]
) -> tuple[dict[str, bytes], tuple[str, str]]:
    """Marian's vocabulary files by name, and the names of those of source and target.

    words: the ids of both sides; those that the model lacks, such as ``<pad>``, are left out. Where they
    are just the ids of the SentencePiece models, these are the vocabularies; else the words are, and the
    models come with them, to split and join text (``Translator.from_dir`` does).
    """
    kept = [
        {word: number for word, number in side.items() if number < dim}
        for side, dim in zip(words, dim_vocabs, strict=True)
    ]
    models = [pieces[name] for name in PIECES if name in pieces]
    if len(models) == 2 and all(map(_lists, models, PIECES, kept)):
        contents, ending = models, "spm"
    else:
        contents, ending = [_yaml(side) for side in kept], "yml"
    names = ("vocab", "vocab") if contents[0] == contents[1] else ("src.vocab", "trg.vocab")
    source, target = (f"{name}.{ending}" for name in names)
    files = {source: contents[0], target: contents[1]}
    return files | (dict(pieces) if ending == "yml" else {}), (source, target)


def _lists(model: bytes, name: str, words: Mapping[str, int]) -> bool:
    """Whether the ids of the SentencePiece model are those of ``words``."""
    try:
        vocab: Vocab = SentencePieceVocab(model, name)
    except VocabError:
        return False
    return {vocab[number]: number for number in range(len(vocab))} == dict(words)


def _yaml(words: Mapping[str, int]) -> bytes:
    rows = sorted((number, word.encode("utf-8", "surrogateescape")) for word, number in words.items())
    return b"".join(b"%s: %d\n" % (yaml_word(word), number) for number, word in rows)
