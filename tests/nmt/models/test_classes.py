"""Streams that hold labels of classes (``--input-types``), against Marian's numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from nmt import Scorer, Trainer, Translator
from nmt.settings import OptionError
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.places import DATA

TEXTS, HERE = DATA / "options", DATA / "classes"
SOURCE, CLASS, TARGET = TEXTS / "source.txt", HERE / "class.txt", TEXTS / "target.txt"
WORDS, LABELS, OTHERS = (
    str(path) for path in (TEXTS / "source.yml", HERE / "class.yml", TEXTS / "target.yml")
)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "vocabs", "texts"),
    [
        ("source", [WORDS, LABELS, OTHERS], [SOURCE, CLASS, TARGET]),
        ("target", [WORDS, LABELS], [SOURCE, CLASS]),
    ],
)
def test_scores_are_marians(name: str, vocabs: list[str], texts: list[Path]) -> None:
    scorer = Scorer(str(HERE / f"{name}.npz"), vocabs)
    found = list(scorer.scores(*map(lines, texts)))
    expected = lines(HERE / f"{name}.scores")
    assert len(found) == len(expected)
    for ours, line in zip(found, expected, strict=True):
        words = [float(word) for word in line.split("WordScores=")[1].split()]
        np.testing.assert_allclose(ours.word_scores, words, rtol=0, atol=2.5e-5)


@pytest.mark.slow
def test_translations_are_marians() -> None:
    translator = Translator(str(HERE / "source.npz"), [WORDS, LABELS, OTHERS], beam_size=2)
    found = list(translator.translate(lines(SOURCE), lines(CLASS)))
    assert found == lines(HERE / "source.output")


def test_a_class_is_not_translated_into() -> None:
    with pytest.raises(OptionError, match="target is a label of a class"):
        Translator(str(HERE / "target.npz"), [WORDS, LABELS])


@pytest.mark.slow
def test_training_on_classes(tmp_path: Path) -> None:
    """Fields with a class, weights and text; the vocabulary of classes is made from files."""
    for path in (SOURCE, CLASS):
        shutil.copy(path, tmp_path)
    common = {
        "type": "transformer",
        "dim_emb": 8,
        "transformer_heads": 2,
        "transformer_dim_ffn": 12,
        "enc_depth": 1,
        "dec_depth": 1,
        "learn_rate": 0.03,
        "after_batches": 12,
        "seed": 7,
        "quiet_validation": True,
        "valid_freq": "12u",
    }
    files = [str(tmp_path / "source.txt"), str(tmp_path / "class.txt")]
    vocabs = [WORDS, str(tmp_path / "class.yml")]
    own = {"train_sets": files, "valid_sets": files, "vocabs": vocabs, "input_types": ("sequence", "class")}
    with pytest.raises(OptionError, match="bleu is for translations, and the target is a class"):
        Trainer(model=str(tmp_path / "no.npz"), **common, **own, valid_metrics=("bleu",)).train()
    Trainer(model=str(tmp_path / "m.npz"), **common, **own, valid_metrics=("accuracy",)).train()
    assert len(load_vocab(vocabs[1], input_type="class")) == 2
    tsv = tmp_path / "all.tsv"
    rows = zip(lines(SOURCE), lines(CLASS), strict=True)
    tsv.write_text("".join(f"1\t{text}\t{label}\n" for text, label in rows))
    own |= {"train_sets": [str(tsv)], "tsv": True, "input_types": ("weight", "sequence", "class")}
    own.pop("valid_sets")
    Trainer(model=str(tmp_path / "tsv.npz"), **common, **own).train()
    scores = [
        Scorer(str(tmp_path / f"{name}.npz"), vocabs).score(lines(SOURCE), lines(CLASS))
        for name in ("m", "tsv")
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)  # weights of 1 change nothing
    assert np.mean(scores[0]) > np.log(0.5) / 2
