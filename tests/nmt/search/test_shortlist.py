"""Lexical shortlists: Marian's rules for candidates, and its binary files byte for byte."""

from __future__ import annotations

import resource
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from nmt.search import shortlist
from nmt.search.shortlist import (
    HEADER,
    Lexicon,
    Listed,
    Shortlist,
    ShortlistError,
    load_shortlist,
    read_binary,
    read_text,
    write_binary,
)
from nmt.settings import OptionError
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.places import DATA, SHIPPED

SEARCH = DATA / "search"
PIECES = load_vocab(SHIPPED / "vocab.spm")


class Numbers:
    """A vocabulary whose words are the numerals of their ids; 1 is the unknown word."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, word: bytes) -> int:
        return int(word) if word.isdigit() and int(word) < self.size else 1


def test_shortlists_are_listed_together_while_there_is_room() -> None:
    listed = Listed(10, 5)
    assert len(listed) == 1, "word 0 fills shortlists up"
    assert listed.add(np.array([2, 3, 4])) and len(listed) == 4
    assert not listed.add(np.array([4, 5, 6])) and len(listed) == 4, "nothing is added of what has no room"
    assert listed.add(np.array([0, 4, 9])) and len(listed) == 5
    assert listed.add(np.array([2, 9])) and not listed.add(np.array([1]))


def lexicon_of(text: str, *limits: float, **options: bool) -> Lexicon:
    return read_text(text.encode(), "lex", Numbers(9), Numbers(40), *limits, **options)


def words_of(lexicon: Lexicon) -> dict[int, list[int]]:
    found = {word: lexicon.of(word).tolist() for word in range(9)}
    return {word: words for word, words in found.items() if words}


TEXT = "30 5 0.5\n31 5 0.25\n32 5 0.5 33 5 0\n9 x 0.1\n8 NULL 0.5\nNULL 5 0.9\n31 5 0.3\n"


def test_the_most_probable_words_are_kept() -> None:
    assert words_of(lexicon_of(TEXT)) == {1: [9], 5: [30, 31, 32]}
    assert words_of(lexicon_of(TEXT, 100, 1)) == {1: [9], 5: [32]}, "of equals the higher id"
    assert words_of(lexicon_of(TEXT, 100, 100, 0.3)) == {5: [30, 32]}, "above, not at, the threshold"
    assert words_of(lexicon_of(TEXT, 100, 0)) == {}


def test_without_limits_there_are_a_hundred_words(tmp_path: Path) -> None:
    (tmp_path / "lex").write_text(TEXT)
    found = load_shortlist([str(tmp_path / "lex")], Numbers(9), Numbers(40), size=40, shared=False).lexicon
    assert {(each.first, each.best) for each in (found, lexicon_of(TEXT))} == {(100, 100)}
    assert words_of(found) == words_of(lexicon_of(TEXT))


def test_a_lexicon_may_be_empty(tmp_path: Path) -> None:
    write_binary(tmp_path / "lex.bin", lexicon_of("", 3))
    found = read_binary((tmp_path / "lex.bin").read_bytes(), "lex.bin", 200, PIECES)
    assert words_of(found) == {} and found.first == 3 and len(found.offsets) == 10


def test_of_repeated_pairs_the_last_counts_and_for_the_converter_the_highest() -> None:
    text = "7 2 0.5\n8 2 0.4\n7 2 0.1\n"
    assert words_of(lexicon_of(text, 0, 1)) == {2: [8]}
    assert words_of(lexicon_of(text, 0, 1, converting=True)) == {2: [7]}
    assert words_of(lexicon_of("7 2 0.5\n8 2 0\n", 0, 9, 0.5, converting=True)) == {2: [7]}
    assert words_of(lexicon_of("7 2 0.5\n8 2 0\n", 0, 9, converting=True)) == {2: [7, 8]}


@pytest.mark.parametrize(
    ("first", "size", "shared", "source", "candidates"),
    [
        (8, 40, False, [1], [*range(8), *range(8, 15), 20][:16]),
        (2, 40, False, [3, 0], [0, 1, *range(2, 8)]),
        (2, 40, False, [1, 2, 1], [0, 1, 2, 3, 4, 5, 20, 21]),
        (2, 40, True, [1, 30], [0, 1, 2, 3, 4, 5, 20, 30]),
        (2, 40, False, [1, 30], [0, 1, 2, 3, 4, 5, 6, 20]),
        (0, 40, False, [1], [0, 1, 2, 3, 4, 5, 6, 20]),
        (21, 24, False, [2], [*range(24)]),
        (100, 22, True, [2, 22, 50], [*range(22)]),  # never more words than the vocabulary has
        (2, 22, False, [2], [0, 1, 2, 3, 4, 5, 6, 21]),
    ],
)
def test_candidates(first: int, size: int, shared: bool, source: list[int], candidates: list[int]) -> None:
    lexicon = Lexicon(np.array([0, 0, 1, 2]), np.array([20, 21]), first, 5)
    found = Shortlist(lexicon, size, shared).candidates(source)
    assert found.tolist() == candidates and found.dtype == np.int32


def test_the_binary_file_is_marians(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text, binary = ((SEARCH / f"lexicon.{end}").read_bytes() for end in ("txt", "bin"))
    converted = read_text(text, "txt", PIECES, PIECES, 20, 5, 0, converting=True)
    write_binary(tmp_path / "ours.bin", converted)
    assert (tmp_path / "ours.bin").read_bytes() == binary
    write_binary("-", converted)
    assert capfdbinary.readouterr().out == binary, "- is standard output"
    sizes = {"size": 200, "shared": True}
    one = load_shortlist([str(SEARCH / "lexicon.bin"), "1"], PIECES, PIECES, **sizes)
    other = load_shortlist([str(SEARCH / "lexicon.txt"), "20", "5", "0"], PIECES, PIECES, **sizes)
    assert (one.lexicon.first, one.lexicon.best) == (20, 5)
    for line in "three hundred eight", "☃", "":
        source = PIECES.encode(line)
        assert one.candidates(source).tolist() == other.candidates(source).tolist()


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    data = (SEARCH / "lexicon.txt").read_bytes()
    lexicon, path = read_text(data, "txt", PIECES, PIECES, 20, 5, 0, converting=True), tmp_path / "lex.bin"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_binary(path, lexicon)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("at", "by", "end", "message"),
    [
        (None, b"", 40, "expected a header of 48 bytes, got 40"),
        (0, b"x", None, "magic number"),
        (None, b"", 2000, "expected 2320 bytes by its header, got 2000"),
        (50, b"\1", None, "checksum does not match"),
        (HEADER.size, b"\xff" * 8, None, "offsets are not in order"),
        (HEADER.size + 8 * 100, b"\xff" * 8, None, "offsets are not in order"),
        (HEADER.size + 8 * 200, b"\xa7", None, "offsets are not in order"),  # one beyond the last word
        (32, bytes(16), HEADER.size, "offsets are not in order"),  # there are none
        (16, (2**63).to_bytes(8, "little"), None, "first 9223372036854775808 and the best 5 words"),
        (24, b"\xff" * 8, None, "first 20 and the best 18446744073709551615 words"),
        (2000, b"\xff\xff\0\0", None, "holds target word 65535, the model has 200"),
    ],
)
def test_damaged_files_are_named(at: int | None, by: bytes, end: int | None, message: str) -> None:
    data = bytearray((SEARCH / "lexicon.bin").read_bytes())
    if at is not None:
        data[at : at + len(by)] = by
    with pytest.raises(ShortlistError, match=f"lex.bin: .*{message}"):
        read_binary(bytes(data[:end]), "lex.bin", 200, PIECES, check=at == 50)


@pytest.mark.parametrize("flag", [[], ["1"], ["0"], ["false"]])
def test_the_checksum_is_verified_unless_the_flag_says_no(flag: list[str], tmp_path: Path) -> None:
    data = bytearray((SEARCH / "lexicon.bin").read_bytes())
    data[8] ^= 1  # the checksum itself
    (tmp_path / "lex.bin").write_bytes(data)
    refused = pytest.raises(ShortlistError, match="checksum does not match")
    with nullcontext() if flag in (["0"], ["false"]) else refused:
        load_shortlist([str(tmp_path / "lex.bin"), *flag], PIECES, PIECES, size=200, shared=True)


@pytest.mark.parametrize(
    ("content", "values", "error", "message"),
    [
        (b"7 2 0.5 8", [], ShortlistError, "the last is incomplete"),
        (b"7 2 much", [], ShortlistError, "line 1: expected 'target source .* got '7 2 much'"),
        (b"7 2 0.5", ["many"], OptionError, "first and best are whole numbers"),
        (b"7 2 0.5", ["-1"], OptionError, "at least 0, .* got -1 100"),
        (b"7 2 0.5", ["9223372036854775808"], OptionError, "at most 2147483647, got 9223372036854775808 100"),
        (b"7 2 0.5", ["1", "18446744073709551616"], OptionError, "at most 2147483647"),
        (b"7 2 0.5", ["1", "2", "nan"], OptionError, "threshold is a number, got nan"),
        (b"7 2 0.5\n\n7 2\n nan 7 2 1\n", [], ShortlistError, "lex: line 4: .* got '7 2 nan'"),
        (b"7 2 0.5\r\n7 2 inf", [], ShortlistError, "line 2: .* got '7 2 inf'"),
        (b"7 2 1e39", [], ShortlistError, "line 1: .* got '7 2 1e39'"),
        (b"7 2 -0.5", [], ShortlistError, "probability of at least 0, got '7 2 -0.5'"),
        (b"7 2 0.5", ["1", "2", "3", "4"], OptionError, r"unexpected: \['4'\]"),
    ],
)
def test_wrong_texts_and_values_are_named(tmp_path, content, values, error, message) -> None:
    path = tmp_path / "lex"
    path.write_bytes(content)
    with pytest.raises(error, match=message):
        load_shortlist([str(path), *values], Numbers(9), Numbers(40), size=40, shared=False)


def test_other_binary_files_are_refused(tmp_path) -> None:
    path = tmp_path / "lex.bin"
    quicksand = (1234567890).to_bytes(4, "little") + b"more"
    kinds = {quicksand: "Quicksand", b"7 2 0.5": "no shortlist of Marian's"}
    for data, what in kinds.items():
        path.write_bytes(data)
        with pytest.raises(ShortlistError, match=what):
            load_shortlist([str(path)], Numbers(9), Numbers(40), size=40, shared=False)


@pytest.mark.parametrize("size", range(1, 9))
def test_a_text_is_read_in_parts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part ends within a word, wherever the parts would end."""
    text = "7 3 0.25\n11 3 0.5\t \r\n23 4\n0.125 39 8 1"
    monkeypatch.setattr(shortlist, "PART_BYTES", size)
    assert words_of(lexicon_of(text)) == {3: [7, 11], 4: [23], 8: [39]}


def test_there_is_always_a_candidate() -> None:
    lexicon = lexicon_of("7 2 0.5", 0, 1)
    assert Shortlist(lexicon, 40).candidates([2]).tolist() == [*range(7), 7]
    assert Shortlist(lexicon, 40).candidates([30]).tolist() == [*range(8)], "the vocabulary's first words"
    assert Shortlist(lexicon, 5).candidates([3]).tolist() == [*range(5)]


def test_words_of_the_file_that_the_model_lacks_are_unknown(tmp_path: Path) -> None:
    path, text = tmp_path / "v.yml", "a c 0.6\ng c 0.4\n"
    path.write_text("".join(f"{word}: {i}\n" for i, word in enumerate(["</s>", "<unk>", *"abcdefghijkl"])))
    whole, cut = load_vocab(path), load_vocab(path, dim=8)
    (tmp_path / "lex.txt").write_text(text)
    write_binary(tmp_path / "lex.bin", read_text(text.encode(), "lex", whole, whole, 0, 9))
    for values in [str(tmp_path / "lex.txt"), "0", "9"], [str(tmp_path / "lex.bin")]:
        found = load_shortlist(values, cut, cut, size=8, shared=False)
        assert sorted(found.lexicon.of(whole["c"]).tolist()) == [cut.unk_id, whole["a"]]
    beyond = Lexicon(np.array([0, 1]), np.array([14], np.int32), 0, 9)
    write_binary(tmp_path / "lex.bin", beyond)
    with pytest.raises(ShortlistError, match="holds target word 14, the model has 8 words"):
        load_shortlist([str(tmp_path / "lex.bin")], cut, cut, size=8, shared=False)
