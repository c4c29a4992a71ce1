"""The training corpus: what is read, left out, weighted, aligned and changed on the way."""

from __future__ import annotations

import gzip
import io
import os
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.settings import OptionError
from nmt.text.corpus import Corpus, EpochReport
from nmt.text.parallel import CorpusError, ParallelTextError
from nmt.text.sentences import Casing
from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.loading import load_vocab
from tests.helpers import places
from tests.helpers.corpora import DEFAULTS, SEED, TEXTS, epoch, pairs, same


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
    with pytest.raises(CorpusError, match="for one epoch only"):
        list(corpus)
    with pytest.raises(OptionError, match="cannot be shuffled"):
        corpora(train_sets=("stdin",), tsv=True, shuffle="data")


@pytest.mark.parametrize("sample", [1 << 15, 4])
def test_reading_ends_while_a_pipe_has_no_data(
    sample: int, vocab: Vocab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a signal, of a sample that training waits for; at the end of training, in the thread that reads."""
    monkeypatch.setattr("nmt.text.corpus.SAMPLE", sample)
    pipe, stopped, waited = tmp_path / "pipe", threading.Event(), threading.Event()
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"w1\tw2\n" * 5)

    def end_of_the_pipe() -> None:
        waited.set()
        os.close(writer)

    options = replace(DEFAULTS, train_sets=(str(pipe),), tsv=True, shuffle="none")
    corpus = Corpus(options, [vocab] * 2, seed=SEED, stopped=stopped.is_set)
    signal, rescue = threading.Timer(0.1, stopped.set), threading.Timer(60.0, end_of_the_pipe)
    for timer in (signal, rescue) if sample > 5 else (rescue,):
        timer.start()
    corpus.begin_epoch()
    corpus.close()
    rescue.cancel()
    assert not waited.is_set()
    os.close(writer)


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
        "w1\tw2\t0-x\t1",
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
        "with a bad word alignment": 3,
        "with bad weights": 1,
        "with too many fields": 1,
    }
    assert report.read == 9
    assert report.lines()[1] == (
        "6 of 9 lines left out: 3 with a bad word alignment, 1 with more words than --max-length, "
        "1 with bad weights, 1 with too many fields"
    )
    assert report.lines()[2] == "lines that are not valid UTF-8 (such words are unknown): 1"


def test_nothing_is_left(corpora: Any) -> None:
    with pytest.raises(
        CorpusError, match="nothing to train on: 400 of 400 lines left out: 400 with more words"
    ):
        epoch(corpora(max_length=1))


def test_alignments_and_weights(corpora: Any, tmp_path: Path) -> None:
    """Links count as often as they occur; the two ``</s>`` are linked once more than the file says."""
    files = {
        "source": ("w1 w2 w3", "w1"),
        "target": ("w4 w5", "w4 w5 w6"),
        "links": ("0-0 2-0 1-1 0-0 3-2", ""),
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
        batch.alignment[1, :4], [[2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 2], [0, 0, 0, 0]]
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
    ("weights", "left", "few"),
    [
        ("1", 0, 0),
        ("1 nan", 1, 0),
        ("1 2", 0, 1),
        ("1 2 3 4", 0, 0),
        ("1 2 3 4 5", 0, 0),
        ("1 2 3 4 5 6", 1, 0),
    ],
)
def test_a_wrong_number_of_weights_is_reported(
    weights: str, left: int, few: int, corpora: Any, tmp_path: Path
) -> None:
    target = write(tmp_path / "target", "w1 w2 w3 w4", "w1")
    options = {"train_sets": (target, target), "data_weighting_type": "word"}
    corpus = corpora(**options, data_weighting=write(tmp_path / "weights", weights, "1 1"))
    epoch(corpus)
    assert corpus.report().left_out["with bad weights"] == left
    told = "lines with fewer weights than target words (the missing ones are 1): 1"
    assert corpus.report().lines()[1 + left :] == [told] * few


def test_only_an_empty_line_needs_no_word_weights(corpora: Any, tmp_path: Path) -> None:
    target, weights = write(tmp_path / "target", "w1 w2 w3", "w1", ""), write(tmp_path / "weights", *[""] * 3)
    options = {"train_sets": (target, target), "data_weighting": weights}
    corpus = corpora(**options, data_weighting_type="word")
    assert epoch(corpus)[0].sentences == 1
    assert dict(corpus.report().left_out) == {"with bad weights": 2}
    with pytest.raises(CorpusError, match="3 of 3 lines left out: 3 with bad weights"):
        epoch(corpora(**options, data_weighting_type="sentence"))


def test_batches_of_new_shapes_are_counted() -> None:
    report = EpochReport()
    for fresh in (False, True, True):
        report.add((2, 3, 3), 9, (4, 3, 3), fresh)
    assert report.lines()[0].endswith(
        "(2 batches fitted none of those chosen before); padding takes 62.5% of the positions, 50.0% for the "
        "shapes"
    )


def test_weights_are_cut_with_their_sentences(corpora: Any, tmp_path: Path) -> None:
    target = write(tmp_path / "target", "w1 w2 w3 w4", "w1")
    weights = write(tmp_path / "weights", "1 2 3 4 5", "1 2 3")
    corpus = corpora(
        train_sets=(target, target), data_weighting=weights, data_weighting_type="word", max_length=3,
        max_length_crop=True,
    )  # fmt: skip
    (batch,) = epoch(corpus)
    assert batch.sentences == 1 and batch.weights is not None
    np.testing.assert_array_equal(batch.weights[0, :3], [1, 2, 3])
    assert dict(corpus.report().left_out) == {"with bad weights": 1}


SPM = places.DATA / "vocab/words.spm"


def test_sampled_pieces_repeat_with_seed_epoch_and_line(tmp_path: Path) -> None:
    vocab = load_vocab(SPM)
    text = write(tmp_path / "text", *["she sells", "shore sea"] * 6)
    options = replace(DEFAULTS, train_sets=(text, text), sentencepiece_alphas=(0.1,))

    def corpus(seed: int = SEED) -> Corpus:
        return Corpus(options, [vocab] * 2, seed=seed)

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


def test_words_of_a_list_keep_their_case(corpora: Any, tmp_path: Path) -> None:
    assert same(epoch(corpora(all_caps_every=1)), epoch(corpora()))
    links = write(tmp_path / "links", *["0-0"] * 400)
    (*_, batch) = epoch(corpora(all_caps_every=1, guided_alignment=links))
    assert batch.alignment is not None and not batch.alignment.any()  # the links belong to other text
