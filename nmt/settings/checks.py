"""Which options go together, as Marian wants them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.settings.aliases import Given, Source
from nmt.settings.option import OptionError
from nmt.text.lines import STANDARD_INPUT

NOTHING = ("", "none")  # values of options that name a file, or a field
MODEL_FILES = (".npz", ".bin")
BITS = range(2, 25)  # of a parameter: 1 would leave nothing but 0, and float32 has no more than 24
DECAY_STRATEGIES = {"epoch": 1, "batches": 1, "stalled": 1, "epoch+batches": 2, "epoch+stalled": 2}
"""Values of ``--lr-decay-strategy``, and how many of ``--lr-decay-start`` each takes."""
SHARES = ("label-smoothing", "exponential-smoothing")
"""Options that are a part of a whole."""
PROBABILITIES = (
    *("dropout-rnn", "dropout-src", "dropout-trg"),
    *("transformer-dropout", "transformer-dropout-attention", "transformer-dropout-ffn"),
)
"""Options that say what to drop: all is too much."""


def with_standard_input(given: Mapping[str, Given]) -> dict[str, Given]:
    """What is given, by name; ``--tsv`` without ``--train-sets`` reads standard input, and standard input
    alone is ``--tsv``, as in Marian."""
    files: Sequence[str] = given["train-sets"].value if "train-sets" in given else ()
    if not files and "tsv" in given and given["tsv"].value:
        return {**given, "train-sets": Given(STANDARD_INPUT[:1], Source.COMMAND_LINE)}
    said = "tsv" in given and given["tsv"].source is Source.COMMAND_LINE
    if len(files) == 1 and files[0] in STANDARD_INPUT and not said:
        return {**given, "tsv": Given(True, Source.COMMAND_LINE)}
    return dict(given)


def checked_training(values: dict[str, Any]) -> dict[str, Any]:
    """The values of ``train``, completed by what follows from them; OptionError if they cannot be meant."""
    values = _with_fields(values)
    values["devices"] = tuple(part for word in values["devices"] for part in word.split())
    _check_files(values)
    _check_model(values)
    _check_schedule(values)
    _check_numbers(values)
    _check_devices(values)
    return values


def text_streams(values: Mapping[str, Any]) -> int:
    """How many streams of sentences the training text has: its files, or fields of ``--tsv``."""
    if not values["tsv"]:
        return len(values["train_sets"])
    return int(values["tsv_fields"]) - len(extra_fields(values))


def extra_fields(values: Mapping[str, Any]) -> list[str]:
    """The options that name alignments or weights: files, or with ``--tsv`` fields."""
    named = {name: values[name.replace("-", "_")] for name in ("guided-alignment", "data-weighting")}
    return [name for name, value in named.items() if value not in NOTHING]


def _check_files(values: Mapping[str, Any]) -> None:
    files, vocabs = values["train_sets"], values["vocabs"]
    if not files:
        raise OptionError("--train-sets: the files of each source and of the target are needed, got none")
    if values["tsv"] and len(files) != 1:
        raise OptionError(f"--tsv takes one file or standard input as --train-sets, got {len(files)}")
    if len(files) > 1 and any(path in STANDARD_INPUT for path in files):
        raise OptionError("--train-sets: standard input cannot go with files")
    streams = text_streams(values)
    kind = "fields of text" if values["tsv"] else "training files"
    for name, given in (("vocabs", vocabs), ("embedding-vectors", values["embedding_vectors"])):
        if given and len(given) != streams:
            raise OptionError(f"--{name}: {streams} {kind} need as many, got {len(given)}")
    sets = values["valid_sets"]
    if sets and len(sets) != len(files):
        more = "; with --tsv they are one file, too" if values["tsv"] else ""
        raise OptionError(f"--valid-sets: {len(files)} training files need as many, got {len(sets)}{more}")


def _check_model(values: Mapping[str, Any]) -> None:
    path = values["model"]
    if not path.endswith(MODEL_FILES):
        raise OptionError(f"--model: expected a name that ends in {' or '.join(MODEL_FILES)}, got '{path}'")
    if os.path.isdir(path):
        raise OptionError(f"--model {path}: expected the name of a file, this is a directory")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OptionError(f"--model {path}: there is no directory {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):  # said now, and not after hours, when it is to be saved
        raise OptionError(f"--model {path}: the directory {folder} cannot be written to")


def _check_schedule(values: Mapping[str, Any]) -> None:
    epsilons, metrics = values["early_stopping_epsilon"], values["valid_metrics"]
    if len(epsilons) > 1 and len(epsilons) != len(metrics):
        raise OptionError(
            f"--early-stopping-epsilon: expected one number, or one for each of the {len(metrics)} "
            f"--valid-metrics, got {len(epsilons)}"
        )
    if values["lr_decay"] > 1:
        raise OptionError(f"--lr-decay is a factor of at most 1, got {values['lr_decay']:g}")
    check_decay(values["lr_decay_strategy"], values["lr_decay_start"])


def check_decay(strategy: str, start: Sequence[int]) -> None:
    """OptionError if there is no such ``--lr-decay-strategy``, or if it takes more or fewer numbers than
    ``--lr-decay-start`` has."""
    if strategy not in DECAY_STRATEGIES:
        known = ", ".join(DECAY_STRATEGIES)
        raise OptionError(f"--lr-decay-strategy must be one of {known}; got '{strategy}'")
    wanted = DECAY_STRATEGIES[strategy]
    if len(start) != wanted:
        numbers = "one number" if wanted == 1 else "two numbers"
        raise OptionError(
            f"--lr-decay-start: --lr-decay-strategy {strategy} takes {numbers}, got {len(start)}"
        )


def check_bits(bits: int) -> None:
    """OptionError for a value of ``--quantize-bits`` that no parameter can have."""
    if bits and bits not in BITS:
        raise OptionError(f"--quantize-bits: expected 0 or a number from {BITS[0]} to {BITS[-1]}, got {bits}")


def _check_numbers(values: Mapping[str, Any]) -> None:
    check_bits(values["quantize_bits"])
    for name in (*SHARES, *PROBABILITIES):
        value, below = values[name.replace("-", "_")], name in PROBABILITIES
        if value > 1 or (value == 1 and below):
            raise OptionError(f"--{name}: expected {'less than' if below else 'at most'} 1, got {value:g}")


def _check_devices(values: Mapping[str, Any]) -> None:
    for word in values["devices"] or ("",):
        if word != "all" and not word.isdecimal():
            raise OptionError(f"--devices takes numbers of GPUs as in '0 1 2 3', or all; got '{word}'")
    if values["process_id"] >= values["num_processes"]:
        raise OptionError(
            f"--process-id: --num-processes {values['num_processes']} has the numbers from 0 to "
            f"{values['num_processes'] - 1}, got {values['process_id']}"
        )
    if values["num_processes"] > 1 and not values["coordinator"]:
        raise OptionError("--num-processes: several need the --coordinator through which they meet")


def _with_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The values with what ``--input-types`` says of alignments and weights, and the number of fields."""
    values = dict(values)
    types = values["input_types"]
    for kind, option, absent in (("alignment", "guided_alignment", "none"), ("weight", "data_weighting", "")):
        name = option.replace("_", "-")
        if types.count(kind) > 1:
            raise OptionError(f"--input-types: '{kind}' can be there once, got {types.count(kind)}")
        if kind not in types:
            continue
        place = str(types.index(kind))
        if values[option] not in (absent, "", place):
            raise OptionError(f"--input-types: '{kind}' cannot go with --{name}")
        values[option] = place
    if values["tsv"] and not values["tsv_fields"]:
        values["tsv_fields"] = len(types) or _fields(values)
    return values


def _fields(values: Mapping[str, Any]) -> int:
    """How many fields a line has that holds what the model and the options of training need."""
    kind = values["type"]
    sources = 0 if kind.startswith("lm") else 2 if "multi-" in kind else 1
    return sources + 1 + len(extra_fields(values))
