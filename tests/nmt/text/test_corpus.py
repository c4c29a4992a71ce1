"""The training corpus: Marian's batches in Marian's order, and again from any place."""

from __future__ import annotations

import gzip
import io
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from nmt.settings import TRAIN, OptionError
from nmt.text.batches import Batch
from nmt.text.corpus import Corpus
from nmt.text.parallel import CorpusError, ParallelTextError
from nmt.text.sentences import Casing
from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.loading import load_vocab
from tests.helpers import places

DATA = places.DATA / "corpus"
TEXTS = (str(DATA / "source.txt"), str(DATA / "target.txt"))
SEED = 7
GIVEN = {"model": "m.npz", "train_sets": TEXTS, "mini_batch": 8, "maxi_batch": 8, "shuffle": "none"}
DEFAULTS = TRAIN.from_python(GIVEN)
UPDATE = re.compile(r"Ep\. (\d+) : Up\. \d+ : Sen\. ([\d,]+) : Cost ([\d.]+) \* ([\d,]+) @")


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return load_vocab(DATA / "words.yml")


@pytest.fixture
def corpora(vocab: Vocab) -> Iterator[Any]:
    made: list[Corpus] = []

    def make(streams: int = 2, seed: int = SEED, sizes: Any = None, **options: Any) -> Corpus:
        values = TRAIN.from_python(GIVEN | options)
        made.append(Corpus.from_options(values, [vocab] * streams, seed=seed, sizes=sizes))
        return made[-1]

    yield make
    for corpus in made:
        corpus.close()


def epoch(corpus: Corpus) -> list[Batch]:
    """All batches of the next epoch."""
    corpus.begin_epoch()
    return list(corpus)


def pairs(batch: Batch) -> list[tuple[tuple[int, ...], ...]]:
    """The real sentences of a batch, as word ids of each stream."""
    return [
        tuple(
            tuple(ids[row][mask[row] > 0].tolist()) for ids, mask in zip(batch.ids, batch.masks, strict=True)
        )
        for row in range(batch.sentences)
    ]


def same(one: Sequence[Batch], other: Sequence[Batch]) -> bool:
    """Whether batches are the same, padding included."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a.sentences != b.sentences or a.shape != b.shape:
            return False
        if not all(map(np.array_equal, (*a.ids, *a.masks), (*b.ids, *b.masks))):
            return False
    return True


# ---------------------------------------------------------------- as Marian

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
    """After two epochs, as Marian has them in .progress.yml."""
    corpus = corpora(shuffle="data")
    for _ in range(2):
        epoch(corpus)
    corpus.begin_epoch()
    progress = yaml.safe_load((DATA / "data.progress.yml").read_text())
    assert corpus.seed_batch == progress["seed-batch"]
    assert corpus.seed_corpus == progress["seed-corpus"]


# ---------------------------------------------------------------- order


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
    """However far the thread had run ahead."""
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
    assert straight.seed_batch != corpora_left[0].seed_batch


def test_memory_or_files(corpora: Any, tmp_path: Path) -> None:
    by_files = corpora(shuffle="data", tempdir=str(tmp_path))
    in_memory = corpora(shuffle="data", shuffle_in_ram=True)
    for _ in range(2):
        by_files.begin_epoch()
        assert same(list(by_files), epoch(in_memory))
    assert not list(tmp_path.iterdir())


def test_another_seed_is_another_order(corpora: Any) -> None:
    one, other = epoch(corpora(shuffle="data")), epoch(corpora(shuffle="data", seed=8))
    assert not same(one, other)
    assert sorted(pair for batch in one for pair in pairs(batch)) == sorted(
        pair for batch in other for pair in pairs(batch)
    )


def test_an_epoch_must_be_begun(corpora: Any) -> None:
    with pytest.raises(CorpusError, match="begin_epoch"):
        next(iter(corpora()))


# ---------------------------------------------------------------- text


def write(path: Path, *lines: str) -> str:
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


@pytest.mark.parametrize("shuffle", ["data", "none"])
def test_packed_and_tab_separated_text(shuffle: str, corpora: Any, tmp_path: Path) -> None:
    lines = [Path(text).read_text().splitlines() for text in TEXTS]
    packed = tuple(write(tmp_path / f"{i}.gz", *text) for i, text in enumerate(lines))
    tabs = write(tmp_path / "text.tsv", *map("\t".join, zip(*lines, strict=True)))
    plain = epoch(corpora(shuffle=shuffle))
    assert same(epoch(corpora(shuffle=shuffle, train_sets=packed)), plain)
    assert same(epoch(corpora(shuffle=shuffle, train_sets=(tabs,), tsv=True)), plain)


def test_standard_input(corpora: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Path(text).read_text().splitlines() for text in TEXTS]
    text = "".join("\t".join(row) + "\n" for row in zip(*lines, strict=True)).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    corpus = corpora(train_sets=("-",), tsv=True)
    assert same(epoch(corpus), epoch(corpora()))
    corpus.begin_epoch()
    with pytest.raises(CorpusError, match="have one epoch"):
        list(corpus)
    with pytest.raises(OptionError, match="cannot be shuffled"):
        corpora(train_sets=("stdin",), tsv=True, shuffle="data")


def test_a_pipe_is_read_once(corpora: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(Path(TEXTS[0]).read_bytes(),))
    writer.start()
    assert same(epoch(corpora(train_sets=(str(pipe), TEXTS[1]))), epoch(corpora()))
    writer.join()


@pytest.mark.parametrize("shuffle", ["data", "none"])
def test_texts_must_be_equally_long(shuffle: str, corpora: Any, tmp_path: Path) -> None:
    short = write(tmp_path / "short", "w1", "w2")
    with pytest.raises((CorpusError, ParallelTextError), match=r"short.* 2"):
        epoch(corpora(shuffle=shuffle, train_sets=(TEXTS[0], short)))
    empty = write(tmp_path / "empty")
    with pytest.raises(CorpusError, match="empty"):
        epoch(corpora(shuffle=shuffle, train_sets=(empty, empty)))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        epoch(corpora(shuffle=shuffle, train_sets=(TEXTS[0], str(tmp_path / "nowhere"))))
    with pytest.raises(IsADirectoryError):
        epoch(corpora(shuffle=shuffle, train_sets=(TEXTS[0], str(tmp_path))))


def test_a_text_must_not_change(corpora: Any, tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    texts = tuple(write(path, *["w1"] * 5) for path in paths)
    corpus = corpora(train_sets=texts, shuffle="data")
    assert epoch(corpus)[0].sentences == 5
    for path in paths:
        write(path, *["w1"] * 6)
    with pytest.raises(CorpusError, match="must not change"):
        epoch(corpus)


def test_what_is_left_out_is_reported(corpora: Any, tmp_path: Path) -> None:
    text = write(
        tmp_path / "text",
        "w1 w2\tw3\t0-0\t0.5", "w1 w2 w3 w4\tw1\t0-0\t1", "w1\tw2\t0-1-1\t1", "w1\tw2\t4-0\t1",
        "w1\tw2\t0-0\tmuch", "w1\tw2\t0-0\t1\tw3", "\t\t\t1", "\udcffw1\tw2\t0-0\t2",
    )  # fmt: skip
    corpus = corpora(
        train_sets=(text,), tsv=True, max_length=4, guided_alignment="2", data_weighting="3",
        data_weighting_type="word",
    )  # fmt: skip
    (batch,) = epoch(corpus)
    assert batch.sentences == 3  # an empty line is </s>, as in Marian
    report = corpus.report()
    assert dict(report.left_out) == {
        "with more words than --max-length": 1,
        "with a bad word alignment": 2,
        "with bad weights": 1,
        "with too many fields": 1,
    }
    assert report.read == 8
    assert report.lines()[1] == (
        "5 of 8 lines left out: 2 with a bad word alignment, 1 with more words than --max-length, "
        "1 with bad weights, 1 with too many fields"
    )
    assert report.lines()[2] == "lines that are not valid UTF-8 (such words are unknown): 1"


def test_nothing_is_left(corpora: Any) -> None:
    with pytest.raises(
        CorpusError, match="nothing to train on: 400 of 400 lines left out: 400 with more words"
    ):
        epoch(corpora(max_length=1))


# ---------------------------------------------------------------- sentences


def test_alignments_and_weights(vocab: Vocab, corpora: Any, tmp_path: Path) -> None:
    """Equal shares of the source words of each target word; the ends are linked to each other."""
    files = {
        "source": ("w1 w2 w3", "w1"),
        "target": ("w4 w5", "w4 w5 w6"),
        "links": ("0-0 2-0 1-1", ""),
        "weights": ("0.5 2", "3 1 1"),
    }
    paths = {name: write(tmp_path / name, *lines) for name, lines in files.items()}
    options = {
        "train_sets": (paths["source"], paths["target"]), "guided_alignment": paths["links"],
        "data_weighting": paths["weights"], "maxi_batch_sort": "none",
    }  # fmt: skip
    (batch,) = epoch(corpora(**options, data_weighting_type="word"))
    assert batch.alignment is not None and batch.weights is not None
    np.testing.assert_array_equal(
        batch.alignment[1, :4], [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(np.argwhere(batch.alignment[0]), [[3, 1]])
    np.testing.assert_array_equal(batch.weights[:, :4], [[3, 1, 1, 1], [0.5, 2, 1, 1]])
    (batch,) = epoch(corpora(**options, data_weighting_type="sentence"))
    assert batch.weights is not None
    np.testing.assert_array_equal(batch.weights[:, :3], [[3, 3, 3], [0.5, 0.5, 0.5]])
    columns = [*zip(*(files[name] for name in ("weights", "source", "links", "target")), strict=True)]
    tabs = write(tmp_path / "tsv", *map("\t".join, columns))
    places = {"guided_alignment": "2", "data_weighting": "0"}
    (fields,) = epoch(corpora(train_sets=(tabs,), tsv=True, **places, maxi_batch_sort="none"))
    assert same([fields], [batch])
    np.testing.assert_array_equal(fields.alignment, batch.alignment)
    np.testing.assert_array_equal(fields.weights, batch.weights)


@pytest.mark.parametrize("streams", [1, 3])
def test_other_numbers_of_streams(streams: int, corpora: Any) -> None:
    """Language models and models of several sources; the last stream is the target."""
    texts = (TEXTS[0],) * (streams - 1) + (TEXTS[1],)
    batches = epoch(corpora(streams=streams, train_sets=texts))
    both = epoch(corpora())
    assert {len(batch.ids) for batch in batches} == {streams}
    targets = sorted(pair[-1] for batch in batches for pair in pairs(batch))
    assert targets == sorted(target for batch in both for _, target in pairs(batch))


def test_cut_and_reversed_sentences(vocab: Vocab, corpora: Any, tmp_path: Path) -> None:
    source, target = write(tmp_path / "source", "w1 w2 w3 w4"), write(tmp_path / "target", "w5 w6")
    one, two, five, six = (vocab[word] for word in ("w1", "w2", "w5", "w6"))
    eos = vocab.eos_id
    options = {"train_sets": (source, target), "max_length": 3, "max_length_crop": True}
    assert pairs(epoch(corpora(**options))[0]) == [((one, two, eos), (five, six, eos))]
    assert pairs(epoch(corpora(**options, right_left=True))[0]) == [((two, one, eos), (six, five, eos))]
    with pytest.raises(OptionError, match="--right-left"):
        corpora(**options, right_left=True, guided_alignment=source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_sets": TEXTS[:1]}, "2 files"),
        ({"train_sets": TEXTS[:1], "tsv": True, "tsv_fields": 3}, "--tsv-fields: 2"),
        ({"train_sets": TEXTS[:1], "tsv": True, "guided_alignment": "file"}, "number of a field"),
        ({"train_sets": TEXTS[:1], "tsv": True, "guided_alignment": "3"}, "from 0 to 2"),
        ({"train_sets": TEXTS[:1], "tsv": True, "guided_alignment": "2", "data_weighting": "2"}, "different"),
        ({"maxi_batch_sort": "both"}, "--maxi-batch-sort"),
        ({"mini_batch": 0}, "--mini-batch"),
        ({"sentencepiece_alphas": (0.1, 0.1, 0.1)}, "--sentencepiece-alphas"),
        ({"tempdir": "nowhere", "shuffle": "data"}, "--tempdir nowhere: there is no such directory"),
    ],
)
def test_options_that_contradict(options: dict[str, Any], message: str, corpora: Any) -> None:
    with pytest.raises(OptionError, match=message):
        corpora(**options)


# ---------------------------------------------------------------- shapes


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
    corpus = corpora(mini_batch_words=words, shuffle=shuffle, maxi_batch=20)
    for _ in range(2):
        epoch(corpus)
        report = corpus.report()
        assert len(report.shapes) <= (16 if words else 12)
        assert report.waste < (0.2 if words else 0.15)
        assert report.padded == sum(rows * sum(rest) * n for (rows, *rest), n in report.shapes.items())


def test_batches_as_large_as_memory(corpora: Any) -> None:
    corpus = corpora(sizes=lambda lengths: 200 // sum(lengths), maxi_batch_sort="trg", maxi_batch=20)
    batches = epoch(corpus)
    assert sum(batch.sentences for batch in batches) == 400
    for batch in batches:
        rows, *lengths = batch.shape
        assert rows == max(1, 200 // sum(lengths)) and batch.sentences <= rows
    full = sum(batch.sentences == batch.shape[0] for batch in batches)
    assert full > len(batches) * 0.7


# ---------------------------------------------------------------- text that is changed

SPM = places.DATA / "vocab/words.spm"


def test_sampled_pieces_repeat_with_seed_epoch_and_line(tmp_path: Path) -> None:
    vocab = load_vocab(SPM)
    text = write(tmp_path / "text", *["she sells", "shore sea"] * 6)
    options = replace(DEFAULTS, train_sets=(text, text), sentencepiece_alphas=(0.1,))

    def corpus(seed: int = SEED) -> Corpus:
        return Corpus.from_options(options, [vocab] * 2, seed=seed)

    with closing(corpus()) as one, closing(corpus()) as again, closing(corpus(8)) as other:
        first, second = epoch(one), epoch(one)
        again.restore(one.seed_batch, one.seed_corpus, 0, epoch=2)
        assert same(list(again), second)
        assert not same(first, second) and not same(first, epoch(other))
    sources = {source for batch in first for source, _ in pairs(batch)}
    targets = {target for batch in first for _, target in pairs(batch)}
    assert len(sources) > 6 and len(targets) == 2
    assert {vocab.decode(source) for source in sources} == {"she sells", "shore sea"}


def test_a_list_of_words_knows_one_way(corpora: Any) -> None:
    assert same(epoch(corpora(sentencepiece_alphas=(0.1, 0.1))), epoch(corpora()))


def test_casing() -> None:
    vocabs = [load_vocab(SPM)] * 2
    casing = Casing(vocabs, all_caps_every=3, title_every=2)
    rows: list[list[str | bytes]] = [["the élan of it's sea", b"stra\xc3\x9fe \xff"] for _ in range(4)]
    assert [casing.alter(number, row) for number, row in enumerate(rows)] == [True, True, False, True]
    upper: list[str | bytes] = ["THE ÉLAN OF IT'S SEA".encode(), "STRAßE ".encode() + b"\xff"]
    title: list[str | bytes] = ["the élan of It's Sea".encode(), b"stra\xc3\x9fe \xff"]
    assert rows == [upper, title, ["the élan of it's sea", b"stra\xc3\x9fe \xff"], upper]


def test_words_of_a_list_keep_their_case(vocab: Vocab, corpora: Any, tmp_path: Path) -> None:
    assert same(epoch(corpora(all_caps_every=1)), epoch(corpora()))
    links = write(tmp_path / "links", *["0-0"] * 400)
    (*_, batch) = epoch(corpora(all_caps_every=1, guided_alignment=links))
    assert batch.alignment is not None and not batch.alignment.any()  # the links are of other text


# ---------------------------------------------------------------- the thread


@pytest.mark.parametrize("shuffle", ["data", "none"])
def test_batches_end_when_they_are_asked_to(shuffle: str, vocab: Vocab) -> None:
    stop = threading.Event()
    options = replace(DEFAULTS, shuffle=shuffle)
    with closing(Corpus.from_options(options, [vocab] * 2, seed=SEED, stopped=stop.is_set)) as corpus:
        corpus.begin_epoch()
        assert next(iter(corpus)).sentences == 8
        stop.set()
        corpus.begin_epoch()
        assert list(corpus) == []


def test_the_thread_ends_with_the_corpus(vocab: Vocab) -> None:
    before = threading.active_count()
    with closing(Corpus.from_options(DEFAULTS, [vocab] * 2, seed=SEED)) as corpus:
        corpus.begin_epoch()
        next(iter(corpus))
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
