"""Marian's command-line options: one table for the command line, configuration files and Python.

Names, meanings and defaults are Marian's. Each option is read by the same rule wherever it comes
from, and a known option that is not supported yet is refused by name, unless it is given its
default (a configuration dumped by Marian holds every option there is).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mgraph.errors import MGraphError
from nmt.log import LEVELS

TRUE = ("true", "on", "yes", "1")
FALSE = ("false", "off", "no", "0")


class OptionError(MGraphError, ValueError):
    """An option is unknown, not supported yet, or has a value that it cannot take."""


class Support(Enum):
    """What becomes of an option."""

    YES = "works as in Marian"
    LATER = "is Marian's, and not supported yet"
    IGNORED = "is accepted and changes nothing here"


@dataclass(frozen=True, slots=True)
class Option:
    """One of Marian's options.

    name: the long name; short: the one-letter name; kind: bool, int, float or str.
    many: takes a list of values. implicit: the value of the bare option, without an argument.
    least: the smallest number allowed. choices: the strings allowed.
    command: concerns only the command line, not `Translator` and `Scorer`.
    """

    name: str
    kind: type = bool
    default: Any = False
    help: str = ""
    short: str = ""
    many: bool = False
    implicit: str | None = None
    least: float | None = None
    choices: tuple[str, ...] = ()
    support: Support = Support.YES
    command: bool = False

    @property
    def attribute(self) -> str:
        """The name as a Python argument: ``beam_size`` for ``--beam-size``."""
        return self.name.replace("-", "_")

    def read(self, words: Sequence[str]) -> Any:
        """The value that these words stand for; OptionError names the option and the word."""
        if self.many:
            given = () if list(words) == ["[]"] else words
            return tuple(self._one(word) for word in given)
        if len(words) != 1:
            raise OptionError(f"--{self.name} takes one value, got {len(words)}")
        return self._one(words[0])

    def accept(self, value: object) -> Any:
        """A Python value as the option's own type, by the rule of `read`."""
        items = value if isinstance(value, list | tuple) else (value,)
        return self.read([str(item).lower() if isinstance(item, bool) else str(item) for item in items])

    def _one(self, word: str) -> Any:
        if self.kind is bool:
            if word.lower() not in TRUE + FALSE:
                raise OptionError(f"--{self.name} is true or false, got '{word}'")
            return word.lower() in TRUE
        try:
            value = self.kind(word)
        except ValueError:
            expected = "a whole number" if self.kind is int else "a number"
            raise OptionError(f"--{self.name} takes {expected}, got '{word}'") from None
        if self.least is not None and not value >= self.least:
            raise OptionError(f"--{self.name} must be at least {self.least}, got {word}")
        if self.choices and value and value not in self.choices:
            allowed = ", ".join(self.choices)
            raise OptionError(f"--{self.name} must be one of {allowed}; got '{word}'")
        return value


def later(name: str, kind: type = bool, default: Any = False, **rest: Any) -> Option:
    """An option of Marian's that a later version will support."""
    return Option(name, kind, default, support=Support.LATER, **rest)


def ignored(name: str, kind: type = bool, default: Any = False, **rest: Any) -> Option:
    """An option of Marian's that has nothing to change here."""
    return Option(name, kind, default, support=Support.IGNORED, **rest)


SUMMARIES = ("cross-entropy", "ce-mean", "ce-mean-words", "ce-sum", "perplexity")


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

TRANSLATION = (
    Option("input", str, ("stdin",), "file to translate", short="i", many=True, command=True),
    Option("output", str, "stdout", "file for the translations", short="o", command=True),
    Option("vocabs", str, (), "source and target vocabulary: .yml or .spm", short="v", many=True),
    Option("beam-size", int, 12, "hypotheses kept per sentence", short="b", least=1),
    Option("normalize", float, 0.0, "divide a score by (words) ** X; 1 if bare", short="n", implicit="1"),
    Option("max-length-factor", float, 3.0, "at most X words per source word", least=0),
    Option("word-penalty", float, 0.0, "subtract X * (number of words) from a score"),
    Option("allow-unk", help="let unknown words appear in translations"),
    Option("allow-special", help="let special symbols appear in translations"),
    Option("n-best", help="print a list of translations for each line"),
    WORD_SCORES,
    later("alignment", str, "", implicit="1"),
    later("force-decode"),
    later("stat-freq", str, "0"),
    later("no-spm-decode"),
    later("no-spm-encode"),
    later("skip-cost"),
    later("shortlist", str, (), many=True),
    later("weights", float, (), many=True),
    later("output-sampling", str, (), many=True, implicit="full 1.0"),
    later("output-approx-knn", str, (), many=True, implicit="100 1024"),
    later("encryption-key-path", str, ""),
)

SCORING = (
    Option("train-sets", str, (), "source and target file", short="t", many=True, command=True),
    Option("output", str, "stdout", "file for the scores", short="o", command=True),
    Option("vocabs", str, (), "source and target vocabulary: .yml or .spm", short="v", many=True),
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
    WORD_SCORES,
    later("no-reload"),
    later("n-best"),
    later("n-best-feature", str, "Score"),
    later("alignment", str, "", implicit="1"),
)

INPUT_LENGTH = (
    Option("max-length", int, 1000, "most words of a line, </s> counted; longer ones are left out", least=1),
    Option("max-length-crop", help="cut longer lines to --max-length instead"),
)

TSV = (later("tsv"), later("tsv-fields", int, 0))

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


@dataclass(frozen=True)
class Command:
    """A command and its options by section.

    operands: what its words without an option are called in the help; empty if it takes none.
    examples: lines of the help, each a command and what it is for.
    """

    name: str
    summary: str
    sections: Mapping[str, tuple[Option, ...]]
    operands: str = ""
    examples: tuple[tuple[str, str], ...] = ()
    options: Mapping[str, Option] = field(init=False)

    def __post_init__(self) -> None:
        table = {option.name: option for section in self.sections.values() for option in section}
        object.__setattr__(self, "options", table)

    def option(self, name: str, where: str = "") -> Option:
        """The option of that long name; OptionError with the nearest name if there is none."""
        try:
            return self.options[name]
        except KeyError:
            raise OptionError(f"{where}unknown option {nearest(name, self.options)}") from None

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options of the command by attribute name: what is given, else the default."""
        values = {option.attribute: option.default for option in self.options.values()}
        values.update(given)
        for option in self.options.values():
            if option.support is Support.LATER and values[option.attribute] != option.default:
                raise OptionError(f"--{option.name} {Support.LATER.value}")
        return values

    def python_options(self) -> dict[str, Option]:
        """The options that `Translator` or `Scorer` take, by attribute name."""
        return {o.attribute: o for o in self.options.values() if not o.command}

    def python_values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of `python_options` from Python arguments, checked like a command line."""
        table = self.python_options()
        for name in given:
            if name not in table:
                raise TypeError(f"unknown option {nearest(name, table, prefix='')}")
        values = self.values({name: table[name].accept(value) for name, value in given.items()})
        return {name: values[name] for name in table}


def require_files(values: Mapping[str, Any]) -> None:
    """Raise OptionError unless one model and the vocabularies of source and target are named."""
    models = values.get("models", ("",))
    if len(models) != 1:
        raise OptionError(
            f"--models: one model is needed, got {len(models)}; ensembles are not supported yet"
        )
    if len(values["vocabs"]) != 2:
        raise OptionError(
            f"--vocabs: source and target vocabulary are needed, got {len(values['vocabs'])} path(s)"
        )


def nearest(name: str, names: Iterable[str], prefix: str = "--") -> str:
    """``--beam; did you mean --beam-size?``, or just the name if none is near."""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=1)
    close = close or [other for other in known if other.startswith(name)]
    return f"{prefix}{name}" + (f"; did you mean {prefix}{close[0]}?" if close else "")


DECODE = Command(
    "decode",
    "translate lines of text",
    {
        "General options": general(512),
        "Model options": (
            Option("models", str, (), "the model: .npz or .bin", short="m", many=True),
            ignored("model-mmap", help="the library decides how files are read", command=True),
            IGNORE_MODEL_CONFIG,
            *SAVED_IN_MODEL,
        ),
        "Translator options": TRANSLATION,
        "Input options": INPUT_LENGTH + TSV,
        "Device options": DEVICES + NUMBERS,
        "Batch options": batching(1, 1, "none"),
    },
)

SCORE = Command(
    "score",
    "log-probabilities of given translations",
    {
        "General options": general(2048),
        "Model options": (
            Option("model", str, "model.npz", "the model: .npz or .bin", short="m"),
            IGNORE_MODEL_CONFIG,
            *SAVED_IN_MODEL,
        ),
        "Scorer options": SCORING,
        "Input options": INPUT_LENGTH + TSV,
        "Device options": DEVICES + NUMBERS,
        "Batch options": batching(64, 100, "trg"),
    },
)

JSON = Option("json", help="print JSON instead of a table", command=True)

GRADCHECK = Command(
    "gradcheck",
    "hold hand-written gradients against jax.grad; the exit code is 1 if one is wrong",
    {
        "Operators": (
            Option("module", str, "", "your own operators: a Python file or the name of a module"),
        ),
        "Model": (
            Option("model", str, "", "check the training loss of this model: .npz or .bin", short="m"),
            Option("vocabs", str, (), "source and target vocabulary: .yml or .spm", short="v", many=True),
            Option("train-sets", str, (), "source and target file", short="t", many=True),
            Option("lines", int, 8, "pairs of lines to take", least=1),
            Option(
                "max-length",
                int,
                100,
                "most words of a line, </s> counted; longer ones are passed over",
                least=1,
            ),
            Option("label-smoothing", float, 0.0, "of the loss, as in training", least=0),
            Option("float64", help="compare in float64 only"),
            Option("marian-exact", help="judge Marian's own formulas where they differ from the right ones"),
            Option("all", help="print every parameter, not only the ten worst"),
        ),
        "Output": (
            JSON,
            *(option for option in general(0) if option.name.startswith("log") or option.name == "quiet"),
        ),
        "Device": DEVICES,
    },
    operands="OPERATOR",
    examples=(
        ("mgraph gradcheck", "every operator"),
        ("mgraph gradcheck layer_norm softmax", "these two"),
        ("mgraph gradcheck --module user_ops.py", "your own"),
        ("mgraph gradcheck -m model.npz -v vocab.spm vocab.spm -t text.en text.de", "a whole model"),
    ),
)

DIFF = Command(
    "diff",
    "compare two dumps or two models node by node; the exit code is 1 if they differ",
    {
        "Tolerance": (
            Option("rtol", float, 1e-5, "relative tolerance: |a - b| may be atol + rtol |b|", least=0),
            Option("atol", float, 1e-6, "absolute tolerance", least=0),
        ),
    },
    operands="FILE",
    examples=(
        ("mgraph diff before.npz after.npz", "two dumps of graph.dump(path)"),
        ("mgraph diff model.npz model.bin", "two models"),
    ),
)

OPERATORS = Command(
    "operators",
    "print the page that compares Marian's operators with mgraph's, as Markdown",
    {"Output": (JSON,)},
)
