"""The number words, the split between training and held-out numbers, the shipped model's files."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nmt import numbers
from nmt.cli import main as mgraph
from nmt.numbers import corpus, english, german
from nmt.numbers.__main__ import main
from tests.helpers.places import DATA

all_numbers = st.integers(0, 999_999)

KNOWN = [
    (0, "zero", "null"),
    (1, "one", "eins"),
    (7, "seven", "sieben"),
    (11, "eleven", "elf"),
    (12, "twelve", "zwölf"),
    (16, "sixteen", "sechzehn"),
    (17, "seventeen", "siebzehn"),
    (20, "twenty", "zwanzig"),
    (21, "twenty-one", "einundzwanzig"),
    (30, "thirty", "dreißig"),
    (66, "sixty-six", "sechsundsechzig"),
    (77, "seventy-seven", "siebenundsiebzig"),
    (100, "one hundred", "einhundert"),
    (101, "one hundred one", "einhunderteins"),
    (111, "one hundred eleven", "einhundertelf"),
    (121, "one hundred twenty-one", "einhunderteinundzwanzig"),
    (1_000, "one thousand", "eintausend"),
    (1_001, "one thousand one", "eintausendeins"),
    (1_100, "one thousand one hundred", "eintausendeinhundert"),
    (21_000, "twenty-one thousand", "einundzwanzigtausend"),
    (101_000, "one hundred one thousand", "einhunderteintausend"),
    (101_101, "one hundred one thousand one hundred one", "einhunderteintausendeinhunderteins"),
    (
        72_411,
        "seventy-two thousand four hundred eleven",
        "zweiundsiebzigtausendvierhundertelf",
    ),
    (
        999_999,
        "nine hundred ninety-nine thousand nine hundred ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
]

GERMAN_VALUES = {
    "null": 0, "eins": 1, "ein": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6,
    "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "elf": 11, "zwölf": 12, "sechzehn": 16,
    "siebzehn": 17, "zwanzig": 20, "dreißig": 30, "sechzig": 60, "siebzig": 70,
}  # fmt: skip


def read_german(word: str) -> int:
    """Read a German number word by splitting it, the reverse of writing it."""
    for splitter, value in (("tausend", 1000), ("hundert", 100)):
        head, found, tail = word.partition(splitter)
        if found:
            return read_german(head) * value + (read_german(tail) if tail else 0)
    if word in GERMAN_VALUES:
        return GERMAN_VALUES[word]
    if word.endswith("zehn"):
        return read_german(word.removesuffix("zehn")) + 10
    unit, found, tens = word.partition("und")
    if found:
        return read_german(unit) + read_german(tens)
    return read_german(word.removesuffix("zig")) * 10


@pytest.mark.parametrize(("number", "source", "target"), KNOWN)
def test_known_words(number: int, source: str, target: str) -> None:
    assert english(number) == source
    assert german(number) == target


@given(all_numbers)
def test_german_reads_back(number: int) -> None:
    word = german(number)
    assert read_german(word) == number
    assert word.endswith("eins") == (number % 100 == 1)
    assert word.count("eins") == (number % 100 == 1)


def test_words_are_distinct() -> None:
    """Words of all numbers below 10,000 and of a stride through the rest differ pairwise."""
    sample = [*range(10_000), *range(10_000, 1_000_000, 37)]
    assert len({english(n) for n in sample}) == len(sample)
    assert len({german(n) for n in sample}) == len(sample)


@given(all_numbers, all_numbers)
def test_words_are_injective(one: int, other: int) -> None:
    assert (english(one) == english(other)) == (one == other)
    assert (german(one) == german(other)) == (one == other)


@given(st.integers(1, 999), st.integers(1, 999))
def test_thousands_compose(thousands: int, rest: int) -> None:
    number = 1000 * thousands + rest
    assert english(number) == f"{english(thousands)} thousand {english(rest)}"
    assert german(number) == german(1000 * thousands) + german(rest)


@pytest.mark.parametrize("write", [english, german])
def test_other_numbers_are_refused(write) -> None:
    for number in (-1, 1_000_000):
        with pytest.raises(ValueError, match=f"from 0 to 999999, got {number}"):
            write(number)
    for number in (1.0, "1", True, None):
        with pytest.raises(TypeError, match="whole number"):
            write(number)


def test_split_is_disjoint_and_covers_every_length() -> None:
    held = numbers.heldout(2_000)
    trained = corpus.training(10_000)
    assert not {n for n, _, _ in held} & {n for n, _, _ in trained}
    for drawn in (held, trained):
        assert {len(str(n)) for n, _, _ in drawn} == {*range(1, 7)}
    assert not numbers.is_heldout(0)
    share = sum(map(numbers.is_heldout, range(100_000))) / 100_000
    assert 0.09 < share < 0.11


def test_heldout_draw() -> None:
    held = numbers.heldout(200, seed=3)
    found = [n for n, _, _ in held]
    assert found == sorted(set(found)) and len(found) == 200
    assert all(numbers.is_heldout(n) for n in found)
    assert all((source, target) == (english(n), german(n)) for n, source, target in held)
    assert held == numbers.heldout(200, seed=3) != numbers.heldout(200, seed=4)
    lengths = Counter(len(str(n)) for n in found)
    assert max(lengths[d] for d in range(3, 7)) - min(lengths[d] for d in range(3, 7)) <= 1


def test_the_demo_translates_no_more_than_is_held_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(map(numbers.is_heldout, range(1_000_000))) == corpus.HELDOUT
    assert mgraph(["demo", "--sentences", str(corpus.HELDOUT + 1)]) == 2
    assert "--sentences: expected at most 99893, got 99894" in capsys.readouterr().err


@pytest.mark.parametrize("count", [-1, 1_000_000])
def test_heldout_count_out_of_range(count: int) -> None:
    with pytest.raises(ValueError, match=f"count from 0 to .*, got {count}"):
        numbers.heldout(count)


@pytest.mark.thorough
def test_training_draw() -> None:
    trained = corpus.training(62, seed=3)
    assert Counter(len(str(n)) for n, _, _ in trained) == {1: 11, 2: 11, 3: 10, 4: 10, 5: 10, 6: 10}
    assert trained == corpus.training(62, seed=3) != corpus.training(62, seed=4)
    short = [n for n, _, _ in corpus.training(600) if n < 10]
    assert set(short) == {n for n in range(10) if not numbers.is_heldout(n)}
    with pytest.raises(ValueError, match="at least 0, got -1"):
        corpus.training(-1)


def test_command_line_writes_corpora_and_vocabulary(tmp_path: Path) -> None:
    prefix = tmp_path / "train"
    main(["train", "2000", "--output", str(prefix), "--seed", "5"])
    source = Path(f"{prefix}.en").read_text(encoding="utf-8").splitlines()
    target = Path(f"{prefix}.de").read_text(encoding="utf-8").splitlines()
    assert list(zip(source, target, strict=True)) == [(en, de) for _, en, de in corpus.training(2000, seed=5)]
    vocabulary = tmp_path / "v.spm"
    main(["vocab", f"{prefix}.en", f"{prefix}.de", "--size", "120", "--output", str(vocabulary)])
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))
    assert (pieces.eos_id(), pieces.unk_id(), pieces.bos_id()) == (0, 1, -1)
    assert pieces.get_piece_size() == 120
    assert pieces.decode(pieces.encode(target[0])) == target[0]


def test_command_line_refuses_in_one_line(tmp_path: Path) -> None:
    for arguments in (
        ["heldout", "1000000", "--output", str(tmp_path / "x")],
        ["vocab", str(tmp_path / "none.en"), "--output", str(tmp_path / "v.spm")],
    ):
        run = subprocess.run(
            [sys.executable, "-m", "nmt.numbers", *arguments], capture_output=True, text=True
        )
        assert run.returncode == 1
        assert run.stderr.startswith("python -m nmt.numbers: ")
        assert run.stderr.count("\n") == 1


def test_shipped_model_is_complete() -> None:
    folder = numbers.model_dir()
    decoder = yaml.safe_load((folder / "decoder.yml").read_text(encoding="utf-8"))
    assert decoder["relative-paths"] is True
    assert decoder["models"] == ["model.npz"]
    assert decoder["vocabs"] == ["vocab.spm", "vocab.spm"]
    assert (folder / "model.npz").stat().st_size < 1_500_000
    with np.load(folder / "model.npz", allow_pickle=False) as model:
        options = yaml.safe_load(model["special:model.yml"].tobytes().rstrip(b"\0"))
        embeddings = model["Wemb"].shape
    vocabulary = sentencepiece.SentencePieceProcessor(model_file=str(folder / "vocab.spm"))
    assert options["type"] == "transformer"
    assert embeddings == (vocabulary.get_piece_size(), options["dim-emb"])


@pytest.mark.parametrize("folder", ["numbers", "s2s-numbers"])
def test_references_belong_to_the_inputs(folder: str) -> None:
    reference = DATA / folder
    lines = (reference / "input.en").read_bytes().split(b"\n")[:-1]
    for name in ("beam1.txt", "beam4.txt", "beam12.txt", "scores.txt", "word-scores.txt"):
        assert (reference / name).read_bytes().count(b"\n") == len(lines)
    entries = (reference / "beam4.nbest").read_bytes().split(b"\n")[:-1]
    assert [int(entry.split(b" ||| ")[0]) for entry in entries] == [
        line for line in range(len(lines)) for _ in range(4)
    ]
    held = numbers.heldout(40)
    assert [line.decode() for line in lines[:40]] == [source for _, source, _ in held]
    if folder == "numbers":
        best = (reference / "beam4.txt").read_bytes().split(b"\n")[:40]
        assert [line.decode() for line in best] == [target for _, _, target in held]
