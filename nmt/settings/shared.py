"""Options that several commands have."""

from __future__ import annotations

from nmt.runtime.log import LEVELS
from nmt.settings.option import Option, ignored, later

DUMPS = ("full", "minimal", "expand", "false")


def general(*own: Option) -> tuple[Option, ...]:
    """The general options, in Marian's order; those of the command's ``own`` in place of the common ones."""
    common = (
        Option("authors", help="print who wrote this", command=True),
        Option("cite", help="print what to cite", command=True),
        Option(
            "build-info",
            str,
            "",
            "print the versions of what this is made of; all: of everything",
            implicit="basic",
            command=True,
        ),
        Option(
            "config", str, (), "files of options; later ones override", short="c", many=True, command=True
        ),
        ignored("workspace", int, 2048, short="w", command=True, help="JAX manages the memory"),
        Option("log", str, "", "write the log to this file, too", command=True),
        Option("log-level", str, "info", "least severity to log", choices=tuple(LEVELS), command=True),
        Option("log-time-zone", str, "", "time zone of the log's dates", command=True),
        Option("quiet", help="log nothing to stderr; errors and the log file stay", command=True),
        Option("quiet-translation", help="do not log each translation", command=True),
        ignored("seed", int, 0, command=True, help="nothing is random without sampling"),
        later("check-nan", command=True),
        Option("interpolate-env-vars", help="replace ${NAME} in paths by the environment", command=True),
        Option("relative-paths", help="in a configuration file: paths relative to it", command=True),
        Option(
            "dump-config",
            str,
            "",
            "print the options (full), those that were given (minimal), or what these stand for (expand)",
            implicit="full",
            command=True,
            choices=DUMPS,
        ),
    )
    replaced = {option.name: option for option in own}
    return tuple(replaced.pop(option.name, option) for option in common) + tuple(replaced.values())


LOGGING = tuple(option for option in general() if option.name.startswith("log") or option.name == "quiet")
"""For commands that only log."""

IGNORE_MODEL_CONFIG = later("ignore-model-config", command=True)
WORD_SCORES = Option("word-scores", help="print the log-probability of each word")

RANKING = (
    Option("beam-size", int, 12, "hypotheses kept per sentence", short="b", least=1),
    Option("normalize", float, 0.0, "divide a score by (words) ** X; 1 if bare", short="n", implicit="1"),
    Option("max-length-factor", float, 3.0, "at most X words per source word", least=0),
    Option("word-penalty", float, 0.0, "subtract X * (number of words) from a score"),
    Option("allow-unk", help="let unknown words appear in translations"),
)
"""How translations are searched for, and which is the best."""

INPUT_LENGTH = (
    Option("max-length", int, 1000, "most words of a line, </s> counted; longer ones are left out", least=1),
    Option("max-length-crop", help="cut longer lines to --max-length instead"),
)

TSV = (
    Option("tsv", help="the input is one file of fields separated by tabs"),
    Option("tsv-fields", int, 0, "number of fields; 0: as many as the models need", least=0),
)

COMPILATION_CACHE = Option(
    "compilation-cache",
    str,
    "",
    "folder to keep compiled programs in, or none; by default ~/.cache/mgraph/programs",
    dumped=False,
)

DEVICES = (
    Option("devices", str, ("0",), "number of the GPU to use", short="d", many=True),
    Option("cpu-threads", int, 0, "use the CPU, N threads; 0: a GPU if any", implicit="1", least=0),
    COMPILATION_CACHE,
)

SIXTEEN_BITS = (
    later("fp16"),
    later("precision", str, ("float32",), many=True),
)
QUANTIZATION = (
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
