"""Minimum Bayes risk decoding: expected utilities computed by hand, samples, n-best lists, errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from sacrebleu import sentence_bleu, sentence_chrf

from nmt import OptionError, TranslationQueue, Translator
from nmt.cli import main
from nmt.search.bayes_risk import BayesRisk, UtilityError, sentence_metric
from nmt.search.results import Hypothesis
from tests.helpers.places import DATA

MODEL = str(DATA / "search" / "left-right.npz")
VOCABS = [str(DATA / "options" / f"{side}.yml") for side in ("source", "target")]
LINES = ["the cat sees the red house", "", "a zebra sleeps", "the dog and the cat", "a cat", "cat " * 50]
SAMPLES = 6


def hypotheses(*paths: float) -> list[Hypothesis]:
    return [Hypothesis((), (), path, path, (path,)) for path in paths]


def words(hypothesis: str, reference: str) -> float:
    """The share of the reference's words that the hypothesis has."""
    return len({*hypothesis.split()} & {*reference.split()}) / len(reference.split())


def test_samples_count_as_often_as_they_are_drawn() -> None:
    """u(a b) = (3 * 1 + 1/2 + 0) / 5, u(a c) = (3/2 + 1 + 0) / 5, u(d) = 1 / 5."""
    texts = ["d", "a b", "a c", "a b", "a b"]
    ranked, best = BayesRisk(words, samples=5).ranked(hypotheses(-9, -1, -2, -3, -4), texts)
    assert best == ("a b", "a c", "d")
    assert [one.score for one in ranked] == pytest.approx([0.7, 0.5, 0.2], abs=1e-15)
    assert [one.path_score for one in ranked] == [-1, -2, -9], "of equal texts the first"


def test_a_list_counts_by_probabilities() -> None:
    """p = 0.6, 0.3, 0.1: u(a b) = 0.6 + 0.1 / 2, u(c d) = 0.3 + 0.1 / 2, u(a d) = 0.6 / 2 + 0.3 / 2 + 0.1."""
    logs = hypotheses(*map(math.log, (0.06, 0.03, 0.01)))
    ranked, best = BayesRisk(words).ranked(logs, ["a b", "c d", "a d"])
    assert best == ("a b", "a d", "c d")
    assert [one.score for one in ranked] == pytest.approx([0.65, 0.55, 0.35], abs=1e-12)
    same = hypotheses(-1000.0, -1000.0, -1000.0)
    assert BayesRisk(words).ranked(same, ["a", "b a", "c"])[1] == ("b a", "a", "c")


def test_a_utility_need_not_be_symmetric() -> None:
    """The first argument is the hypothesis."""
    risk = BayesRisk(lambda hypothesis, reference: float(len(hypothesis) - 2 * len(reference)), samples=2)
    assert risk.ranked(hypotheses(0, 0), ["a", "bbb"])[1] == ("bbb", "a")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 10**400, None, "good"])
def test_what_is_no_utility(wrong: Any) -> None:
    with pytest.raises(UtilityError, match="a utility must return a finite number, got"):
        BayesRisk(lambda *_: wrong, samples=1).ranked(hypotheses(0), ["a"])


def test_named_metrics_are_sacrebleus() -> None:
    pair = "the cat sees the house", "the cat sees a red house"
    assert sentence_metric("chrf")(*pair) == sentence_chrf(pair[0], [pair[1]]).score
    assert sentence_metric("bleu")(*pair) == sentence_bleu(pair[0], [pair[1]]).score
    short = "the red house", "the red house"
    assert sentence_metric("bleu")(*short) == pytest.approx(100), "with effective order"
    assert sentence_metric("chrf")("", "") == 0 and sentence_metric("bleu")("", "a") == 0


def make(**options: Any) -> Translator:
    return Translator(MODEL, VOCABS, **{"beam_size": 3, "max_length": 40} | options)


@pytest.fixture(scope="module")
def sampling() -> Translator:
    return make(mbr="chrf", mbr_samples=SAMPLES, seed=5)


def drawn(line: int) -> list[str]:
    """The samples of a line: what sampling draws for the lines with their numbers."""
    plain = make(beam_size=1, output_sampling=["full"], seed=5)
    first = line * SAMPLES
    return [
        one.text
        for number in range(first, first + SAMPLES)
        for one in plain.translations([LINES[line]], first=number)
    ]


def chosen(samples: Sequence[str]) -> tuple[str, float]:
    """The best sample, by the definition, and its expected utility."""
    counts = Counter(samples)
    expected = {
        text: sum(n * sentence_chrf(text, [other]).score for other, n in counts.items()) / SAMPLES
        for text in dict.fromkeys(samples)
    }
    best = max(expected, key=lambda text: expected[text])
    return best, expected[best]


def test_samples_are_drawn_and_the_best_is_chosen(sampling: Translator) -> None:
    found = sampling.translate(LINES, return_scores=True)
    for line in 0, 2, 3:
        text, score = chosen(drawn(line))
        assert found[line].text == text and found[line].score == pytest.approx(score, rel=1e-12)
    assert found[1].text == "" and found[5].text == "" and found[5].problem
    assert len({*drawn(0)}) > 1, "otherwise there is nothing to choose"


def test_neither_batches_nor_the_queue_change_what_is_chosen() -> None:
    expected = make(mbr="chrf", mbr_samples=SAMPLES, seed=5).translate(LINES)
    again = make(mbr="chrf", mbr_samples=SAMPLES, seed=5, mini_batch=2, maxi_batch=1)
    assert [one.text for one in again.translations(LINES)] == expected
    with TranslationQueue(again) as queue:
        assert queue.translate(LINES) == expected
        assert queue.submit("a cat").cancel()
    other = make(mbr="chrf", mbr_samples=SAMPLES, seed=6).translate(LINES)
    assert other != expected


def test_lists_are_ranked_by_utility() -> None:
    calls: list[tuple[str, str]] = []

    def utility(hypothesis: str, reference: str) -> float:
        calls.append((hypothesis, reference))
        return -float(len(hypothesis))

    shortest = make(mbr=utility, n_best=True)
    lists = make(n_best=True).translate(LINES[:1], return_scores=True)[0]
    [found] = shortest.translate(LINES[:1], return_scores=True)
    assert found.texts == tuple(sorted(lists.texts, key=len)) and len(calls) == 9
    assert found.scores == pytest.approx([-len(text) for text in found.texts], rel=1e-12)
    last = shortest.format(found).splitlines()[0].split(" ||| ")[-1]
    assert float(last) == -len(found.text)
    assert [len(one.texts) for one in shortest.translate(LINES[:1], n_best=2)] == [2]
    longest = shortest.with_options(mbr=lambda hypothesis, _: float(len(hypothesis)), n_best=False)
    [best] = longest.translate(LINES[:1])
    assert len(best) == max(map(len, lists.texts)) > len(lists.text), "among all, though only one is returned"
    for other in shortest.with_options(mbr=""), shortest.with_options(mbr="chrf").with_options(mbr=""):
        assert other.translate(LINES[:1], return_scores=True)[0] == lists
    named = shortest.with_options(mbr="chrf"), make(mbr="chrf", n_best=True)
    assert named[0].translate(LINES[:1]) == named[1].translate(LINES[:1])
    assert named[0].with_options(mbr=utility).translate(LINES[:1]) == shortest.translate(LINES[:1])


def test_what_cannot_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["decode", "-m", MODEL, "-v", *VOCABS, "--quiet", "-i", "/dev/null"]
    for more, reason in (
        (["--mbr-samples", "3"], "--mbr-samples needs --mbr"),
        (["--mbr", "chrf", "--output-sampling"], "--mbr with --output-sampling needs --mbr-samples"),
        (["--mbr", "chrf", "--skip-cost"], "--mbr needs probabilities or --mbr-samples"),
        (["--mbr", "ter"], "--mbr must be one of chrf, bleu; got 'ter'"),
    ):
        assert main([*words, *more]) == 2
        assert reason in capsys.readouterr().err
    with pytest.raises(OptionError, match="n_best must be from 1 to mbr_samples=6, got 7"):
        make(mbr="bleu", mbr_samples=6).translate(["a"], n_best=7)


def test_a_metric_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics", None)
    with pytest.raises(OptionError, match=r"pip install 'mgraph-jax\[metrics\]'"):
        make(mbr="bleu")
