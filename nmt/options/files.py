"""The models and the vocabularies that a command cannot do without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt.options.option import OptionError


def require_files(values: Mapping[str, Any]) -> None:
    """Raise OptionError unless a model and vocabularies are named; how many the model itself says."""
    option = "models" if "models" in values else "model"
    if not any([values[option]] if option == "model" else values[option]):
        raise OptionError(f"--{option}: at least one model is needed, got 0")
    if not values["vocabs"]:
        raise OptionError("--vocabs: the vocabularies of the sources and the target are needed, got none")
