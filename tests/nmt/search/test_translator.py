"""``Translator`` beyond single lines by single models: several texts, scores, attention, states, errors."""

from __future__ import annotations

import copy
import logging
import pickle
from typing import Any

import jax
import numpy as np
import pytest

from nmt import Embedder, OptionError, Scorer, Trainer, Translator
from nmt.cli import main
from nmt.search.beam_search import BeamSearch
from nmt.search.lane_sizes import LaneSize
from nmt.search.results import AttentionError
from nmt.search.schedule import Waiting
from nmt.text.parallel import ParallelTextError
from tests.helpers.places import DATA, SHIPPED

SEARCH, OPTIONS = DATA / "search", DATA / "options"
PIECES = str(SHIPPED / "vocab.spm")
SOURCE, TARGET = str(OPTIONS / "source.yml"), str(OPTIONS / "target.yml")
LINES = ["the cat sees the red house", "", "a zebra sleeps", "the dog and the cat"]
REVERSED = [" ".join(line.split()[::-1]) for line in LINES]


def translator(*models: str, sources: int = 1, **options) -> Translator:
    options = {"beam_size": 2, "mini_batch": 4} | options
    paths = [str(SEARCH / f"{model}.npz") for model in models]
    return Translator(paths, [*[SOURCE] * sources, TARGET], **options)


@pytest.fixture(scope="module")
def plain() -> Translator:
    return translator("left-right")


def test_a_model_without_attention_prints_no_alignment(plain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(plain.models[0]), "attends", False)
    with pytest.raises(OptionError, match="--alignment: the first model has no attention to a source"):
        plain.with_options(alignment="soft")


def test_results_with_scores_and_attention(plain) -> None:
    strings = plain.translate(LINES)
    found = plain.translate(LINES, return_scores=True)
    assert [result.text for result in found] == strings and not found[0].attentions
    assert found[0].score == found[0].hypotheses[0].score and found[0].scores == (found[0].score,)
    with pytest.raises(AttentionError, match="line 1 has no attention"):
        found[0].plot()
    found = plain.translate(LINES, return_attention=True, n_best=2)
    assert [result.text for result in found] == strings and len(found[0].texts) == 2
    for line, result in zip(LINES, found, strict=True):
        for hypothesis, attention in zip(result.hypotheses, result.attentions, strict=True):
            assert len(attention.source) == len(line.split()) + 1 and attention.source[-1] == "</s>"
            assert attention.weights.shape == (len(hypothesis.words), len(attention.source))
            assert attention.weights.shape[0] == len(attention.target)
            np.testing.assert_allclose(attention.weights.sum(axis=1), 1, rtol=1e-5)
    assert found[2].attention.source == ("a", "<unk>", "sleeps", "</s>")
    assert found[0].scores[0] >= found[0].scores[1]
    for count in 3, 0, True, 2.0:
        with pytest.raises(OptionError, match=f"n_best must be from 1 to beam_size=2, got {count}"):
            plain.translate(LINES, n_best=count)


@pytest.mark.parametrize("place", [{"first": -1}, {"done": -2}, {"first": 1.5}, {"done": "1"}], ids=str)
def test_places_in_a_longer_text_are_numbers_of_lines(plain: Translator, place: dict[str, Any]) -> None:
    scorer = Scorer(str(SEARCH / "left-right.npz"), [SOURCE, TARGET])
    [(name, value)] = place.items()
    for results in plain.translations(LINES, **place), scorer.scores(LINES, LINES, **place):
        with pytest.raises(OptionError, match=f"^{name} must be a whole number from 0, got {value!r}"):
            next(results)
    assert next(plain.translations(LINES, first=np.int64(2), done=np.int64(1))).line == 3


@pytest.mark.parametrize(
    "options", [{"precision": "bfloat16"}, {"beam_size": 1, "output_sampling": ["topk"], "seed": 1}]
)
@pytest.mark.sampled("options1")
def test_strict_promotion_of_types_changes_nothing(options: dict[str, Any]) -> None:
    expected = translator("left-right", **options).translate(LINES)
    with jax.numpy_dtype_promotion("strict"):
        assert translator("left-right", **options).translate(LINES) == expected


def repickled(made: Any) -> Any:
    return pickle.loads(pickle.dumps(made))


def test_a_pickled_or_copied_translator_is_made_from_its_options(plain: Translator) -> None:
    """As is needed for worker processes."""
    listing = plain.with_options(n_best=True)
    assert repickled(listing).translate(LINES) == listing.translate(LINES)
    model = str(SEARCH / "left-right.npz")
    made = (translator("left-right", mbr=shared_words), Scorer(model, [SOURCE, TARGET], normalize=True))
    for one in (*made, Embedder(model, SOURCE)):
        for other in (repickled(one), copy.deepcopy(one)):
            assert type(other) is type(one) and other.options == one.options
    assert repickled(made[0]).service.risk.utility is shared_words


def shared_words(hypothesis: str, reference: str) -> float:
    """A user's own utility for minimum Bayes risk."""
    return float(len({*hypothesis.split()} & {*reference.split()}))


def test_a_gpu_translates_alike(plain: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU answers what the search asks of a device as a GPU would that has memory for few rows."""
    for module in "beam_search", "lane", "schedule":
        monkeypatch.setattr(f"nmt.search.{module}.platform_of", lambda device: "gpu")
    monkeypatch.setattr("nmt.search.beam_search.memory_of", lambda device: 1 << 28)
    assert translator("left-right").translate(LINES) == plain.translate(LINES)


def test_what_is_printed_of_it_says_what_it_is(plain) -> None:
    vocabs = f"DefaultVocab({SOURCE!r}, 16 ids), DefaultVocab({TARGET!r}, 21 ids)"
    of = f"Model(s2s, 40 parameters, 3,141 numbers); {vocabs}"
    assert repr(plain) == f"Translator({of}; beam_size=2)"
    assert repr(Scorer(plain.options.models[0], [SOURCE, TARGET])) == f"Scorer({of})"
    trainer = Trainer(model="m.npz", type="s2s", train_sets=["a", "b"], vocabs=[SOURCE, TARGET])
    assert repr(trainer) == "Trainer('m.npz', s2s)"


def test_states_of_the_encoder_do_not_depend_on_the_batch(plain) -> None:
    states, mask = plain.encode(LINES)
    assert states.shape == (4, 7, 16) and mask.sum(axis=1).tolist() == [7, 1, 4, 6]
    assert not states[1, 1:].any() and states[1, 0].any()
    alone, _ = plain.encode([LINES[2]])
    np.testing.assert_allclose(alone[0], states[2, :4], atol=1e-6)
    found, own = plain.with_options(mini_batch=2).encode(LINES)
    np.testing.assert_allclose(found, states, atol=1e-6)
    np.testing.assert_array_equal(own, mask)
    with pytest.raises(OptionError, match="source 1 does not exist: the model has 1"):
        plain.encode(LINES, source=1)
    with pytest.raises(OptionError, match="model 1 does not exist: there are 1"):
        plain.encode(LINES, model=1)
    for name, wrong in ("source", "a"), ("model", -1):
        with pytest.raises(OptionError, match=f"{name} must be a whole number from 0, got {wrong!r}"):
            plain.encode(LINES, **{name: wrong})


def test_several_texts_and_fields_of_one_are_the_same() -> None:
    two = translator("multi", sources=2)
    found = two.translate(LINES, REVERSED)
    assert len(set(found)) == 4
    rows = ["\t".join(row) for row in zip(LINES, REVERSED, strict=True)]
    fields = translator("multi", sources=2, tsv=True)
    problems = list(fields.translations([*rows, "the cat", "a\tb\tc"]))
    assert [result.text for result in problems[:4]] == found
    assert not problems[4].problem, "a missing field is empty"
    assert problems[5].problem == "3 fields separated by tabs, 2 are expected" and problems[5].text == ""
    with pytest.raises(OptionError, match="--tsv-fields: 2 are needed, got 3"):
        translator("multi", sources=2, tsv=True, tsv_fields=3)
    with pytest.raises(OptionError, match=r"2 text\(s\) are needed \(source 1, source 2\), got 1"):
        two.translate(LINES)
    with pytest.raises(OptionError, match=r"1 text\(s\) are needed \(fields separated by tabs\), got 2"):
        fields.translate(LINES, REVERSED)


def test_what_stands_before_a_missing_line_is_translated() -> None:
    forced = translator("left-right", force_decode=True)
    found = forced.translations(LINES, ["das", "", "rot"])
    assert [next(found).text.split()[:1] for _ in range(3)][::2] == [["das"], ["rot"]]
    with pytest.raises(ParallelTextError, match="the prefix ends after 3 lines, the other goes on"):
        next(found)


def test_prefixes_may_hold_unknown_words_and_be_cut() -> None:
    forced = translator("left-right", force_decode=True, max_length_factor=0.5, n_best=True)
    [result] = forced.translate(["the cat sees"], ["zebra der hund sieht"], return_scores=True)
    words = result.hypotheses[0].words
    assert words == (1, *forced.target_vocab.encode("der")[:1]) and len(result.texts) == 1
    assert not result.hypotheses[0].finished


def test_translations_do_not_depend_on_the_batch() -> None:
    lines, prefixes = LINES * 3, ["das", "ein", "", "der hund", "", "rot"] * 2
    options = {"force_decode": True, "output_sampling": ["topk", 5], "seed": 9, "alignment": "hard"}
    printed = []
    for batching in {"mini_batch": 12}, {"mini_batch": 6, "maxi_batch": 2, "maxi_batch_sort": "src"}:
        printed.append(translator("left-right", **options, **batching).translate(lines, prefixes))
    assert printed[0] == printed[1]


def test_a_seed_gives_the_same_draws_once_in_a_translator() -> None:
    options = {"beam_size": 1, "output_sampling": "full", "seed": 9}
    one, other = (translator("left-right", **options) for _ in range(2))
    first, second = one.translate(LINES[:1] * 8), one.translate(LINES[:1] * 8)
    assert first == other.translate(LINES[:1] * 8) != second
    assert len(set(first)) > 1


def test_a_translator_with_other_options_draws_from_the_start() -> None:
    options = {"beam_size": 1, "output_sampling": ["full"], "seed": 9}
    expected, plain = translator("left-right", **options).translate(LINES[:1] * 8), translator("left-right")
    for _ in range(2):
        assert plain.with_options(**options).translate(LINES[:1] * 8) == expected
        plain.translate(LINES)


def test_sampling_with_a_beam_warns(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        translator("left-right", output_sampling=["full"])
        assert "--output-sampling with --beam-size 2 is a stochastic beam search" in caplog.text
        caplog.clear()
        translator("left-right", output_sampling=["0"])
    assert not caplog.messages


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (["left-right", "right-left"], {}, "left-to-right and right-to-left models cannot go together"),
        (["left-right", "lm"], {"weights": [1.0]}, "one weight for each of 2 model.s., got 1"),
        (["lm"], {"alignment": "hard"}, "--alignment: the first model has no attention to a source"),
        (["left-right"], {"alignment": "strong"}, "--alignment must be soft, hard or a number"),
        (["left-right"], {"output_approx_knn": ["100"]}, "--output-approx-knn is Marian's, and refused"),
        (["multi"], {}, "--vocabs: this model has 3 vocabularies, got 2"),
        (["left-right", "../options/highway"], {}, "same source vocabulary, got .* words"),
    ],
)
def test_what_cannot_go_together_is_named(models, options, message) -> None:
    with pytest.raises(OptionError, match=message):
        translator(*models, **options)


def test_prefixes_and_shortlists_cannot_go_together() -> None:
    options = {"force_decode": True, "shortlist": [str(SEARCH / "lexicon.txt")]}
    with pytest.raises(OptionError, match="--force-decode cannot go with --shortlist, as in Marian"):
        Translator(str(DATA / "s2s-numbers" / "model.npz"), [PIECES, PIECES], **options)


def test_the_command_takes_several_files_and_logs_what_is_best(tmp_path, capfd) -> None:
    for name, lines in ("first", LINES), ("second", REVERSED):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    model, output = str(SEARCH / "multi.npz"), tmp_path / "out"
    inputs = [str(tmp_path / name) for name in ("first", "second")]
    options = ["-b", "2", "--mini-batch", "4", "--n-best", "--alignment"]
    words = ["decode", "-m", model, "-v", SOURCE, SOURCE, TARGET, "-i", *inputs, "-o", str(output), *options]
    assert main(words) == 0
    printed = output.read_text().splitlines()
    assert len(printed) == 8 and printed[2] == printed[3] and printed[2].startswith("1 |||  ||| 0-0 ||| F0= ")
    number, text, links, *_ = printed[0].split(" ||| ")
    assert f"Best translation {number} : {text} ||| {links}\n" in capfd.readouterr().err


def test_a_beam_without_places_for_its_words_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes the case that places run out in the last step, which is as wrong as in any other."""
    options = {"beam_size": 6, "max_length_factor": 0.2, "n_best": True}
    lines, again = ["the cat sees the red house"], []
    monkeypatch.setattr(Waiting, "again", lambda *args, own=Waiting.again: (again.append(args), own(*args)))
    monkeypatch.setattr(BeamSearch, "size", BeamSearch.whole)
    [whole] = translator("right-left-transformer", **options).translate(lines, return_scores=True)
    assert max(len(h.words) for h in whole.hypotheses) == 2 and not again
    # The second step needs seven places: one has the word that all six continue.
    monkeypatch.setattr(BeamSearch, "size", lambda search, length: LaneSize(length, search.limit(length), 6))
    [found] = translator("right-left-transformer", **options).translate(lines, return_scores=True)
    assert len(again) == 1 and found.scores == pytest.approx(whole.scores, abs=1e-5)


def test_only_translations_are_printed(plain: Translator) -> None:
    for print_ in plain.format, plain.format_best:
        with pytest.raises(OptionError, match="must be a Translation, from .* got 'eins'"):
            print_("eins")  # type: ignore[arg-type]


def test_a_line_end_within_a_translation_is_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = translator("left-right")
    monkeypatch.setattr(plain.target_vocab, "decode", lambda words: "a\nb")
    assert plain.translate(LINES[:2]) == ["a b"] * 2
