"""The options of ``mgraph decode`` and of ``Translator``."""

from __future__ import annotations

from nmt.settings.aliases import OF_READING
from nmt.settings.model import SAVED_IN_MODEL
from nmt.settings.option import Command, Option, ignored, later
from nmt.settings.shared import (
    DEVICES,
    IGNORE_MODEL_CONFIG,
    INPUT_LENGTH,
    QUANTIZATION,
    RANKING,
    SIXTEEN_BITS,
    TSV,
    WORD_SCORES,
    batching,
    general,
)

TRANSLATION = (
    Option(
        "input",
        str,
        ("stdin",),
        "files to translate, one for each source",
        short="i",
        many=True,
        command=True,
    ),
    Option("output", str, "stdout", "file for the translations", short="o", command=True),
    Option("vocabs", str, (), "vocabularies of the sources and the target", short="v", many=True),
    *RANKING,
    Option("allow-special", help="let special symbols appear in translations"),
    Option("n-best", help="print a list of translations for each line"),
    Option(
        "alignment",
        str,
        "",
        "print word alignments: soft, hard or links above X",
        implicit="1",
    ),
    Option("force-decode", help="the last input has the first words of translations"),
    WORD_SCORES,
    ignored("stat-freq", str, "0", command=True, help="the log shows the total time alone"),
    Option("no-spm-decode", help="print pieces of words as SentencePiece split them"),
    Option("no-spm-encode", help="the input is split into pieces of SentencePiece already"),
)

SEARCH = (
    Option("skip-cost", help="rank by the models' logits, which are not normalized"),
    Option(
        "shortlist",
        str,
        (),
        "lexical shortlist: path, first=100, best=100, threshold=0",
        many=True,
    ),
    Option("weights", float, (), "of the models of an ensemble", many=True),
    Option(
        "output-sampling",
        str,
        (),
        "draw words: full, topk K, nucleus P, epsilon E [temperature]",
        many=True,
        implicit="full 1.0",
    ),
    later("output-approx-knn", str, (), many=True, implicit="100 1024"),
)

DECODE = Command(
    "decode",
    "translate lines of text",
    {
        "General options": general(
            ignored("workspace", int, 512, short="w", command=True, help="JAX manages the memory"),
            Option("seed", int, 0, "of --output-sampling; 0: another one in each run"),
        ),
        "Model options": (
            Option(
                "models", str, (), "the model or models: .npz, .bin or .safetensors", short="m", many=True
            ),
            ignored("model-mmap", help="the library decides how files are read", command=True),
            IGNORE_MODEL_CONFIG,
            *SAVED_IN_MODEL,
        ),
        "Translator options": (
            *TRANSLATION,
            *INPUT_LENGTH,
            *TSV,
            *DEVICES,
            *batching(1, 1, "none"),
            *SIXTEEN_BITS,
            *SEARCH,
            *QUANTIZATION,
            later("encryption-key-path", str, ""),
            Option("marian-exact", help="decode as Marian where it departs from its training", dumped=False),
        ),
    },
    aliases=OF_READING,
)
