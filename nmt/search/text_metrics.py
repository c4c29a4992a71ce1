"""BLEU, chrF and TER of translations, computed by sacrebleu."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from nmt.settings import OptionError
from nmt.settings.metrics import TEXT_METRICS


def sacrebleus(name: str, option: str, *, sentences: bool = False) -> Any:
    """sacrebleu's metric with its defaults; for sentences BLEU has effective order.

    name: one of ``TEXT_METRICS``. option: the one that needs it, for the OptionError if sacrebleu is missing.
    """
    try:
        metrics: Any = importlib.import_module("sacrebleu.metrics")
    except ImportError:
        raise OptionError(
            f"{option} needs the package sacrebleu: pip install 'mgraph-jax[metrics]'"
        ) from None
    effective = {"effective_order": True} if sentences and name == "bleu" else {}
    return getattr(metrics, name.upper())(**effective)


class TextMetrics:
    """Metrics of texts: each of ``names`` is ``bleu``, ``chrf`` or ``ter``, with sacrebleu's defaults.

    Sentences have sacrebleu's sentence scores, for BLEU with effective order; a corpus has its own score,
    which is not their mean. BLEU and chrF are from 0 to 100; TER may exceed 100, and lower is better.

    OptionError for an unknown name, and if sacrebleu is not installed. Source: Post 2018.
    """

    def __init__(self, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in TEXT_METRICS]
        if unknown:
            raise OptionError(f"--metrics: expected {', '.join(TEXT_METRICS)}, got '{unknown[0]}'")
        self.names = tuple(names)
        self._corpus = [sacrebleus(name, "--metrics") for name in names]
        self._sentence = [sacrebleus(name, "--metrics", sentences=True) for name in names]

    def sentence(self, translation: str, reference: str) -> tuple[float, ...]:
        """The scores of one line."""
        return tuple(each.sentence_score(translation, [reference]).score for each in self._sentence)

    def corpus(self, translations: Sequence[str], references: Sequence[str]) -> tuple[float, ...]:
        """The scores of all lines together; NaN if there are none."""
        if not translations:
            return (math.nan,) * len(self.names)
        return tuple(each.corpus_score(translations, [references]).score for each in self._corpus)

    @property
    def signatures(self) -> tuple[str, ...]:
        """What was computed, in sacrebleu's notation; known after ``corpus``."""
        return tuple(
            f"{name} {each.get_signature()}" for name, each in zip(self.names, self._corpus, strict=True)
        )
