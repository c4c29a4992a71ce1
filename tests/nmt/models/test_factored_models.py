"""Models whose source vocabulary is factored, against Marian's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgraph import ArgumentError, ParameterError
from mgraph.files.items import read_npz
from nmt import Scorer, Trainer, Translator, load_model
from nmt.settings import OptionError
from tests.helpers.places import DATA

HERE, TEXTS = DATA / "factored", DATA / "options"
FACTORED = str(HERE / "source.fsv"), HERE / "source.txt"
SOURCE = str(TEXTS / "source.yml"), TEXTS / "source.txt"
TARGET = str(TEXTS / "target.yml"), TEXTS / "target.txt"
MODELS = {
    "source": (FACTORED, TARGET),
    "recurrent": (FACTORED, TARGET),
    "target": (SOURCE, FACTORED),
    "both": (FACTORED, FACTORED),
}
VOCABS = [FACTORED[0], TARGET[0]]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_marians(name: str) -> None:
    vocabs, texts = zip(*MODELS[name], strict=True)
    scorer = Scorer(str(HERE / f"{name}.npz"), vocabs)
    expected = lines(HERE / f"{name}.scores")
    found = list(scorer.scores(*map(lines, texts)))
    assert len(found) == len(expected)
    for ours, line in zip(found, expected, strict=True):
        words = [float(word) for word in line.split("WordScores=")[1].split()]
        np.testing.assert_allclose(ours.word_scores, words, rtol=0, atol=2.5e-5)


@pytest.mark.parametrize("name", ["target", "source", "both"])
@pytest.mark.sampled("target")
def test_translations_are_marians(name: str) -> None:
    vocabs, texts = zip(*MODELS[name], strict=True)
    translator = Translator(str(HERE / f"{name}.npz"), vocabs, beam_size=3)
    assert list(translator.translate(lines(texts[0]))) == lines(HERE / f"{name}.output")


def test_what_a_factored_model_needs() -> None:
    with pytest.raises(ParameterError, match=r"encoder_Wemb \(23, 8\)"):
        load_model(HERE / "source.npz")
    for number in (1, 3):
        said = rf"source\.npz: --vocabs: this model has 2 vocabularies, got {number} path\(s\)"
        with pytest.raises(OptionError, match=said):
            load_model(HERE / "source.npz", vocabs=[FACTORED[0]] * number)
    with pytest.raises(ArgumentError, match=r"expected a list of the paths of vocabularies, got '.*\.fsv'"):
        load_model(HERE / "source.npz", vocabs=FACTORED[0])
    with pytest.raises(OptionError, match="--shortlist cannot go with a factored target vocabulary"):
        Translator(str(HERE / "target.npz"), [SOURCE[0], FACTORED[0]], shortlist=[str(HERE / "source.txt")])


def test_a_shortlist_for_a_factored_source(tmp_path: Path) -> None:
    """Marian prints this with ``-b 3 --word-scores --shortlist lexicon 1 2 0.25``."""
    pairs = {"schlaf the|cn|gn|xb": 0.5, "katze a|ci": 0.5, "haus a|ci": 0.2}
    pairs |= {"rote red|ci": 0.4, "ein red|ci": 0.3, "schlaf red|ci": 0.6}
    lexicon = tmp_path / "lexicon"
    lexicon.write_text("".join(f"{pair} {number}\n" for pair, number in pairs.items()))
    options: dict[str, Any] = {"beam_size": 3, "shortlist": [str(lexicon), "1", "2", "0.25"]}
    translator = Translator(str(HERE / "source.npz"), VOCABS, **options)
    source = lines(FACTORED[1])
    found = translator.translate([source[0], source[1], source[4]], return_scores=True)
    assert [each.text for each in found] == ["schlaf", "der hund", ""]
    scores = [[-0.59396, -0.67729], [-0.32151, -0.12758, -0.70941], [-0.86392]]
    for each, expected in zip(found, scores, strict=True):
        np.testing.assert_allclose(each.hypotheses[0].word_scores, expected, rtol=0, atol=2.5e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["source", "both"])
@pytest.mark.sampled("both")
def test_training(name: str, tmp_path: Path) -> None:
    """Training resumes, the file has Marian's sizes, and translations are scored as text."""
    vocabs, texts = zip(*MODELS[name], strict=True)
    model, files = str(tmp_path / "m.npz"), list(map(str, texts))
    options: dict[str, Any] = {
        "type": "transformer",
        "dim_emb": 8,
        "transformer_heads": 2,
        "transformer_dim_ffn": 12,
        "enc_depth": 1,
        "dec_depth": 1,
        "tied_embeddings_all": name == "both",
        "learn_rate": 0.03,
        "seed": 7,
        "dropout_src": 0.1,
        "label_smoothing": 0.1,
        "train_sets": files,
        "valid_sets": files,
        "valid_freq": "10u",
        "valid_metrics": ["accuracy", "bleu"],
        "quiet_translation": True,
        "vocabs": vocabs,
        "model": model,
    }
    for option, value in {"embedding_vectors": ["a", "b"], "all_caps_every": 2}.items():
        with pytest.raises(OptionError, match="cannot go with factored vocabularies"):
            Trainer(**options | {option: value}).train()
    Trainer(**options, after_batches=10).train()
    Trainer(**options, after_batches=40).train()
    items = read_npz(model)
    table = "Wemb" if name == "both" else "encoder_Wemb"
    assert items[table].shape == (23, 8)
    dims = [107, 107 if name == "both" else 21]
    assert f"dim-vocabs:\n  - {dims[0]}\n  - {dims[1]}\n".encode() in items["special:model.yml"].tobytes()
    before = np.mean(Scorer(str(HERE / f"{name}.npz"), vocabs).score(*map(lines, texts)))
    assert np.mean(Scorer(model, vocabs).score(*map(lines, texts))) > before
