"""Options that several commands have."""

from __future__ import annotations

from nmt.log import LEVELS
from nmt.options.option import Option, ignored, later


def general(workspace: int) -> tuple[Option, ...]:
    """The general options with a command's default of ``--workspace``, in MB."""
    return (
        Option(
            "config", str, (), "files of options; later ones override", short="c", many=True, command=True
        ),
        ignored("workspace", int, workspace, short="w", command=True, help="JAX manages the memory"),
        Option("log", str, "", "write the log to this file, too", command=True),
        Option("log-level", str, "info", "least severity to log", choices=tuple(LEVELS), command=True),
        Option("log-time-zone", str, "", "time zone of the log's dates", command=True),
        Option("quiet", help="log nothing to stderr; errors and the log file stay", command=True),
        Option("quiet-translation", help="do not log each translation", command=True),
        ignored("seed", int, 0, command=True, help="nothing is random without sampling"),
        later("check-nan", command=True),
        Option("interpolate-env-vars", help="replace ${NAME} in paths by the environment", command=True),
        Option("relative-paths", help="in a configuration file: paths relative to it", command=True),
        later("dump-config", str, "", implicit="full", command=True),
        later("authors", command=True),
        later("cite", command=True),
        later("build-info", str, "", implicit="basic", command=True),
    )


LOGGING = tuple(option for option in general(0) if option.name.startswith("log") or option.name == "quiet")
"""For commands that only log."""

# The model file holds these and overrides the command line, as in Marian.
SAVED_IN_MODEL_NAMES = """
type dim-vocabs dim-emb factors-dim-emb factors-combine lemma-dependency lemma-dim-emb dim-rnn
enc-type enc-cell enc-cell-depth enc-depth dec-cell dec-cell-base-depth dec-cell-high-depth
dec-depth skip layer-normalization right-left input-types input-reorder input-join-fields
best-deep tied-embeddings tied-embeddings-src tied-embeddings-all output-omit-bias
transformer-heads transformer-no-projection transformer-rnn-projection transformer-pool
transformer-dim-ffn transformer-decoder-dim-ffn transformer-ffn-depth
transformer-decoder-ffn-depth transformer-ffn-activation transformer-dim-aan
transformer-aan-depth transformer-aan-activation transformer-aan-nogate
transformer-decoder-autoreg transformer-tied-layers transformer-guided-alignment-layer
transformer-preprocess transformer-postprocess-emb transformer-postprocess
transformer-postprocess-top transformer-train-position-embeddings transformer-depth-scaling
transformer-attention-mask transformer-alibi-shift separator-symbol
transformer-disable-position-embeddings transformer-alibi-trainable alibi transformer-no-bias
transformer-no-affine bert-mask-symbol bert-sep-symbol bert-class-symbol
bert-masking-fraction bert-train-type-embeddings bert-type-vocab-size comet-final-sigmoid
comet-stop-grad comet-mix comet-mix-norm comet-pool comet-mix-transformation comet-dropout
comet-mixup comet-mixup-reg comet-augment-bad comet-pooler-ffn comet-prepend-zero
comet-use-separator char-stride char-highway char-conv-filters-num char-conv-filters-widths
ulr ulr-query-vectors ulr-keys-vectors ulr-trainable-transformation ulr-dim-emb ulr-dropout
ulr-softmax-temperature
"""
SAVED_IN_MODEL = tuple(
    ignored(name, str, (), many=True, command=True, implicit="true", help="the model file's own value counts")
    for name in SAVED_IN_MODEL_NAMES.split()
)

IGNORE_MODEL_CONFIG = later("ignore-model-config", command=True)
WORD_SCORES = Option("word-scores", help="print the log-probability of each word")

INPUT_LENGTH = (
    Option("max-length", int, 1000, "most words of a line, </s> counted; longer ones are left out", least=1),
    Option("max-length-crop", help="cut longer lines to --max-length instead"),
)

TSV = (
    Option("tsv", help="the input is one file of fields separated by tabs"),
    Option("tsv-fields", int, 0, "number of fields; 0: as many as the models need", least=0),
)

DEVICES = (
    Option("devices", str, ("0",), "number of the GPU to use", short="d", many=True),
    Option("cpu-threads", int, 0, "use the CPU, N threads; 0: a GPU if any", implicit="1", least=0),
)

NUMBERS = (
    later("fp16"),
    later("precision", str, ("float32",), many=True),
    later("optimize"),
    later("gemm-type", str, "float32", short="g"),
    later("quantize-range", float, 0.0),
)


def batching(mini_batch: int, maxi_batch: int, sort: str) -> tuple[Option, ...]:
    """The options of batching with a command's defaults."""
    return (
        Option("mini-batch", int, mini_batch, "lines in a batch", least=1),
        Option("mini-batch-words", int, 0, "close a batch at more words than this", least=0),
        Option("maxi-batch", int, maxi_batch, "batches to read ahead and sort by length", least=1),
        Option("maxi-batch-sort", str, sort, "what they are sorted by", choices=("none", "src", "trg")),
        ignored("data-threads", int, 8, command=True, help="lines are read by one thread"),
    )
