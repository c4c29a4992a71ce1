"""Marian's translation models: load, translate, score, train; and the command ``mgraph``.

Public names are loaded when they are first used, so ``import nmt`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.models import load_model as load_model
    from nmt.options import OptionError as OptionError
    from nmt.scorer import Score as Score
    from nmt.scorer import Scorer as Scorer
    from nmt.search.hypothesis import Hypothesis as Hypothesis
    from nmt.trainer import Trainer as Trainer
    from nmt.translation import Translation as Translation
    from nmt.translator import Translator as Translator
    from nmt.vocab import load_vocab as load_vocab

HOMES = {
    "Hypothesis": "nmt.search.hypothesis",
    "OptionError": "nmt.options",
    "Score": "nmt.scorer",
    "Scorer": "nmt.scorer",
    "Trainer": "nmt.trainer",
    "Translation": "nmt.translation",
    "Translator": "nmt.translator",
    "load_model": "nmt.models",
    "load_vocab": "nmt.vocab",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'nmt' has no attribute '{name}'")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
