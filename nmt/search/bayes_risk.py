"""``BayesRisk``: minimum Bayes risk decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mgraph import MGraphError
from nmt.search.choice import read_sampling
from nmt.search.results import Hypothesis
from nmt.search.text_metrics import sacrebleus
from nmt.settings import DecodeOptions, OptionError

Utility = Callable[[str, str], float]
"""How good a hypothesis is if a reference is right; higher is better."""


class UtilityError(MGraphError, ValueError):
    """A utility returned something that is not a finite number."""


@dataclass(frozen=True)
class BayesRisk:
    """Chooses the candidate with the highest expected utility, which is the least Bayes risk.

    ``u(h) = sum over r of p(r) * utility(h, r)``; candidates ``h`` and references ``r`` are the same texts:

    - ``samples`` translations drawn from the model, each with ``p(r) = 1 / samples`` (Eikema & Aziz 2020,
      2022);
    - or, if ``samples`` is 0, the n-best list of beam search, where ``p(r)`` is the probability
      ``exp(path_score)`` of a hypothesis, divided by the sum over the list (Kumar & Byrne 2004).

    Hypotheses with the same text are one candidate, with the sum of their ``p``. Among equals, the one found
    first wins.
    """

    utility: Utility
    samples: int = 0

    def ranked(
        self, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
    ) -> tuple[tuple[Hypothesis, ...], tuple[str, ...]]:
        """One hypothesis for each different text, and the texts, best first.

        The ``score`` of each is its expected utility. UtilityError for a utility that is not a finite number.
        """
        total: dict[str, float] = {}
        first: dict[str, Hypothesis] = {}
        for hypothesis, text, probability in zip(
            hypotheses, texts, self._probabilities(hypotheses), strict=True
        ):
            total[text] = total.get(text, 0.0) + probability
            first.setdefault(text, hypothesis)
        expected = {
            text: math.fsum(p * self._utility(text, other) for other, p in total.items()) for text in first
        }
        best = tuple(sorted(first, key=lambda text: -expected[text]))
        return tuple(replace(first[text], score=expected[text]) for text in best), best

    def _probabilities(self, hypotheses: Sequence[Hypothesis]) -> list[float]:
        if self.samples:
            return [1 / len(hypotheses)] * len(hypotheses)
        highest = max(hypothesis.path_score for hypothesis in hypotheses)
        weights = [math.exp(hypothesis.path_score - highest) for hypothesis in hypotheses]
        return [weight / math.fsum(weights) for weight in weights]

    def _utility(self, hypothesis: str, reference: str) -> float:
        found = self.utility(hypothesis, reference)
        try:
            number = float(found)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            pair = f"{hypothesis!r:.80} and {reference!r:.80}"
            raise UtilityError(f"a utility must return a finite number, got {found!r:.80} for {pair}")
        return number


def read_risk(options: DecodeOptions, utility: Utility | None = None) -> BayesRisk | None:
    """The ``BayesRisk`` for ``--mbr`` and ``--mbr-samples``, with ``utility``, if given, in place of a named
    metric; None without either. OptionError for values that cannot go together, and if sacrebleu is needed
    but missing."""
    samples = options.mbr_samples
    if utility is None and not options.mbr:
        check_samples(options.mbr, samples)
        return None
    if not samples:
        if read_sampling(options.output_sampling):
            raise OptionError("--mbr with --output-sampling needs --mbr-samples, the number of samples")
        if options.skip_cost:
            raise OptionError("--mbr needs probabilities or --mbr-samples; --skip-cost computes none")
    return BayesRisk(utility or sentence_metric(options.mbr), samples)


def check_samples(mbr: str, samples: int) -> None:
    """OptionError for samples without a metric to choose by."""
    if samples and not mbr:
        raise OptionError("--mbr-samples needs --mbr, which says by which metric to choose")


def sentence_metric(name: str) -> Utility:
    """sacrebleu's sentence-level chrF2 (``chrf``) or BLEU with effective order (``bleu``), from 0 to 100."""
    metric = sacrebleus(name, f"--mbr {name}", sentences=True)

    def utility(hypothesis: str, reference: str) -> float:
        return float(metric.sentence_score(hypothesis, [reference]).score)

    return utility
