"""Vocabularies of the right size, but with other words than the model's, cause a warning."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt import Scorer, Translator, load_vocab
from nmt.settings.model_options import ModelOptions
from nmt.text.vocabs.agreement import check_shared, difference, trained_with
from tests.helpers.places import DATA
from tests.helpers.small_models import small_trainer

OPUS = DATA / "directories" / "opus-mt"
WORDS = (OPUS / "opus.spm60-spm60.vocab.yml").read_text()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The only model in a folder, with the configuration and the vocabulary of its training."""
    model = tmp_path / "m.npz"
    shutil.copy(next(OPUS.glob("*.npz")), model)
    (tmp_path / "trained.yml").write_text(WORDS)
    (tmp_path / "m.npz.yml").write_text("relative-paths: true\nvocabs:\n  - trained.yml\n  - trained.yml\n")
    return model


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A vocabulary of the same size in which two words are swapped."""
    lines = WORDS.splitlines()
    words, ids = zip(*(line.rsplit(": ", 1) for line in lines), strict=True)
    swapped = [*words[:5], words[6], words[5], *words[7:]]
    path = tmp_path / "other.yml"
    path.write_text("".join(f"{word}: {number}\n" for word, number in zip(swapped, ids, strict=True)))
    return path


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return [line for line in found if "WRONG VOCABULARY?" in line]


@pytest.mark.parametrize("made", [Translator, Scorer])
def test_other_words_are_warned_of(
    made: Callable[..., Any], model: Path, other: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained = model.parent / "trained.yml"
    made(str(model), [trained, trained])
    copy = model.parent / "copy.yml"
    copy.write_text(WORDS + "\n")
    made(str(model), [copy, trained])
    assert not warnings(caplog)
    made(str(model), [other, trained])
    config, shared = warnings(caplog)
    for line in (config, shared):
        assert f"WRONG VOCABULARY? {other} differs from {trained}" in line
        assert ": 2 of 90 ids have other words, 5 is " in line
    assert (
        f"{model}.yml names as vocabulary 1 of {model}" in config
        and f"--vocabs {trained} {trained}" in config
    )
    assert f"{model} has the same embeddings for both" in shared
    made(str(model), [other, other])
    (config,) = warnings(caplog)
    assert "names as vocabulary 1" in config


@pytest.mark.thorough
def test_a_new_model_with_one_table_for_other_words(
    tmp_path: Path, other: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = tmp_path / "words.yml"
    words.write_text(WORDS)
    (tmp_path / "text").write_text("a b\n" * 3)
    tied = {"type": "s2s", "tied_embeddings_all": True, "after_batches": 1, "mini_batch": 2}
    text = tmp_path / "text"
    small_trainer(model=tmp_path / "n.npz", train_sets=[text, text], vocabs=[words, other], **tied).train()
    (line,) = warnings(caplog)
    assert f"WRONG VOCABULARY? {words} differs from {other}, but {tmp_path / 'n.npz'} has the same" in line


def test_what_training_says_of_a_model_is_found(tmp_path: Path) -> None:
    assert trained_with(str(tmp_path / "model.npz")) == ("", [])
    config = tmp_path / "model.npz.yml"
    config.write_text("vocabs: [a.yml, b.spm]\n")
    for name in ("model.npz", "model.iter20.npz", "model.npz.best-bleu-detok.npz"):
        assert trained_with(str(tmp_path / name)) == (str(config), ["a.yml", "b.spm"])
    for text in ("vocabs: [a, [b]]", "- vocabs", "vocabs: [", "", "vocabs: \udcff"):
        config.write_text(text, errors="surrogateescape")
        assert trained_with(str(tmp_path / "model.npz")) == (str(config), [])


def test_a_vocabulary_that_is_not_there_is_not_compared(
    model: Path, other: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = model.parent / "m.npz.yml"
    config.write_text("relative-paths: true\nvocabs:\n  - trained.yml\n")
    Translator(str(model), [other, other])
    config.unlink()
    Translator(str(model), [other, other])
    assert not warnings(caplog)
    config.write_text("vocabs:\n  - none.yml\n  - none.yml\n")
    Translator(str(model), [other, other])
    assert not warnings(caplog)


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    vocabs = []
    for name, words in (("a", "</s> <unk> a b c"), ("b", "</s> <unk> a c b d")):
        (tmp_path / name).write_text(words.replace(" ", "\n") + "\n")
        vocabs.append(load_vocab(tmp_path / name))
    assert difference(*vocabs) == "2 of 5 ids have other words, 3 is 'b' instead of 'c'"
    assert difference(vocabs[0], vocabs[0]) == ""


@pytest.mark.parametrize(
    ("tied", "number"),
    [("", 0), ("tied_embeddings", 0), ("tied_embeddings_src", 1), ("tied_embeddings_all", 1)],
)
def test_only_streams_with_one_table_need_the_same_words(
    tied: str, number: int, other: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vocabs = [load_vocab(other), load_vocab(model.parent / "trained.yml")]
    check_shared("m.npz", vocabs, ModelOptions(**{tied: True} if tied else {}))
    assert len(warnings(caplog)) == number


@pytest.mark.thorough
def test_training_warns_of_a_vocabulary_that_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, vocab, second = tmp_path / "text", tmp_path / "v", tmp_path / "w"
    text.write_text("a b\nb a\n")
    vocab.write_text("</s>\n<unk>\na\nb\n")
    second.write_text("</s>\n<unk>\nb\na\n")
    options = {"model": tmp_path / "m.npz", "train_sets": [text], "mini_batch": 1}
    small_trainer(**options, vocabs=[vocab], after_batches=1).train()
    small_trainer(**options, vocabs=[vocab], after_batches=2).train()
    assert not warnings(caplog)
    small_trainer(**options, vocabs=[second], after_batches=3).train()
    config, changed = warnings(caplog)
    assert f"{second} differs from {vocab}, which {tmp_path}/m.npz.yml names as vocabulary 1" in config
    assert changed.endswith(f"{second} has other contents than {vocab} had")

    fresh = options | {"model": tmp_path / "n.npz"}
    small_trainer(**fresh, vocabs=[vocab], pretrained_model=tmp_path / "m.npz", after_batches=1).train()
    (line,) = warnings(caplog)
    assert f"{vocab} differs from {second}, which {tmp_path}/m.npz.yml names" in line
