"""Scoring with Marian's options, compared with what Marian's scorer prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt import OptionError, Scorer
from nmt.cli import main
from nmt.files import load_model
from nmt.search.scorer import Score, Total
from nmt.search.scoring import score
from nmt.text.parallel import NBestListError, NBestRows
from tests.helpers import places
from tests.helpers.places import SHIPPED

pytestmark = pytest.mark.optimized

DATA = places.DATA / "scorer"
VOCAB = str(SHIPPED / "vocab.spm")
MODELS = {"recurrent": DATA.parent / "s2s-numbers" / "model.npz", "transformer": SHIPPED / "model.npz"}
A_NUMBER = re.compile(r"-?\d+\.\d+(?:e-\d+)?")


def lines(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().split(b"\n")[:-1]


def scorer(model: str = "recurrent", **options: Any) -> Scorer:
    return Scorer(str(MODELS[model]), [VOCAB, VOCAB], **options)


def printed(scorer: Scorer, *texts: Sequence[bytes]) -> list[str]:
    return [scorer.format(result) for result in scorer.scores(*texts)]


def assert_same(got: list[str], reference: str) -> None:
    """Text agrees byte for byte, numbers within two units of the fifth decimal or fifth digit."""
    expected = (DATA / reference).read_text().splitlines()
    assert [A_NUMBER.sub("#", line) for line in got] == [A_NUMBER.sub("#", line) for line in expected]
    numbers = [[float(n) for line in text for n in A_NUMBER.findall(line)] for text in (got, expected)]
    np.testing.assert_allclose(*numbers, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["soft", "hard", "0.2"])
def test_alignments_as_marian_prints_them(kind: str) -> None:
    text = lines("source.en"), lines("target.de")
    recurrent = scorer("recurrent", alignment=kind, word_scores=True)
    assert_same(printed(recurrent, *text), f"recurrent.{kind}.txt")
    assert_same(printed(scorer("transformer", alignment=kind), *text), f"transformer.{kind}.txt")


def test_only_scores_are_printed() -> None:
    recurrent = scorer()
    for print_ in recurrent.value, recurrent.format:
        with pytest.raises(OptionError, match=r"result must be a Score, from scores\(\.\.\.\), got -1\.5"):
            print_(-1.5)  # type: ignore[arg-type]


def test_options_without_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    changed = Scorer(scorer(dim_emb=7).options, normalize=True)
    assert changed.options.normalize
    ignored = "ignored where the model file has its own, without --ignore-model-config: --dim-emb"
    assert caplog.messages == [ignored]


def test_a_missing_model_of_pieces_is_named() -> None:
    with pytest.raises(OSError, match=r"No such file or directory \(--pieces\): 'no\.spm'"):
        scorer(pieces=[VOCAB, "no.spm"])


def test_attention_is_part_of_a_score() -> None:
    first = next(scorer(alignment="soft").scores(["forty-two"], ["zweiundvierzig"]))
    assert first.attention is not None
    assert first.attention.shape[0] == len(first.word_scores)
    np.testing.assert_allclose(first.attention.sum(axis=1), 1, atol=1e-6)
    assert next(scorer().scores(["forty-two"], ["zweiundvierzig"])).attention is None


def test_n_best_lists_are_scored_again() -> None:
    texts = lines("source.en"), lines("list.nbest")
    assert_same(printed(scorer(n_best=True), *texts), "rescored.nbest")
    every = {"n_best_feature": "Fwd", "normalize": True, "word_scores": True, "alignment": "hard"}
    assert_same(printed(scorer(n_best=True, **every), *texts), "rescored-all.nbest")
    whole = printed(scorer(n_best=True, mini_batch=1, maxi_batch=1), *texts)
    assert_same(whole, "rescored.nbest")


def test_the_next_number_of_an_n_best_list_is_the_next_source() -> None:
    got = printed(scorer(n_best=True), lines("source.en"), lines("gaps.nbest"))
    assert_same(got, "rescored-gaps.nbest")


@pytest.mark.parametrize(
    "numbers, sources",
    [("0 1 0 1 2", "a b b c d"), ("0 0 2 1 2 3", "a a b b c d"), ("5 4 5 6", "a a b c"), ("2 1 0", "a a a")],
)
def test_a_number_is_compared_with_the_one_before_it_as_in_marian(numbers: str, sources: str) -> None:
    entries = [f"{number} ||| x ||| F0= -1 ||| -1" for number in numbers.split()]
    assert [row[0].decode() for row in NBestRows([list("abcd")], entries)] == sources.split()


@pytest.mark.parametrize(
    "entry, problem",
    [
        (b"1 ||| no more fields", "line 3 of the n-best list: expected 'number \\|\\|\\| text"),
        (b"one ||| drei ||| F0= -1 ||| -1", "got 'one \\|\\|\\| drei"),
        (b"9" * 5000 + b" ||| drei ||| F0= -1 ||| -1", "got '9999"),
        (b"99 ||| drei ||| F0= -1 ||| -1", "line 3 of the n-best list: the source has no more lines"),
    ],
)
def test_a_line_that_is_no_entry_ends_the_list_after_the_entries_before_it(
    entry: bytes, problem: str
) -> None:
    found = []
    with pytest.raises(NBestListError, match=problem):
        for result in scorer(n_best=True).scores(lines("source.en")[:1], [*lines("list.nbest")[:2], entry]):
            found.append(result.line)
    assert found == [0, 1]


def test_an_empty_list_is_an_error_unless_the_source_is_empty_too() -> None:
    assert scorer(n_best=True).score([], []) == []
    with pytest.raises(NBestListError, match="the n-best list is empty, and the source is not"):
        scorer(n_best=True).score(lines("source.en"), [])


def test_an_entry_that_is_too_long_keeps_its_line() -> None:
    short = scorer(n_best=True, max_length=3)
    got = printed(short, lines("source.en")[2:3], [b"0 ||| " + b"sechs " * 9 + b"||| F0= -1 ||| -1"])
    assert got == ["0 ||| " + "sechs " * 9 + "||| F0= -1 Score= nan ||| -1"]


def test_fields_between_tabs() -> None:
    assert_same(printed(scorer(tsv=True), lines("both.tsv")), "tsv.txt")
    _, second, third = scorer(tsv=True).scores(["six\tsechs", "six\tsechs\tseis", "six\tsechs"])
    assert second.problem == "3 fields separated by tabs, 2 are expected" and not third.problem
    with pytest.raises(OptionError, match="--tsv-fields: this model needs 2, got 3"):
        scorer(tsv=True, tsv_fields=3)
    with pytest.raises(OptionError, match="--n-best cannot go with --tsv"):
        scorer(tsv=True, n_best=True)


def test_a_language_model_has_no_source() -> None:
    model = Scorer(str(DATA / "lm.npz"), VOCAB, word_scores=True, alignment="soft")
    assert_same(printed(model, lines("target.de")), "lm.txt")
    with pytest.raises(OptionError, match="--train-sets: this model needs 1 texts, got 2"):
        model.score(["six"], ["sechs"])


def test_the_command_scores_lists_and_summaries(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    model = ["score", "-m", str(MODELS["recurrent"]), "-v", VOCAB, VOCAB, "--quiet"]
    texts = [str(DATA / "source.en"), str(DATA / "list.nbest")]
    assert main([*model, "--n-best", "-t", *texts, "-o", str(tmp_path / "list")]) == 0
    assert_same((tmp_path / "list").read_text().splitlines(), "rescored.nbest")
    summary = [*model, "--tsv", "--summary", "ce-sum", "-t", str(DATA / "both.tsv")]
    assert main(summary) == 0
    expected = -sum(map(float, lines("tsv.txt")))
    out = capfdbinary.readouterr().out
    assert float(out) == pytest.approx(expected, rel=1e-5)
    assert main([*summary, "-o", str(tmp_path / "sum")]) == 0
    assert (tmp_path / "sum").read_bytes() == out and not capfdbinary.readouterr().out


def test_summaries_are_per_sentence_or_per_word() -> None:
    total = Total.of({"log_prob": -6.0, "sentences": 2.0, "words": 3.0})
    kinds = ("ce-sum", "ce-mean", "cross-entropy", "ce-mean-words", "perplexity")
    assert [total.summary(kind) for kind in kinds] == ["6", "3", "3", "2", "7.38906"]


def test_a_total_leaves_out_pairs_with_problems() -> None:
    total = Total()
    for result in (Score(0, -1.5, (-1.0, -0.5)), Score(1, -9.0, (-9.0,), "long"), Score(2, -2.0, (-2.0,))):
        total.add(result)
    assert total == Total(-3.5, 2, 3)


def test_the_perplexity_of_impossible_words_is_infinite() -> None:
    assert Total(-800.0, 1, 1).summary("perplexity") == "inf"
    assert (Total().summary("perplexity"), Total().summary("ce-sum")) == ("nan", "0")


def test_a_model_without_attention_is_scored_without_alignments() -> None:
    data = DATA.parent / "models-transformer"
    assert load_model(data / "multi.npz").attends
    pool = load_model(data / "pool.npz")
    assert not pool.attends
    (found,) = score(pool, [([2, 0], [2, 0])], attention=True)
    assert found.attention is None and len(found.word_scores) == 2
