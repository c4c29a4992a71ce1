"""Read and write the folders that ``MarianMTModel`` and ``MarianTokenizer`` make with ``save_pretrained``."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mgraph import Type
from mgraph.files.binary_items import FLOAT32
from mgraph.files.items import replacing
from mgraph.files.json_text import read_json
from mgraph.files.parameter_files import Path, load_parameters, save_parameters
from mgraph.files.safetensors import read_safetensors, write_safetensors
from nmt.files.directories import PIECES
from nmt.files.huggingface.checkpoint import (
    OUTPUT,
    SHARED,
    TABLES,
    MarianModel,
    TorchCheckpoint,
    from_huggingface,
    to_huggingface,
)
from nmt.files.huggingface.configuration import MAX_POSITIONS, ConversionError, check_representable
from nmt.files.huggingface.torch_files import read_torch
from nmt.files.new_folder import new_folder
from nmt.files.saving import report_unquantized
from nmt.settings.model_options import parse_model_options
from nmt.settings.yaml_text import entry
from nmt.text.vocabs.base import EOS_WORD, UNK_WORD, Vocab, VocabError
from nmt.text.vocabs.loading import load_vocabs
from nmt.text.vocabs.sentence_piece import SentencePieceVocab
from nmt.text.vocabs.yaml_words import yaml_word

logger = logging.getLogger(__name__)

CONFIG, GENERATION, SETTINGS = "config.json", "generation_config.json", "tokenizer_config.json"
WEIGHTS, INDEX, TORCH_WEIGHTS = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_MOST_BYTES = 1 << 26
PAD_WORD = "<pad>"
WORDS = ("vocab.json", "target_vocab.json")
ADDED_WORDS = "added_tokens.json"


def export_huggingface(model: Path, folder: Path, vocabs: Sequence[str] = ()) -> None:
    """Write the Marian model in the file ``model`` as the folder ``folder``, for ``from_pretrained``.

    ``vocabs``: see ``to_tokenizer``; without them no tokenizer is written, and ``</s>`` is assumed to be id
    0. ``UnsupportedOptionError``, before anything is written, for what MarianMT cannot represent.
    """
    tokenizer = to_tokenizer(vocabs, _dim_vocabs(model)) if vocabs else None
    if tokenizer is None:
        logger.warning("no --vocabs: the folder gets no tokenizer, and </s> is taken to be id 0")
    checkpoint = to_huggingface(model, eos_id=tokenizer.eos_id if tokenizer else 0)
    with new_folder(pathlib.Path(folder)):
        write_safetensors(_at(folder, WEIGHTS), _stored(checkpoint), {"format": "pt"})
        _write_json(_at(folder, CONFIG), checkpoint.config)
        _write_json(_at(folder, GENERATION), _generation(checkpoint.config, tokenizer))
        if tokenizer is not None:
            _write_tokenizer(folder, tokenizer)


def import_huggingface(
    folder: Path, model: Path, *, gemm_type: str = FLOAT32, zero_start: bool = False
) -> None:
    """Convert the checkpoint in ``folder`` to the Marian model ``model``, ``.npz`` or another format.

    ``folder`` holds ``config.json`` and ``model.safetensors``, in one or several parts, or
    ``pytorch_model.bin``. Marian vocabularies and a ``decoder.yml`` are written next to the model.
    ``zero_start``: see ``from_huggingface``. ``ConversionError`` if the checkpoint cannot be converted.
    """
    config, weights = _read_json(_at(folder, CONFIG)), _weights(folder)
    try:
        converted = from_huggingface(config, weights, zero_start=zero_start)
    except ConversionError as error:
        raise ConversionError(f"{os.fspath(folder)}: {error}") from None
    files = _marian_files(folder, model, converted)
    for path, content in files.items():
        _check_free(path, content)
    report_unquantized(converted.parameters, gemm_type)
    save_parameters(model, converted.parameters, converted.text, gemm_type=gemm_type)
    for path, content in files.items():
        with replacing(path) as stream:
            stream.write(content)


def _dim_vocabs(model: Path) -> tuple[int, ...]:
    """The sizes of both vocabularies; UnsupportedOptionError for a model that may have more, or fewer."""
    _, text = load_parameters(model, Type.float32)
    options = parse_model_options(text or "{}", os.fspath(model))
    if text:  # else ``to_huggingface`` reports it
        check_representable(options)
    return options.dim_vocabs


def _stored(checkpoint: TorchCheckpoint) -> dict[str, np.ndarray]:
    """The arrays to store, without those that HuggingFace ties itself."""
    config, tensors = checkpoint
    tied: set[str] = set()
    if config["tie_word_embeddings"]:
        tied = {OUTPUT, *(TABLES if SHARED in tensors else ())}
    return {name: array for name, array in tensors.items() if name not in tied}


def _generation(config: Mapping[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The options of ``generate``: as in Marian, ``<pad>``, ``<unk>`` and control characters are barred."""
    pad = config["pad_token_id"]
    keys = ("pad_token_id", "decoder_start_token_id", "eos_token_id", "forced_eos_token_id", "bos_token_id")
    never = [pad, *((tokenizer.unk_id, *tokenizer.control_ids) if tokenizer else ())]
    words = [[number] for number in never]
    return {key: config[key] for key in keys} | {"bad_words_ids": words, "max_length": MAX_POSITIONS // 2}


def _write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    settings = tokenizer.settings | {"model_max_length": MAX_POSITIONS // 2}
    _write_json(_at(folder, SETTINGS), settings)
    sides = 2 if settings["separate_vocabs"] else 1
    for name, words in zip(WORDS[:sides], tokenizer.words, strict=False):
        _write_json(_at(folder, name), words)
    for name, content in tokenizer.pieces.items():
        with replacing(_at(folder, name)) as stream:
            stream.write(content)


def _weights(folder: Path) -> dict[str, np.ndarray]:
    names = set(os.listdir(folder))
    if WEIGHTS in names:
        return read_safetensors(_at(folder, WEIGHTS)).arrays
    if INDEX in names:
        parts = _read_json(_at(folder, INDEX)).get("weight_map")
        if not isinstance(parts, dict) or not all(_is_name(part) for part in parts.values()):
            raise ConversionError(f"{_at(folder, INDEX)}: expected a weight_map from names to files")
        arrays: dict[str, np.ndarray] = {}
        for part in sorted(set(parts.values())):
            arrays |= read_safetensors(_at(folder, part)).arrays
        return arrays
    if TORCH_WEIGHTS in names:
        return read_torch(_at(folder, TORCH_WEIGHTS))
    raise ConversionError(
        f"{os.fspath(folder)}: expected {WEIGHTS} or {TORCH_WEIGHTS}; it holds {sorted(names)}"
    )


def _is_name(part: Any) -> bool:
    return isinstance(part, str) and os.path.basename(part) == part


def _marian_files(folder: Path, model: Path, converted: MarianModel) -> dict[str, bytes]:
    """The vocabularies of the model and the configuration of its decoder, by path; none without words."""
    if not os.path.exists(_at(folder, WORDS[0])):
        logger.warning("%s: no %s, so the model comes without vocabularies", folder, WORDS[0])
        return {}
    second = WORDS[1] if os.path.exists(_at(folder, WORDS[1])) else WORDS[0]
    words = [_added(folder, _word_ids(_at(folder, name))) for name in (WORDS[0], second)]
    missing = [name for name in PIECES if not os.path.exists(_at(folder, name))]
    if missing:
        logger.warning(
            "%s: no %s, so the model translates only lines that are split into its pieces",
            folder,
            " and no ".join(missing),
        )
    pieces = {} if missing else {name: _read(_at(folder, name)) for name in PIECES}
    dim_vocabs = parse_model_options(converted.text, os.fspath(model)).dim_vocabs
    files, names = marian_files(words, pieces, dim_vocabs)
    target_folder, name = os.path.split(os.fspath(model))
    lines = ["relative-paths: true", entry("models", (name,)), entry("vocabs", names)]
    lines += _search_options(folder)
    files[f"{name}.decoder.yml"] = "\n".join([*lines, ""]).encode()
    return {os.path.join(target_folder, name): content for name, content in files.items()}


def _search_options(folder: Path) -> list[str]:
    """The checkpoint's search options as Marian's."""
    where = GENERATION if os.path.exists(_at(folder, GENERATION)) else CONFIG
    found = _read_json(_at(folder, where))
    beams, penalty = found.get("num_beams"), found.get("length_penalty", 1.0)
    if type(beams) is not int or beams < 1 or not isinstance(penalty, int | float):
        return []
    return [f"beam-size: {beams}", f"normalize: {float(penalty)}"]


def _word_ids(path: str, *, least: int = 1) -> dict[str, int]:
    words = _read_json(path)
    if len(words) < least or not all(type(number) is int and number >= 0 for number in words.values()):
        raise ConversionError(f"{path}: expected words and their ids")
    return words


def _added(folder: Path, words: dict[str, int]) -> dict[str, int]:
    """``words`` and those that were added to the tokenizer later (``add_tokens``), as language tokens are."""
    path = _at(folder, ADDED_WORDS)
    added = _word_ids(path, least=0) if os.path.exists(path) else {}
    taken = set(words.values())
    return {word: number for word, number in added.items() if number not in taken} | words


def _check_free(path: str, content: bytes) -> None:
    """``ConversionError`` if there is a file with other content at ``path``."""
    if os.path.exists(path) and _read(path) != content:
        raise ConversionError(
            f"{path} exists already, with other contents; choose another folder for the model"
        )


def _read_json(path: str) -> dict[str, Any]:
    try:
        found = read_json(_read(path))
    except ValueError as error:
        raise ConversionError(f"{path}: not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise ConversionError(f"{path}: expected an object, got {type(found).__name__}")
    return found


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConversionError(f"{path}: too large (at most {_MOST_BYTES} bytes are read)")
    return data


def _write_json(path: str, content: Mapping[str, Any]) -> None:
    with replacing(path) as stream:
        stream.write(json.dumps(content, indent=2).encode() + b"\n")


def _at(folder: Path, name: str) -> str:
    return os.path.join(os.fspath(folder), name)


class Tokenizer(NamedTuple):
    """The parts of a ``MarianTokenizer``: words and ids of each side, settings, pieces by file name; and the
    target's ids that translation must not print (``Vocab.control_ids``)."""

    words: tuple[dict[str, int], dict[str, int]]
    settings: dict[str, Any]
    pieces: dict[str, bytes]
    control_ids: tuple[int, ...] = ()

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

    ``paths`` are those of ``--vocabs``: two files. If these list the pieces of SentencePiece models
    (``.yml``), the two ``.spm`` may follow; the default is ``source.spm`` and ``target.spm`` next to the
    first. ``<pad>`` gets the id after both vocabularies.
    """
    if len(paths) not in (2, 4):
        raise ConversionError(
            "--vocabs: expected the vocabularies of source and target, and after those that list pieces two "
            f".spm, got {len(paths)} files"
        )
    vocabs = load_vocabs(paths[:2], dim_vocabs)
    pad = max(dim_vocabs)
    special = [(vocab[vocab.eos_id], vocab[vocab.unk_id]) for vocab in vocabs]
    if special[0] != special[1]:
        raise ConversionError(
            "--vocabs: MarianTokenizer has one name for </s> and <unk> on both sides, got "
            f"{special[0]} and {special[1]}"
        )
    words = [{word: number for number in range(len(vocab)) if (word := vocab[number])} for vocab in vocabs]
    pad_word = PAD_WORD
    while any(pad_word in side for side in words):
        pad_word = f"<{pad_word}>"
    source, target = ({**side, pad_word: pad} for side in words)
    pieces = _pieces(paths)
    if not pieces:
        logger.warning("MarianTokenizer needs %s and %s, which are missing", *PIECES)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": source != target,
        "eos_token": special[0][0] or EOS_WORD,
        "unk_token": special[0][1] or UNK_WORD,
        "pad_token": pad_word,
    }
    return Tokenizer((source, target), settings, pieces, vocabs[1].control_ids)


def _pieces(paths: Sequence[str]) -> dict[str, bytes]:
    """The SentencePiece models of both sides, if any, under HuggingFace's names."""
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

    words: the ids of both sides; those that the model lacks, such as ``<pad>``, are left out. If the ids are
    those of the SentencePiece models, the SentencePiece models become the vocabularies; otherwise the words
    do, and the models come with them to split and join text (see ``Translator.from_dir``).
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
