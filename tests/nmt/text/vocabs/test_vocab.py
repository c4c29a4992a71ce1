"""Vocabularies read as Marian reads them: ``data/vocab/references.json`` holds what Marian said."""

from __future__ import annotations

import gzip
import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph.errors import ArgumentError, MGraphError
from nmt.text.vocabs import loading, yaml_words
from nmt.text.vocabs.base import ASKED, Vocab, VocabError, WordIdError
from nmt.text.vocabs.loading import load_vocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab
from nmt.text.vocabs.words import DefaultVocab, read_default
from tests.helpers import places

DATA = places.DATA / "vocab"
REFERENCES: dict[str, Any] = json.loads((DATA / "references.json").read_text())
FILES: list[dict[str, Any]] = REFERENCES["files"]
PIECES = ("words.spm", "bytes.spm")
SPECIAL = b"</s>: 0\n<unk>: 1\n"

# Marian refuses these words because they are not quoted; their meaning is unambiguous.
UNQUOTED = (
    *("null", "~", "@", "`", "|", "|a", ">", ">a", "[", "]", "{", "}", ",", ",a", "&", "&a", "*", "*a", "!"),
    *("!x", "'", '"', "[a]", "{a}", "'a", '"a', "'a'b", '"a"b'),
)


def read(file: dict[str, Any]) -> DefaultVocab:
    return read_default(file["data"].encode("latin-1"), f"vocab.{file['ending']}", file["dim"])


def encoded(vocab: Vocab, file: dict[str, Any]) -> list[list[int]]:
    return [vocab.encode(line.encode("latin-1")) for line in file["lines"]]


def yml(lines: str) -> DefaultVocab:
    return read_default(SPECIAL + lines.encode(), "vocab.yml")


@pytest.mark.parametrize("file", [f for f in FILES if f["ids"]], ids=lambda f: repr(f["data"][17:57]))
def test_reads_what_marian_reads(file: dict[str, Any]) -> None:
    assert encoded(read(file), file) == file["ids"]


def is_tolerated(file: dict[str, Any]) -> bool:
    entries = {f"{word}: 5\nb: 6\n" for word in UNQUOTED}
    entries |= {'"\\ud83d\\ude00": 5\n', "a: 5\n b: 6\n"}
    return file["data"][17:] in entries or '"\\ud83d\\ude00": 2' in file["data"]


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if f["ids"] is None and not is_tolerated(f)],
    ids=lambda f: repr(f["data"][-40:]),
)
def test_refuses_what_marian_refuses(file: dict[str, Any]) -> None:
    with pytest.raises(VocabError, match=rf"^vocab\.{file['ending']}:"):
        read(file)


@pytest.mark.parametrize("word", UNQUOTED)
def test_takes_unquoted_words_as_they_stand(word: str) -> None:
    vocab = yml(f"{word}: 5\nb: 6\n")
    assert vocab.encode(f"{word} b", add_eos=False) == [5, 6]


def test_reads_pairs_of_surrogates_in_json() -> None:
    data = b'{"</s>": 0, "<unk>": 1, "\\ud83d\\ude00": 2}'
    assert read_default(data, "vocab.json")["😀"] == 2


def test_reads_back_what_marian_wrote() -> None:
    written = FILES[-1]["data"].encode("latin-1")
    words = (DATA / "corpus.txt").read_bytes().split(b"\n")[:-1]
    vocab = read_default(written, "vocab.yml")
    assert len(vocab) == len(words) + 2
    assert {vocab.encode(word, add_eos=False)[0] for word in words} == set(range(2, len(vocab)))
    for word in words:
        number = vocab[word]
        assert vocab[number].encode("utf-8", "surrogateescape") == word


def test_what_is_no_line_is_named() -> None:
    with pytest.raises(ArgumentError, match="a line must be str or bytes, got None"):
        yml("a: 2").encode(None)  # type: ignore[arg-type]


def test_words_are_split_at_spaces_only() -> None:
    vocab = yml('a\u00a0b: 2\n\u2028: 3\n\x0c: 4\n\ufeffa: 5\n"\\t": 6\na: 7\n')
    assert vocab.encode("a\u00a0b  \u2028 \x0c \ufeffa \t  a ") == [2, 3, 4, 5, 6, 7, 0]
    assert vocab.encode("") == [0]
    assert vocab.encode("   ", add_eos=False) == []


@given(st.lists(st.binary(min_size=1, max_size=6).filter(lambda w: not set(w) & set(b" \n\r")), unique=True))
def test_any_bytes_are_words(words: list[bytes]) -> None:
    """A word list holds any bytes; text and bytes give the same ids; printing gives the bytes back."""
    listed = [b"</s>", b"<unk>", *(word for word in words if word not in (b"</s>", b"<unk>"))]
    vocab = read_default(b"\n".join(listed), "vocab.txt")
    line = b" ".join(listed[2:])
    ids = list(range(2, len(listed)))
    assert vocab.encode(line) == [*ids, 0]
    assert vocab.encode(line.decode("utf-8", "surrogateescape")) == [*ids, 0]
    assert vocab.decode([*ids, 0]).encode("utf-8", "surrogateescape") == line


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(2, 99)))
def test_json_gives_the_words_that_went_in(words: dict[str, int]) -> None:
    for ascii_only in (True, False):
        text = json.dumps({"</s>": 0, "<unk>": 1, **words}, ensure_ascii=ascii_only)
        vocab = read_default(text.encode(), "vocab.json")
        for word, number in words.items():
            assert vocab[word] == number


@given(st.binary(max_size=60), st.sampled_from(["yml", "json", "txt"]))
def test_any_file_is_read_or_refused(data: bytes, ending: str) -> None:
    for content in (data, SPECIAL + data, b"{" + data, b'{"</s>": 0, ' + data + b"}"):
        try:
            vocab = read_default(content, f"vocab.{ending}")
        except VocabError:
            continue
        assert vocab.encode(data, add_eos=False) is not None


def test_a_random_change_is_read_or_refused() -> None:
    written = bytearray(FILES[-1]["data"].encode("latin-1"))
    random_ = random.Random(1)
    for _ in range(300):
        data = bytearray(written)
        for _ in range(random_.randint(1, 3)):
            data[random_.randrange(len(data))] = random_.choice(b"\"'\\:#{}[],&*!|>%@?- \t\n\r\x00\xff019")
        try:
            read_default(bytes(data), "vocab.yml")
        except VocabError as error:
            assert str(error).startswith("vocab.yml")


def test_decoding() -> None:
    vocab = yml("a: 2\nb: 4\n")
    assert vocab.decode([2, 4, 0]) == "a b"
    assert vocab.decode([2, 0, 4], ignore_eos=False) == "a </s> b"
    assert vocab.decode([2, 1, 3, 4]) == "a <unk>  b"  # id 3 has no word
    assert vocab.decode([]) == ""
    assert (vocab[2], vocab["a"], vocab[b"a"], vocab["zz"], len(vocab)) == ("a", 2, 2, 1, 5)
    with pytest.raises(WordIdError, match="from 0 to 4, got 5"):
        vocab[5]


def test_of_two_words_for_one_id_the_last_in_order_is_printed() -> None:
    vocab = yml("b: 2\né: 2\na: 2\n")
    assert [vocab[word] for word in ("a", "b", "é")] == [2, 2, 2]
    assert vocab.decode([2]) == "é"


def test_control_pieces() -> None:
    assert yml("<0x0A>: 2\n<0x1F>: 3\n<0x20>: 4\n<0x0b>: 5\n").control_ids == (2, 3)
    assert yml("a: 2\n").control_ids == ()


def test_cut_and_padded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Both may be intended or not, so a warning names the two files and says what to do."""
    data = SPECIAL + b"a: 2\nb: 3\n"
    assert len(read_default(data, "v.yml", 3, owner="m.npz")) == 3
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "v.yml has 4 ids, but m.npz has 3 (dim-vocabs): words with ids from 3 on are" in caplog.text
    assert "with this vocabulary and --dim-vocabs 3, what comes out is nonsense; give --vocabs" in caplog.text
    caplog.clear()
    vocab = read_default(data, "v.yml", 9, owner="m.npz")
    assert (len(vocab), vocab.decode([3, 8])) == (4, "b ")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "v.yml has 4 ids, but m.npz has 9 (dim-vocabs): the ids from 4 on have no words" in caplog.text
    caplog.clear()
    assert len(read_default(data, "v.yml", 4, owner="m.npz")) == 4 and not caplog.records
    (tmp_path / "v.yml").write_bytes(data)
    load_vocab(tmp_path / "v.yml", 3, owner="m.npz")
    assert f"{tmp_path}/v.yml has 4 ids, but m.npz has 3 (dim-vocabs)" in caplog.text


@pytest.mark.parametrize(("dim", "effect"), [(3, "words with ids from 3"), (9, "the ids from 4 on have no")])
def test_a_size_that_was_asked_for_is_no_surprise(
    dim: int, effect: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        read_default(SPECIAL + b"a: 2\nb: 3\n", "v.yml", dim, owner=ASKED)
    (record,) = caplog.records
    assert record.levelno == logging.INFO and f"--dim-vocabs is {dim}: {effect}" in record.getMessage()


def test_errors_say_what_is_missing() -> None:
    with pytest.raises(VocabError, match=r"v\.txt: a vocabulary needs the word <unk>.* these 2 words"):
        read_default(b"</s>\na\n", "v.txt")
    with pytest.raises(VocabError, match=r"v\.yml: a vocabulary needs the word <unk> \(or 'UNK' as id 1\)"):
        read_default(b"eos: 0\n", "v.yml")
    with pytest.raises(VocabError, match=r"v\.txt:3: empty line; expected one word per line"):
        read_default(b"</s>\n<unk>\n\na\n", "v.txt")
    with pytest.raises(VocabError, match=r"v\.txt:4: '<unk>' occurs twice, first in line 2"):
        read_default(b"</s>\n<unk>\na\n<unk>\n", "v.txt")
    with pytest.raises(VocabError, match=r"'b' has the id 16777216; a .* at most 16777216 ids"):
        yml("a: 16777215\nb: 16777216\n")
    with pytest.raises(VocabError, match=r"'eos' as id 0\) with an id below 2"):
        read_default(b"a: 0\nb: 1\n</s>: 2\n<unk>: 3\n", "v.yml", 2)
    with pytest.raises(VocabError, match=r"v\.yml:2: an anchor, tag, .* '!!str a'; put .* or remove what is"):
        read_default(b"</s>: 0\n!!str a: 1\n", "v.yml")
    for line, message in (
        ("!<a: 2", "an anchor, tag, .* '!<a'"),
        (r'"\ud800": 2', r"\\ud800 is not a Unicode character"),
        (r'"\udfff": 2', r"\\udfff is not a Unicode character"),
        ("a: 4294967296", "id 4294967296 is over 4294967295"),
    ):
        with pytest.raises(VocabError, match=f"vocab.yml:3: {message}"):
            yml(line)
    with pytest.raises(VocabError, match=r"v\.yml:4: expected an id \(a number .*got 'x'"):
        read_default(SPECIAL + b"a: 2\nb: x\n", "v.yml")
    with pytest.raises(VocabError, match=r"v\.json:2: expected"):
        read_default(b'{"</s>": 0,\n"<unk>" 1}', "v.json")
    assert issubclass(VocabError, MGraphError) and issubclass(VocabError, ValueError)


def test_what_follows_the_document_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    yml("a: 2\n...\n")
    assert not caplog.records
    assert yml("a: 2\n%b: 3\nc: 4\n")["c"] == 1
    assert "vocab.yml:4: '%b: 3' ends the vocabulary" in caplog.text


def test_ordinary_lines_are_read_by_one_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[str] = []
    monkeypatch.setattr(yaml_words._Block, "_line", lambda self, line: not others.append(line))
    words = (f"w{i:x}\u00e9" for i in range(2, 32_000))
    data = SPECIAL + "".join(f"{w}: {i}\n" for i, w in enumerate(words, 2)).encode()
    assert len(read_default(data, "v.yml")) == 32_000
    assert others == [""], "of large vocabularies only the rare lines take the long way"


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("v.yml", "v.yaml", "v.json"):
        (tmp_path / name).write_bytes(SPECIAL + b"a: 2\n")
        assert load_vocab(tmp_path / name)["a"] == 2
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(b"</s>\n<unk>\na\n"))
    assert load_vocab(str(tmp_path / "v.txt.gz"))["a"] == 2
    (tmp_path / "v.fsv").write_bytes(b"")
    with pytest.raises(VocabError, match="needs the lemma </s>"):
        load_vocab(tmp_path / "v.fsv")
    with pytest.raises(FileNotFoundError, match="none"):
        load_vocab(tmp_path / "none.yml")
    monkeypatch.setattr(loading, "MAX_BYTES", 22)
    assert len(load_vocab(tmp_path / "v.yml")) == 3
    monkeypatch.setattr(loading, "MAX_BYTES", 21)
    with pytest.raises(VocabError, match=r"v\.yml: too large for a vocabulary \(at most 21 bytes are read\)"):
        load_vocab(tmp_path / "v.yml")
    for wrong in -1, "a":
        with pytest.raises(VocabError, match=f"expected a number of ids .*, got {wrong!r}"):
            load_vocab(tmp_path / "v.yml", wrong)


@pytest.mark.parametrize("name", PIECES)
def test_sentencepiece_encodes_as_marian(name: str) -> None:
    reference = REFERENCES[name]
    vocab = load_vocab(DATA / name, reference["size"])
    assert isinstance(vocab, SentencePieceVocab)
    assert len(vocab) == reference["size"]
    for line, ids in zip(reference["lines"], reference["ids"], strict=True):
        data = line.encode("latin-1")
        assert vocab.encode(data) == ids
        assert vocab.encode(data.decode("utf-8", "surrogateescape"), add_eos=False) == ids[:-1]


@pytest.mark.parametrize("name", PIECES)
def test_sentencepiece_prints_as_marian(name: str) -> None:
    reference = REFERENCES[name]
    vocab = load_vocab(DATA / name)
    for pieces, text in zip(reference["spelt"], reference["texts"], strict=True):
        ids = [vocab[piece] for piece in pieces.split(" ")]
        assert [vocab[i] for i in ids] == pieces.split(" ")
        assert vocab.decode([*ids, vocab.eos_id]).encode() == text.encode("latin-1")


def test_sentencepiece_special_ids() -> None:
    words, pieces = (load_vocab(DATA / name) for name in PIECES)
    assert (words.eos_id, words.unk_id, words.control_ids) == (0, 1, ())
    assert pieces.control_ids == tuple(range(2, 34))
    assert words["no such piece"] == words[b"\xff"] == 1
    with pytest.raises(WordIdError, match="words.spm: expected an id from 0 to 35, got 36"):
        words[36]
    assert issubclass(WordIdError, IndexError)  # as iteration over a sequence needs it


@pytest.mark.parametrize("number", [36, 100000, -1])
def test_an_id_that_does_not_exist_has_no_text(number: int) -> None:
    data = (DATA / PIECES[0]).read_bytes()
    for vocab in (load_vocab(DATA / PIECES[0]), SentencePieceVocab(data, "words.spm", no_spm_decode=True)):
        with pytest.raises(WordIdError, match=rf"words.spm: expected an id from 0 to 35, got {number}"):
            vocab.decode([5, number])


@pytest.mark.parametrize("dim", [35, 37])
def test_sentencepiece_must_fit_the_model(dim: int) -> None:
    with pytest.raises(VocabError, match=rf"36 pieces, but the model has {dim} ids"):
        load_vocab(DATA / "words.spm", dim)


@pytest.mark.parametrize("data", [b"", b"words", b"\0" * 50, SPECIAL], ids=repr)
def test_what_is_no_sentencepiece_model(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "v.spm").write_bytes(data)
    with pytest.raises(VocabError, match="not a SentencePiece model"):
        load_vocab(tmp_path / "v.spm")


def test_sentencepiece_needs_an_end_of_sentence(tmp_path: Path) -> None:
    model = (DATA / "words.spm").read_bytes()
    (tmp_path / "v.spm").write_bytes(model.replace(b"</s>", b"<xs>", 1))
    with pytest.raises(VocabError, match="has no end of sentence"):
        load_vocab(tmp_path / "v.spm")


def test_europarl_vocabularies(fixtures: Path) -> None:
    for name, size in (("de", 1999), ("en", 1999), ("joint", 2999)):
        vocab = load_vocab(fixtures / "data" / f"v.{name}.yml", size)
        assert (len(vocab), vocab.eos_id, vocab.unk_id) == (size, 0, 1)
        for line in (fixtures / "data" / "test.de").read_bytes().split(b"\n")[:20]:
            ids = vocab.encode(line, add_eos=False)
            words = [word.decode() for word in line.split()]
            assert all(i == 1 or vocab[i] == word for i, word in zip(ids, words, strict=True))
