"""The folder of a published model as the value of ``--models`` or ``--model``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.settings import OptionError
from nmt.settings.aliases import Given, Origin

_FILES = ("vocabs", "pieces", "shortlist")


def with_folder(given: Mapping[str, Given]) -> dict[str, Given]:
    """The given options of ``decode``, completed by those of the folder that ``--models`` names, if it does.

    They count as those of a configuration file, and have precedence over one inside the folder, whose paths
    they resolve. Raises the errors of ``read_directory``.
    """
    found = _found("models", given)
    if found is None:
        return dict(given)
    options, own = found
    return {**given, **options, **own}


def with_scored_folder(given: Mapping[str, Given]) -> dict[str, Given]:
    """The same for ``--model`` of ``score``: only the model and the vocabularies of the folder count.

    Raises OptionError if its configuration names several models, and the errors of ``read_directory``.
    """
    found = _found("model", given)
    if found is None:
        return dict(given)
    options, own = found
    models = options.pop("models").value
    if len(models) > 1:
        raise OptionError(f"--model: one model scores; choose it among {', '.join(map(str, models))}")
    files = {name: value for name, value in options.items() if name in ("vocabs", "pieces")}
    return {**given, **files, **own, "model": Given(models[0], Origin.FILE)}


def _found(name: str, given: Mapping[str, Given]) -> tuple[dict[str, Given], dict[str, Given]] | None:
    """The options of a folder by name, and the given ones that override them; None unless the option ``name``
    is one folder."""
    paths = _listed(given[name].value) if name in given else ()
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        return None
    from nmt.files.directories import read_directory  # takes time that most commands can save

    folder = paths[0]
    config = _configuration(folder, given)
    own = {
        option: value
        for option, value in given.items()
        if option != name and not (config and value.origin is Origin.FILE)
    }
    files = {option: own[option].value for option in _FILES if option in own}
    found: dict[str, Any] = read_directory(folder, config, **files)
    options = {option.replace("_", "-"): Given(value, Origin.FILE) for option, value in found.items()}
    return options, own


def _configuration(folder: str, given: Mapping[str, Given]) -> str:
    """The name of the last given configuration file that is in the folder; empty if none is."""
    paths = given["config"].value if "config" in given else ()
    inside = [path for path in paths if os.path.samefile(os.path.dirname(path) or ".", folder)]
    return os.path.basename(inside[-1]) if inside else ""


def _listed(paths: str | Sequence[str]) -> Sequence[str]:
    return (paths,) if isinstance(paths, str) else paths
