"""Configurations as Marian writes them: ``--dump-config``, and the files beside a model in training."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from mgraph import __version__
from nmt.settings.aliases import Given, expanded
from nmt.settings.config import Command, with_paths
from nmt.settings.model_options import ModelDescription, ModelOptions, Universal
from nmt.settings.option import Option, options_of
from nmt.settings.train import TRAIN
from nmt.settings.training import TrainOptions
from nmt.settings.yaml_text import entry

MAXI_BATCH = 100  # batches that a decoder reads ahead if they have several sentences


def dump(command: Command[Any], given: Mapping[str, Given], mode: str) -> str:
    """The text of ``--dump-config``: options by section.

    mode: ``full`` for all, ``minimal`` for those that were given, ``expand`` for these with what the options
        that stand for others stand for.
    Marian's text is the same but for the version in the first line, and for numbers: it writes those of
    configuration files as they stand there, and others with seven digits.
    """
    chosen = expanded(command.aliases, given) if mode == "expand" else given
    now = time.strftime("%Y-%m-%d %H:%M:%S %z")
    parts = []
    for title, options in command.sections.items():
        entries = [
            _entry(option, chosen[option.name].value if option.name in chosen else option.default)
            for option in options
            if _is_dumped(option) and (mode == "full" or option.name in chosen)
        ]
        if entries:
            parts.append("\n".join([f"# {title}", *entries]))
    text = "\n".join(parts) or "{}"
    return f"# Marian configuration file generated at {now} with version mgraph {__version__}\n{text}"


def training_config(options: TrainOptions) -> str:
    """The text of ``MODEL.yml``, from which training goes on: all of Marian's options, none of ours.

    options: with the paths of the vocabularies and their sizes. With ``relative_paths`` the paths are written
        relative to the model's directory (Marian leaves them as they are, and cannot read them again from
        another one).
    """
    named = {
        option.name: getattr(options, option.attribute)
        for option in TRAIN.options.values()
        if _is_in_model_config(option)
    }
    if named["relative-paths"]:
        folder = os.path.dirname(named["model"])
        named = with_paths(named, lambda path: os.path.relpath(path, folder or "."))
    return "\n".join(_entry(TRAIN.options[name], value) for name, value in named.items())


def decoder_config(options: TrainOptions, model: str = "") -> str:
    """The text of ``MODEL.decoder.yml``: what a decoder needs to translate as validation did.

    options: with the paths of the vocabularies.
    model: the path of the model, if it is not the one that is trained but a copy.
    """
    model, vocabs = model or options.model, tuple(options.vocabs)
    if options.relative_paths:
        folder = os.path.dirname(model) or "."
        model, vocabs = os.path.basename(model), tuple(os.path.relpath(path, folder) for path in vocabs)
    lines = options.valid_mini_batch
    return "\n".join(
        entry(name, value)
        for name, value in {
            "relative-paths": options.relative_paths,
            "models": (model,),
            "vocabs": vocabs,
            "beam-size": options.beam_size,
            "normalize": options.normalize,
            "word-penalty": options.word_penalty,
            "mini-batch": lines,
            "maxi-batch": MAXI_BATCH if lines > 1 else 1,
            "maxi-batch-sort": "src" if lines > 1 else "none",
        }.items()
    )


def new_model_options(options: TrainOptions, dim_vocabs: tuple[int, ...]) -> ModelOptions:
    """What the options of training say of a new model; ``dim_vocabs`` are the sizes of its vocabularies.

    They are Marian's, name for name; ``--transformer-depth-scaling`` is not among them, as it changes only
    how parameters begin.
    """
    described = [*options_of(ModelDescription).values(), *options_of(Universal).values()]
    own = {option.attribute: getattr(options, option.attribute) for option in described}
    return ModelOptions(**{**own, "dim_vocabs": tuple(dim_vocabs)})


def _is_dumped(option: Option) -> bool:
    return option.dumped and option.name not in ("config", "dump-config")


def _is_in_model_config(option: Option) -> bool:
    """Marian leaves ``--dump-config`` in, and what stands for other options out."""
    stands_for_others = {alias.option for alias in TRAIN.aliases}
    return option.dumped and option.name != "config" and option.name not in stands_for_others


def _entry(option: Option, value: Any) -> str:
    if option.kind is dict:
        value = tuple({name.replace("_", "-"): element[name] for name in element} for element in value)
    return entry(option.name, value)
