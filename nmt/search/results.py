"""What becomes of a line: hypotheses with scores, translations with attention, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph import MGraphError
from nmt.text.output import alignment_field, significant, word_scores_field


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A translation of one sentence with its scores; all scores are natural logarithms.

    words: target word ids, the final ``</s>`` included where the hypothesis is finished.
    word_scores: one weighted log-probability per word of ``words``; they sum to ``path_score``.
    path_score: the unnormalized score of the whole path.
    score: what hypotheses are ranked by, ``(path_score - word_penalty * n) / n ** normalize``
        with ``n = len(words)`` (Marian's ``--normalize`` and ``--word-penalty``).
    scorer_scores: the unweighted log-probability that each model gave to the path, printed by
        Marian as ``F0= F1= ...``.
    finished: False where the search was cut by ``--max-length-factor`` before ``</s>``.
    alignment: attention as ``[target word][source word]``, or None if it was not asked for.
    """

    words: tuple[int, ...]
    word_scores: tuple[float, ...]
    path_score: float
    score: float
    scorer_scores: tuple[float, ...]
    finished: bool = True
    alignment: tuple[tuple[float, ...], ...] | None = None


class AttentionError(MGraphError):
    """Attention was not asked for, or cannot be drawn."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How much each target word of a translation attended to each source word.

    weights: float32 ``[target word, source word]``; rows sum to 1.
    source, target: the words, or pieces of words, ``</s>`` included, in the order of the weights. That is
        the model's: a right-to-left model reads and writes backwards.
    """

    weights: np.ndarray
    source: tuple[str, ...]
    target: tuple[str, ...]

    def plot(self, axes: Any = None) -> Any:
        """Draw the weights as a heatmap, source words across and target words down.

        axes: matplotlib's, to draw into; None for a new figure. Returns the axes. Needs matplotlib (the
        extra ``plot``); AttentionError if it is not installed.
        """
        if axes is None:
            try:
                from matplotlib import pyplot
            except ImportError:
                raise AttentionError("a plot needs matplotlib: pip install 'mgraph[plot]'") from None
            height, width = self.weights.shape
            _, axes = pyplot.subplots(figsize=(1.5 + 0.4 * width, 1 + 0.4 * height), layout="constrained")
        axes.imshow(self.weights, cmap="Greys", vmin=0.0, vmax=1.0, aspect="equal")
        axes.set_xticks(range(len(self.source)), self.source, rotation=90)
        axes.set_yticks(range(len(self.target)), self.target)
        axes.xaxis.tick_top()
        return axes


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one line.

    line: its number, from 0.
    texts: the translations, best first; only the best one without ``n_best``.
    hypotheses: their word ids and scores, in the same order.
    problem: why the line was not translated, or empty; its only text is then empty, its scores
        are not numbers.
    attentions: of the hypotheses, in the same order; empty if they were not asked for.
    """

    line: int
    texts: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...]
    problem: str = ""
    attentions: tuple[Attention, ...] = ()

    @property
    def text(self) -> str:
        """The best translation."""
        return self.texts[0]

    @property
    def score(self) -> float:
        """The score that the best translation was ranked by."""
        return self.hypotheses[0].score

    @property
    def scores(self) -> tuple[float, ...]:
        """The scores of all ``texts``."""
        return tuple(hypothesis.score for hypothesis in self.hypotheses)

    @property
    def attention(self) -> Attention:
        """Of the best translation; AttentionError if attention was not asked for."""
        if not self.attentions:
            raise AttentionError(
                f"line {self.line + 1} has no attention: {self.problem or 'it was not asked for'} "
                "(translate(..., return_attention=True))"
            )
        return self.attentions[0]

    def plot(self, axes: Any = None) -> Any:
        """Draw the attention of the best translation; see ``Attention.plot``."""
        return self.attention.plot(axes)


@dataclass(frozen=True, slots=True)
class Printing:
    """What is printed of a translation, in Marian's formats.

    n_best: all hypotheses, a line each. word_scores: the score of each word, too. alignment: the words'
    alignments, too, as ``read_alignment`` gives it; None for none.
    """

    n_best: bool = False
    word_scores: bool = False
    alignment: str | float | None = None

    def lines(self, translation: Translation) -> str:
        """The line of the best hypothesis, or with ``n_best`` the lines of all:
        ``3 ||| text ||| 0-0 ||| WordScores= ... ||| F0= v F1= v ||| score``.

        The number is that of the input line, from 0. F0, F1, ...: the unweighted score by each model; the
        last field is the normalized score.
        """
        if not self.n_best:
            return self.best(translation)
        return "\n".join(
            self._entry(translation.line, text, hypothesis)
            for text, hypothesis in zip(translation.texts, translation.hypotheses, strict=True)
        )

    def best(self, translation: Translation) -> str:
        """The line of the best hypothesis: ``text[ ||| 0-0 1-1][ ||| WordScores= ...]``."""
        return " ||| ".join([translation.text, *self._details(translation.hypotheses[0])])

    def _entry(self, line: int, text: str, hypothesis: Hypothesis) -> str:
        features = " ".join(f"F{i}= {significant(score)}" for i, score in enumerate(hypothesis.scorer_scores))
        details = self._details(hypothesis)
        return " ||| ".join([str(line), text, *details, features, significant(hypothesis.score)])

    def _details(self, hypothesis: Hypothesis) -> Iterator[str]:
        if self.alignment is not None:
            yield alignment_field(self.alignment, hypothesis.alignment or ())
        if self.word_scores:
            yield word_scores_field(hypothesis.word_scores)
