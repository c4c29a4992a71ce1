"""Beam search, compared with Marian's: the same n-best lists, whatever is in the batch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nmt.files import load_model
from nmt.search.beam_search import BeamSearch
from nmt.search.results import Hypothesis
from nmt.settings import OptionError
from nmt.settings.sections import BeamOptions
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.marian_lines import near, read_lines
from tests.helpers.places import DATA, SHIPPED

pytestmark = pytest.mark.optimized

S2S = DATA / "s2s-numbers" / "model.npz"
TIE = 1e-4


def same(hypothesis: Hypothesis, text: str, entry: list[str]) -> bool:
    """Whether a hypothesis is an entry of Marian's n-best list, scores included."""
    _, wanted, words, scorers, score = entry
    pairs = (
        [
            *zip(hypothesis.word_scores, words.split()[1:], strict=True),
            *zip(hypothesis.scorer_scores, re.sub(r"F\d+=", "", scorers).split(), strict=True),
            (hypothesis.score, score),
        ]
        if text == wanted
        else []
    )
    return text == wanted and all(near(found, printed) for found, printed in pairs)


def check_n_best(found: list[list[Hypothesis]], vocab, path: Path) -> None:
    """Assert that lists and their order are the same; neighbours whose scores tie may change places."""
    entries = [line.split(" ||| ") for line in read_lines(path)]
    assert [int(entry[0]) for entry in entries] == [i for i, h in enumerate(found) for _ in h]
    for sentence, hypotheses in enumerate(found):
        texts = [vocab.decode(hypothesis.words) for hypothesis in hypotheses]
        wanted = [entry for entry in entries if int(entry[0]) == sentence]
        for place, (hypothesis, text) in enumerate(zip(hypotheses, texts, strict=True)):
            score = float(wanted[place][-1])
            tied = [e for e in wanted[max(0, place - 1) : place + 2] if abs(float(e[-1]) - score) <= TIE]
            assert any(same(hypothesis, text, entry) for entry in tied), (hypothesis, wanted[place])
        assert sorted(texts) == sorted(entry[1] for entry in wanted)


def search_in_batches(search: BeamSearch, sources: list[list[int]], size: int):
    return [found for i in range(0, len(sources), size) for found in search.search(sources[i : i + size])]


@pytest.mark.parametrize(
    ("reference", "models", "weights", "options"),
    [
        ("ensemble.nbest", [SHIPPED / "model.npz", S2S], [0.6, 1.2], {"beam_size": 3, "normalize": 0.6}),
        (
            "cut.nbest",
            [S2S],
            None,
            {"beam_size": 5, "normalize": 1.0, "word_penalty": 0.5, "max_length_factor": 0.2},
        ),
    ],
    ids=["ensemble", "cut"],
)
@pytest.mark.sampled("cut")
def test_number_words(reference, models, weights, options):
    models = [load_model(path) for path in models]
    vocab = load_vocab(SHIPPED / "vocab.spm", models[0].dim_vocabs[0])
    sources = [vocab.encode(line) for line in read_lines(DATA / "search" / "input.en")]
    vocabs = {"source_vocab": vocab, "target_vocab": vocab}
    search = BeamSearch(models, weights, options=BeamOptions(**options), n_best=True, **vocabs)
    check_n_best(search.search(sources), vocab, DATA / "search" / reference)


@pytest.mark.parametrize(
    ("sources", "prefixes", "message"),
    [
        ([[5, 200, 0]], None, "sentence 0 has id 200 in its source, of which the vocabulary has 200 ids"),
        ([[5, 0], [-1, 0]], None, "sentence 1 has id -1 in its source"),
        ([5, 0], None, "sentence 0: expected ids in its source, got 5"),
        (["six"], None, "sentence 0: expected ids in its source, got 'six'"),
        ([[5, 0]], [[200]], "sentence 0 has id 200 in its prefix"),
    ],
)
def test_ids_that_no_vocabulary_has(sources, prefixes, message) -> None:
    model, vocab = load_model(SHIPPED / "model.npz"), load_vocab(SHIPPED / "vocab.spm")
    search = BeamSearch([model], source_vocab=vocab, target_vocab=vocab)
    with pytest.raises(OptionError, match=message):
        search.search(sources, prefixes=prefixes)


@pytest.mark.parametrize("batch", [60, *(pytest.param(few, marks=pytest.mark.slow) for few in (7, 1))])
@pytest.mark.parametrize("name", ["transformer-joint", "s2s-gru"])
def test_europarl(fixtures, name, batch):
    folder, data = fixtures / "marian" / name, fixtures / "data"
    model = load_model(folder / "model.npz")
    names = json.loads((folder / "meta.json").read_text())["vocabs"]
    source, target = (
        load_vocab(data / Path(vocab).name, dim) for vocab, dim in zip(names, model.dim_vocabs, strict=True)
    )
    sources = [source.encode(line) for line in read_lines(data / "test.de")]
    vocabs = {"source_vocab": source, "target_vocab": target}

    greedy = search_in_batches(
        BeamSearch([model], options=BeamOptions(beam_size=1), **vocabs), sources, batch
    )
    assert [target.decode(h.words) for [h] in greedy] == read_lines(folder / "beam1.txt")

    search = BeamSearch([model], options=BeamOptions(beam_size=4, normalize=0.6), n_best=True, **vocabs)
    found = search_in_batches(search, sources, batch)
    assert [target.decode(h[0].words) for h in found] == read_lines(folder / "beam4.txt")
    check_n_best(found, target, folder / "beam4.nbest")
