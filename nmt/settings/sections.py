"""Sections of options that commands share, and the options of ``decode`` and ``score``."""

from __future__ import annotations

from mgraph.loggers import LEVELS
from nmt.settings.absent import (
    FBGEMM,
    NO_BERT,
    NO_CHARACTERS,
    NO_COMET,
    NO_ENCRYPTION,
    NO_FBGEMM,
    NO_JOINING,
    NO_LSH,
    NO_NAN_SEARCH,
    NO_ULR,
)
from nmt.settings.aliases import OF_READING
from nmt.settings.config import Command, with_standard_input
from nmt.settings.model_options import ModelDescription, Universal
from nmt.settings.option import OptionError, Options, again, ignored, option, refused, saved_in_model
from nmt.settings.sharing import Sharing

DUMPS = ("full", "minimal", "expand", "false")
SUMMARIES = ("cross-entropy", "ce-mean", "ce-mean-words", "ce-sum", "perplexity")
METRICS = ("chrf", "bleu")
"""The values of ``--mbr``."""
INTGEMM8 = ("intgemm8", "intgemm8ssse3", "intgemm8avx2", "intgemm8avx512", "intgemm8avx512vnni")
"""Marian's values of ``gemm-type`` for products of int8; the kinds of processor make no difference here."""
IGNORE_MODEL_CONFIG = "the model options count, not those in the file"


class About(Options):
    """Information to print instead of running, and configuration files."""

    authors: bool = option(False, "print who wrote this", command=True)
    cite: bool = option(False, "print what to cite", command=True)
    build_info: str = option(
        "", "print the versions of jax and numpy; all: of all packages", implicit="basic", command=True
    )
    config: tuple[str, ...] = option(
        (),
        "configuration files; later ones override",
        short="c",
        command=True,
        python="pass the options of the file as arguments",
    )
    workspace: int = ignored(2048, "JAX manages the memory", short="w", command=True)


class Logging(Options):
    """Where the log goes."""

    title = "Output"

    log: str = option(
        "",
        "write the log to this file, too",
        command=True,
        python='logging.getLogger("nmt") takes a handler, such as logging.FileHandler',
    )
    log_level: str = option(
        "info",
        "least severity to log",
        choices=tuple(LEVELS),
        command=True,
        python='logging.getLogger("nmt").setLevel sets it',
    )
    log_time_zone: str = option(
        "",
        "time zone of the log's dates",
        command=True,
        python='the formatters of your handlers of logging.getLogger("nmt") write the dates',
    )
    quiet: bool = option(
        False,
        "log nothing to stderr; errors and the log file stay",
        command=True,
        python='logging.getLogger("nmt").setLevel("ERROR") keeps only errors',
    )


class General(About, Logging):
    """General options of the commands that Marian has."""

    title = "General options"

    quiet_translation: bool = option(False, "do not log each translation", command=True)
    seed: int = ignored(0, "nothing is random without sampling", command=True)
    check_nan: bool = ignored(False, NO_NAN_SEARCH, command=True)
    interpolate_env_vars: bool = option(
        False,
        "replace ${NAME} in paths by the environment",
        command=True,
        python="os.path.expandvars does it",
    )
    relative_paths: bool = option(
        False,
        "in a configuration file: paths relative to it",
        command=True,
        python="paths are relative to the working directory",
    )
    dump_config: str = option(
        "",
        "print all options (full), the given ones (minimal), or these with aliases expanded (expand)",
        implicit="full",
        choices=DUMPS,
        command=True,
        python="the attribute `options` has all",
    )


class NewModel(ModelDescription):
    """A new model, with options that model files do not contain."""

    input_reorder: tuple[int, ...] = refused(
        (),
        "name the files in another order instead; awk can reorder the fields of a --tsv",
        after="input-types",
    )
    input_join_fields: bool = refused(False, NO_JOINING, after="input-reorder")
    best_deep: bool = option(
        False, "set the options of a deep recurrent model and its training", after="input-join-fields"
    )
    transformer_depth_scaling: bool = option(
        False,
        "divide initial weights by the square root of their layer's number",
        after="transformer-train-position-embeddings",
    )
    alibi: bool = option(
        False,
        "set the options of a transformer with ALiBi",
        after="transformer-alibi-trainable",
    )
    bert_mask_symbol: str = ignored("[MASK]", NO_BERT, after="transformer-no-affine")
    bert_sep_symbol: str = ignored("[SEP]", NO_BERT, after="bert-mask-symbol")
    bert_class_symbol: str = ignored("[CLS]", NO_BERT, after="bert-sep-symbol")
    bert_masking_fraction: float = ignored(0.15, NO_BERT, after="bert-class-symbol")
    comet_final_sigmoid: bool = ignored(False, NO_COMET)
    comet_stop_grad: bool = ignored(False, NO_COMET)
    comet_mix: bool = ignored(False, NO_COMET)
    comet_mix_norm: bool = ignored(False, NO_COMET)
    comet_pool: str = ignored("avg", NO_COMET)
    comet_mix_transformation: str = ignored("softmax", NO_COMET)
    comet_dropout: float = ignored(0.1, NO_COMET)
    comet_mixup: float = ignored(0.0, NO_COMET)
    comet_mixup_reg: bool = ignored(False, NO_COMET)
    comet_augment_bad: float = ignored(0.0, NO_COMET)
    comet_pooler_ffn: tuple[int, ...] = ignored((2048, 1024), NO_COMET)
    comet_prepend_zero: bool = ignored(False, NO_COMET)
    comet_use_separator: bool = ignored(False, NO_COMET)
    char_stride: int = ignored(5, NO_CHARACTERS, dumped=False)
    char_highway: int = ignored(4, NO_CHARACTERS, dumped=False)
    char_conv_filters_num: tuple[int, ...] = ignored(
        (200, 200, 250, 250, 300, 300, 300, 300), NO_CHARACTERS, dumped=False
    )
    char_conv_filters_widths: tuple[int, ...] = ignored((1, 2, 3, 4, 5, 6, 7, 8), NO_CHARACTERS, dumped=False)


class NewUniversal(Universal):
    """Universal embeddings of a new model."""

    ulr_query_vectors: str = ignored("", NO_ULR, after="ulr")
    ulr_keys_vectors: str = ignored("", NO_ULR, after="ulr-query-vectors")
    ulr_dropout: float = ignored(0.0, NO_ULR)
    ulr_softmax_temperature: float = ignored(1.0, NO_ULR)


@saved_in_model()
class SavedModel(NewModel):
    """The options in which the model file overrides the command line, as in Marian."""


@saved_in_model(dumped=False)
class SavedUniversal(NewUniversal):
    """The same for universal embeddings."""


class DescribedModel(SavedModel, SavedUniversal):
    """Model options of commands that Marian does not have."""

    title = "Model options"

    ignore_model_config: bool = option(False, IGNORE_MODEL_CONFIG)


class BeamOptions(Options):
    """Beam search."""

    beam_size: int = option(12, "hypotheses kept per sentence", short="b", least=1)
    normalize: float = option(0.0, "divide a score by (words) ** X; 1 if bare", short="n", implicit="1")
    max_length_factor: float = option(3.0, "at most X words per source word", least=0)
    word_penalty: float = option(0.0, "subtract X * (number of words) from a score")
    allow_unk: bool = option(False, "let unknown words appear in translations")


class InputLength(Options):
    """The maximum length of lines."""

    max_length: int = option(1000, "most words per line, </s> included; skip longer lines", least=1)
    max_length_crop: bool = option(False, "cut longer lines to --max-length instead")


class Tsv(Options):
    """Lines with fields."""

    tsv: bool = option(False, "the input is one file of fields separated by tabs")
    tsv_fields: int = option(0, "number of fields; 0: as many as the models need", least=0)


class Devices(Options):
    """The device, and the cache of compiled programs."""

    title = "Device"

    devices: tuple[str, ...] = option(("0",), "number of the GPU to use", short="d")
    cpu_threads: int = option(0, "use the CPU, N threads; 0: a GPU if any", implicit="1", least=0)
    compilation_cache: str = option(
        "", "folder for compiled programs, or none; by default ~/.cache/mgraph/programs", dumped=False
    )

    @property
    def chooses_device(self) -> bool:
        """Whether the options ask for another device than JAX's default."""
        given = self.cpu_threads, self.devices, getattr(self, "cpu_devices", 0)
        return given != (Devices.cpu_threads, Devices.devices, 0)


class BatchOptions(Options):
    """Batching."""

    mini_batch: int = option(64, "lines in a batch", least=1)
    mini_batch_words: int = option(0, "close a batch at more words than this", least=0)
    maxi_batch: int = option(100, "batches to read ahead and sort by length", least=1)
    maxi_batch_sort: str = option("trg", "sort them by this side", choices=("none", "src", "trg"))
    data_threads: int = ignored(8, "lines are read by one thread", command=True)


class Precision(Options):
    """The element type of products."""

    fp16: bool = option(False, "as --precision float16")
    precision: tuple[str, ...] = option(
        ("float32",),
        "compute in float32, float16 or bfloat16, or multiply by integers: int8",
        choices=("float32", "float16", "bfloat16", "int8"),
    )


class IntegerProducts(Options):
    """Integer arithmetic."""

    optimize: bool = refused(False, NO_FBGEMM)
    gemm_type: str = option(
        "float32",
        "intgemm8, with or without a kind of processor: as --precision int8",
        short="g",
        choices=("float32", *INTGEMM8),
        absent=FBGEMM,
    )
    quantize_range: float = refused(0.0, NO_FBGEMM)


class TranslatedTexts(Options):
    """What is translated."""

    input: tuple[str, ...] = option(
        ("stdin",),
        "files to translate, one for each source",
        short="i",
        command=True,
        python="the methods take the lines",
    )
    output: str = option(
        "stdout",
        "file for the translations",
        short="o",
        command=True,
        python="the methods return the translations",
    )
    vocabs: tuple[str, ...] = option((), "vocabularies of the sources and the target", short="v")
    pieces: tuple[str, ...] = option(
        (), "SentencePiece models for vocabularies that list their pieces (OPUS-MT), for raw text", kept=True
    )


class PrintedTranslations(Options):
    """What is printed."""

    allow_special: bool = option(False, "let special symbols appear in translations")
    n_best: bool = option(False, "print a list of translations for each line")
    alignment: str = option("", "print word alignments: hard (if bare), soft, or links above X", implicit="1")
    force_decode: bool = option(False, "the last input has prefixes of the translations")
    word_scores: bool = option(False, "print the log-probability of each word")
    stat_freq: str = ignored("0", "the log shows only the total time", command=True)
    no_spm_decode: bool = option(False, "print SentencePiece pieces instead of text")
    no_spm_encode: bool = option(False, "the input is already split into SentencePiece pieces")


class Searching(Options):
    """More options of the search."""

    skip_cost: bool = option(False, "rank by unnormalized logits")
    shortlist: tuple[str, ...] = option((), "lexical shortlist: path, first=100, best=100, threshold=0")
    weights: tuple[float, ...] = option((), "weights of the models of an ensemble")
    output_sampling: tuple[str, ...] = option(
        (), "sample words: full, topk K, nucleus P, epsilon E [temperature]", implicit="full 1.0"
    )
    output_approx_knn: tuple[str, ...] = refused((), NO_LSH, implicit="100 1024")
    mbr: str = option(
        "", "choose by minimum Bayes risk: the highest expected chrf or bleu", choices=METRICS, dumped=False
    )
    mbr_samples: int = option(
        0, "choose among N samples of each line; 0: from the n-best list", least=0, dumped=False
    )


class DecodedModels(Options):
    """Which models translate."""

    models: tuple[str, ...] = option(
        (), "the model or models: .npz, .bin or .safetensors, or the folder of a published model", short="m"
    )
    model_mmap: bool = ignored(False, "mgraph itself decides how files are read", command=True)
    ignore_model_config: bool = option(False, IGNORE_MODEL_CONFIG)


class DecodedModelOptions(DecodedModels, SavedModel, SavedUniversal):
    """Model options of ``decode``."""

    title = "Model options"


class TranslatorOptions(
    TranslatedTexts,
    BeamOptions,
    PrintedTranslations,
    InputLength,
    Tsv,
    Devices,
    BatchOptions,
    Precision,
    Searching,
    IntegerProducts,
    Sharing,
):
    """How ``decode`` translates."""

    title = "Translator options"

    encryption_key_path: str = refused("", NO_ENCRYPTION)
    marian_exact: bool = option(
        False, "repeat Marian's differences between decoding and training", dumped=False
    )
    cpu_devices: int = option(0, "divide the CPU into N devices; 0: one", least=0, dumped=False)


class DecodeOptions(General, DecodedModelOptions, TranslatorOptions):
    """The options of ``mgraph decode`` and of ``Translator``."""

    config: tuple[str, ...] = again(General, "config", python="Translator.from_config reads the file")
    devices: tuple[str, ...] = again(Devices, "devices", help="numbers of the GPUs to use, or all")
    workspace: int = again(General, "workspace", 512)
    seed: int = option(0, "seed of --output-sampling and --mbr-samples; 0: a different one in each run")
    mini_batch: int = again(BatchOptions, "mini_batch", 1)
    maxi_batch: int = again(BatchOptions, "maxi_batch", 1)
    maxi_batch_sort: str = again(BatchOptions, "maxi_batch_sort", "none")


DECODE = Command("decode", "translate lines of text", DecodeOptions, aliases=OF_READING)


class ScoredModel(Options):
    """Which model scores."""

    model: str = option(
        "model.npz", "the model: .npz, .bin or .safetensors, or the folder of a published model", short="m"
    )
    ignore_model_config: bool = option(False, IGNORE_MODEL_CONFIG)


class ScoredModelOptions(ScoredModel, SavedModel, SavedUniversal):
    """Model options of ``score``."""

    title = "Model options"


class ScoredTexts(Options):
    """The texts to score, and the output."""

    no_reload: bool = ignored(False, "the model is always loaded", command=True)
    train_sets: tuple[str, ...] = option(
        (),
        "files: each source, then the target",
        short="t",
        command=True,
        python="the methods take the lines",
    )
    output: str = option(
        "stdout", "file for the scores", short="o", command=True, python="the methods return the scores"
    )
    vocabs: tuple[str, ...] = option((), "vocabularies of each source and the target", short="v")
    pieces: tuple[str, ...] = again(TranslatedTexts, "pieces")
    n_best: bool = option(False, "the target is an n-best list; add the scores to it")
    n_best_feature: str = option("Score", "the name of the score in the n-best list")
    normalize: bool = option(False, "divide scores by the number of target words", short="n")
    summary: str = option(
        "",
        "print one number for all lines; cross-entropy if bare",
        implicit="cross-entropy",
        choices=SUMMARIES,
        command=True,
    )
    alignment: str = option("", "print alignments: hard (if bare), soft, or links above X", implicit="1")
    word_scores: bool = again(PrintedTranslations, "word_scores")


class ScorerOptions(
    ScoredTexts, InputLength, Tsv, Devices, BatchOptions, Precision, IntegerProducts, Sharing
):
    """How ``score`` scores."""

    title = "Scorer options"


class ScoreOptions(General, ScoredModelOptions, ScorerOptions):
    """The options of ``mgraph score`` and of ``Scorer``."""


SCORE = Command(
    "score",
    "log-probabilities of given translations",
    ScoreOptions,
    aliases=OF_READING,
    complete=with_standard_input,
)


def products_in(options: DecodeOptions | ScoreOptions) -> str:
    """The type in which models multiply: that of ``precision``, or ``int8`` if ``gemm_type`` asks for it.
    ``OptionError`` if they contradict each other."""
    said = "float16" if options.fp16 else next(iter(options.precision), "float32")
    if options.gemm_type == "float32":
        return said
    if said not in ("float32", "int8"):
        raise OptionError(f"--gemm-type {options.gemm_type} cannot go with --precision {said}")
    return "int8"
