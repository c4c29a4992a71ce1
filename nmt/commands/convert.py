"""``mgraph convert``: models between formats, HuggingFace's included, as marian-conv does it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.commands.common import asks_for_help, greet
from nmt.runtime.log import logging_as
from nmt.settings import (
    Command,
    Option,
    OptionError,
    later,
    require_folder,
    require_readable,
    require_writable,
)
from nmt.settings.config import parse
from nmt.settings.shared import LOGGING

logger = logging.getLogger(__name__)

MARIAN, HUGGINGFACE = "marian-bin", "huggingface"
ONNX = ("onnx-encode", "onnx-decoder-step", "onnx-decoder-init", "onnx-decoder-stop")
GEMM_TYPES = (
    "float32",
    *("intgemm8", "intgemm8ssse3", "intgemm8avx2", "intgemm8avx512"),
    *("intgemm16", "intgemm16sse2", "intgemm16avx2", "intgemm16avx512"),
)
MODELS = (".npz", ".bin", ".safetensors")
FBGEMM = ("packed16", "packed8avx2", "packed8avx512")

COMMAND = Command(
    "convert",
    "convert a model to .npz, .bin or .safetensors, or to and from a folder of HuggingFace's MarianMT,\n"
    "or a lexical shortlist from text to binary",
    {
        "Models": (
            Option("from", str, "model.npz", "the model, or a folder with config.json", short="f"),
            Option("to", str, "model.bin", "what to make: .npz, .bin, .safetensors, or a folder", short="t"),
            Option("export-as", str, MARIAN, f"a Marian model, or {HUGGINGFACE}: a folder"),
            Option("gemm-type", str, GEMM_TYPES[0], f"of a .bin: {', '.join(GEMM_TYPES)}", short="g"),
            Option("vocabs", str, (), "source and target vocabulary, for HuggingFace", short="V", many=True),
            Option("zero-start", help="from HuggingFace: start the decoder with zeros if it did otherwise"),
            later("add-lsh", str, (), many=True, implicit="1024 Wemb"),
            later("encryption-key-path", str, ""),
        ),
        "Shortlists": (
            Option(
                "shortlist", str, (), "text file, first, best and threshold; needs -V", short="s", many=True
            ),
            Option("dump-shortlist", str, "lex.bin", "binary file to make of it", short="d"),
        ),
        "Output": LOGGING,
    },
    examples=(
        ("mgraph convert -f model.npz -t model.bin --gemm-type intgemm8avx2", "a quantized model"),
        ("mgraph convert -f model.bin -t model.npz", "and back"),
        (
            "mgraph convert -f model.npz -t folder --export-as huggingface -V vocab.spm vocab.spm",
            "for MarianMTModel.from_pretrained",
        ),
        ("mgraph convert -f opus-mt-en-de -t model.npz", "from such a folder"),
    ),
)


def run(argv: Sequence[str]) -> int | None:
    """Convert what ``--from`` or ``--shortlist`` names."""
    if asks_for_help(COMMAND, argv):
        return None
    values = parse(COMMAND, argv)
    _check(values)
    with logging_as(values):
        greet(COMMAND, argv, values)
        if values["shortlist"]:
            _convert_shortlist(values)
        else:
            _convert_model(values)
        logger.info("Finished")
    return None


def _check(values: Mapping[str, Any]) -> None:
    """OptionError for values that Marian has and we have not, and for what cannot go together; OSError for
    files that cannot be read or written."""
    kind, gemm_type = values["export_as"], values["gemm_type"]
    if kind in ONNX:
        raise OptionError(f"--export-as {kind}: for ONNX there is mgraph export")
    if kind not in (MARIAN, HUGGINGFACE):
        raise OptionError(f"--export-as must be one of {MARIAN}, {HUGGINGFACE}; got '{kind}'")
    if gemm_type in FBGEMM:
        raise OptionError(
            f"--gemm-type {gemm_type} is FBGEMM's, which packs for one kind of processor, and is not "
            f"supported; there are {', '.join(GEMM_TYPES)}"
        )
    if gemm_type not in GEMM_TYPES:
        raise OptionError(f"--gemm-type must be one of {', '.join(GEMM_TYPES)}; got '{gemm_type}'")
    if kind == HUGGINGFACE and gemm_type != GEMM_TYPES[0]:
        raise OptionError(f"--gemm-type {gemm_type} cannot go with --export-as {HUGGINGFACE}")
    if kind == HUGGINGFACE and (values["to"].endswith(MODELS) or os.path.isfile(values["to"])):
        raise OptionError(f"--to: {HUGGINGFACE} needs the name of a folder, got {values['to']}")
    if values["shortlist"] and len(values["vocabs"]) != 2:
        raise OptionError(f"--shortlist needs two --vocabs, source and target; got {len(values['vocabs'])}")
    require_readable("--vocabs", values["vocabs"])
    if values["shortlist"]:
        require_readable("--shortlist", values["shortlist"][:1])
        require_writable("--dump-shortlist", values["dump_shortlist"])
        return
    if not os.path.isdir(values["from"]):
        require_readable("--from", [values["from"]])
    if kind == HUGGINGFACE:
        require_folder("--to", values["to"])
        return
    if not values["to"].endswith(MODELS):
        raise OptionError(f"--to: expected a name that ends in {', '.join(MODELS)}, got {values['to']}")
    if gemm_type != GEMM_TYPES[0] and not values["to"].endswith(".bin"):
        raise OptionError(f"--gemm-type {gemm_type} is for models that end in .bin, got --to {values['to']}")
    require_writable("--to", values["to"])


def _convert_model(values: Mapping[str, Any]) -> None:
    from nmt.files import convert_model, huggingface

    source, target, gemm_type = values["from"], values["to"], values["gemm_type"]
    logger.info("Outputting %s, precision: %s", target, gemm_type)
    if values["export_as"] == HUGGINGFACE:
        huggingface.export_huggingface(source, target, values["vocabs"])
    elif os.path.isdir(source):
        huggingface.import_huggingface(source, target, gemm_type=gemm_type, zero_start=values["zero_start"])
    else:
        convert_model(source, target, gemm_type=gemm_type)


def _convert_shortlist(values: Mapping[str, Any]) -> None:
    from nmt.search.shortlist import convert_shortlist
    from nmt.text.vocabs.loading import load_vocab

    source, target = (load_vocab(path) for path in values["vocabs"])
    convert_shortlist(values["shortlist"], source, target, values["dump_shortlist"])
