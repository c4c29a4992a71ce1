"""The command ``train``: validation of its options, as in Marian."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nmt.settings.aliases import OF_TRAINING
from nmt.settings.config import Command, with_standard_input
from nmt.settings.model_options import MODEL_TYPES, ModelDescription, ModelOptions, Universal
from nmt.settings.option import OptionError, options_of
from nmt.settings.training import DECAY_STRATEGIES, TrainingDevices, TrainOptions
from nmt.text.lines import STANDARD_INPUT

MODEL_FILES = (".npz", ".bin")
KEPT = {
    *options_of(TrainingDevices),
    *("model", "vocabs", "custom-fallbacks", "compilation-cache", "cpu-devices", "shard-state"),
    *("tensor-parallel", "coordinator", "num-processes", "process-id"),
}
"""Options that a training keeps after a divergence: files and devices."""
BITS = range(2, 25)  # bits of a parameter: with 1 all would be 0, and float32 has 24


def new_model_options(options: TrainOptions, dim_vocabs: tuple[int, ...]) -> ModelOptions:
    """The model options in the training options; ``dim_vocabs`` are the sizes of the vocabularies.

    As in Marian, ``--transformer-depth-scaling`` is not one of them: it affects only the initialization.
    """
    described = [*options_of(ModelDescription).values(), *options_of(Universal).values()]
    own = {option.attribute: getattr(options, option.attribute) for option in described}
    return ModelOptions(**{**own, "dim_vocabs": tuple(dim_vocabs)})


def checked_training(options: TrainOptions) -> TrainOptions:
    """Validate and complete the options of ``train``; OptionError if they conflict."""
    options = _with_fields(options)
    options = replace(options, devices=tuple(part for word in options.devices for part in word.split()))
    _check_files(options)
    _check_model(options.model)
    _check_schedule(options)
    check_bits(options.quantize_bits)
    _check_devices(options)
    return options


def after_divergence(options: TrainOptions, fallback: Mapping[str, Any]) -> TrainOptions:
    """The options to resume with according to one of ``--custom-fallbacks``, whose aliases are expanded.

    OptionError for an option that a training keeps, and if the new options conflict.
    """
    for name in (attribute.replace("_", "-") for attribute in fallback):
        if name in KEPT or TRAIN.options[name].command:
            raise OptionError(f"--custom-fallbacks: --{name} cannot change while a model is trained")
    return TRAIN.changed(options, fallback)


def _check_files(options: TrainOptions) -> None:
    files, vocabs = options.train_sets, options.vocabs
    if not files:
        raise OptionError("--train-sets: the files of each source and of the target are needed, got none")
    if options.tsv and len(files) != 1:
        raise OptionError(f"--tsv takes one file or standard input as --train-sets, got {len(files)}")
    if len(files) > 1 and any(path in STANDARD_INPUT for path in files):
        raise OptionError("--train-sets: standard input cannot go with files")
    streams = options.text_streams
    kind = "fields of text" if options.tsv else "training files"
    for name, given in (("vocabs", vocabs), ("embedding-vectors", options.embedding_vectors)):
        if given and len(given) != streams:
            raise OptionError(f"--{name}: {streams} {kind} need as many, got {len(given)}")
    sets = options.valid_sets
    if sets and len(sets) != len(files):
        more = "; with --tsv they are one file, too" if options.tsv else ""
        raise OptionError(f"--valid-sets: {len(files)} training files need as many, got {len(sets)}{more}")


def _check_model(path: str) -> None:
    if not path.endswith(MODEL_FILES):
        raise OptionError(f"--model: expected a name that ends in {' or '.join(MODEL_FILES)}, got '{path}'")
    if os.path.isdir(path):
        raise OptionError(f"--model {path}: expected the name of a file, this is a directory")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OptionError(f"--model {path}: there is no directory {folder}")


def _check_schedule(options: TrainOptions) -> None:
    epsilons, metrics = options.early_stopping_epsilon, options.valid_metrics
    if len(epsilons) > 1 and len(epsilons) != len(metrics):
        raise OptionError(
            f"--early-stopping-epsilon: expected one number, or one for each of the {len(metrics)} "
            f"--valid-metrics, got {len(epsilons)}"
        )
    if options.lr_decay > 1:
        raise OptionError(f"--lr-decay must be a factor of at most 1, got {options.lr_decay:g}")
    check_decay(options.lr_decay_strategy, options.lr_decay_start)


def check_decay(strategy: str, start: Sequence[int]) -> None:
    """OptionError for an unknown ``--lr-decay-strategy``, or the wrong number of ``--lr-decay-start``."""
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
    """OptionError for an unsupported ``--quantize-bits``."""
    if bits and bits not in BITS:
        raise OptionError(f"--quantize-bits: expected 0 or a number from {BITS[0]} to {BITS[-1]}, got {bits}")


def _check_devices(options: TrainOptions) -> None:
    for word in options.devices or ("",):
        if word != "all" and not word.isdecimal():
            raise OptionError(f"--devices takes numbers of GPUs as in '0 1 2 3', or all; got '{word}'")
    if 0 < options.num_processes <= options.process_id:
        raise OptionError(
            f"--process-id: --num-processes {options.num_processes} has the numbers from 0 to "
            f"{options.num_processes - 1}, got {options.process_id}"
        )


def _with_fields(options: TrainOptions) -> TrainOptions:
    """Complete the options by the alignments and weights in ``--input-types``, and the number of fields."""
    types = options.input_types
    places: dict[str, Any] = {}
    for kind, name in (("alignment", "guided-alignment"), ("weight", "data-weighting")):
        if types.count(kind) > 1:
            raise OptionError(f"--input-types: '{kind}' may appear only once, got {types.count(kind)}")
        if kind in types:
            place = str(types.index(kind))
            if options.extra_fields.get(name, place) != place:
                raise OptionError(f"--input-types: '{kind}' cannot go with --{name}")
            places[name.replace("-", "_")] = place
    options = replace(options, **places)
    if options.tsv and not options.tsv_fields:
        needed = MODEL_TYPES.get(options.type, 1) + 1 + len(options.extra_fields)
        options = replace(options, tsv_fields=len(types) or needed)
    return options


TRAIN = Command(
    "train",
    "train a model on sentences and their translations",
    TrainOptions,
    aliases=OF_TRAINING,
    complete=with_standard_input,
    check=checked_training,
    goes_on=True,
)
