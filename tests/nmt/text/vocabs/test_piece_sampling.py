"""Ways to split text, drawn at random: by SentencePiece's rules, and the same in every process."""

from __future__ import annotations

import io
import random
from collections import Counter
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nmt.text.vocabs.base import VocabError
from nmt.text.vocabs.loading import load_vocab
from nmt.text.vocabs.pieces import (
    MAX_OTHER_BYTES,
    Piece,
    PieceKind,
    PieceModel,
    PieceSampler,
    SplitterType,
    _Merges,
    _Unigram,
    check_size,
    read_piece_model,
)
from tests.helpers import places

DATA = places.DATA / "vocab"
WORDS = "she sells seashells on the seashore and these shells that she sells are shells from the sea".split()
LINES = [" ".join(random.Random(seed).choices(WORDS, k=12)) for seed in range(200)]
STRANGE = ["", "  she   sells ", "a<x>b the<x>", "☃☃ sea ☃", "thé ﬁne shore"]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bytes": {"byte_fallback": True, "vocab_size": 300},
    "user": {"user_defined_symbols": "the,<x>,<x>b"},
    "suffix": {"treat_whitespace_as_suffix": True},
    "across": {"split_by_whitespace": False},
}


def learnt(model_type: str, **options: Any) -> SentencePieceProcessor:
    model = io.BytesIO()
    settings = {
        "vocab_size": 60,
        "hard_vocab_limit": False,
        "num_threads": 1,
        "minloglevel": 3,
        "bos_id": -1,
        "eos_id": 0,
    }
    SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type=model_type,
        unk_id=1,
        **settings | options,
    )
    return SentencePieceProcessor(model_proto=model.getvalue())


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_likeliest_way_is_the_librarys(model_type: str, options: str) -> None:
    """Without chance: with a high power of the probabilities, and with no merge left out."""
    processor = learnt(model_type, **OPTIONS[options])
    sampler = PieceSampler(processor, "model")
    alpha = 0.0 if model_type == "bpe" else 300.0

    def score(pieces: list[str]) -> float:
        return sum(processor.get_score(processor.piece_to_id(piece)) for piece in pieces)

    for line in (*LINES[:20], *STRANGE):
        found = sampler.sample(line.encode(), alpha, 1)
        expected = processor.encode(line, out_type=str)
        pieces = [piece for _, piece in found]
        assert pieces == expected or score(pieces) == pytest.approx(score(expected), abs=0.05)
        assert [number for number, _ in found] == [processor.piece_to_id(piece) for piece in pieces]
        strange = [piece for piece in expected if is_strange(processor, piece)]
        assert [piece for piece in pieces if is_strange(processor, piece)] == strange


def is_strange(processor: SentencePieceProcessor, piece: str) -> bool:
    """Whether a piece stands for characters that the model does not know, or for one of their bytes."""
    number = processor.piece_to_id(piece)
    return processor.is_unknown(number) or processor.is_byte(number)


def test_an_unknown_character_costs_more_than_the_unlikeliest_piece() -> None:
    normal = PieceKind.NORMAL
    pieces = Piece("<unk>", 0.0, PieceKind.UNKNOWN), Piece("ab", -1.0, normal), Piece("b", -2.0, normal)
    unigram = _Unigram(PieceModel(pieces, SplitterType.UNIGRAM, False, False), 0)
    drawn = [unigram.split("ab", 0.1, iter(shares).__next__) for shares in ([0.78], [0.79, 0.0])]
    assert drawn == [[(1, "ab")], [(0, "a"), (2, "b")]]  # 0.1 (-1) and 0.1 (-12 - 2): 1 to exp(-1.3)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_draws_are_distributed_as_the_librarys(model_type: str) -> None:
    processor = learnt(model_type)
    sampler = PieceSampler(processor, "model")
    line, alpha, count = "she sells shells", 0.1, 2000
    ours = Counter(
        tuple(number for number, _ in sampler.sample(line.encode(), alpha, i)) for i in range(count)
    )
    theirs = Counter(
        tuple(processor.encode(line, enable_sampling=True, alpha=alpha, nbest_size=-1)) for _ in range(count)
    )
    common = [way for way, number in theirs.items() if number >= 40]
    assert len(common) > 3
    for way in common:  # the difference between two draws of a share s has variance 2 s (1 - s) / count
        share = (ours[way] + theirs[way]) / (2 * count)
        assert abs(ours[way] - theirs[way]) / count < 6 * (2 * share * (1 - share) / count) ** 0.5


def test_the_last_symbol_is_not_before_the_first() -> None:
    pieces = tuple(Piece(text, -1.0, PieceKind.NORMAL) for text in ("a", "b", "c", "ab", "cab"))
    merges = _Merges(PieceModel(pieces, SplitterType.BPE, False, False), 9)
    assert merges.split("abc", 0.0, lambda: 0.5) == [(3, "ab"), (2, "c")]


def test_a_seed_gives_the_same_way_in_every_process() -> None:
    vocab = load_vocab(DATA / "words.spm")
    assert [vocab.sample("she sells", 0.1, seed) for seed in (1, 2)] == [
        [29, 15, 16, 16, 13, 0],
        [12, 30, 2, 17, 13, 10, 13, 0],
    ]


def test_models_that_know_one_way() -> None:
    with pytest.raises(VocabError, match="model: .* char model"):
        PieceSampler(learnt("char"), "model")


def test_what_a_model_holds() -> None:
    processor = learnt("bpe", **OPTIONS["user"])
    model = read_piece_model(processor.serialized_model_proto(), "model")
    assert model.model_type is SplitterType.BPE and not model.byte_fallback
    assert [piece.text for piece in model.pieces] == [
        processor.id_to_piece(number) for number in range(len(processor))
    ]
    assert [piece.score for piece in model.pieces] == [
        processor.get_score(number) for number in range(len(processor))
    ]
    kinds = {piece.text: piece.kind for piece in model.pieces}
    assert (kinds["</s>"], kinds["<unk>"], kinds["<x>"]) == (
        PieceKind.CONTROL,
        PieceKind.UNKNOWN,
        PieceKind.USER_DEFINED,
    )
    with pytest.raises(VocabError, match="model: not a SentencePiece model"):
        read_piece_model(b"\x0a\xff\xff", "model")


def test_fields_of_later_versions_are_passed_over() -> None:
    others = b"\x78\x80\x01", b"\x79" + bytes(8), b"\x7a\x02\x0a\x01", b"\x7d" + bytes(4)
    model = b"".join(other + b"\x0a\x03\x0a\x01" + b"abcd"[i : i + 1] for i, other in enumerate(others))
    assert [piece.text for piece in read_piece_model(model, "model").pieces] == list("abcd")


def test_only_what_is_no_piece_counts_as_other_data() -> None:
    count = 1 + MAX_OTHER_BYTES // 256
    check_size((b"\x0a\x80\x02" + bytes(256)) * count, "model")
    with pytest.raises(VocabError, match="bytes of other data"):
        check_size((b"\x12\x80\x02" + bytes(256)) * count, "model")
