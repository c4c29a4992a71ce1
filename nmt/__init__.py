"""Marian's translation models: load, translate, score, train; and the command ``mgraph``.

Public names are loaded when they are first used, so ``import nmt`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.files import load_model as load_model
    from nmt.search.results import Hypothesis as Hypothesis
    from nmt.search.results import Translation as Translation
    from nmt.search.scorer import Score as Score
    from nmt.search.scorer import Scorer as Scorer
    from nmt.search.translator import Translator as Translator
    from nmt.settings import OptionError as OptionError
    from nmt.text.vocabs.loading import load_vocab as load_vocab
    from nmt.training.gradients import check_model_gradients as check_model_gradients
    from nmt.training.trainer import Trainer as Trainer

HOMES = {
    "Hypothesis": "nmt.search.results",
    "OptionError": "nmt.settings",
    "Score": "nmt.search.scorer",
    "Scorer": "nmt.search.scorer",
    "Trainer": "nmt.training.trainer",
    "Translation": "nmt.search.results",
    "Translator": "nmt.search.translator",
    "check_model_gradients": "nmt.training.gradients",
    "load_model": "nmt.files",
    "load_vocab": "nmt.text.vocabs.loading",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'nmt' has no attribute '{name}'")
    return getattr(importlib.import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
