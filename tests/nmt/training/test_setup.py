"""What a training starts from. ``data/checkpoint`` has vocabularies and models that Marian made."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import chex
import numpy as np
import pytest

from layers import UnsupportedOptionError
from mgraph import ArgumentError, ParameterError, WordVectorsError
from mgraph.files.items import read_npz
from nmt.files import load_model, save_model
from nmt.models import Dropouts
from nmt.settings import TRAIN, OptionError
from nmt.settings.config import parse
from nmt.settings.model_options import ModelOptions, text_of
from nmt.settings.training import TrainOptions
from nmt.text.vocabs.base import VocabError
from nmt.text.vocabs.creation import word_vocab
from nmt.text.vocabs.sentence_piece import SentencePieceVocab
from nmt.text.vocabs.words import ClassVocab
from nmt.training.checkpoints.checkpoint import Checkpoint
from nmt.training.checkpoints.moments import Moments
from nmt.training.schedule.state import TrainingState
from nmt.training.setup import load_or_create_vocabs, new_model, reloaded_model, with_model_options
from nmt.training.vocabularies import embedding_tables, read_vectors, word_vectors
from tests.helpers import places

DATA = places.DATA / "checkpoint"
NAMES = sorted(path.parent.name for path in DATA.glob("*/model.npz"))
TEXTS = (str(DATA / "source.txt"), str(DATA / "target.txt"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def values(**given: Any) -> dict[str, Any]:
    """All options of training."""
    defaults = {"type": "s2s", "dim_emb": 4, "dim_rnn": 4, "train_sets": TEXTS}
    return TRAIN.from_python(defaults | given)


# -- vocabularies


def test_missing_vocabularies_are_made_as_marian_makes_them(folder: Path) -> None:
    found = load_or_create_vocabs(values(vocabs=("s.yml", "t.yml")))
    assert found.paths == ("s.yml", "t.yml")
    assert found.dim_vocabs == (8, 8)
    for name in ("source", "target"):
        assert (folder / f"{name[0]}.yml").read_bytes() == (DATA / f"{name}.yml").read_bytes()


def test_a_vocabulary_that_is_named_twice_is_of_both_texts(folder: Path) -> None:
    found = load_or_create_vocabs(values(vocabs=("both.yml", "both.yml"), dim_vocabs=(9, 0)))
    assert (folder / "both.yml").read_bytes() == (DATA / "joint.yml").read_bytes()
    assert found.dim_vocabs == (9, 9)
    assert found.vocabs[0] is found.vocabs[1]


def test_vocabularies_that_exist_are_read(folder: Path) -> None:
    paths = (str(DATA / "source.yml"), str(DATA / "target.yml"))
    assert load_or_create_vocabs(values(vocabs=paths)).dim_vocabs == (8, 8)
    cut = load_or_create_vocabs(values(vocabs=paths, dim_vocabs=(5, 20)))
    assert cut.dim_vocabs == (5, 20)
    assert len(cut.vocabs[0]) == 5
    assert not list(folder.iterdir())


def test_a_vocabulary_that_another_training_makes_meanwhile_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def counted(lines: Iterable[bytes], size: int) -> bytes:
        (folder / "s.yml").write_text("</s>: 0\n<unk>: 1\nother: 2\n")
        return word_vocab(lines, size)

    monkeypatch.setattr("nmt.text.vocabs.creation.word_vocab", counted)
    found = load_or_create_vocabs(values(vocabs=("s.yml", "s.yml")))
    assert found.vocabs[0]["other"] == 2
    assert "Using s.yml, which another process has created meanwhile" in caplog.text


def test_vocabularies_beside_the_text(folder: Path) -> None:
    (folder / "a").write_text("x y\n")
    (folder / "b").write_text("z\n")
    (folder / "b.yaml").write_text("</s>: 0\n<unk>: 1\nz: 2\nw: 3\n")
    found = load_or_create_vocabs(values(train_sets=("a", "b")))
    assert found.paths == ("a.yml", "b.yaml")
    assert found.dim_vocabs == (4, 4)


def test_fields_of_tsv(folder: Path) -> None:
    rows = zip(*(Path(text).read_text().splitlines() for text in TEXTS), strict=True)
    with gzip.open("both.tsv.gz", "wt") as stream:
        stream.writelines(f"{source}\t{target}\n" for source, target in rows)
    tsv = values(train_sets=("both.tsv.gz",), tsv=True)
    load_or_create_vocabs(replace(tsv, vocabs=("s.yml", "t.yml")))
    for name in ("source", "target"):
        assert (folder / f"{name[0]}.yml").read_bytes() == (DATA / f"{name}.yml").read_bytes()
    joint = load_or_create_vocabs(tsv)
    assert joint.paths == ("both.tsv.gz.yml", "both.tsv.gz.yml")
    assert joint.dim_vocabs == (14, 14)  # Marian counts "s3<tab>t1", where two fields meet, as a word
    (folder / "short.tsv").write_text("a b\tx y\nc\nd\tz\n")  # a row without a target, as in training
    short = replace(tsv, train_sets=("short.tsv",), vocabs=("short.s.yml", "short.t.yml"))
    assert load_or_create_vocabs(short).dim_vocabs == (6, 5)
    (folder / "untabbed.tsv").write_text("a b\nc\n")
    with pytest.raises(OptionError, match=r"no words to create u\.t\.yml from in untabbed\.tsv"):
        load_or_create_vocabs(replace(short, train_sets=("untabbed.tsv",), vocabs=("u.s.yml", "u.t.yml")))


def test_labels(folder: Path) -> None:
    (folder / "labels").write_text("good\nbad\ngood\n")
    sets = (TEXTS[0], "labels")
    found = load_or_create_vocabs(
        values(train_sets=sets, vocabs=("s.yml", "l.yml"), input_types=("sequence", "class"))
    )
    assert isinstance(found.vocabs[1], ClassVocab)
    assert found.dim_vocabs == (8, 2)


def test_pieces_are_learnt(folder: Path) -> None:
    (folder / "text").write_text("she sells sea shells\nthe shells she sells are sea shells\n" * 30)
    options = {"sentencepiece_options": "--normalization_rule_name=identity", "dim_vocabs": (15, 15)}
    train = values(train_sets=("text", "text"), vocabs=("v.spm", "v.spm"), **options)
    found = load_or_create_vocabs(train)
    assert isinstance(found.vocabs[0], SentencePieceVocab)
    assert found.dim_vocabs == (15, 15)
    again = load_or_create_vocabs(replace(train, dim_vocabs=(0, 40)))
    assert again.dim_vocabs == (15, 15)


def test_vocabularies_that_cannot_be_made(folder: Path) -> None:
    stdin = values(train_sets=("stdin",), vocabs=("a.yml", "b.yml"))
    with pytest.raises(OptionError, match=r"--vocabs: a\.yml does not exist, and standard input"):
        load_or_create_vocabs(stdin)
    aligned = values(train_sets=("x.tsv",), tsv=True, guided_alignment="2")
    with pytest.raises(OptionError, match=r"x\.tsv\.yml does not exist, .* with --guided-alignment"):
        load_or_create_vocabs(aligned)
    with pytest.raises(VocabError, match=r"a\.txt: a new vocabulary is \.yml"):
        load_or_create_vocabs(values(vocabs=("a.txt", "b.yml")))
    with pytest.raises(FileNotFoundError):
        load_or_create_vocabs(values(train_sets=("none", "none")))
    with pytest.raises(OptionError, match="--type s2s needs 2 files, sources first, .* got 1"):
        load_or_create_vocabs(values(train_sets=TEXTS[:1]))
    Path("empty").write_text("\n \n")
    with pytest.raises(OptionError, match=r"no words to create a\.yml from in empty"):
        load_or_create_vocabs(values(train_sets=("empty", "empty"), vocabs=("a.yml", "b.yml")))
    assert not Path("a.yml").exists()


# -- a new model


@pytest.mark.parametrize("name", NAMES)
def test_a_new_model_is_what_marian_makes(name: str) -> None:
    """The file has the same options, except for the version, and the same parameters."""
    train = parse(TRAIN, ["-c", str(DATA / name / "model.npz.yml")])
    marian = load_model(DATA / name / "model.npz")
    model = new_model(train, train.dim_vocabs, 1)
    ours, theirs = (text_of(m.options).splitlines() for m in (model, marian))
    assert ours[:-1] == theirs[:-1]
    assert ours[-1].startswith("version: mgraph ")
    chex.assert_trees_all_equal_shapes_and_dtypes(model.params, marian.params)


def test_a_seed_says_how_a_model_begins() -> None:
    first, again, other = (new_model(values(), (8, 8), seed).params for seed in (1, 1, 2))
    chex.assert_trees_all_equal(first, again, strict=True)
    assert not np.array_equal(first["encoder_Wemb"], other["encoder_Wemb"])


def test_dropouts_and_depth_scaling() -> None:
    plain = values(type="transformer", transformer_heads=2, transformer_dim_ffn=4, dec_depth=2)
    first = new_model(plain, (8, 8), 1)
    assert first.dropouts == Dropouts()
    changed = replace(plain, transformer_depth_scaling=True, transformer_dropout=0.1, dropout_src=0.2)
    scaled = new_model(changed, (8, 8), 1)
    assert scaled.dropouts == Dropouts(transformer=0.1, src=0.2)
    assert scaled.options == first.options
    name = "decoder_l2_ffn_W1"
    np.testing.assert_allclose(scaled.params[name], first.params[name] / np.sqrt(2), rtol=1e-6)
    np.testing.assert_array_equal(scaled.params["decoder_l1_ffn_W1"], first.params["decoder_l1_ffn_W1"])


def test_a_factored_vocabulary_has_rows_of_factors() -> None:
    vocabs = (str(places.DATA / "factored" / "source.fsv"), str(DATA / "target.yml"))
    params = new_model(values(vocabs=vocabs), (107, 8), 1).params
    assert [params[f"{side}_Wemb"].shape for side in ("encoder", "decoder")] == [(23, 4), (8, 4)]


def test_models_that_there_are_not() -> None:
    with pytest.raises(UnsupportedOptionError, match="dim-vocabs: expected the sizes of 2 vocabularies"):
        new_model(values(), (8,), 1)
    with pytest.raises(UnsupportedOptionError, match="one embedding table for all sides needs equal sizes"):
        new_model(values(tied_embeddings_all=True), (8, 9), 1)


def test_a_pretrained_model_gives_what_it_has(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A translation model takes the decoder of a language model."""
    path = DATA / "lm-adam" / "model.npz"
    old = load_model(path).params
    drawn = new_model(values(), (8, 8), 1).params
    with caplog.at_level(logging.INFO):
        model = new_model(values(pretrained_model=str(path)), (8, 8), 1).params
    chex.assert_trees_all_equal(model, drawn | old, strict=True)
    assert f"{len(old)} of {len(drawn)} parameters from the pretrained model" in caplog.text
    assert f"{len(drawn) - len(old)} parameters drawn: decoder_U_att, " in caplog.text
    with pytest.raises(ParameterError, match=r"model\.npz: .* decoder_Wemb \(8, 4\), expected \(9, 4\)"):
        new_model(values(pretrained_model=str(path)), (8, 9), 1)
    save_model(new_model(values(), (8, 8), 3), "whole.npz")
    caplog.clear()
    new_model(values(type="lm", train_sets=TEXTS[1:], pretrained_model="whole.npz"), (8,), 1)
    assert "parameters not used: decoder_U_att, " in caplog.text
    caplog.clear()
    new_model(values(pretrained_model="whole.npz"), (8, 8), 1)
    assert not caplog.records, "nothing is drawn, and nothing not used"


# -- word vectors


def test_word_vectors_are_marians() -> None:
    marian = read_npz(DATA / "vectors.npz")
    files = (str(DATA / "words.vec"),) * 2
    for name, table in marian.items():
        train = values(embedding_vectors=files, embedding_normalization=name == "normalized")
        params = new_model(train, (8, 8), 1).params
        for side in ("encoder", "decoder"):
            np.testing.assert_array_equal(params[f"{side}_Wemb"], table)


def test_words_without_a_vector_are_drawn(folder: Path) -> None:
    (folder / "v").write_text("2 3\n4 1 2 3\n0 .5 -1e-2 0\n")
    table = read_vectors("v", (500, 3), seed=2)
    np.testing.assert_array_equal(table[[4, 0]], np.array([[1, 2, 3], [0.5, -0.01, 0]], np.float32))
    assert abs(table[5:].std() - np.sqrt(2 / 503)) < 3e-3
    np.testing.assert_array_equal(table, read_vectors("v", (500, 3), seed=2))
    (folder / "v").write_text("1 4\n0 1 2 3 4\n")
    models = [new_model(values(embedding_vectors=("v", "")), (8, 8), seed).params for seed in (1, 1, 2)]
    first, again, other = (params["encoder_Wemb"] for params in models)
    np.testing.assert_array_equal(first, again)
    assert (first[0] == other[0]).all() and (first[1:] != other[1:]).any()


def test_tables_that_streams_share(folder: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        (folder / name).write_text(f"1 2\n0 {value} {value}\n")
    options = ModelOptions(type="multi-s2s", dim_vocabs=(3, 3, 3), dim_emb=2)
    assert embedding_tables(options) == ("encoder1_Wemb", "encoder2_Wemb", "decoder_Wemb")
    found = word_vectors(options, ("a", "", "b"))
    assert {name: table[0, 0] for name, table in found.items()} == {"encoder1_Wemb": 1, "decoder_Wemb": 2}
    found = word_vectors(replace(options, tied_embeddings_all=True), ("", "b", "a"))
    assert {name: table[0, 0] for name, table in found.items()} == {"Wemb": 2}
    with pytest.raises(ArgumentError, match="expected a file for each of 3 streams, got 1"):
        word_vectors(options, ("a",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "v:1: expected the number of words"),
        ("2\n", "v:1: expected the number of words and the length"),
        ("2 x\n", "v:1: expected the number of words and the length"),
        ("2 3\n", "v:1: vectors of length 3, but dim-emb is 2"),
        ("1 2\n0 1 2\n1 1\n", "v:3: expected an id and 2 numbers, got 2 fields"),
        ("1 2\nword 1 2\n", "v:2: expected the id of a word, then numbers, got b'word 1 2"),
    ],
)
def test_files_that_are_no_word_vectors(folder: Path, text: str, message: str) -> None:
    (folder / "v").write_text(text)
    with pytest.raises(WordVectorsError, match=message):
        read_vectors("v", (5, 2))


# -- a model to go on with


def test_the_options_of_the_model_count(caplog: pytest.LogCaptureFixture) -> None:
    model = load_model(DATA / "lm-adam" / "model.npz")
    other = {"dim_rnn": 16, "dec_depth": 2, "layer_normalization": True, "skip": True}
    given = values(type="lm", train_sets=TEXTS[1:], dropout_rnn=0.5, **other)
    train = with_model_options(given, model.options, "m.npz")
    assert (train.dim_rnn, train.dim_vocabs, train.skip) == (4, (8,), False)
    assert train.dropout_rnn == 0.5
    assert with_model_options(train, model.options, "m.npz") == train
    said = "dec-depth: 1, dim-rnn: 4, layer-normalization: false, skip: false"
    assert caplog.messages == [f"m.npz overrides these options: {said}"]
    params = {name: np.asarray(value) for name, value in model.params.items()}
    fresh = Moments(TrainOptions(optimizer="sgd")).fresh(params)
    found = Checkpoint(model.options, fresh, TrainingState(0.1))
    again = reloaded_model(found, train)
    assert again.dropouts == Dropouts(rnn=0.5)
    assert again.options == model.options
    with pytest.raises(VocabError, match=r"sizes of \[9\], but the model .* has \[8\] \(dim-vocabs\)"):
        reloaded_model(found, replace(train, dim_vocabs=(9,)))
