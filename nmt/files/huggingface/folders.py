"""Folders as ``MarianMTModel.save_pretrained`` and ``MarianTokenizer.save_pretrained`` write them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgraph import Type
from mgraph.files.binary_items import FLOAT32
from mgraph.files.items import replacing
from mgraph.files.json_text import read_json
from mgraph.files.parameter_files import Path, load_parameters, save_parameters
from mgraph.files.safetensors import read_safetensors, write_safetensors
from nmt.files.huggingface.checkpoint import MarianModel, TorchCheckpoint, from_huggingface, to_huggingface
from nmt.files.huggingface.configuration import MAX_POSITIONS, ConversionError
from nmt.files.huggingface.model_files import report_unquantized
from nmt.files.huggingface.names import OUTPUT, SHARED, TABLES
from nmt.files.huggingface.torch_files import read_torch
from nmt.files.huggingface.vocabularies import PIECES, WORDS, Tokenizer, marian_files, to_tokenizer
from nmt.settings.model_options import parse_model_options

logger = logging.getLogger(__name__)

CONFIG, GENERATION, SETTINGS = "config.json", "generation_config.json", "tokenizer_config.json"
WEIGHTS, INDEX, TORCH_WEIGHTS = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
_MOST_BYTES = 1 << 26


def export_huggingface(model: Path, folder: Path, vocabs: Sequence[str] = ()) -> None:
    """Write the Marian model in the file ``model`` as the folder ``folder``, for ``from_pretrained``.

    ``vocabs``: see ``to_tokenizer``; without them there are no files of a tokenizer, and ``</s>`` is taken
    to be id 0. ``UnsupportedOptionError`` for what MarianMT cannot represent, before anything is written.
    """
    tokenizer = to_tokenizer(vocabs, _dim_vocabs(model)) if vocabs else None
    if tokenizer is None:
        logger.warning("no --vocabs: the folder gets no tokenizer, and </s> is taken to be id 0")
    checkpoint = to_huggingface(model, eos_id=tokenizer.eos_id if tokenizer else 0)
    os.makedirs(folder, exist_ok=True)
    write_safetensors(_at(folder, WEIGHTS), _stored(checkpoint), {"format": "pt"})
    _write_json(_at(folder, CONFIG), checkpoint.config)
    _write_json(_at(folder, GENERATION), _generation(checkpoint.config, tokenizer))
    if tokenizer is not None:
        _write_tokenizer(folder, tokenizer)


def import_huggingface(
    folder: Path, model: Path, *, gemm_type: str = FLOAT32, zero_start: bool = False
) -> None:
    """Write the checkpoint in ``folder`` as the Marian model ``model``, ``.npz`` or another of its formats.

    ``folder`` holds ``config.json`` and ``model.safetensors``, in one or several parts, or
    ``pytorch_model.bin``. Its vocabularies become Marian's, beside the model, with a ``decoder.yml`` of the
    model's name. ``zero_start``: see ``from_huggingface``. ``ConversionError`` names what is in the way.
    """
    config = _read_json(_at(folder, CONFIG))
    try:
        converted = from_huggingface(config, _weights(folder), zero_start=zero_start)
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
    _, text = load_parameters(model, Type.float32)
    return parse_model_options(text or "{}", os.fspath(model)).dim_vocabs


def _stored(checkpoint: TorchCheckpoint) -> dict[str, np.ndarray]:
    """The arrays that the file keeps: as HuggingFace does, not those that it ties itself."""
    config, tensors = checkpoint
    tied: set[str] = set()
    if config["tie_word_embeddings"]:
        tied = {OUTPUT, *(TABLES if SHARED in tensors else ())}
    return {name: array for name, array in tensors.items() if name not in tied}


def _generation(config: Mapping[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What ``generate`` must know: as in Marian, neither ``<pad>`` nor ``<unk>`` is a word of the output."""
    pad = config["pad_token_id"]
    keys = ("pad_token_id", "decoder_start_token_id", "eos_token_id", "forced_eos_token_id", "bos_token_id")
    never = [[pad], *([[tokenizer.unk_id]] if tokenizer else [])]
    return {key: config[key] for key in keys} | {"bad_words_ids": never, "max_length": MAX_POSITIONS // 2}


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
    words = [_word_ids(_at(folder, name)) for name in (WORDS[0], second)]
    pieces = {name: _read(_at(folder, name)) for name in PIECES if os.path.exists(_at(folder, name))}
    dim_vocabs = parse_model_options(converted.text, os.fspath(model)).dim_vocabs
    files, names = marian_files(words, pieces, dim_vocabs)
    target_folder, name = os.path.split(os.fspath(model))
    lines = ["relative-paths: true", "models:", f"  - {name}", "vocabs:", *(f"  - {v}" for v in names)]
    lines += _search_options(folder)
    files[f"{name}.decoder.yml"] = "\n".join([*lines, ""]).encode()
    return {os.path.join(target_folder, name): content for name, content in files.items()}


def _search_options(folder: Path) -> list[str]:
    """The beam that the checkpoint is to be searched with, in Marian's words."""
    where = GENERATION if os.path.exists(_at(folder, GENERATION)) else CONFIG
    found = _read_json(_at(folder, where))
    beams, penalty = found.get("num_beams"), found.get("length_penalty", 1.0)
    if type(beams) is not int or beams < 1 or not isinstance(penalty, int | float):
        return []
    return [f"beam-size: {beams}", f"normalize: {float(penalty)}"]


def _word_ids(path: str) -> dict[str, int]:
    words = _read_json(path)
    if not all(type(number) is int and number >= 0 for number in words.values()):
        raise ConversionError(f"{path}: expected words and their ids")
    return words


def _check_free(path: str, content: bytes) -> None:
    """``ConversionError`` if there is another file at ``path``."""
    if os.path.exists(path) and _read(path) != content:
        raise ConversionError(f"{path} is there already, and is another; choose another folder for the model")


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
