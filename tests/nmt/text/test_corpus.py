"""The training corpus: Marian's batches in Marian's order, and again from any place."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from nmt.settings import OptionError
from nmt.text.corpus import Corpus
from nmt.text.layouts import PADDED, PackedLayout, PaddedLayout
from nmt.text.order import MersenneTwister, Rows
from nmt.text.parallel import CorpusError, Fields
from nmt.text.vocabs.base import Vocab
from tests.helpers.corpora import DATA, DEFAULTS, SEED, TEXTS, epoch, pairs, same

UPDATE = re.compile(r"Ep\. (\d+) : Up\. \d+ : Sen\. ([\d,]+) : Cost ([\d.]+) \* ([\d,]+) @")
TRACES = {name: options.split() for name, options in
          (line.split(" ", 1) for line in (DATA / "options.txt").read_text().splitlines())}  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_batches_are_marians(name: str, vocab: Vocab, corpora: Any) -> None:
    words = TRACES[name]
    options: dict[str, Any] = {
        option.removeprefix("--").replace("-", "_"): int(value) if value.isdigit() else value
        for option, value in zip(words[::2], words[1::2], strict=True)
    }
    if "data_weighting" in options:
        options["data_weighting"] = str(DATA / options["data_weighting"])
    lines = (Path(text).read_text().splitlines() for text in TEXTS)
    costs = {
        (tuple(vocab.encode(source)), tuple(vocab.encode(target))): -np.array(
            score.partition("WordScores=")[2].split(), float
        )
        for source, target, score in zip(*lines, (DATA / "scores.txt").read_text().splitlines(), strict=True)
    }
    corpus = corpora(**options)
    for number in range(1, 1 + int(options["after"][:-1])):
        expected = [
            (int(seen.replace(",", "")), float(cost), int(labels.replace(",", "")))
            for at, seen, cost, labels in UPDATE.findall((DATA / f"{name}.trace.txt").read_text())
            if int(at) == number
        ]
        seen = 0
        for batch, (after, cost, labels) in zip(epoch(corpus), expected, strict=True):
            seen += batch.sentences
            assert (seen, batch.words) == (after, labels)
            found = [costs[pair] for pair in pairs(batch)]
            weights = np.ones(batch.ids[-1].shape) if batch.weights is None else batch.weights
            sums = [word_costs @ weights[row, : len(word_costs)] for row, word_costs in enumerate(found)]
            assert sum(sums) / labels == pytest.approx(cost, abs=2e-5)


def test_generators_are_marians(corpora: Any) -> None:
    """After two epochs, their states are those in Marian's .progress.yml."""
    corpus = corpora(shuffle="data")
    for _ in range(2):
        epoch(corpus)
    corpus.begin_epoch()
    progress = yaml.safe_load((DATA / "data.progress.yml").read_text())
    assert corpus.seed_batch == progress["seed-batch"]
    assert corpus.seed_corpus == progress["seed-corpus"]


@pytest.mark.parametrize("shuffle", ["data", "batches", "none"])
def test_an_epoch_goes_on_where_it_was_left(shuffle: str, corpora: Any) -> None:
    corpus = corpora(shuffle=shuffle)
    epoch(corpus)
    second = epoch(corpus)
    states = corpus.seed_batch, corpus.seed_corpus
    third = epoch(corpus)
    for taken in (0, 1, 9, len(second)):
        again = corpora(shuffle=shuffle)
        again.restore(*states, taken, epoch=2)
        assert (again.seed_batch, again.seed_corpus) == states
        assert same(list(again), second[taken:])
        assert again.report().sentences == 400
        assert same(epoch(again), third)


def test_an_epoch_that_has_ended_leaves_the_states_of_the_next(corpora: Any) -> None:
    corpus = corpora(shuffle="data")
    epoch(corpus)
    corpus.end_epoch()
    with pytest.raises(CorpusError, match="begin_epoch"):
        list(corpus)
    states = corpus.seed_batch, corpus.seed_corpus
    second = epoch(corpus)
    assert (corpus.seed_batch, corpus.seed_corpus) == states
    again = corpora(shuffle="data")
    again.restore(*states, 0, epoch=2)
    assert same(list(again), second)
    again.restore(*states, len(second) + 1, epoch=2)
    with pytest.raises(CorpusError, match="--no-restore-corpus"):
        list(again)


def test_the_first_epoch_has_no_states_in_marians_file(corpora: Any) -> None:
    first = epoch(corpora(shuffle="data"))
    again = corpora(shuffle="data")
    again.restore("", "", 3)
    assert same(list(again), first[3:])


def test_an_epoch_that_is_left_has_drawn_what_was_taken(corpora: Any) -> None:
    """It does not matter how far the thread had run ahead."""
    corpora_left = [corpora(shuffle="batches") for _ in range(2)]
    for corpus in corpora_left:
        corpus.begin_epoch()
        batches = iter(corpus)
        for _ in range(9):
            next(batches)
    assert same(epoch(corpora_left[0]), epoch(corpora_left[1]))
    straight = corpora(shuffle="batches")
    epoch(straight)
    epoch(straight)
    fresh = corpora(shuffle="batches")
    assert len({corpus.seed_batch for corpus in (straight, corpora_left[0], fresh)}) == 3


def test_memory_or_files(corpora: Any, tmp_path: Path) -> None:
    by_files = corpora(shuffle="data", tempdir=str(tmp_path))
    in_memory, elsewhere = corpora(shuffle="data", shuffle_in_ram=True), corpora(shuffle="data", tempdir="")
    for _ in range(2):
        by_files.begin_epoch()
        found = list(by_files)
        assert same(found, epoch(in_memory)) and same(found, epoch(elsewhere))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("texts", [("a\nb\n", "a\n"), ("", "")])
def test_texts_of_different_lengths_or_without_lines(texts: tuple[str, str], tmp_path: Path) -> None:
    paths = str(tmp_path / "one"), str(tmp_path / "other")
    for path, text in zip(paths, texts, strict=True):
        Path(path).write_text(text)
    rows = Rows(replace(DEFAULTS, train_sets=paths, shuffle="data"), Fields(paths, False, (0, 1)))
    counts = ", ".join(f"{path}: {len(text.split())}" for path, text in zip(paths, texts, strict=True))
    with pytest.raises(CorpusError, match=f"same number of lines, at least 1; got {counts}$"):
        next(rows.epoch(MersenneTwister(1)))


@pytest.mark.parametrize("new", ["a\nb\n", "a\nb\nc\nd\n"])
@pytest.mark.parametrize("in_ram", [False, True])
def test_a_text_that_changes_after_it_was_counted(in_ram: bool, new: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a\nb\nc\n")
    options = replace(DEFAULTS, train_sets=(str(text),), shuffle="data", shuffle_in_ram=in_ram)
    rows = Rows(options, Fields((str(text),), False, (0,)))
    assert len(rows.sample(9)) == 3
    text.write_text(new)
    with pytest.raises(CorpusError, match="the training text had 3 lines when counted"):
        list(rows.epoch(MersenneTwister(1)))


def test_another_seed_is_another_order(corpora: Any) -> None:
    one, other = epoch(corpora(shuffle="data")), epoch(corpora(shuffle="data", seed=8))
    assert not same(one, other)
    assert sorted(pair for batch in one for pair in pairs(batch)) == sorted(
        pair for batch in other for pair in pairs(batch)
    )


def test_an_epoch_must_be_begun(corpora: Any) -> None:
    corpus = corpora()
    assert corpus.ready, "there is no thread to wait for"
    with pytest.raises(CorpusError, match="begin_epoch"):
        next(iter(corpus))


@pytest.mark.parametrize("streams", [1, 3])
def test_other_numbers_of_streams(streams: int, corpora: Any) -> None:
    """Language models and models of several sources; the last stream is the target."""
    texts = (TEXTS[0],) * (streams - 1) + (TEXTS[1],)
    batches = epoch(corpora(streams=streams, train_sets=texts))
    both = epoch(corpora())
    assert {len(batch.ids) for batch in batches} == {streams}
    targets = sorted(pair[-1] for batch in batches for pair in pairs(batch))
    assert targets == sorted(target for batch in both for _, target in pairs(batch))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_sets": TEXTS[:1]}, "2 files"),
        ({"train_sets": TEXTS[:1], "tsv": True, "tsv_fields": 3}, "--tsv-fields: expected 2"),
        ({"train_sets": TEXTS[:1], "tsv": True, "guided_alignment": "file"}, "expected a field number"),
        ({"train_sets": TEXTS[:1], "tsv": True, "guided_alignment": "3"}, "from 0 to 2"),
        ({"train_sets": TEXTS[:1], "tsv": True, "guided_alignment": "2", "data_weighting": "2"}, "different"),
        ({"streams": 1, "guided_alignment": "file"}, "--guided-alignment is for models with one source"),
        ({"streams": 3, "guided_alignment": "file"}, "--guided-alignment is for models with one source"),
        ({"maxi_batch_sort": "both"}, "--maxi-batch-sort"),
        ({"mini_batch": 0}, "--mini-batch"),
        ({"sentencepiece_alphas": (0.1, 0.1, 0.1)}, "--sentencepiece-alphas"),
        ({"tempdir": "nowhere", "shuffle": "data"}, "--tempdir nowhere: there is no such directory"),
    ],
)
def test_options_that_contradict(options: dict[str, Any], message: str, corpora: Any) -> None:
    with pytest.raises(OptionError, match=message):
        corpora(**options)


@pytest.mark.parametrize("options", [{"shuffle": "batches"}, {"shuffle": "data", "shuffle_in_ram": True}])
def test_a_folder_that_is_not_used_need_not_exist(options: dict[str, Any], corpora: Any) -> None:
    assert epoch(corpora(tempdir="nowhere", **options))


def test_padding_changes_no_sentence(corpora: Any) -> None:
    batches = epoch(corpora(mini_batch_words=60))
    for batch in batches:
        assert batch.words == sum(len(pair[-1]) for pair in pairs(batch))
        assert not batch.masks[-1][batch.sentences :].any()
        for table, mask in zip(batch.ids, batch.masks, strict=True):
            assert not table[: batch.sentences][mask[: batch.sentences] == 0].any()
        for table, mask in zip(batch.ids[:-1], batch.masks[:-1], strict=True):
            assert (table[batch.sentences :] == table[0]).all()
            assert (mask[batch.sentences :] == mask[0]).all()


@pytest.mark.parametrize("words", [0, 60])
@pytest.mark.parametrize("shuffle", ["data", "none"])
def test_few_shapes_and_little_padding(words: int, shuffle: str, corpora: Any) -> None:
    corpus = corpora(mini_batch_words=words, shuffle=shuffle, maxi_batch=20, program=0)
    for _ in range(2):
        epoch(corpus)
        report = corpus.report()
        assert (report.read, report.sentences, report.fresh) == (400, 400, 0)
        assert len(report.shapes) <= (16 if words else 12)
        assert report.waste < (0.2 if words else 0.15)
        assert report.padded == sum(rows * sum(rest) * n for (rows, *rest), n in report.shapes.items())


@pytest.mark.parametrize("shuffle", ["data", "none"])
def test_a_small_corpus_has_few_shapes_if_programs_cost_much(shuffle: str, corpora: Any) -> None:
    many, few = (corpora(shuffle=shuffle, maxi_batch=20, program=program) for program in (0, 20_000))
    assert epoch(many) and epoch(few)
    assert len(many.report().shapes) > 2 * len(few.report().shapes)


@pytest.mark.parametrize("layout", [PADDED, PackedLayout(), PackedLayout(2)], ids=["padded", "1", "2"])
def test_batches_as_large_as_memory(layout: PaddedLayout, corpora: Any) -> None:
    """Their shapes have room for all sentences, whichever stream is the longest."""
    options = {"maxi_batch_sort": "trg", "maxi_batch": 20}
    batches = epoch(corpora(sizes=lambda lengths: 200 // sum(lengths), layout=layout, **options))
    every = sorted(pair for batch in batches for pair in pairs(batch))
    assert every == sorted(pair for batch in epoch(corpora(**options)) for pair in pairs(batch))
    for batch in batches:
        rows, *lengths = batch.shape
        assert rows == max(1, 200 // sum(lengths)) and batch.sentences <= rows
    full = sum(batch.sentences == batch.shape[0] for batch in batches)
    assert full > len(batches) * 0.7


@pytest.mark.parametrize("shuffle", ["data", "none"])
def test_batches_end_when_they_are_asked_to(shuffle: str, vocab: Vocab) -> None:
    stop = threading.Event()
    options = replace(DEFAULTS, shuffle=shuffle)
    with closing(Corpus(options, [vocab] * 2, seed=SEED, stopped=stop.is_set)) as corpus:
        corpus.begin_epoch()
        assert next(iter(corpus)).sentences == 8
        stop.set()
        corpus.begin_epoch()
        assert list(corpus) == []
    with closing(Corpus(options, [vocab] * 2, seed=SEED, stopped=stop.is_set)) as corpus:
        corpus.begin_epoch()
        assert list(corpus) == []


def test_what_was_prepared_is_left_when_a_stop_is_asked_for(vocab: Vocab) -> None:
    stop, late = threading.Event(), time.monotonic() + 30
    with closing(Corpus(DEFAULTS, [vocab] * 2, seed=SEED, stopped=stop.is_set)) as corpus:
        assert corpus.ready, "nothing is prepared, so there is nothing to wait for"
        corpus.begin_epoch()
        while not corpus.ready and time.monotonic() < late:
            time.sleep(0.01)
        assert corpus.ready
        stop.set()
        assert list(corpus) == []


def test_the_thread_ends_with_the_corpus(vocab: Vocab) -> None:
    before = {*threading.enumerate()}
    with closing(Corpus(DEFAULTS, [vocab] * 2, seed=SEED)) as corpus:
        corpus.begin_epoch()
        next(iter(corpus))
        (thread,) = {*threading.enumerate()} - before
    assert not thread.is_alive()
