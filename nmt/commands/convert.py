"""``mgraph convert``: convert models between formats, HuggingFace's included, as marian-conv does."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from mgraph.names import meant
from nmt.commands.common import MODELS, greet, require_distinct, require_model_name
from nmt.runtime.log import logging_as
from nmt.settings import (
    Command,
    OptionError,
    Options,
    option,
    refused,
    require_folder,
    require_readable,
    require_writable,
)
from nmt.settings.absent import FBGEMM, NO_ENCRYPTION, NO_LSH
from nmt.settings.sections import Logging

logger = logging.getLogger(__name__)

MARIAN, HUGGINGFACE = "marian-bin", "huggingface"
ONNX = dict.fromkeys(
    ("onnx-encode", "onnx-decoder-step", "onnx-decoder-init", "onnx-decoder-stop"),
    "mgraph export writes models as ONNX, but divided into other files",
)
GEMM_TYPES = (
    "float32",
    *("intgemm8", "intgemm8ssse3", "intgemm8avx2", "intgemm8avx512"),
    *("intgemm16", "intgemm16sse2", "intgemm16avx2", "intgemm16avx512"),
    "bergamot-intgemm8",
)


class ConvertedModel(Options):
    """The model to convert, and the target format."""

    title = "Models"

    source: str = option("model.npz", "the model, or a folder with config.json", name="from", short="f")
    to: str = option("model.bin", "the output: .npz, .bin, .safetensors, or a folder", short="t")
    export_as: str = option(MARIAN, f"a Marian model, or {HUGGINGFACE}: a folder", absent=ONNX)
    gemm_type: str = option(
        GEMM_TYPES[0], f"element type of a .bin: {', '.join(GEMM_TYPES)}", short="g", absent=FBGEMM
    )
    vocabs: tuple[str, ...] = option((), "source and target vocabulary, for HuggingFace", short="V")
    zero_start: bool = option(False, "from HuggingFace: always start the decoder with zeros")
    add_lsh: tuple[str, ...] = refused((), NO_LSH, implicit="1024 Wemb")
    encryption_key_path: str = refused("", NO_ENCRYPTION)


class ConvertedShortlist(Options):
    """The shortlist to convert, and the output."""

    title = "Shortlists"

    shortlist: tuple[str, ...] = option((), "text file, first, best and threshold; needs -V", short="s")
    dump_shortlist: str = option("lex.bin", "the binary file to write", short="d")


class ConvertOptions(ConvertedModel, ConvertedShortlist, Logging):
    """The options of ``mgraph convert``."""


COMMAND = Command(
    "convert",
    "convert a model to .npz, .bin or .safetensors, or to and from a folder of HuggingFace's MarianMT,\n"
    "or a lexical shortlist from text to binary",
    ConvertOptions,
    examples=(
        ("mgraph convert -f model.npz -t model.bin --gemm-type intgemm8avx2", "a quantized model"),
        ("mgraph convert -f model.bin -t model.npz", "and back"),
        (
            "mgraph convert -f model.npz -t folder --export-as huggingface -V vocab.spm vocab.spm",
            "for MarianMTModel.from_pretrained",
        ),
        ("mgraph convert -f opus-mt-en-de -t model.npz", "from a folder of HuggingFace's"),
    ),
)


def run(options: ConvertOptions, argv: Sequence[str]) -> None:
    """Convert the model ``--from``, or the shortlist ``--shortlist``."""
    _check(options)
    with logging_as(options):
        greet(COMMAND, argv, options)
        if options.shortlist:
            _convert_shortlist(options)
        else:
            _convert_model(options)
        logger.info("Finished")


def _check(options: ConvertOptions) -> None:
    """OptionError for unsupported values and conflicts; OSError for files that cannot be read or written."""
    kind, gemm_type = options.export_as, options.gemm_type
    if kind not in (MARIAN, HUGGINGFACE):
        raise OptionError(f"--export-as must be one of {MARIAN}, {HUGGINGFACE}; got '{kind}'")
    if gemm_type not in GEMM_TYPES:
        hint = meant(gemm_type, GEMM_TYPES)
        raise OptionError(f"--gemm-type must be one of {', '.join(GEMM_TYPES)}; got '{gemm_type}'{hint}")
    if kind == HUGGINGFACE and gemm_type != GEMM_TYPES[0]:
        raise OptionError(f"--gemm-type {gemm_type} cannot go with --export-as {HUGGINGFACE}")
    if kind == HUGGINGFACE and (options.to.endswith(MODELS) or os.path.isfile(options.to)):
        raise OptionError(f"--to: {HUGGINGFACE} needs the name of a folder, got {options.to}")
    if options.shortlist and len(options.vocabs) != 2:
        raise OptionError(f"--shortlist needs two --vocabs, source and target; got {len(options.vocabs)}")
    require_readable("--vocabs", options.vocabs)
    if options.shortlist:
        require_readable("--shortlist", options.shortlist[:1])
        inputs = {"--shortlist": options.shortlist[:1], "--vocabs": options.vocabs}
        require_distinct(inputs, options.dump_shortlist, "--dump-shortlist")
        require_writable("--dump-shortlist", options.dump_shortlist)
        return
    if not os.path.isdir(options.source):
        require_readable("--from", [options.source])
    if kind == HUGGINGFACE:
        require_folder("--to", options.to)
        return
    require_model_name("--to", options.to)
    if gemm_type != GEMM_TYPES[0] and not options.to.endswith(".bin"):
        raise OptionError(f"--gemm-type {gemm_type} is for models that end in .bin, got --to {options.to}")
    require_distinct({"--from": _models_of(options.source)}, options.to, "--to")
    require_writable("--to", options.to)


def _models_of(source: str) -> list[str]:
    """The file ``--from``, or the files of parameters that may be in that folder."""
    if not os.path.isdir(source):
        return [source]
    from nmt.files.huggingface.folders import TORCH_WEIGHTS, WEIGHTS

    return [os.path.join(source, name) for name in (WEIGHTS, TORCH_WEIGHTS)]


def _convert_model(options: ConvertOptions) -> None:
    from nmt.files import convert_model, huggingface

    source, target, gemm_type = options.source, options.to, options.gemm_type
    logger.info("Outputting %s, precision: %s", target, gemm_type)
    if options.export_as == HUGGINGFACE:
        huggingface.export_huggingface(source, target, options.vocabs)
    elif os.path.isdir(source):
        huggingface.import_huggingface(source, target, gemm_type=gemm_type, zero_start=options.zero_start)
    else:
        convert_model(source, target, gemm_type=gemm_type)


def _convert_shortlist(options: ConvertOptions) -> None:
    from nmt.search.shortlist import convert_shortlist
    from nmt.text.vocabs.loading import load_vocab

    source, target = (load_vocab(path) for path in options.vocabs)
    convert_shortlist(options.shortlist, source, target, options.dump_shortlist)
