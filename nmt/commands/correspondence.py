"""Marian's commands and Python classes next to mgraph's: a part of the page "Marian to mgraph"."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from nmt.commands import NAMES
from nmt.settings import Support

MARIAN: Mapping[str, str] = {
    "train": "`marian`, `marian train`",
    "decode": "`marian-decoder`, `marian decode`",
    "score": "`marian-scorer`, `marian score`",
    "evaluate": "`marian evaluate`, `pymarian-eval`",
    "embed": "`marian embed`",
    "vocab": "`marian-vocab`, `marian vocab`",
    "convert": "`marian-conv`, `marian convert`",
}
"""Marian's commands, by the name of the mgraph command."""
PYTHON: Mapping[str, tuple[str, str]] = {
    "train": ("Trainer", "Trainer"),
    "decode": ("Translator", "Translator"),
    "score": ("Scorer", ""),
    "evaluate": ("Evaluator", "Evaluator"),
    "embed": ("Embedder", "Embedder"),
}
"""The classes of ``nmt`` and of ``nmt.pymarian``, by command."""


def markdown() -> str:
    """The section as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield ""
    yield "## Commands"
    yield ""
    yield (
        "Scripts for pymarian run if they import `nmt.pymarian` instead. Refused options are Marian's, with "
        "values other than Marian's defaults."
    )
    yield ""
    yield "| Marian | mgraph | Python | as in pymarian | what it does | refused |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in NAMES:
        module = importlib.import_module(f"nmt.commands.{name}")
        own, pymarians = PYTHON.get(name, ("", ""))
        refused = [o.name for o in module.COMMAND.options.values() if o.support is Support.REFUSED]
        cells = [
            MARIAN.get(name, "none"),
            f"`mgraph {name}`",
            f"`nmt.{own}`" if own else "",
            f"`nmt.pymarian.{pymarians}`" if pymarians else "",
            (module.__doc__ or "").partition(": ")[2].splitlines()[0].removesuffix("."),
            ", ".join(f"`--{option}`" for option in refused),
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
