"""The folder of a published model as the value of ``--models`` or ``--model``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.settings import DECODE, Command, OptionError
from nmt.settings.aliases import Given, Origin
from nmt.settings.config import read_config

_FILES = ("vocabs", "pieces", "shortlist")


def with_folder(given: Mapping[str, Given], command: Command[Any] = DECODE) -> dict[str, Given]:
    """The given options of a command, completed by those of the folder that ``--models`` names, if it does.

    They count as those of a configuration file, and have precedence over one inside the folder, whose paths
    they resolve. Raises the errors of ``read_directory``.
    """
    found = _found("models", given, command)
    if found is None:
        return dict(given)
    options, own = found
    return {**given, **options, **own}


def with_scored_folder(given: Mapping[str, Given]) -> dict[str, Given]:
    """The same for ``--model`` of ``score``: only the model and the vocabularies of the folder count, also of
    a configuration that ``chooses_scored`` has set aside.

    Raises OptionError if its configuration names several models, and the errors of ``read_directory``.
    """
    found = _found("model", given, DECODE)
    if found is None:
        return dict(given)
    options, own = found
    models = options.pop("models").value
    if len(models) > 1:
        raise OptionError(f"--model: one model scores; choose it among {', '.join(map(str, models))}")
    files = {name: value for name, value in options.items() if name in ("vocabs", "pieces")}
    return {**given, **files, **own, "model": Given(models[0], Origin.FILE)}


def chooses_scored(words: Mapping[str, Any], path: str) -> bool:
    """Whether a configuration of ``score`` is one for decoding, inside the folder that ``--model`` names
    among ``words``: it chooses a model and its vocabularies; its other options are not those of ``score``."""
    return _is_inside(path, words.get("model", "")) and _is_for_decoding(path)


def _found(
    name: str, given: Mapping[str, Given], command: Command[Any]
) -> tuple[dict[str, Given], dict[str, Given]] | None:
    """The options of a folder by name, and the given ones that override them; None unless the option ``name``
    is one folder. command: whose options a configuration in the folder has."""
    paths = _listed(given[name].value) if name in given else ()
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        return None
    from nmt.files.directories import read_directory  # takes time that most commands can save

    folder = paths[0]
    config = _configuration(name, folder, given)
    unresolved = read_config(command, config) if config else {}
    own = {
        option: value
        for option, value in given.items()
        if option != name
        and not (option in _FILES and value.origin is Origin.FILE and value.value == unresolved.get(option))
    }
    files = {option: own[option].value for option in _FILES if option in own}
    found: dict[str, Any] = read_directory(folder, os.path.basename(config), command=command, **files)
    options = {option.replace("_", "-"): Given(value, Origin.FILE) for option, value in found.items()}
    return options, own


def _configuration(name: str, folder: str, given: Mapping[str, Given]) -> str:
    """The path of the last given configuration file for decoding that is in the folder; empty if none is."""
    paths = given["config"].value if "config" in given else ()
    inside = [path for path in paths if _is_inside(path, folder)]
    chosen = [path for path in inside if name == "models" or _is_for_decoding(path)]
    return chosen[-1] if chosen else ""


def _is_inside(path: str, folder: str) -> bool:
    """Whether the file exists in the folder; False if one of them does not exist."""
    return (
        os.path.isfile(path)
        and os.path.isdir(folder)
        and os.path.samefile(os.path.dirname(path) or ".", folder)
    )


def _is_for_decoding(path: str) -> bool:
    from nmt.files.directories import names_models  # as above

    return names_models(path)


def _listed(paths: str | Sequence[str]) -> Sequence[str]:
    return (paths,) if isinstance(paths, str) else paths
