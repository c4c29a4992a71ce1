"""Results of a search: hypotheses with scores, translations with attention, and printing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph import MGraphError
from nmt.runtime.compared import Compared
from nmt.runtime.plots import plotting
from nmt.text.output import alignment_field, significant, word_scores_field


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A translation of one sentence with its scores; all scores are natural logarithms.

    words: target word ids, with a final ``</s>`` if finished.
    word_scores: one weighted log-probability per word; they sum to ``path_score``.
    path_score: the unnormalized score of the whole path.
    score: for ranking: ``(path_score - word_penalty * n) / n ** normalize`` with ``n = len(words)`` (Marian's
        ``--normalize`` and ``--word-penalty``); with ``--mbr`` the expected utility.
    scorer_scores: each model's unweighted log-probability of the path (Marian's ``F0= F1= ...``).
    finished: False if ``--max-length-factor`` ended the search before ``</s>``.
    alignment: attention as ``[target word][source word]``, or None if not requested.
    """

    words: tuple[int, ...]
    word_scores: tuple[float, ...]
    path_score: float
    score: float
    scorer_scores: tuple[float, ...]
    finished: bool = True
    alignment: tuple[tuple[float, ...], ...] | None = None


class AttentionError(MGraphError):
    """Attention was not requested, or cannot be drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Attention(Compared):
    """How much each target word of a translation attended to each source word.

    weights: float32 ``[target word, source word]``; rows sum to 1.
    source, target: the words, or pieces of words, ``</s>`` included, in the model's order: reversed for a
        right-to-left model.
    """

    weights: np.ndarray
    source: tuple[str, ...]
    target: tuple[str, ...]

    def plot(self, axes: Any = None, *, title: str = "Attention", dark: bool = False) -> Any:
        """Draw the weights as a heatmap with a colour bar, source words across, target words down.

        axes: of matplotlib; None for a new figure. title: above the plot. dark: whether a new figure has a
        dark background. Returns the axes. AttentionError if matplotlib (the extra ``plot``) is not installed.
        """
        with plotting(dark, AttentionError) as pyplot:
            if axes is None:
                height, width = self.weights.shape
                _, axes = pyplot.subplots(figsize=(2.8 + 0.42 * width, 2.0 + 0.42 * height))
            image = axes.imshow(
                self.weights, cmap="magma" if dark else "Blues", vmin=0.0, vmax=1.0, aspect="equal"
            )
            axes.set_xticks(range(len(self.source)), self.source, rotation=90)
            axes.set_yticks(range(len(self.target)), self.target)
            axes.xaxis.tick_top()
            axes.xaxis.set_label_position("top")
            axes.set_xlabel("source")
            axes.set_ylabel("target")
            axes.set_title(title)
            axes.figure.colorbar(image, ax=axes, label="weight of a source word", shrink=0.8)
        return axes


@dataclass(frozen=True, slots=True)
class Translation:
    """The result for one line.

    line: its number, from 0.
    texts: the translations, best first; only the best one without ``n_best``.
    hypotheses: their word ids and scores, in the same order.
    problem: why the line was not translated, or empty. A line with a problem has one empty text, and its
        scores are NaN.
    attentions: of the hypotheses, in the same order; empty if not requested.
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
        """The score of the best translation."""
        return self.hypotheses[0].score

    @property
    def scores(self) -> tuple[float, ...]:
        """The scores of all ``texts``."""
        return tuple(hypothesis.score for hypothesis in self.hypotheses)

    @property
    def attention(self) -> Attention:
        """The attention of the best translation; AttentionError if not requested."""
        if not self.attentions:
            raise AttentionError(
                f"line {self.line + 1} has no attention: {self.problem or 'it was not requested'} "
                "(translate(..., return_attention=True))"
            )
        return self.attentions[0]

    def plot(self, axes: Any = None, *, title: str = "Attention", dark: bool = False) -> Any:
        """Draw the attention of the best translation; see ``Attention.plot``."""
        return self.attention.plot(axes, title=title, dark=dark)


@dataclass(frozen=True, slots=True)
class Printing:
    """Prints translations in Marian's formats.

    n_best: print all hypotheses, one per line. word_scores: also print word scores. alignment: also print
    alignments of this kind (from ``read_alignment``), unless None.
    """

    n_best: bool = False
    word_scores: bool = False
    alignment: str | float | None = None

    def lines(self, translation: Translation) -> str:
        """The line of the best hypothesis, or with ``n_best`` the lines of all:
        ``3 ||| text ||| 0-0 ||| WordScores= ... ||| F0= v F1= v ||| score``.

        The first field is the number of the input line, from 0; F0, F1, ... are the models' unweighted
        scores; the last field is the normalized score, or with ``--mbr`` the expected utility.
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
