"""Pieces in and out, sampled ways to split a line, raw text for lists of pieces, class labels."""

from __future__ import annotations

import io
import json
import logging
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nmt.settings import OptionError
from nmt.text.sentences import LineEncoder
from nmt.text.vocabs.base import VocabError
from nmt.text.vocabs.loading import load_segmented, load_vocab, load_vocabs
from nmt.text.vocabs.sentence_piece import SegmentedVocab, SentencePieceVocab, normalized
from nmt.text.vocabs.words import ClassVocab, read_default
from tests.helpers import places

DATA = places.DATA / "vocab"
OPUS = places.DATA / "directories" / "opus-mt"
REFERENCES: dict[str, Any] = json.loads((DATA / "references.json").read_text())
PIECES = ("words.spm", "bytes.spm")
# The lines of `data/vocab/make_references.py` that `references.json` has Marian's answers to.
SPLIT = ("▁the ▁se a", "▁the  <unk> zz ll", "▁ \xe9 s", "the sea")
PLAIN = ("the sea", "  she  sells \xe9", "shore")
YML = str(OPUS / "opus.spm60-spm60.vocab.yml")


def answers(name: str, key: str) -> list[str]:
    return [text.encode("latin-1").decode() for text in REFERENCES[name][key]]


def segmented(side: str = "source") -> SegmentedVocab:
    return load_segmented(YML, OPUS / f"{side}.spm")


@pytest.mark.parametrize("name", PIECES)
def test_no_spm_decode_prints_pieces(name: str) -> None:
    vocab = load_vocab(DATA / name, no_spm_decode=True)
    assert [vocab.decode(vocab.encode(line)) for line in PLAIN] == answers(name, "encoded")
    assert vocab.decode(vocab.encode("the"), ignore_eos=False) == "▁the </s>"
    assert vocab.decode([]) == ""


@pytest.mark.parametrize("name", PIECES)
def test_no_spm_encode_takes_pieces(name: str) -> None:
    vocab = load_vocab(DATA / name, no_spm_encode=True, no_spm_decode=True)
    assert [vocab.decode(vocab.encode(line)) for line in SPLIT] == answers(name, "pieces")
    text = load_vocab(DATA / name, no_spm_encode=True)
    assert text.encode("▁the ▁se a") == load_vocab(DATA / name).encode("the sea")
    assert text.decode(text.encode("▁the ▁se a")) == "the sea"
    assert text.sample("▁the ▁se a", 0.1, 1) == text.encode("▁the ▁se a")
    assert text.encode(b"\xff s", add_eos=False) == text.encode("\udcff s", add_eos=False) == [1, text["s"]]


def test_samples_are_drawn_by_their_probability() -> None:
    """The share of each way to split a word is ``p ** alpha``, p its probability under the model."""
    vocab, alpha, count = load_vocab(DATA / "words.spm"), 0.4, 1500
    processor = SentencePieceProcessor(model_file=str(DATA / "words.spm"))
    ways = processor.nbest_encode("sell", nbest_size=100, out_type=int)
    weights = {tuple(way): math.exp(alpha * sum(map(processor.get_score, way))) for way in ways}
    assert len(weights) > 3
    drawn = Counter(tuple(vocab.sample("sell", alpha, seed, add_eos=False)) for seed in range(count))
    assert drawn.keys() <= weights.keys()
    # Ways that are rarely drawn are counted together, so that the normal distribution holds; a deviation of 6
    # then happens once in 10 ** 8.
    shares = {way: weight / sum(weights.values()) for way, weight in weights.items()}
    common = {way: share for way, share in shares.items() if share * count >= 25}
    assert len(common) > 3
    rest = sum(number for way, number in drawn.items() if way not in common)
    observed = [*((drawn[way], share) for way, share in common.items()), (rest, 1 - sum(common.values()))]
    for number, share in observed:
        assert abs(number / count - share) < 6 * math.sqrt(share * (1 - share) / count), (number, share)


def test_samples_repeat_with_their_seed() -> None:
    vocab = load_vocab(DATA / "words.spm")
    line = "she sells the same saw"
    first = [vocab.sample(line, 0.1, seed) for seed in range(20)]
    assert first == [vocab.sample(line.encode(), 0.1, seed) for seed in range(20)]
    assert len({tuple(ids) for ids in first}) > 10
    assert all(vocab.decode(ids) == line and ids[-1] == 0 for ids in first)
    assert vocab.sample(line, 0, 3) == vocab.encode(line)
    words = read_default(b"</s>\n<unk>\na\n", "v.txt")
    assert words.sample("a", 0.5, 3) == words.encode("a")


def test_class_vocabularies() -> None:
    vocab = read_default(b"good\nbad\n", "labels.txt", input_type="class")
    assert isinstance(vocab, ClassVocab)
    assert (vocab.encode("bad"), vocab.encode("good bad"), vocab.encode("")) == ([1], [0, 1], [])
    assert (vocab.eos_id, vocab.unk_id, vocab.decode([1, 0])) == (-1, -1, "bad good")
    with pytest.raises(VocabError, match=r"labels\.txt: 'ugly' is not one of the 2 classes \(good, bad\)"):
        vocab.encode("ugly")
    encoder = LineEncoder([vocab], 1, max_length_crop=True)
    assert encoder.sentence(0, [b"bad good"]).sequences == ([1],)
    assert "'ugly' is not one" in encoder.sentence(0, [b"ugly"]).problem


def test_raw_text_for_a_list_of_pieces() -> None:
    vocab = segmented()
    pieces = SentencePieceProcessor(model_file=str(OPUS / "source.spm"))
    words = load_vocab(YML)
    expected = words.encode(" ".join(pieces.encode("forty-two, seven", out_type=str)))
    assert vocab.encode("  forty-two\uff0c  seven ") == expected
    assert vocab.decode(expected) == "forty-two, seven"
    assert [vocab[i] for i in range(len(vocab))] == [words[i] for i in range(len(words))]
    assert (vocab["zz"], vocab.eos_id, vocab.unk_id, vocab.control_ids) == (1, 0, 1, ())
    assert len({tuple(vocab.sample("forty-two", 0.1, seed)) for seed in range(20)}) > 1
    assert vocab.sample("forty-two", 0, 1) == vocab.encode("forty-two")


def test_pieces_of_the_other_side_are_joined_too() -> None:
    """The vocabulary lists the pieces of both models; the target's lacks ``▁two`` and ``▁seventeen``."""
    vocab = segmented("target")
    for words, text in (
        ("▁two ▁forty ▁seventeen", "two forty seventeen"),
        ("▁forty ▁two s ▁forty", "forty twos forty"),
        ("s ▁seventeen ▁two", "s seventeen two"),
    ):
        assert vocab.decode([*(vocab[word] for word in words.split()), vocab.eos_id]) == text


def test_language_tokens_stay_whole(caplog: pytest.LogCaptureFixture) -> None:
    vocab = segmented()
    assert vocab.languages == {">>deu<<", ">>eng<<"}
    tag, rest = vocab[">>deu<<"], vocab.encode("one")
    for line in (">>deu<< one", ">>deu<<one", "  >>deu<<   one", b">>deu<< one"):
        assert vocab.encode(line) == [tag, *rest]
    assert vocab.encode(">>deu<< >>eng<< one") == [tag, vocab[">>eng<<"], *rest]
    assert vocab.encode(">>deu<<") == [tag, 0]
    assert vocab.encode("one >>deu<<")[: len(rest) - 1] == rest[:-1]
    caplog.clear()
    assert vocab.encode(">>fra<< one") == [1, *rest]
    assert vocab.encode(">>fra<< one") == [1, *rest]
    assert caplog.text.count("it has no token >>fra<<") == 1


def test_lines_without_a_language_token_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    vocab = segmented()
    assert vocab.encode("") == vocab.encode("  ") == [0] and vocab.encode(">>deu<< one")
    assert not caplog.records
    assert vocab.encode("one") == vocab.encode("one")
    (record,) = caplog.records
    assert "a line has no language token; this model translates into the language" in record.getMessage()


def test_text_like_a_token_is_text_for_a_model_of_one_language(caplog: pytest.LogCaptureFixture) -> None:
    pieces = SentencePieceProcessor(model_file=str(OPUS / "source.spm"))
    words = read_default(b"</s>: 0\n<unk>: 1\n>>: 2\none: 3\n", "v.yml")
    vocab = SegmentedVocab(words, pieces)
    with caplog.at_level(logging.WARNING):
        assert len(vocab.encode(">>deu<< one")) > 3
    assert not caplog.records


def test_unsegmented_vocabularies_are_needed() -> None:
    with pytest.raises(VocabError, match=r"words\.spm: is a SentencePiece model"):
        load_segmented(DATA / "words.spm", OPUS / "source.spm")
    with pytest.raises(VocabError, match=r"yml: not a SentencePiece model"):
        load_segmented(YML, YML)


def test_normalized() -> None:
    """The results were checked with OPUS-MT's own script, which needs sed and Perl."""
    assert normalized("a\uff0cb\u3002   c\u3002d\uff0e e") == "a,b. c. d. e"
    assert normalized("\u201cx\u201d \u300ay\u300b \u300cz\u300d\uff11\uff12") == '"x" "y" "z""2'
    assert normalized("it\u2019s\u2026 \u2501 \u3010a\u3011\uff1f\uff01\uff5e") == "it's... - [a]?!~"
    assert normalized("a\tb\u200bc\x7fd\u00ade \ufeff f\u00a0g\ud800") == "a b c d e f\u00a0g"
    assert normalized("a\tb\x7f") == "a b"
    assert normalized("  ") == normalized("") == ""


def test_load_vocabs() -> None:
    source, target = (str(OPUS / name) for name in ("source.spm", "target.spm"))
    size = len(load_vocab(YML))
    one, other = load_vocabs([YML, YML], [size, size], pieces=[source, target])
    same, again = load_vocabs([source, source], [60, 60], no_spm_decode=True)
    assert one is not other and same is again
    assert isinstance(one, SegmentedVocab) and isinstance(other, SegmentedVocab)
    assert one.languages and not other.languages, "forced prefixes have no language tokens"
    assert same.decode(same.encode("one"))[0] == "▁"
    labels, words = load_vocabs([YML, YML], [size, size], input_types=["class"])
    assert isinstance(labels, ClassVocab) and not isinstance(words, ClassVocab)
    with pytest.raises(OptionError, match="pieces: expected one SentencePiece model"):
        load_vocabs([YML, YML], [size, size], pieces=[source])
    for option in ("no_spm_encode", "no_spm_decode"):
        with pytest.raises(OptionError, match="--no-spm-encode and --no-spm-decode need"):
            load_vocabs([YML, YML], [size, size], pieces=[source, target], **{option: True})
    with pytest.raises(VocabError, match="input-types are sequence and class, got 'alignment'"):
        load_vocabs([YML, YML], [size, size], input_types=["alignment"])


@pytest.mark.parametrize("dummy", [True, False])
def test_blanks_that_belong_to_the_words_before_them(dummy: bool) -> None:
    """Marian with such models: ``of▁ .▁`` is "of ." and ``▁ .▁`` is " .", with or without a dummy blank."""
    model = io.BytesIO()
    SentencePieceTrainer.Train(
        sentence_iterator=iter(["of the sea .", "of it ."] * 50),
        model_writer=model,
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
        treat_whitespace_as_suffix=True,
        add_dummy_prefix=dummy,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
    )
    vocab = SentencePieceVocab(model.getvalue(), "v.spm")
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(model.getvalue())
    blank, of = processor.piece_to_id("▁"), processor.encode("of .")
    assert blank != 1 and vocab.decode([*of, 0]) == "of ." and vocab.decode([]) == ""
    assert vocab.decode([*of, blank]) == "of ." + " " * dummy
    assert vocab.decode([blank, *of]) == " of ."


def test_special_ids_are_the_files() -> None:
    ids = {"unk_id": "0", "bos_id": "1", "eos_id": "2", "pad_id": "3"}
    model = io.BytesIO()
    lines = ["she sells sea shells"] * 50
    SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=16,
        hard_vocab_limit=False,
        minloglevel=2,
        **ids,
    )
    vocab = SentencePieceVocab(model.getvalue(), "v.spm")
    assert (vocab.eos_id, vocab.unk_id) == (2, 0)
    assert vocab.encode("sea zz")[-2:] == [0, 2] and vocab.decode(vocab.encode("sea")) == "sea"


def test_text_that_is_not_split_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Marian takes it silently: almost every word is unknown, and what comes out is nonsense."""
    words = load_vocab(YML)
    for line in ("", "\u2581forty - two", ">>deu<<", ">>deu<< \u2581forty"):
        words.encode(line)
    assert not caplog.records
    assert words.encode("forty-two seven")[0] == words.unk_id
    words.encode("sixty eight")
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.getMessage().startswith(
        f"[data] WRONG TEXT? {YML} lists SentencePiece pieces, but this line has none: 'forty-two seven'."
    )
    assert "decode, score and server do so with --pieces" in record.getMessage()


def test_text_for_a_list_of_words_needs_no_pieces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Few words of the list have SentencePiece's mark of a space."""
    path = tmp_path / "v.txt"
    path.write_text("</s>\n<unk>\n\u2581\na\nb\nc\n")
    load_vocab(path).encode("a b c d")
    assert not caplog.records
