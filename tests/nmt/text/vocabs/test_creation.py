"""New vocabularies: ``data/vocab/references.json`` holds what ``marian-vocab`` wrote for the same texts."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph import ArgumentError
from nmt.cli import main
from nmt.text.vocabs.base import VocabError
from nmt.text.vocabs.creation import class_vocab, counted_words, create_vocab, piece_vocab, word_vocab
from nmt.text.vocabs.loading import load_vocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab
from nmt.text.vocabs.words import read_default
from nmt.text.vocabs.yaml_words import yaml_word
from tests.helpers import places

DATA = places.DATA / "vocab"
REFERENCES: dict[str, Any] = json.loads((DATA / "references.json").read_text())
SENTENCES = [b"she sells sea shells by the sea shore\n", b"the shells she sells are sea shells\n"] * 30


@pytest.mark.parametrize(
    "case", REFERENCES["created"], ids=lambda case: f"{case['text'][:9]!r}-{case['size']}"
)
def test_writes_what_marian_writes(case: dict[str, Any]) -> None:
    lines = io.BytesIO(case["text"].encode("latin-1"))
    assert word_vocab(lines, case["size"]) == case["data"].encode("latin-1")


def test_writes_odd_words_as_marian() -> None:
    corpus = (DATA / "corpus.txt").read_bytes()
    assert word_vocab(io.BytesIO(corpus)) == REFERENCES["files"][-1]["data"].encode("latin-1")


def test_quotes_hold_characters_only() -> None:
    """In quotes Marian writes U+FFFD for surrogates, noncharacters, and bytes that are no character."""
    kept = (0xA1, 0xD7FF, 0xE000, 0xFDCF, 0xFDF0, 0xFFFD, 0x10FFFD)
    for word in (chr(code).encode() for code in kept):
        assert yaml_word(b'"' + word) == b'"\\"' + word + b'"'
    for code in (0xD800, 0xDFFF, 0xFDD0, 0xFDEF, 0xFFFE, 0x1FFFE):
        assert yaml_word(b'"' + chr(code).encode("utf-8", "surrogatepass")) == b'"\\"\xef\xbf\xbd"'
    for word in (b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xe2\x82"):
        assert yaml_word(b'"' + word) == b'"\\"\xef\xbf\xbd"'
    assert [yaml_word(b'"' + chr(code).encode()) for code in (0x80, 0xA0)] == [b'"\\"\\x80"', b'"\\"\\xa0"']


def test_order_of_words() -> None:
    lines = [b"b  a \xff c\tc a b\n", b"\n", b"c\tc b\r\n", b"b"]
    assert counted_words(lines) == [b"b", b"a", b"c\tc", b"b\r", b"\xff"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"])), max_size=8))
def test_text_is_read_back(words: list[str]) -> None:
    """Marian's YAML keeps every word of valid UTF-8, except that yaml-cpp garbles U+007F in quotes."""
    words = [
        word for word in words if word and not set(word) & set(" \n\x7f") and word not in ("</s>", "<unk>")
    ]
    vocab = read_default(word_vocab([" ".join(words).encode()]), "vocab.yml")
    assert all(vocab.decode([vocab[word]]) == word for word in words)


def test_carriage_returns_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """As in Marian, they become parts of words, which never occur in text as it is read."""
    assert counted_words([b"a b\r\n", b"b\r\n", b"b\n", b"a\r"]) == [b"b\r", b"a", b"a\r", b"b"]
    [record] = caplog.records
    assert record.getMessage().startswith("2 lines end in CR LF: their last words")


def test_class_labels(tmp_path: Path) -> None:
    assert class_vocab([b"good bad good\n", b"bad good\n"], "c.yml", 2) == b"good: 0\nbad: 1"
    with pytest.raises(VocabError, match=r"^c\.yml: 2 classes in the text, expected 3"):
        class_vocab([b"good bad"], "c.yml", 3)
    create_vocab(tmp_path / "c.yml", ["good", "bad"], input_type="class")
    assert load_vocab(tmp_path / "c.yml", input_type="class").encode("good bad") == [1, 0]


def test_files_appear_whole_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "v.yml"
    create_vocab(path, ["a b", "b"])
    assert path.read_bytes() == b"</s>: 0\n<unk>: 1\nb: 2\na: 3"
    with pytest.raises(VocabError, match=r"v\.yml: exists"):
        create_vocab(path, ["c"])
    with pytest.raises(VocabError, match=r"v\.txt: a new vocabulary is \.yml"):
        create_vocab(tmp_path / "v.txt", ["c"])
    with pytest.raises(VocabError, match="SentencePiece learns no pieces from these 0 lines"):
        create_vocab(tmp_path / "v.spm", [""], 30)
    with pytest.raises(ArgumentError, match="a text is a list, .* of lines, got 'a b'"):
        create_vocab(tmp_path / "letters.yml", "a b")  # type: ignore[arg-type]
    assert [entry.name for entry in tmp_path.iterdir()] == ["v.yml"]


def test_pieces_have_marians_ids(tmp_path: Path) -> None:
    create_vocab(tmp_path / "v.spm", SENTENCES, 292, options="--byte_fallback --hard_vocab_limit=false")
    vocab = load_vocab(tmp_path / "v.spm")
    assert isinstance(vocab, SentencePieceVocab)
    assert (vocab.eos_id, vocab.unk_id, len(vocab.control_ids)) == (0, 1, 32)
    assert vocab.decode(vocab.encode("she sells shells")) == "she sells shells"
    assert vocab.decode(vocab.encode("日")) == "日"


def test_pieces_are_learnt_from_a_sample() -> None:
    lines = [b"aa bb\n", b"x" * 2048 + b"\n", b"y" * 2047 + b"\n", b"\n", *[b"cc dd\n"] * 50]
    one, other, every = (
        piece_vocab(lines, "v.spm", 9, max_lines=size, seed=1, options="--hard_vocab_limit=false")
        for size in (4, 4, 0)
    )
    assert one == other != every
    sampled, whole = SentencePieceVocab(one, "one.spm"), SentencePieceVocab(every, "every.spm")
    assert [sampled["a"], whole["x"]] == [1, 1] and whole["a"] > 1 and whole["y"] > 1


def test_a_file_of_pieces_is_learnt_with_the_same_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines, options = [b"aa bb\n", *[b"cc dd\n"] * 50], "--hard_vocab_limit=false"
    path = tmp_path / "v.spm"
    with caplog.at_level(logging.INFO, "nmt"):
        create_vocab(path, lines, options=options, max_lines=4, seed=65)
    assert f"{path}: learning 32000 pieces from 4 lines" in caplog.text
    assert path.read_bytes() == piece_vocab(lines, "v.spm", options=options, max_lines=4, seed=65)
    assert path.read_bytes() != piece_vocab(lines, "v.spm", options=options, max_lines=4)
    with pytest.raises(VocabError, match=r"v\.spm: exists"):
        create_vocab(path, [])


@pytest.mark.parametrize(
    "options", ["byte_fallback", "--", "--eos_id=3", "--input=a", "--model_writer=a", "'open"]
)
def test_options_of_sentencepiece(options: str) -> None:
    with pytest.raises(VocabError, match=r"^v\.spm: --sentencepiece-options"):
        piece_vocab(SENTENCES, "v.spm", 20, options=options)


def test_wrong_values_of_sentencepieces_options() -> None:
    with pytest.raises(VocabError, match=r"v\.spm: .*cannot parse .abc. as int"):
        piece_vocab(SENTENCES, "v.spm", 20, options="--vocab_size=abc")


def test_too_many_pieces_are_refused_with_the_limit() -> None:
    with pytest.raises(VocabError, match=r"v\.spm: .*Vocabulary size too high \(500\)"):
        piece_vocab(SENTENCES, "v.spm", 500)


def test_command(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    case = REFERENCES["created"][0]
    (tmp_path / "text").write_bytes(case["text"].encode("latin-1"))
    assert main(["vocab", "--quiet", str(tmp_path / "text")]) == 0
    assert capfdbinary.readouterr().out == case["data"].encode("latin-1")
    (tmp_path / "more").write_bytes(b"a\n" * 20)
    assert main(["vocab", str(tmp_path / "text"), str(tmp_path / "more"), "-m", "3", "--quiet"]) == 0
    assert capfdbinary.readouterr().out == b"</s>: 0\n<unk>: 1\na: 2"


def test_command_learns_pieces(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"".join(SENTENCES))
    call = ["vocab", str(tmp_path / "text"), "-o", str(tmp_path / "v.spm"), "-m", "20", "--quiet"]
    assert main([*call, "--sentencepiece-options", "--normalization_rule_name=identity"]) == 0
    assert len(load_vocab(tmp_path / "v.spm", 20)) == 20
    assert main(call) == 1
