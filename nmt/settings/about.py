"""What ``--authors``, ``--cite``, ``--build-info`` and ``--dump-config`` print."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from mgraph import __version__
from nmt.settings.config import Command, read, read_command_line
from nmt.settings.dump import dump

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
    """The text that the command line asks for in place of running the command; empty if it asks for none."""
    words, _ = read_command_line(command, argv)
    if words.get("authors"):
        return AUTHORS
    if words.get("cite"):
        return CITATION
    if words.get("build-info", "false") not in ("", "false"):
        return _build_info(words["build-info"] == "all")
    given, _ = read(command, argv)
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
