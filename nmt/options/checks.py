"""Which options go together, as Marian wants them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nmt.data.lines import STANDARD_INPUT
from nmt.options.option import OptionError

MODEL_FILES = (".npz", ".bin")
MOST_BITS = 32  # of a parameter
SINGLE_DECAYS = ("epoch", "batches", "stalled")


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


def _check_files(values: Mapping[str, Any]) -> None:
    files, vocabs = values["train_sets"], values["vocabs"]
    if not files:
        raise OptionError("--train-sets: the files of each source and of the target are needed, got none")
    if values["tsv"] and len(files) != 1:
        raise OptionError(f"--tsv takes one file or standard input as --train-sets, got {len(files)}")
    if len(files) > 1 and any(path in STANDARD_INPUT for path in files):
        raise OptionError("--train-sets: standard input cannot go with files")
    if not values["tsv"] and vocabs and len(vocabs) != len(files):
        raise OptionError(f"--vocabs: {len(files)} training files need as many, got {len(vocabs)}")
    for name in ("valid-sets", "embedding-vectors"):
        given = values[name.replace("-", "_")]
        if given and len(given) != len(files):
            more = "; with --tsv they are one file, too" if values["tsv"] and name == "valid-sets" else ""
            raise OptionError(f"--{name}: {len(files)} training files need as many, got {len(given)}{more}")


def _check_model(values: Mapping[str, Any]) -> None:
    path = values["model"]
    if not path.endswith(MODEL_FILES):
        raise OptionError(f"--model: expected a name that ends in {' or '.join(MODEL_FILES)}, got '{path}'")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OptionError(f"--model {path}: there is no directory {folder}")


def _check_schedule(values: Mapping[str, Any]) -> None:
    epsilons, metrics = values["early_stopping_epsilon"], values["valid_metrics"]
    if len(epsilons) > 1 and len(epsilons) != len(metrics):
        raise OptionError(
            f"--early-stopping-epsilon: expected one number, or one for each of the {len(metrics)} "
            f"--valid-metrics, got {len(epsilons)}"
        )
    if values["lr_decay"] > 1:
        raise OptionError(f"--lr-decay is a factor of at most 1, got {values['lr_decay']:g}")
    strategy, start = values["lr_decay_strategy"], values["lr_decay_start"]
    wanted = 1 if strategy in SINGLE_DECAYS else 2
    if len(start) != wanted:
        numbers = "one number" if wanted == 1 else "two numbers"
        raise OptionError(
            f"--lr-decay-start: --lr-decay-strategy {strategy} takes {numbers}, got {len(start)}"
        )


def _check_numbers(values: Mapping[str, Any]) -> None:
    if values["quantize_bits"] > MOST_BITS:
        raise OptionError(f"--quantize-bits: expected at most {MOST_BITS}, got {values['quantize_bits']}")


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
    extra = (values["guided_alignment"] != "none") + (values["data_weighting"] != "")
    return sources + 1 + extra
