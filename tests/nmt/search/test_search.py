"""Beam search, compared with Marian's algorithm written in plain Python for one sentence at a time."""

from __future__ import annotations

import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgraph
from nmt.search import beam_search as search_module
from nmt.search.choice import Sampling, best_extensions
from nmt.search.shortlist import Lexicon, Shortlist
from nmt.search.trellis import best_hypotheses
from nmt.search.work import SearchWork
from tests.helpers.toy_search import (
    CONTROL,
    EOS,
    UNK,
    ToyModel,
    ToyVocab,
    assert_same,
    beam_search,
    plain_search,
)

words = st.integers(0, 20)
sentences = st.lists(words, max_size=7).map(lambda line: [*line, EOS])


@given(
    seed=st.integers(0, 10_000),
    eos=st.sampled_from([-4.0, 0.0, 2.0]),
    sources=st.lists(sentences, min_size=3, max_size=4),
    beam_size=st.sampled_from([1, 5]),
    normalize=st.sampled_from([0.0, 0.6, 1.0]),
    word_penalty=st.sampled_from([0.0, 0.3, -0.5]),
    allow=st.booleans(),
    n_best=st.booleans(),
)
@settings(max_examples=60)
def test_finds_what_the_plain_search_finds(seed, eos, sources, allow, **options):
    options |= {"allow_unk": allow, "allow_special": allow}
    model = ToyModel(seed, 11, eos)
    found = beam_search([model], **options).search(sources)
    assert len(found) == len(sources)
    for source, hypotheses in zip(sources, found, strict=True):
        assert_same(hypotheses, plain_search([model], [1.0], source, **options))


@given(
    seed=st.integers(0, 10_000),
    sources=st.lists(sentences, min_size=3, max_size=4),
    prefixes=st.lists(st.lists(st.integers(0, 10), max_size=5), min_size=4, max_size=4),
    allow=st.booleans(),
    n_best=st.booleans(),
)
def test_forced_words_narrow_a_beam_only_while_they_last(seed, sources, prefixes, allow, n_best):
    """A prefix may contain suppressed words; ``</s>`` in it leaves a word free."""
    options = {"beam_size": 4, "n_best": n_best, "allow_unk": allow, "allow_special": allow}
    model, prefixes = ToyModel(seed, 11), prefixes[: len(sources)]
    found = beam_search([model], **options).search(sources, prefixes=[[*words, EOS] for words in prefixes])
    for source, words, hypotheses in zip(sources, prefixes, found, strict=True):
        assert_same(hypotheses, plain_search([model], [1.0], source, prefix=words, **options))


@pytest.mark.thorough
@given(
    seed=st.integers(0, 10_000),
    sources=st.lists(sentences, min_size=3, max_size=4),
    first=st.sampled_from([0, 3, 9]),
    n_best=st.booleans(),
)
def test_only_what_is_listed_is_found(seed, sources, first, n_best):
    random = np.random.default_rng(seed)
    lexicon = Lexicon(np.arange(21), random.integers(0, 21, 20).astype(np.int32), first, 1)
    shortlist, model = Shortlist(lexicon, 21), ToyModel(seed, 21, 2.0)
    options = {"beam_size": 4, "n_best": n_best}
    found = beam_search([model], shortlist=shortlist, **options).search(sources)
    for source, hypotheses in zip(sources, found, strict=True):
        listed = shortlist.candidates(source)
        assert_same(hypotheses, plain_search([model], [1.0], source, listed=listed, **options))


def test_sentences_wait_for_room_among_the_listed_words() -> None:
    """Each sentence has different candidates: a lane cannot list the candidates of all."""
    lexicon = Lexicon(np.arange(301), np.arange(300, dtype=np.int32), 5, 1)
    shortlist, model = Shortlist(lexicon, 300), ToyModel(1, 300)
    sources = [[*range(n, n + 3 + n % 5), EOS] for n in range(20, 90, 2)]
    search = beam_search([model], shortlist=shortlist, beam_size=2, max_length_factor=1.0)
    search.listed = lambda requests, rows: 25
    for source, [found] in zip(sources, search.search(sources), strict=True):
        listed = shortlist.candidates(source)
        options = {"beam_size": 2, "listed": listed, "max_length_factor": 1.0}
        assert_same([found], plain_search([model], [1.0], source, **options))


@given(
    seed=st.integers(0, 10_000),
    source=sentences,
    weights=st.tuples(st.floats(0.1, 2), st.floats(-0.5, 2)),
    n_best=st.booleans(),
)
def test_an_ensemble_adds_weighted_log_probabilities(seed, source, weights, n_best):
    models = [ToyModel(seed, 11), ToyModel(seed + 1, 11)]
    source = [7, *source]
    [found] = beam_search(models, weights, beam_size=3, n_best=n_best).search([source])
    assert_same(found, plain_search(models, weights, source, beam_size=3, n_best=n_best))
    for hypothesis in found:
        total = np.dot(weights, hypothesis.scorer_scores)
        np.testing.assert_allclose(hypothesis.path_score, total, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [0.0, 0.1, 0.4, 1.01, 1.1, 7.3])
@pytest.mark.sampled("0.4", "1.1")
def test_each_sentence_is_cut_at_its_own_length(factor):
    model = ToyModel(3, 11, eos=-30.0)
    sources = [[5, EOS], [5, 6, 7, 8, 9, 10, 11, 12, 13, EOS], [EOS], [7, 8, EOS]]
    options = {"beam_size": 2, "max_length_factor": factor, "n_best": True}
    found = beam_search([model], **options).search(sources)
    for source, hypotheses in zip(sources, found, strict=True):
        assert_same(hypotheses, plain_search([model], [1.0], source, **options))
        if source != [EOS]:
            assert not any(hypothesis.finished for hypothesis in hypotheses)
            assert len(hypotheses[0].words) == max(1, math.ceil(factor * len(source)))


def test_more_hypotheses_than_words():
    """All words are in the first beam, suppressed ones with the lowest possible score."""
    model, source = ToyModel(5, 6), [8, EOS]
    options = {"beam_size": 6, "n_best": True}
    [found] = beam_search([model], **options).search([source])
    assert_same(found, plain_search([model], [1.0], source, **options))
    wider = beam_search([model], beam_size=9, n_best=True).search([source])[0]
    assert 0 < len(wider) <= 9


def test_suppressed_words_are_never_chosen():
    sources = [[i, EOS] for i in range(4)]
    words = {allow: set() for allow in (False, True)}
    for allow, used in words.items():
        search = beam_search(
            [ToyModel(1, 11)], beam_size=4, n_best=True, allow_unk=allow, allow_special=allow
        )
        for hypotheses in search.search(sources):
            used.update(word for h in hypotheses for word in h.words)
    assert words[False].isdisjoint({UNK, CONTROL})
    assert words[True] >= {UNK, CONTROL}


def test_an_empty_source_ends_at_once_with_score_0():
    model = ToyModel(2, 11)
    [found] = beam_search(
        [model],
        beam_size=3,
        n_best=True,
        word_penalty=0.5,
        normalize=0.6,
    ).search([[EOS]])
    assert len(found) == 3
    for hypothesis in found:
        assert (hypothesis.words, hypothesis.word_scores) == ((EOS,), (0.0,))
        assert (hypothesis.path_score, hypothesis.score) == (0.0, -0.5)
        expected = model.next_log_probs([EOS], [])[EOS]
        np.testing.assert_allclose(hypothesis.scorer_scores, [expected], rtol=1e-5)
        assert hypothesis.finished


@pytest.mark.parametrize("normalize", [pytest.param(0.0, marks=pytest.mark.slow), 0.6])
def test_long_sentences_go_on_while_the_others_are_done(normalize):
    """The search has several stages; each has fewer sentences or larger caches than the one before."""
    model = ToyModel(11, 11, eos=-5.0)
    sources = [[word, EOS] for word in range(13)]
    sources[3], sources[0], sources[11] = ([*range(5, 5 + n), EOS] for n in (4, 14, 13))
    options = {"beam_size": 3, "normalize": normalize, "max_length_factor": 16.0}
    for n_best in (False, True):
        found = beam_search([model], n_best=n_best, **options).search(sources)
        for source, hypotheses in zip(sources, found, strict=True):
            assert_same(hypotheses, plain_search([model], [1.0], source, n_best=n_best, **options))
    lengths = [max(len(h.words) for h in hypotheses) for hypotheses in found]
    assert sorted(lengths)[-4] < 48 < lengths[3] < 96 < min(lengths[0], lengths[11])


def test_a_search_for_the_best_ends_when_no_other_can_become_it(monkeypatch):
    steps = [0]

    def counting(trellis, *arguments):
        steps[-1] += len(trellis.words)
        return best_hypotheses(trellis, *arguments)

    monkeypatch.setattr(search_module, "best_hypotheses", counting)
    model, sources = ToyModel(7, 11, eos=1.0), [[5, 6, 7, EOS], [8, 9, EOS]]
    options = {"beam_size": 6, "max_length_factor": 16.0}
    drawn = {"sampling": Sampling("full"), "seed": 1}
    for further in ({}, {"n_best": True}, {"word_penalty": -0.1}, {"skip_cost": True}, drawn):
        beam_search([model], **options, **further).search(sources)
        steps.append(0)
    beam_search([model, model], [2.0, -1.0], **options).search(sources)
    best, *others = steps
    assert all(2 * best < other for other in others), steps


def test_a_model_that_gives_no_numbers_loses_no_sentence():
    model = ToyModel(4, 11)
    model.params = {"table": model.params["table"].at[::2].set(jnp.nan)}
    sources = [[5, EOS], [6, 7, EOS], [EOS]]
    found = beam_search([model], beam_size=3, n_best=True).search(sources)
    assert [len(hypotheses) for hypotheses in found] == [3, 3, 3]


def test_a_seen_bucket_compiles_nothing():
    search = beam_search([ToyModel(1, 11)], beam_size=2)
    search.search([[5, 6, EOS], [7, EOS]])
    before = mgraph.compile_stats()
    beam_search([ToyModel(2, 11)], beam_size=2, normalize=1.0).search([[9, 7, 5, EOS], [8, EOS]])
    assert (mgraph.compile_stats() - before).misses == 0


def test_lanes_are_kept_while_memory_lasts(monkeypatch):
    def kept() -> int:
        search = beam_search([ToyModel(1, 11)], beam_size=2)
        before = len(jax.live_arrays())
        for length in (20, 40, 100):
            search.search([[5] * length + [EOS]])
        return len(jax.live_arrays()) - before

    every = kept()
    monkeypatch.setattr(search_module, "IDLE_BYTES", 0)
    assert kept() * 3 == every * 2


def test_translations_that_do_not_end_share_a_program():
    search = beam_search([ToyModel(3, 11, eos=-30.0)], beam_size=2, max_length_factor=7.0)
    assert len(search.search([[5] * 8 + [EOS]])[0][0].words) == 63
    before = mgraph.compile_stats()
    for length in (6, 7, 8):
        [[found]] = search.search([[5] * length + [EOS]])
        assert len(found.words) == 7 * (length + 1)
    assert (mgraph.compile_stats() - before).misses == 0


def test_six_programs_serve_lines_of_all_lengths_and_translations_that_do_not_end() -> None:
    sources = [[5] * length + [EOS] for length in (*[9] * 1_000, *[90] * 50, 22, 23, 101, 103)]
    search = beam_search([ToyModel(5, 12, eos=-30.0)], beam_size=6)
    before = mgraph.compile_stats()
    found = search.search(sources)
    assert (mgraph.compile_stats() - before).misses == 6
    assert [len(best.words) for best, *_ in found] == [3 * len(source) for source in sources]


def test_a_search_says_what_was_idle_and_padding(caplog: pytest.LogCaptureFixture) -> None:
    search = beam_search([ToyModel(3, 11, eos=-30.0)], beam_size=2)
    with caplog.at_level(logging.DEBUG, "nmt.search"):
        search.search([[5] * length + [EOS] for length in (4, 6, 6)])
    [work] = [record.work for record in caplog.records if hasattr(record, "work")]
    assert (work.words, work.busy) == (5 + 7 + 7, 3 * (5 + 7 + 7))
    assert work.steps > work.busy and work.positions > work.words
    assert work.idle == pytest.approx(1 - work.busy / work.steps)
    assert f"{work.padding:.1%} padding" in caplog.text
    both = work + SearchWork(steps=10, busy=10)
    assert both.idle < work.idle and both.padding == work.padding


@pytest.mark.slow
@given(
    batch=st.integers(1, 3),
    beam=st.integers(1, 12),
    columns=st.integers(1, 5_000),
    seed=st.integers(0, 99),
    distinct=st.booleans(),
    closed=st.booleans(),
)
@settings(max_examples=30)
def test_best_extensions_are_the_highest(batch, beam, columns, seed, distinct, closed):
    random = np.random.default_rng(seed)
    scores = random.normal(size=(batch, beam, columns)).astype(np.float32)
    if not distinct:
        scores = np.round(scores)
    if closed:
        scores[:, :, 1:] = -np.inf
    column, origin, best = map(np.asarray, jax.jit(best_extensions)(scores))
    expected = -np.sort(-scores.reshape(batch, -1), axis=1)[:, :beam]
    np.testing.assert_array_equal(best, expected)
    for row in range(batch):
        np.testing.assert_array_equal(scores[row, origin[row], column[row]], expected[row])
        open_ = best[row] != -np.inf
        assert len(set(zip(origin[row, open_], column[row, open_], strict=True))) == open_.sum()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam-size"),
        ({"max_length_factor": -1.0}, "max-length-factor"),
        ({"max_length_factor": math.inf}, "max-length-factor"),
        ({"weights": [1.0, 2.0]}, "1 model.* 2"),
        ({"models": []}, "at least one model"),
        ({"models": [ToyModel(0, 6), ToyModel(0, 11)]}, "6, 11"),
    ],
)
def test_impossible_options_are_errors(options, message):
    options = {"models": [ToyModel(0, 6)], **options}
    with pytest.raises(ValueError, match=message):
        beam_search(**options)


def test_no_weights_are_weights_of_one() -> None:
    [found] = beam_search([ToyModel(0, 6)], []).search([[EOS + 1, EOS]])
    [expected] = beam_search([ToyModel(0, 6)], [1.0]).search([[EOS + 1, EOS]])
    assert_same(found, expected)


def test_a_source_without_ids_is_an_error_and_no_sources_are_not():
    search = beam_search([ToyModel(0, 6)])
    assert search.search([]) == []
    with pytest.raises(ValueError, match="sentence 1 has no ids in its source"):
        search.search([[EOS], []])


def test_what_does_not_fit_the_sentences_is_an_error() -> None:
    search = beam_search([ToyModel(0, 6)])
    with pytest.raises(ValueError, match="expected 2 numbers of sentences, got 1"):
        search.search([[EOS], [EOS]], numbers=[7])
    for count in (0, "2"):
        with pytest.raises(ValueError, match=f"expected a count of hypotheses of at least 1, got {count!r}"):
            search.search([[EOS]], count=count)
    with pytest.raises(ValueError, match=r"sentence 0: expected ids in its source, got \[1\.5, "):
        search.search([[1.5, EOS]])


def test_words_that_the_vocabulary_does_not_have_are_never_chosen() -> None:
    model, size = ToyModel(3, 40), 12
    sources = [[5, 6, EOS], [7, EOS]]
    known = beam_search([model], None, target_vocab=ToyVocab(EOS, UNK, (CONTROL,), size)).search(sources)
    every = beam_search([model], None).search(sources)
    assert all(word < size for hypotheses in known for h in hypotheses for word in h.words)
    assert any(word >= size for hypotheses in every for h in hypotheses for word in h.words)


def test_a_single_line_takes_one_call_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    advance = search_module.Lane.advance

    def counted(lane, params, weights, ranking, enough, most):
        calls.append(enough)
        return advance(lane, params, weights, ranking, enough, most)

    monkeypatch.setattr(search_module.Lane, "advance", counted)
    beam_search([ToyModel(3, 11, 0.0)], beam_size=2).search([[4, 7, 9, EOS]])
    assert calls == [0]
