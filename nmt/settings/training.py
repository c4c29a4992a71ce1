"""The options of ``mgraph train`` and of ``Trainer``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt.settings.absent import METRICS, NO_EMBEDDER, NO_FACTOR_WEIGHT, NO_TRACKING
from nmt.settings.aliases import OF_TRAINING
from nmt.settings.optax_options import OPTAX, OPTIMIZER_IN_PYTHON, SCHEDULE_IN_PYTHON
from nmt.settings.option import Options, again, ignored, option, refused
from nmt.settings.sections import (
    BatchOptions,
    BeamOptions,
    Devices,
    General,
    NewModel,
    NewUniversal,
    PrintedTranslations,
)

NOTHING = ("", "none")
"""Values that mean none, in options that take a file or a field."""
ONE_PROCESS = "JAX controls the exchange of gradients between devices"
DECAY_STRATEGIES = {"epoch": 1, "batches": 1, "stalled": 1, "epoch+batches": 2, "epoch+stalled": 2}
"""The number of ``--lr-decay-start`` values that each ``--lr-decay-strategy`` takes."""
TASKS = tuple(str(alias.value) for alias in OF_TRAINING if alias.option == "task")


class TrainingGeneral(General):
    """General options of training."""

    workspace: int = option(
        2048, "megabytes that --mini-batch-fit may fill; -N: all but N of the device's", short="w"
    )
    quiet_translation: bool = again(General, "quiet_translation", command=False)
    seed: int = option(0, "random seed; 0: a different one in each run", least=0)
    check_nan: bool = option(
        False, "stop at the first cost or gradient that is not finite, and name the operation it comes from"
    )
    relative_paths: bool = option(
        False, "write paths relative to the model into MODEL.yml and MODEL.decoder.yml"
    )
    sigterm: str = option(
        "save-and-exit", "what to do at SIGTERM", choices=("save-and-exit", "exit-immediately")
    )


class ModelFile(Options):
    """The files of the model."""

    model: str = option("model.npz", "the model to create or resume: .npz or .bin", short="m")
    pretrained_model: str = option("", "initialize the parameters from this model")
    ignore_model_config: bool = option(False, "use the given options, not those of the model file")


def _dropout(what: str) -> Any:
    return option(0.0, f"probability that {what} dropped", least=0, below=1)


class Dropping(Options):
    """Dropout in training."""

    dropout_rnn: float = _dropout("a recurrent layer's features are")
    dropout_src: float = _dropout("a source word is")
    dropout_trg: float = _dropout("a target word is")
    transformer_dropout: float = _dropout("a feature of a layer's output is")
    transformer_dropout_attention: float = _dropout("an attention weight is")
    transformer_dropout_ffn: float = _dropout("a feed-forward feature is")


class Costs(Options):
    """The loss, and the cost in the log."""

    cost_type: str = option(
        "ce-sum",
        "the cost shown",
        choices=("ce-sum", "ce-mean", "ce-mean-words", "cross-entropy", "perplexity"),
    )
    multi_loss_type: str = option("sum", "how several costs are added", choices=("sum", "scaled", "mean"))
    unlikelihood_loss: bool = option(False, "word weights say which words to make unlikely")


class Files(Options):
    """Files to read, and files to keep."""

    overwrite: bool = option(False, "keep only the last model")
    overwrite_checkpoint: bool = option(True, "keep the checkpoint files of the last model only")
    no_reload: bool = option(False, "start from the beginning even if the model exists")
    no_optimizer_reload: bool = option(False, "resume the model but not its optimizer")
    train_sets: tuple[str, ...] = option((), "files: each source, then the target", short="t")
    vocabs: tuple[str, ...] = option(
        (), "vocabularies of each source and the target; missing ones are created", short="v"
    )
    sentencepiece_alphas: tuple[float, ...] = option(
        (), "sample segmentations, with this smoothing for each vocabulary"
    )
    sentencepiece_options: str = option("", "options for SentencePiece's trainer")
    sentencepiece_max_lines: int = option(2_000_000, "lines that SentencePiece learns from; 0: all", least=0)
    no_spm_encode: bool = option(False, "the text is already split into SentencePiece pieces")


class Course(Options):
    """How long to train, and how often to log and save."""

    after_epochs: int = option(0, "stop after N epochs; 0: never", short="e", least=0)
    after_batches: int = option(0, "stop after N updates; 0: never", least=0)
    after: str = option("0e", "stop after this amount: 100Ku, 10e, 10Gt, or several with commas", short="a")
    disp_freq: str = option("1000u", "show the cost every N updates (u) or target words (t)")
    disp_first: int = option(0, "show the cost of each of the first N updates", least=0)
    disp_label_counts: bool = option(True, "show the cost with the number of words")
    save_freq: str = option("10000u", "save every N updates (u) or target words (t)")
    logical_epoch: tuple[str, ...] = option(
        ("1e", "0"), "what to count as an epoch, and the decimals to show"
    )


class Data(Options):
    """Reading of the training text."""

    max_length: int = option(50, "most words per sentence, </s> included; skip longer ones", least=1)
    max_length_crop: bool = option(False, "cut longer sentences to --max-length instead")
    tsv: bool = option(False, "the training text is one file of fields separated by tabs")
    tsv_fields: int = option(0, "number of fields; 0: as many as the model needs", least=0)
    shuffle: str = option(
        "data",
        "what is shuffled: sentences and batches, only batches, or nothing",
        choices=("data", "batches", "none"),
    )
    no_shuffle: bool = option(False, "the same as --shuffle none")
    no_restore_corpus: bool = option(False, "when resuming, start a new epoch")
    tempdir: str = option("/tmp", "folder for temporary files", short="T")
    sqlite: str = ignored("", "shuffling needs no database", implicit="temporary")
    sqlite_drop: bool = ignored(False, "shuffling needs no database")


class TrainingDevices(Options):
    """The devices of training."""

    devices: tuple[str, ...] = option(("0",), "numbers of the GPUs to use, or all", short="d")
    no_nccl: bool = ignored(False, ONE_PROCESS)
    sharding: str = ignored("global", ONE_PROCESS)
    sync_freq: str = ignored("200u", ONE_PROCESS)
    cpu_threads: int = option(0, "use the CPU, N threads; 0: GPUs if any", implicit="1", least=0)


class TrainingBatchOptions(BatchOptions):
    """Batching in training."""

    mini_batch: int = again(BatchOptions, "mini_batch", help="sentences in a batch")
    mini_batch_words: int = again(
        BatchOptions, "mini_batch_words", help="close a batch at more words than this; 0: count sentences"
    )
    mini_batch_fit: bool = option(
        False, "as many sentences as fit into --workspace", after="mini-batch-words"
    )
    mini_batch_fit_step: int = option(
        10, "measure what --mini-batch-fit needs at every Nth length", least=1, after="mini-batch-fit"
    )
    gradient_checkpointing: bool = option(False, "less memory, more time", after="mini-batch-fit-step")
    maxi_batch_sort: str = again(
        BatchOptions, "maxi_batch_sort", help="what the sentences read ahead are sorted by"
    )
    shuffle_in_ram: bool = option(
        False, "shuffle in memory, without temporary files", after="maxi-batch-sort"
    )
    data_threads: int = option(
        8, "with 1, skipped lines do not count as read ahead; there is always one thread", least=1
    )
    all_caps_every: int = option(0, "convert every Nth line to capitals; 0: none", least=0)
    english_title_case_every: int = option(0, "convert every Nth line to title case; 0: none", least=0)
    mini_batch_words_ref: int = option(0, "adapt training options chosen for batches of N words", least=0)
    mini_batch_warmup: str = option("0", "increase the batch size over N updates (u) or words (t)")
    mini_batch_track_lr: bool = refused(False, NO_TRACKING)
    mini_batch_round_up: bool = option(True, "round growing batch sizes up to powers of two")


class Learning(Options):
    """Updates of the parameters."""

    optimizer: str = option(
        "adam",
        "the optimizer",
        short="o",
        choices=("sgd", "adagrad", "adam", f"{OPTAX}NAME"),
        python=OPTIMIZER_IN_PYTHON,
    )
    optimizer_params: tuple[float, ...] = option(
        (), "parameters of the optimizer; adam: beta1, beta2, epsilon, decay"
    )
    optimizer_delay: float = option(1.0, "batches per update, or a fraction of one; above 0")
    sync_sgd: bool = option(False, "updates wait for all devices, as they always do")
    learn_rate: float = option(0.0001, "the learning rate", short="l", least=0, python=SCHEDULE_IN_PYTHON)
    lr_report: bool = option(False, "show the learning rate")
    lr_decay: float = option(0.0, "factor of the learning rate when it decays; 0: never", least=0)
    lr_decay_strategy: str = option(
        "epoch+stalled", "when the learning rate decays", choices=tuple(DECAY_STRATEGIES)
    )
    lr_decay_start: tuple[int, ...] = option(
        (10, 1), "the first epoch, update or stalled validation at which it decays"
    )
    lr_decay_freq: int = option(50000, "updates between two decays of the learning rate", least=1)
    lr_decay_reset_optimizer: bool = option(False, "reset the optimizer with each decay")
    lr_decay_repeat_warmup: bool = option(False, "repeat the warm-up with each decay")
    lr_decay_inv_sqrt: tuple[str, ...] = option(
        ("0",), "after N updates (u), words (t) or epochs (e), decay the rate by the inverse square root"
    )
    lr_warmup: str = option(
        "0", "warm-up: increase the learning rate over N updates (u), words (t) or epochs (e)"
    )
    lr_warmup_start_rate: float = option(0.0, "the learning rate at which the warm-up begins")
    lr_warmup_cycle: bool = option(False, "repeat the warm-up in cycles")
    lr_warmup_at_reload: bool = option(False, "repeat the warm-up when training resumes")
    label_smoothing: float = option(0.0, "probability to distribute over all words", least=0, most=1)
    factor_weight: float = refused(1.0, NO_FACTOR_WEIGHT)
    clip_norm: float = option(1.0, "clip the gradient to this norm; 0: do not clip", least=0)
    exponential_smoothing: float = option(
        0.0,
        "weight of the new parameters in their moving average; 0: no average",
        implicit="1e-4",
        least=0,
        most=1,
    )
    exponential_smoothing_replace_freq: str = option(
        "0", "continue from the average every N updates (u) or words (t)"
    )


class Guidance(Options):
    """Alignments, weights and word vectors for training."""

    guided_alignment: str = option("none", "file of word alignments to learn, or the field of --tsv")
    guided_alignment_cost: str = option("ce", "how alignments are compared", choices=("ce", "mse", "mult"))
    guided_alignment_weight: float = option(0.1, "weight of the cost of alignments")
    data_weighting: str = option("", "file of weights, or the field of --tsv")
    data_weighting_type: str = option("sentence", "what has a weight", choices=("sentence", "word"))
    embedding_vectors: tuple[str, ...] = option((), "word2vec files: each source, then the target")
    embedding_normalization: bool = option(False, "divide the vectors by the norm of their table")
    embedding_fix_src: bool = option(False, "do not train the embeddings of sources")
    embedding_fix_trg: bool = option(False, "do not train the embeddings of the target")


class Numerics(Options):
    """Element types, and handling of large gradients."""

    fp16: bool = option(False, "compute with 16 bits and scale the cost")
    precision: tuple[str, ...] = option(("float32", "float32"), "element types of computation and updates")
    cost_scaling: tuple[str, ...] = option(
        (),
        "scale the cost: factor, updates until it grows, multiplier, minimum",
        implicit="8.f 10000 1.f 8.f",
    )
    throw_on_divergence: tuple[str, ...] = option(
        (), "stop if the last N2 costs exceed the last N1 by X deviations: N1, N2, X", implicit="1000 10 5.0f"
    )
    custom_fallbacks: tuple[Mapping[str, Any], ...] = option(
        (), "options to resume with after each divergence, {name: value, ...}"
    )
    fp16_fallback_to_fp32: bool = option(False, "resume with 32 bits after divergence")
    gradient_norm_average_window: int = option(100, "updates over which the norm is averaged", least=1)
    dynamic_gradient_scaling: tuple[str, ...] = option(
        (), "scale down gradients whose norm is X deviations above the average: X, log", implicit="2.f log"
    )
    check_gradient_nan: bool = option(False, "skip updates whose gradient is not finite")
    normalize_gradient: bool = option(False, "divide the gradient by the number of words")
    normalize_gradient_by_ratio: bool = option(False, "divide the gradient by words / average words")
    train_embedder_rank: tuple[str, ...] = refused((), NO_EMBEDDER, implicit="0.3f 0.0f")
    quantize_bits: int = option(0, "round parameters to this many bits; 0 turns it off", least=0)
    quantize_optimization_steps: int = option(
        0, "steps towards the best scale of rounded parameters", least=0
    )
    quantize_log_based: bool = option(False, "round parameters to powers of two")
    quantize_biases: bool = option(False, "round biases too")


class ValidationRuns(Options):
    """What and when to validate, and early stopping."""

    valid_sets: tuple[str, ...] = option((), "validation files: each source, then the target")
    valid_freq: str = option("10000u", "validate every N updates (u) or target words (t)")
    valid_metrics: tuple[str, ...] = option(
        ("cross-entropy",), "metrics; the first one is decisive", absent=METRICS
    )
    valid_reset_stalled: bool = option(False, "when resuming, reset the number of stalled validations")
    valid_reset_all: bool = option(False, "when resuming, reset the best values too")
    early_stopping: int = option(10, "stop after N validations without improvement; 0: never", least=0)
    early_stopping_epsilon: tuple[float, ...] = option((0.0,), "the least improvement of each metric")
    early_stopping_on: str = option("first", "which metrics must stall", choices=("first", "all", "any"))


class Extras(Options):
    """Options that Marian does not have."""

    title = "Options that Marian does not have"

    marian_exact: bool = option(False, "use Marian's own gradients where they are not exact", dumped=False)
    optax_params: tuple[str, ...] = option(
        (), "parameters of an optax optimizer: NAME=VALUE", kept=True, named=True
    )
    lr_schedule: str = option(
        "",
        "the learning rate after N updates, instead of --learn-rate",
        choices=(f"{OPTAX}NAME",),
        kept=True,
        python=SCHEDULE_IN_PYTHON,
    )
    lr_schedule_params: tuple[str, ...] = option(
        (), "parameters of --lr-schedule: NAME=VALUE", kept=True, named=True
    )
    log_json: str = option("", "write the figures to this file, one JSON object per line", dumped=False)
    tensorboard: str = option("", "folder for TensorBoard events", dumped=False)
    progress: bool = option(False, "show a progress bar", dumped=False)
    cpu_devices: int = option(0, "divide the CPU into N devices; 0: one", least=0, dumped=False)
    compilation_cache: str = again(Devices, "compilation_cache")
    shard_state: bool = option(False, "divide parameters and averages among the devices", dumped=False)
    tensor_parallel: int = option(
        1, "divide each parameter among N devices that compute together", least=1, dumped=False
    )
    coordinator: str = option("", "HOST:PORT of the first of several processes", dumped=False)
    num_processes: int = option(0, "the number of processes; 0: as launched", least=0, dumped=False)
    process_id: int = option(-1, "the number of this process; -1: as launched", least=-1, dumped=False)


class TrainedModelOptions(ModelFile, NewModel, Dropping):
    """The model to train."""

    title = "Model options"


class TrainingOptions(
    Costs,
    Files,
    Course,
    Data,
    TrainingDevices,
    TrainingBatchOptions,
    Learning,
    Guidance,
    Numerics,
    NewUniversal,
):
    """Training."""

    title = "Training options"

    task: tuple[str, ...] = option((), "set the options of a model and its training", choices=TASKS)


class Validating(ValidationRuns, BeamOptions):
    """Validation."""

    title = "Validation set options"

    n_best: bool = option(False, "write lists of translations")
    word_scores: bool = again(PrintedTranslations, "word_scores")
    valid_mini_batch: int = option(32, "lines in a batch of validation", least=1)
    valid_max_length: int = option(1000, "cut longer sentences to N words", least=1)
    valid_script_path: str = option("", "a program that prints one score")
    valid_script_args: tuple[str, ...] = option((), "its first arguments, before the file of translations")
    valid_translation_output: str = option(
        "", "file for the translations; may contain {E} {B} {U} {T}: epoch, batch, update, words"
    )
    keep_best: bool = option(False, "keep the best model of each metric")
    valid_log: str = option("", "write the values to this file, too")
    quiet_validation: bool = option(False, "do not log samples of translations")


class TrainOptions(TrainingGeneral, TrainedModelOptions, TrainingOptions, Validating, Extras):
    """The options of ``mgraph train`` and of ``Trainer``."""

    @property
    def text_streams(self) -> int:
        """The number of streams of the training text: files, or fields of ``--tsv``."""
        return self.tsv_fields - len(self.extra_fields) if self.tsv else len(self.train_sets)

    @property
    def extra_fields(self) -> dict[str, str]:
        """The files of alignments and weights, or their fields of ``--tsv``, by option name."""
        named = {"guided-alignment": self.guided_alignment, "data-weighting": self.data_weighting}
        return {name: value for name, value in named.items() if value not in NOTHING}
