"""The commands ``evaluate`` and ``embed``, which run encoders with a pooler."""

from __future__ import annotations

from nmt.settings.aliases import OF_READING, Alias
from nmt.settings.config import Command, with_standard_input
from nmt.settings.metric_options import MetricOptions
from nmt.settings.option import Options, Support, again, option
from nmt.settings.sections import (
    BatchOptions,
    Devices,
    General,
    InputLength,
    Precision,
    ScoredModelOptions,
    ScoredTexts,
    Tsv,
)

AVERAGES = ("skip", "append", "only")
TEXT_METRICS = ("bleu", "chrf", "ter")
LIKE = ("comet-qe", "comet", "bleurt")
_READING = {
    "train-sets": ("stdin",),
    "max-length": 512,
    "max-length-crop": True,
    "mini-batch": 32,
    "maxi-batch": 100,
    "maxi-batch-sort": "src",
}


def _tsv(fields: int) -> dict[str, object]:
    return {**_READING, "tsv": True, "tsv-fields": fields}


OF_METRICS = (
    *OF_READING,
    Alias("like", "comet-qe", _tsv(2)),
    Alias("like", "comet", _tsv(3)),
    Alias("like", "bleurt", _tsv(2)),
)
"""The aliases of ``evaluate``. Marian's also set ``devices``, though only one is used here, and options
without effect: ``workspace`` and ``input-types``."""
OF_EMBEDDING = (*OF_READING, Alias("like", "roberta", _READING))
"""The aliases of ``embed``."""


class MetricModelOptions(ScoredModelOptions):
    """Model options of ``evaluate`` and ``embed``."""

    title = "Model options"

    model: str = again(ScoredModelOptions, "model", help="the model: .npz, .bin or .safetensors")
    input_join_fields: bool = again(
        MetricOptions, "input_join_fields", support=Support.SAVED, after="input-reorder"
    )
    comet_final_sigmoid: bool = again(MetricOptions, "comet_final_sigmoid", support=Support.SAVED)
    comet_mix: bool = again(MetricOptions, "comet_mix", support=Support.SAVED)
    comet_mix_norm: bool = again(MetricOptions, "comet_mix_norm", support=Support.SAVED)
    comet_pool: str = again(MetricOptions, "comet_pool", support=Support.SAVED)
    comet_mix_transformation: str = again(MetricOptions, "comet_mix_transformation", support=Support.SAVED)
    comet_pooler_ffn: tuple[int, ...] = again(MetricOptions, "comet_pooler_ffn", support=Support.SAVED)
    comet_prepend_zero: bool = again(MetricOptions, "comet_prepend_zero", support=Support.SAVED)
    comet_use_separator: bool = again(MetricOptions, "comet_use_separator", support=Support.SAVED)


class Products(Precision):
    """The element type of products."""

    precision: tuple[str, ...] = again(
        Precision, "precision", help="compute in this type", choices=("float32", "float16", "bfloat16")
    )


class PooledTexts(Options):
    """The texts, and the output."""

    no_reload: bool = again(ScoredTexts, "no_reload")
    train_sets: tuple[str, ...] = again(ScoredTexts, "train_sets", help="files: one for each text")
    output: str = option(
        "stdout", "file for the results", short="o", command=True, python="the methods return the results"
    )
    vocabs: tuple[str, ...] = option((), "vocabularies of each text", short="v")


class MetricResults(Options):
    """What ``evaluate`` prints."""

    width: int = option(4, "digits after the decimal point", least=0, most=17, command=True)
    average: str = option(
        "skip",
        "the mean of all lines: skip it, append it, or print only it",
        implicit="append",
        choices=AVERAGES,
        command=True,
    )
    metrics: tuple[str, ...] = option(
        (),
        "also print these text metrics; without --vocabs only these",
        choices=TEXT_METRICS,
        command=True,
        dumped=False,
    )


class LikeMetric(Options):
    """Settings of a kind of metric."""

    like: str = option("", "read fields from stdin as this metric does", choices=LIKE)


class EvaluatorOptions(
    PooledTexts, MetricResults, InputLength, Tsv, Devices, BatchOptions, Products, LikeMetric
):
    """How ``evaluate`` scores."""

    title = "Evaluator options"


class EvaluateOptions(General, MetricModelOptions, EvaluatorOptions):
    """The options of ``mgraph evaluate`` and of ``nmt.Evaluator``."""


EVALUATE = Command(
    "evaluate",
    "scores of translations by COMET and BLEURT models",
    EvaluateOptions,
    aliases=OF_METRICS,
    complete=with_standard_input,
)


class EmbeddingResults(Options):
    """What ``embed`` prints."""

    compute_similarity: bool = option(False, "the cosine of pairs of sentences instead of their vectors")
    binary: bool = option(False, "print float32 numbers of 4 bytes instead of text", command=True)


class LikeEncoder(Options):
    """Settings of a kind of encoder."""

    like: str = option("", "read stdin as the encoders of COMET do", choices=("roberta",))


class EmbedderOptions(
    PooledTexts, EmbeddingResults, InputLength, Tsv, Devices, BatchOptions, Products, LikeEncoder
):
    """How ``embed`` makes vectors."""

    title = "Embedder options"


class EmbedOptions(General, MetricModelOptions, EmbedderOptions):
    """The options of ``mgraph embed`` and of ``nmt.Embedder``."""


EMBED = Command("embed", "vectors of sentences", EmbedOptions, aliases=OF_EMBEDDING)


def precision_of(options: Precision) -> str:
    """The type in which models multiply."""
    return next(iter(options.precision), "float32")
