"""Output of options: help, ``--authors`` and the like, and Marian's configurations.

Configurations are those of ``--dump-config`` and the files next to a model in training.
"""

from __future__ import annotations

import os
import platform
import textwrap
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from mgraph import __version__
from nmt.settings.aliases import Given, expanded
from nmt.settings.config import Command, read_command_line, with_paths
from nmt.settings.option import Option, Support
from nmt.settings.train import TRAIN
from nmt.settings.training import TrainOptions
from nmt.settings.yaml_text import entry

WIDTH, COLUMN = 100, 36  # of a line, and of the descriptions

_SAVED = (
    "The model options of mgraph train, such as --type and --dim-emb, describe a model file without a "
    "configuration, or any with --ignore-model-config"
)


def help_text(command: Command[Any]) -> str:
    """The text of ``--help``: options by section, and those that are refused."""
    operands = f" [{command.operands} ...]" if command.operands else ""
    parts = [f"usage: mgraph {command.name}{operands} [options]\n\n{command.summary}"]
    listed = {
        title: [option for option in section if _is_listed(command, option.name)]
        for title, section in command.sections.items()
    }
    for title, options in listed.items():
        if options:
            parts.append("\n".join([f"{title}:", *map(_help_entry, options)]))
    absent = [f"--{o.name}" for o in command.options.values() if o.support is Support.REFUSED]
    saved = [option for option in command.options.values() if option.support is Support.SAVED]
    if saved:
        own = [_help_entry(option) for option in saved if not _is_listed(TRAIN, option.name)]
        note = f"{_SAVED}; so do these:" if own else f"{_SAVED}."
        parts.append("\n".join([textwrap.fill(note, WIDTH, break_on_hyphens=False), *own]))
    if absent:
        text = f"Marian's, refused (mgraph options --refused says why): {' '.join(absent)}"
        parts.append(textwrap.fill(text, WIDTH, break_on_hyphens=False))
    if command.examples:
        lines = [f"  {line}\n      {what}" for line, what in command.examples]
        parts.append("\n".join(["Examples:", *lines]))
    return "\n\n".join(parts)


def _is_listed(command: Command[Any], name: str) -> bool:
    return name in command.options and command.options[name].support is Support.YES


def _help_entry(option: Option) -> str:
    names = f"-{option.short}, --{option.name}" if option.short else f"--{option.name}"
    kind = "" if option.kind is bool else f" {option.kind.__name__.upper()}"
    default = " ".join(map(str, option.default)) if option.many else option.default
    shown = f"={default}" if option.kind is not bool and default != "" else "=true" if default is True else ""
    left = f"  {names}{kind}{shown}{' ...' if option.many else ''}"
    gap = "\n" + " " * COLUMN if len(left) > COLUMN - 2 else " " * (COLUMN - len(left))
    values = ", ".join(filter(None, option.choices or option.letters))
    text = f"{option.help}: {values}" if values else option.help
    lines = textwrap.wrap(text, WIDTH - COLUMN, break_on_hyphens=False)
    return f"{left}{gap}" + ("\n" + " " * COLUMN).join(lines)


AUTHORS = """\
mgraph was written by its own authors; see the file LICENSE.
Its models, file formats and options are those of Marian, which was written by Marcin Junczys-Dowmunt,
Roman Grundkiewicz and many others: marian --authors names them."""

CITATION = """\
mgraph repeats what Marian computes. Please cite Marian's paper:

@inproceedings{junczys-dowmunt-etal-2018-marian,
  title = {{M}arian: Fast Neural Machine Translation in {C}++},
  author = {Junczys-Dowmunt, Marcin and Grundkiewicz, Roman and Dwojak, Tomasz and Hoang, Hieu and
    Heafield, Kenneth and Neckermann, Tom and Seide, Frank and Germann, Ulrich and Fikri Aji, Alham and
    Bogoychev, Nikolay and Martins, Andr{\\'e} F. T. and Birch, Alexandra},
  booktitle = {Proceedings of {ACL} 2018, System Demonstrations},
  year = {2018},
  pages = {116--121},
  url = {https://aclanthology.org/P18-4020},
}"""

MADE_OF = ("jax", "jaxlib", "numpy")
ALL_MADE_OF = (*MADE_OF, "optax", "PyYAML", "sentencepiece", "sacrebleu", "onnx", "onnxruntime", "matplotlib")


def about(command: Command[Any], argv: Sequence[str]) -> str:
    """The text to print instead of running the command, such as ``--authors``; empty to run it."""
    words, _ = read_command_line(command, argv)
    if words.get("authors"):
        return AUTHORS
    if words.get("cite"):
        return CITATION
    if words.get("build-info", "false") not in ("", "false"):
        return _build_info(words["build-info"] == "all")
    return ""


def dumped(command: Command[Any], given: Mapping[str, Given]) -> str:
    """What ``--dump-config`` prints instead of running the command; empty to run it."""
    mode = given["dump-config"].value if "dump-config" in given else ""
    return dump(command, given, mode) if mode not in ("", "false") else ""


def _build_info(everything: bool) -> str:
    lines = [
        f"mgraph={__version__}",
        f"python={platform.python_version()}",
        f"platform={platform.platform()}",
    ]
    for name in ALL_MADE_OF if everything else MADE_OF:
        try:
            lines.append(f"{name.lower()}={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name.lower()}=")
    return "\n".join(lines)


MAXI_BATCH = 100  # batches that a decoder reads ahead if a batch has several sentences


def dump(command: Command[Any], given: Mapping[str, Given], mode: str) -> str:
    """The text of ``--dump-config``: options by section.

    mode: ``full`` for all, ``minimal`` for those that were given, ``expand`` for these with aliases expanded.
    Marian's text differs in the version in the first line and in numbers: it copies numbers from
    configuration files, and writes others with seven digits.
    """
    chosen = expanded(command.aliases, given) if mode == "expand" else given
    now = time.strftime("%Y-%m-%d %H:%M:%S %z")
    parts = []
    for title, options in command.sections.items():
        values = {o.name: chosen[o.name].value if o.name in chosen else o.default for o in options}
        entries = [
            _entry(option, values[option.name])
            for option in options
            if option.is_written(values[option.name])
            and option.name not in ("config", "dump-config")
            and (mode == "full" or option.name in chosen)
        ]
        if entries:
            parts.append("\n".join([f"# {title}", *entries]))
    text = "\n".join(parts) or "{}"
    return f"# Marian configuration file generated at {now} with version mgraph {__version__}\n{text}"


def training_config(options: TrainOptions) -> str:
    """The text of ``MODEL.yml``, from which training resumes: all of Marian's options, and those of mgraph's
    own without which it cannot be resumed.

    options: with the paths and sizes of the vocabularies. With ``relative_paths`` paths are written relative
        to the model's directory; Marian leaves them unchanged, so that they fail from other directories.
    """
    # Marian includes --dump-config and leaves out aliases.
    left_out = {"config", *(alias.option for alias in TRAIN.aliases)}
    named = {
        option.name: getattr(options, option.attribute)
        for option in TRAIN.options.values()
        if option.is_written(getattr(options, option.attribute)) and option.name not in left_out
    }
    if named["relative-paths"]:
        folder = os.path.dirname(named["model"])
        named = with_paths(named, lambda path: os.path.relpath(path, folder))
    return "\n".join(_entry(TRAIN.options[name], value) for name, value in named.items())


def decoder_config(options: TrainOptions, model: str = "") -> str:
    """The text of ``MODEL.decoder.yml``, with which a decoder translates as validation did.

    options: with the paths of the vocabularies. model: the path of a copy; by default the trained model.
    """
    model, vocabs = model or options.model, tuple(options.vocabs)
    if options.relative_paths:
        folder = os.path.dirname(model)
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


def _entry(option: Option, value: Any) -> str:
    if option.kind is dict:
        value = tuple({name.replace("_", "-"): element[name] for name in element} for element in value)
    return entry(option.name, value)
