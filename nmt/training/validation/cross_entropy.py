"""The cross entropy of the validation set, in its four forms."""

from __future__ import annotations

import numpy as np

from nmt.training.schedule.state import TrainingState
from nmt.training.validation.evaluation import Evaluation
from nmt.training.validation.metric import Metric

CROSS_ENTROPIES = ("cross-entropy", "ce-mean", "ce-mean-words", "ce-sum", "perplexity")


class CrossEntropy(Metric):
    """With ``C`` the sum of ``-ln p`` over all target words, ``</s>`` included, in nats:

    - ``ce-sum``: ``C``;
    - ``cross-entropy`` and ``ce-mean``: ``C`` divided by the number of sentences;
    - ``ce-mean-words``: ``C`` divided by the number of target words;
    - ``perplexity``: ``exp`` of that.

    There is no dropout, no label smoothing, no data weighting. Source: Marian, ``--valid-metrics``.
    """

    lower_is_better = True

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        cost, words, sentences = evaluation.cost
        if self.kind == "ce-sum":
            return cost
        if self.kind == "ce-mean-words":
            return cost / words
        if self.kind == "perplexity":
            with np.errstate(over="ignore"):
                return float(np.exp(np.float64(cost / words)))
        return cost / sentences
