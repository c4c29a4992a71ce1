"""One hypothesis of beam search, as the search returns it and the printer prints it."""

from __future__ import annotations

from dataclasses import dataclass


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
