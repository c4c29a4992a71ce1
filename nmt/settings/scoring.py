"""The options of ``mgraph score`` and of ``Scorer``."""

from __future__ import annotations

from nmt.settings.aliases import OF_READING
from nmt.settings.checks import with_standard_input
from nmt.settings.model import SAVED_IN_MODEL
from nmt.settings.option import Command, Option, ignored
from nmt.settings.shared import (
    DEVICES,
    IGNORE_MODEL_CONFIG,
    INPUT_LENGTH,
    QUANTIZATION,
    SIXTEEN_BITS,
    TSV,
    WORD_SCORES,
    batching,
    general,
)

SUMMARIES = ("cross-entropy", "ce-mean", "ce-mean-words", "ce-sum", "perplexity")


SCORING = (
    ignored("no-reload", command=True, help="the model is always loaded"),
    Option("train-sets", str, (), "files: each source, then the target", short="t", many=True, command=True),
    Option("output", str, "stdout", "file for the scores", short="o", command=True),
    Option("vocabs", str, (), "vocabularies of each source and the target", short="v", many=True),
    Option("n-best", help="the target is an n-best list; add the scores to it"),
    Option("n-best-feature", str, "Score", "the name of the score in the n-best list"),
    Option("normalize", help="divide a score by the number of target words", short="n"),
    Option(
        "summary",
        str,
        "",
        "print one number for all lines; cross-entropy if bare",
        implicit="cross-entropy",
        command=True,
        choices=SUMMARIES,
    ),
    Option("alignment", str, "", "print alignments: hard (if bare), soft, or links above X", implicit="1"),
    WORD_SCORES,
)


SCORE = Command(
    "score",
    "log-probabilities of given translations",
    {
        "General options": general(),
        "Model options": (
            Option("model", str, "model.npz", "the model: .npz, .bin or .safetensors", short="m"),
            IGNORE_MODEL_CONFIG,
            *SAVED_IN_MODEL,
        ),
        "Scorer options": (
            *SCORING,
            *INPUT_LENGTH,
            *TSV,
            *DEVICES,
            *batching(64, 100, "trg"),
            *SIXTEEN_BITS,
            *QUANTIZATION,
        ),
    },
    aliases=OF_READING,
    complete=with_standard_input,
)
