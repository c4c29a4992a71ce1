"""Marian's translation models: load, translate, score, train; and the command ``mgraph``.

Public names are loaded when they are first used, so ``import nmt`` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.alignments.aligner import align as align
    from nmt.distillation.distillation import distill as distill
    from nmt.files import load_model as load_model
    from nmt.search.documents import translate_documents as translate_documents
    from nmt.search.embedder import Embedder as Embedder
    from nmt.search.evaluator import Evaluator as Evaluator
    from nmt.search.results import Hypothesis as Hypothesis
    from nmt.search.results import Translation as Translation
    from nmt.search.scorer import Score as Score
    from nmt.search.scorer import Scorer as Scorer
    from nmt.search.translation_queue import LineTimeoutError as LineTimeoutError
    from nmt.search.translation_queue import QueueClosedError as QueueClosedError
    from nmt.search.translation_queue import QueueFullError as QueueFullError
    from nmt.search.translation_queue import TranslationQueue as TranslationQueue
    from nmt.search.translator import Translator as Translator
    from nmt.settings import OptionError as OptionError
    from nmt.text.vocabs.loading import load_vocab as load_vocab
    from nmt.training.curves import Curves as Curves
    from nmt.training.gradients import check_model_gradients as check_model_gradients
    from nmt.training.trainer import Trainer as Trainer

HOMES = {
    "Curves": "nmt.training.curves",
    "Embedder": "nmt.search.embedder",
    "Evaluator": "nmt.search.evaluator",
    "Hypothesis": "nmt.search.results",
    "LineTimeoutError": "nmt.search.translation_queue",
    "OptionError": "nmt.settings",
    "QueueClosedError": "nmt.search.translation_queue",
    "QueueFullError": "nmt.search.translation_queue",
    "Score": "nmt.search.scorer",
    "Scorer": "nmt.search.scorer",
    "Trainer": "nmt.training.trainer",
    "Translation": "nmt.search.results",
    "TranslationQueue": "nmt.search.translation_queue",
    "Translator": "nmt.search.translator",
    "align": "nmt.alignments.aligner",
    "check_model_gradients": "nmt.training.gradients",
    "distill": "nmt.distillation.distillation",
    "load_model": "nmt.files",
    "load_vocab": "nmt.text.vocabs.loading",
    "translate_documents": "nmt.search.documents",
}
__all__ = sorted(HOMES)


if not TYPE_CHECKING:  # so that type checkers report misspelt names

    def __getattr__(name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(
                f"module 'nmt' has no attribute '{name}'", name=name, obj=sys.modules[__name__]
            )
        try:
            return getattr(importlib.import_module(HOMES[name]), name)
        except ImportError as error:
            from nmt.runtime.hidden_packages import note_hidden

            note_hidden(error)
            raise


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
