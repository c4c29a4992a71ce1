"""Several processes that share the reading of a corpus get the batches of one; here they are threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.settings import TRAIN
from nmt.text.batches import Batch
from nmt.text.corpus import Corpus
from nmt.text.parallel import CorpusError, Fields
from nmt.text.sentences import REASONS, Sentence, SentenceReader
from nmt.text.sharing import reading
from nmt.text.sharing.reading import Share, from_numbers, to_numbers
from nmt.text.vocabs.base import Vocab
from tests.helpers.corpora import GIVEN, SEED, epoch, same

WHOLE = Share(0, 1, lambda numbers: [numbers])


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ROWS", 50)


def together(count: int) -> list[Share]:
    """The shares of ``count`` threads."""
    barrier, sent = threading.Barrier(count, timeout=30), [np.zeros(0, np.int32)] * count

    def exchange(index: int) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
        def exchanged(numbers: np.ndarray) -> Sequence[np.ndarray]:
            sent[index] = numbers
            barrier.wait()
            found = list(sent)
            barrier.wait()
            return found

        return exchanged

    return [Share(index, count, exchange(index)) for index in range(count)]


def in_each(count: int, run: Callable[[Corpus], Any], vocab: Vocab, **options: Any) -> Iterator[Any]:
    """What ``run`` returns for the corpus of each of several processes."""
    values = TRAIN.from_python(GIVEN | options)

    def of(share: Share) -> Any:
        corpus = Corpus(values, [vocab] * 2, seed=SEED, share=share)
        try:
            return run(corpus)
        finally:
            corpus.close()

    with ThreadPoolExecutor(count) as pool:
        yield from pool.map(of, together(count))


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize(
    "options", [{"shuffle": "data"}, {"shuffle": "batches", "max_length": 9}, {"data_threads": 1}]
)
@pytest.mark.sampled(every=4)
def test_batches_are_those_of_one_process(
    count: int, options: dict[str, Any], vocab: Vocab, corpora: Any
) -> None:
    alone = corpora(**options)
    expected = [epoch(alone), epoch(alone)]
    for first, second, report in in_each(
        count, lambda corpus: (epoch(corpus), epoch(corpus), corpus.report()), vocab, **options
    ):
        assert same(first, expected[0]) and same(second, expected[1])
        assert report == alone.report()


def test_an_epoch_goes_on_with_another_number_of_processes(vocab: Vocab, corpora: Any) -> None:
    alone = corpora(shuffle="data")
    epoch(alone)
    second = epoch(alone)
    states, third = (alone.seed_batch, alone.seed_corpus), epoch(alone)

    def rest(corpus: Corpus) -> tuple[list[Batch], list[Batch]]:
        corpus.restore(*states, 9, epoch=2)
        return list(corpus), epoch(corpus)

    for count in (2, 4):
        for found, after in in_each(count, rest, vocab, shuffle="data"):
            assert same(found, second[9:]) and same(after, third)


def test_an_epoch_that_is_left_goes_on_from_its_last_batch(vocab: Vocab, corpora: Any) -> None:
    def leave(corpus: Corpus) -> list[Batch]:
        corpus.begin_epoch()
        batches = iter(corpus)
        for _ in range(9):
            next(batches)
        return epoch(corpus)

    expected = leave(corpora(shuffle="batches"))
    for found in in_each(2, leave, vocab, shuffle="batches"):
        assert same(found, expected)


def test_each_process_reads_only_its_own_rows(vocab: Vocab, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[SentenceReader, list[int]] = {}
    original = SentenceReader.read

    def count(reader: SentenceReader, number: int, row: Any, at: int) -> Sentence:
        if at:  # not the rows that are sampled before
            read.setdefault(reader, []).append(number)
        return original(reader, number, row, at)

    monkeypatch.setattr(SentenceReader, "read", count)
    list(in_each(4, epoch, vocab, shuffle="data"))
    assert sorted(map(len, read.values())) == [96, 96, 104, 104], "of 8 times 50 rows"
    assert sorted(chain.from_iterable(read.values())) == list(range(400))


def test_an_error_in_the_text_is_raised_in_each(vocab: Vocab, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("one two three\n" * 3)
    sets = [str(tmp_path / "long")] * 2

    def fails(corpus: Corpus) -> str:
        with pytest.raises(CorpusError) as error:
            epoch(corpus)
        return str(error.value)

    one, other = in_each(2, fails, vocab, train_sets=sets, max_length=2)
    assert one == other and one.startswith("nothing to train on: 3 of 3 lines left out")


@pytest.mark.parametrize("lines", [100, 99, 50, 0, 101], ids=lambda lines: f"{lines} of 100")
def test_other_lines_in_one_process_are_an_error_in_each(lines: int, vocab: Vocab) -> None:
    """This can happen with streams; 50 lines are exchanged at a time. As many lines may still differ."""
    text = [b"one two %d" % (number % 7) for number in range(101)]

    def rows(share: Share) -> str:
        values = TRAIN.from_python(GIVEN)
        reader = SentenceReader(values, [vocab] * 2, Fields.from_options(values, 2), SEED)
        own = text[:lines] if share.index == 2 else text[:100]
        if share.index == 2 and lines > 70:
            own[70] = b"two one 0"
        with pytest.raises(CorpusError) as error:
            list(share.all(share.own(reader, enumerate((line, line) for line in own), 1)))
        return str(error.value)

    with ThreadPoolExecutor(3) as pool:
        one, *others = pool.map(rows, together(3))
    assert others == [one] * 2
    assert one.startswith("process 2 read other lines than the first one")
    assert (", the first one " in one) == (lines < 100), "else as many lines differ"
    assert (" (0, the first one 50): " in one) == (lines in (0, 50))


def test_batches_end_when_they_are_asked_to(vocab: Vocab) -> None:
    stop = threading.Event()
    values = TRAIN.from_python(GIVEN | {"shuffle": "data"})
    corpus = Corpus(values, [vocab] * 2, seed=SEED, share=WHOLE, stopped=stop.is_set)
    corpus.begin_epoch()
    while not corpus.ready:
        time.sleep(0.01)
    assert next(iter(corpus)).sentences == 8
    stop.set()
    corpus.begin_epoch()
    assert list(corpus) == []
    corpus.close()


def test_rows_are_not_exchanged_after_a_stop(vocab: Vocab) -> None:
    # All processes know of a stop at the same batch, but their threads have not read equally far.
    stop, exchanged = threading.Event(), list[int]()

    def exchange(numbers: np.ndarray) -> Sequence[np.ndarray]:
        exchanged.append(len(numbers))
        return [numbers]

    values = TRAIN.from_python(GIVEN | {"shuffle": "data"})
    share = Share(0, 1, exchange)
    with closing(Corpus(values, [vocab] * 2, seed=SEED, share=share, stopped=stop.is_set)) as corpus:
        corpus.begin_epoch()
        before = len(exchanged)  # for the sample
        while not corpus.ready:
            time.sleep(0.01)
        stop.set()
        assert list(corpus) == [] and len(exchanged) == before > 0
        seed = corpus.seed_batch
        corpus.end_epoch()
        assert corpus.seed_batch == seed, "no batch was taken"


def test_sentences_become_numbers_and_sentences_again() -> None:
    sentences = [
        Sentence(3, ([5, 6, 0], [7, 0]), "", [(0, 1), (2, 1)], [0.5, 0.25]),
        Sentence(5, ([70000, 0], [0]), "", [], []),
        Sentence(8, ([1, 2, 3], [4], [5, 6]), "", None, [1.0]),
        *(Sentence(9 + i, (), reason) for i, reason in enumerate(REASONS[1:])),
        Sentence(20, ([0],)),
    ]
    numbers = to_numbers(sentences)
    assert numbers.dtype == np.int32
    found = from_numbers(numbers, [sentence.line for sentence in sentences])
    assert all(isinstance(words, np.ndarray) for sentence in found for words in sentence.sequences)
    as_lists = [one._replace(sequences=tuple(words.tolist() for words in one.sequences)) for one in found]
    assert as_lists == sentences
    assert from_numbers(to_numbers([]), []) == []
