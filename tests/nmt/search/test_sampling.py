"""Output sampling: what may be drawn, how often it is drawn, and what a draw depends on."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from nmt.models import Step
from nmt.search.beam_search import BeamSearch
from nmt.search.choice import Sampling, read_sampling
from nmt.search.shortlist import Lexicon, Shortlist
from nmt.settings import OptionError
from nmt.settings.sections import BeamOptions
from tests.helpers.toy_search import ToyModel, ToyVocab, beam_search, spec

PROBS = np.array([0.30, 0.05, 0.02, 0.25, 0.01, 0.20, 0.17])
EOS, UNK = 0, 1
VOCAB = ToyVocab(EOS, UNK)
DRAWS = 6000


class OneDistribution:
    """A model that gives the same distribution at every step."""

    key = "one distribution"
    starts_blank = True
    packs_bins = False
    sources = 1
    dim_vocabs = ids = (10, len(PROBS))
    params = {"log_probs": jnp.log(jnp.asarray(PROBS, jnp.float32))}  # noqa: RUF012 (nothing changes it)

    def encoder(self, batch, lengths, *, derivatives):
        def encode(params, sources):
            return {"ids": sources[0][0]}

        encode.state = {"ids": spec(batch, *lengths)}
        return encode

    def listing(self, listed, *, derivatives):
        return lambda params, ids: {"log_probs:listed": params["log_probs"][ids]}

    def stepper(
        self,
        batch,
        beam,
        lengths,
        places,
        attention=False,
        candidates=0,
        *,
        by_sentence,
        listed,
        derivatives,
    ):
        def step(params, encoded, state, words, position, shortlist=None):
            logits = params.get("log_probs:listed", params["log_probs"])
            logits = jnp.broadcast_to(logits, (batch, beam, len(logits)))
            if shortlist is not None:
                logits = jnp.take_along_axis(logits, shortlist[:, None, :], axis=-1)
            return Step(logits.reshape(batch * beam, -1), state)

        state = {"encoder_state": {"ids": spec(batch, *lengths)}, "decoder_state": {}}
        return SimpleNamespace(start=lambda params, encoded: {}, step=step, **state)


def search_with(sampling: Sampling | None, vocab: ToyVocab = VOCAB, **options) -> BeamSearch:
    beam = {"beam_size": 1, "allow_unk": True, "max_length_factor": 0.1}
    beam |= {name: options.pop(name) for name in beam if name in options}
    return BeamSearch(
        [OneDistribution()],
        source_vocab=vocab,
        target_vocab=vocab,
        sampling=sampling,
        options=BeamOptions(**beam),
        **{"seed": 3} | options,
    )


def kept(places: list[int]) -> np.ndarray:
    """The distribution limited to these words."""
    probs = np.zeros_like(PROBS)
    probs[places] = PROBS[places]
    return probs / probs.sum()


@pytest.mark.parametrize(
    ("sampling", "probs"),
    [
        (Sampling(), PROBS),
        (Sampling("topk", 3), kept([0, 3, 5])),
        (Sampling("topk", 99), PROBS),
        (Sampling("nucleus", 0.5), kept([0, 3])),  # 0.30 + 0.25 exceeds it
        (Sampling("nucleus", 0.56), kept([0, 3, 5])),
        (Sampling("nucleus", 1e-6), kept([0])),
        (Sampling("epsilon", 0.03), kept([0, 1, 3, 5, 6])),
        (Sampling("epsilon", 0.9), kept([0])),  # always keeps the most probable one
    ],
)
def test_what_may_be_drawn(sampling: Sampling, probs: np.ndarray) -> None:
    logits = jnp.log(jnp.asarray(PROBS, jnp.float32))[None] + 5  # need not be normalized
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(sampling.pruned(logits)[0], np.log(probs), rtol=1e-5)


def draws(sampling: Sampling, **options) -> np.ndarray:
    """How often each word is drawn."""
    found = search_with(sampling, **options).search([[5, EOS]] * DRAWS)
    return np.bincount([h.words[0] for [h] in found], minlength=len(PROBS))


def unlikely(counts: np.ndarray, probs: np.ndarray) -> bool:
    """Whether Pearson's statistic is one of the highest 0.1% for draws from ``probs``."""
    assert not counts[probs == 0].any()
    expected = probs[probs > 0] * DRAWS
    statistic = np.sum((counts[probs > 0] - expected) ** 2 / expected)
    limits = {1: 10.8, 2: 13.8, 4: 18.5, 5: 20.5, 6: 22.5}  # of chi-square, by degrees of freedom
    return bool(statistic > limits[len(expected) - 1])


def heated(probs: np.ndarray, temperature: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        scaled = np.exp(np.log(probs) / temperature)
    return scaled / scaled.sum()


@pytest.mark.parametrize(
    ("sampling", "options", "probs"),
    [
        (Sampling(), {}, PROBS),
        (Sampling(), {"allow_unk": False}, kept([0, 2, 3, 4, 5, 6])),
        (Sampling("full", 0, 2.0), {}, heated(PROBS, 2.0)),
        (Sampling("topk", 3, 0.5), {}, heated(kept([0, 3, 5]), 0.5)),
    ],
)
@pytest.mark.sampled(every=2)
def test_words_are_drawn_as_often_as_they_are_probable(sampling, options, probs) -> None:
    counts = draws(sampling, **options)
    assert not unlikely(counts, probs)
    assert unlikely(counts, heated(probs, 1.3)), "the test can tell a distribution from one like it"


def test_a_draw_depends_on_seed_and_number_alone() -> None:
    sources = [[5, 6, EOS], [7, EOS], [5, 5, 5, 5, EOS], [EOS], [8, EOS]] * 3
    options = {"max_length_factor": 4.0}

    def words(seed: int, numbers: list[int], size: int) -> list[tuple[int, ...]]:
        search = search_with(Sampling(), seed=seed, **options)
        found = []
        for first in range(0, len(sources), size):
            part = slice(first, first + size)
            found += search.search(sources[part], numbers=numbers[part])
        return [h.words for [h] in found]

    numbers = list(range(len(sources)))
    drawn = words(3, numbers, 15)
    assert drawn == words(3, numbers, 4)
    assert drawn != words(4, numbers, 15)
    later = words(3, [number + 15 for number in numbers], 15)
    assert drawn != later and drawn[3] == later[3] == (EOS,)
    assert len(set(drawn)) > 5


def test_a_shortlist_changes_no_draw_of_a_listed_word() -> None:
    model = ToyModel(1, 30)
    lexicon = Lexicon(np.array([0] * 6 + [5] * 5), np.array([9, 12, 15, 18, 29], np.int32), 3, 5)
    shortlist = Shortlist(lexicon, 30)
    options = {"beam_size": 1, "allow_unk": True, "sampling": Sampling("full", 0, 3.0), "seed": 3}
    options |= {"max_length_factor": 0.1}
    every, some = (
        [found.words[0] for [found] in search.search([[5, EOS]] * 64)]
        for search in (beam_search([model], **options), beam_search([model], shortlist=shortlist, **options))
    )
    listed = set(shortlist.candidates([5, EOS]).tolist())
    assert len(listed) == 8 and set(some) < listed and len(set(some)) > 3 and not set(every) <= listed
    assert all(one == other for one, other in zip(every, some, strict=True) if one in listed)


def test_scores_are_of_the_noisy_distribution_and_those_of_the_model_are_not() -> None:
    found = search_with(Sampling()).search([[5, EOS]] * 4)
    assert len(found) == 4
    for [hypothesis] in found:
        expected = np.log(PROBS[hypothesis.words[0]])
        np.testing.assert_allclose(hypothesis.scorer_scores, [expected], rtol=1e-5)
        assert hypothesis.path_score < 0 and hypothesis.path_score != hypothesis.scorer_scores[0]


@pytest.mark.parametrize(
    "sampling", [Sampling("topk", 1), Sampling("nucleus", 0.2), Sampling("epsilon", 0.3)]
)
def test_unknown_words_are_not_drawn_where_they_are_the_most_probable(sampling: Sampling) -> None:
    search = search_with(sampling, ToyVocab(2, 0), allow_unk=False)
    found = search.search([[5, 2], [6, 7, 2]])
    assert len(found) == 2
    for [hypothesis] in found:
        assert hypothesis.words[0] == 3
        np.testing.assert_allclose(hypothesis.path_score, 0, atol=1e-6)  # the only word that may be drawn


def test_a_beam_keeps_its_width_where_fewer_words_may_be_drawn() -> None:
    search = search_with(Sampling("topk", 2), beam_size=4, n_best=True, max_length_factor=2.0)
    found = search.search([[5, EOS], [6, 7, EOS]])
    assert [len(hypotheses) for hypotheses in found] == [4, 4]


@pytest.mark.parametrize(
    ("words", "sampling"),
    [
        ([], None),
        (["0"], None),
        (["1"], Sampling()),
        (["full 1.0"], Sampling()),
        (["full", "0.5"], Sampling("full", 0, 0.5)),
        (["topk"], Sampling("topk", 10)),
        (["topk", "100", "0.1"], Sampling("topk", 100, 0.1)),
        (["nucleus"], Sampling("nucleus", 0.9)),
        (["epsilon", "0.1"], Sampling("epsilon", 0.1)),
    ],
)
def test_values_of_the_option(words: list[str], sampling: Sampling | None) -> None:
    assert read_sampling(words) == sampling


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["best"], "must be full, topk, nucleus or epsilon, got 'best'"),
        (["topk", "2.5"], "a whole number from 1, got 2.5"),
        (["topk", "inf"], "a whole number from 1, got inf"),
        (["topk", "nan"], "a whole number from 1, got nan"),
        (["topk", "x"], "numbers after the method, got 'x'"),
        (["nucleus", "0"], "a probability above 0, got 0"),
        (["full", "0"], "temperature must be above 0, got 0"),
        (["full", "1", "2"], "too many numbers: 1 2"),
    ],
)
def test_wrong_values_are_named(words: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=f"--output-sampling.*{message}"):
        read_sampling(words)
