"""Directories of models as they are published; ``data/directories`` holds what Marian makes of them."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgraph import ArgumentError, MGraphError
from nmt import Scorer, Translator, numbers
from nmt.files.directories import FIREFOX_OPTIONS, DirectoryError, read_directory
from nmt.settings import OptionError
from nmt.text.vocabs.sentence_piece import SegmentedVocab
from tests.helpers import places
from tests.helpers.marian_lines import read_lines

DATA = places.DATA / "directories"
Files = Callable[..., Path]

# A student of Bergamot, as its own configuration describes it.
STUDENT = """
relative-paths: true
models:
  - model.intgemm.alphas.bin
vocabs:
  - vocab.deen.spm
  - vocab.deen.spm
shortlist:
    - lex.s2t.bin
    - false
beam-size: 1
normalize: 1.0
workspace: 2000
max-length-factor: 2.5
gemm-precision: int8shiftAlphaAll
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    def write(*names: str, **texts: str) -> Path:
        """Write empty files, and files with texts (``_`` in a keyword is the dot before its ending)."""
        for name in names:
            (tmp_path / name).write_bytes(b"")
        for name, text in texts.items():
            (tmp_path / ".".join(name.rsplit("_", 1))).write_text(text)
        return tmp_path

    return write


def test_opus_mt_takes_raw_text_and_gives_it() -> None:
    translator = Translator.from_dir(str(DATA / "opus-mt"), mini_batch=8)
    assert translator.options.beam_size == 6 and translator.options.normalize == 1
    assert translator.translate(read_lines(DATA / "raw.txt")) == read_lines(DATA / "opus-mt.txt")


def test_opus_mt_scores_raw_text_as_marian() -> None:
    """Marian scored ``opus-mt.txt``, split again, as translations of ``normalized.txt``."""
    scorer = Scorer.from_dir(str(DATA / "opus-mt"), mini_batch=8)
    texts = read_lines(DATA / "raw.txt"), read_lines(DATA / "opus-mt.txt")
    expected = [float(line) for line in read_lines(DATA / "opus-mt.scores")]
    for one in (scorer, pickle.loads(pickle.dumps(scorer))):
        np.testing.assert_allclose(one.score(*texts), expected, rtol=0, atol=2e-5)


def test_a_scorer_has_one_of_the_models(files: Files) -> None:
    folder = files("v.spm", config_yml="models: [a.npz, b.npz]\nvocabs: [v.spm, v.spm]\n")
    with pytest.raises(OptionError, match=r"a Scorer has one model; choose it with model=.*a\.npz, .*b\.npz"):
        Scorer.from_dir(folder)
    with pytest.raises(OSError, match=r"/b\.npz"):  # which is then read, with the folder's vocabularies
        Scorer.from_dir(folder, model=folder / "b.npz")


def test_firefox_translates_as_marian() -> None:
    """The shortlist is so short that most translations would differ without it."""
    translator = Translator.from_dir(str(DATA / "firefox"))
    assert translator.options.shortlist == (str(DATA / "firefox" / "lex.9.9.ende.s2t.bin"),)
    assert translator.translate(read_lines(DATA / "plain.txt")) == read_lines(DATA / "firefox.txt")


def test_opus_mt_without_its_configuration(tmp_path: Path) -> None:
    shutil.copytree(DATA / "opus-mt", tmp_path, dirs_exist_ok=True)
    (tmp_path / "decoder.yml").unlink()
    (tmp_path / "opus-2020-01-15.yml").write_text(
        "release: deu-eng/opus-2020-01-15.zip\nmodeltype: transformer\n"
    )
    found = read_directory(tmp_path)
    vocab = str(tmp_path / "opus.spm60-spm60.vocab.yml")
    assert found["vocabs"] == (vocab, vocab)
    assert found["pieces"] == (str(tmp_path / "source.spm"), str(tmp_path / "target.spm"))
    assert set(found) == {"models", "vocabs", "pieces"}


def test_opus_mt_with_two_vocabularies(files: Files) -> None:
    names = [f"opusTCv20210807.spm32k-spm32k.{side}.vocab" for side in ("src", "trg")]
    found = read_directory(files("opusTCv20210807.npz", "source.spm", "target.spm", *names))
    assert [Path(path).name for path in found["vocabs"]] == names
    assert [Path(path).name for path in found["pieces"]] == ["source.spm", "target.spm"]


def test_the_model_that_ships() -> None:
    folder = numbers.model_dir()
    found = read_directory(folder)
    assert found["models"] == (str(folder / "model.npz"),)
    assert found["vocabs"] == (str(folder / "vocab.spm"),) * 2 and "pieces" not in found


FIREFOX_NAMES: dict[tuple[str, ...], dict[str, Any]] = {
    ("model.deen.intgemm.alphas.bin", "vocab.deen.spm", "lex.50.50.deen.s2t.bin", "metadata.json"): {
        "models": ("model.deen.intgemm.alphas.bin",),
        "vocabs": ("vocab.deen.spm",) * 2,
        "shortlist": ("lex.50.50.deen.s2t.bin",),
    },
    ("model.enja.intgemm8.bin", "srcvocab.enja.spm", "trgvocab.enja.spm", "lex.50.50.enja.s2t.bin"): {
        "models": ("model.enja.intgemm8.bin",),
        "vocabs": ("srcvocab.enja.spm", "trgvocab.enja.spm"),
        "shortlist": ("lex.50.50.enja.s2t.bin",),
    },
    ("model.intgemm.bin", "vocab.fren.spm", "lex.s2t.gz"): {
        "models": ("model.intgemm.bin",),
        "vocabs": ("vocab.fren.spm",) * 2,
        "shortlist": ("lex.s2t.gz",),
    },
    ("model.enru.intgemm8.bin", "vocab.enru.spm"): {
        "models": ("model.enru.intgemm8.bin",),
        "vocabs": ("vocab.enru.spm",) * 2,
    },
}


@pytest.mark.parametrize("names", FIREFOX_NAMES, ids=lambda names: names[0])
def test_names_of_firefox_translations(names: tuple[str, ...], files: Files) -> None:
    folder = files(*names)
    expected = {
        key: tuple(str(folder / name) for name in value) for key, value in FIREFOX_NAMES[names].items()
    }
    assert read_directory(folder) == FIREFOX_OPTIONS | expected


def test_a_students_configuration(files: Files) -> None:
    folder = files(
        *("model.intgemm.alphas.bin", "model.npz", "vocab.deen.spm", "lex.s2t.bin", "lex.s2t.gz"),
        config_yml=STUDENT,
        catalog_yml="language-pair: deen\nfiles:\n  models: many\n",
    )
    assert read_directory(folder) == {
        "models": (str(folder / "model.intgemm.alphas.bin"),),
        "vocabs": (str(folder / "vocab.deen.spm"),) * 2,
        "shortlist": (str(folder / "lex.s2t.bin"), "0"),
        "beam_size": 1,
        "normalize": 1.0,
        "max_length_factor": 2.5,
    }


def test_the_configuration_whose_model_is_there(files: Files) -> None:
    other = STUDENT.replace("model.intgemm.alphas.bin", "model.npz")
    folder = files("model.intgemm.alphas.bin", "vocab.deen.spm", one_yml=STUDENT, two_yml=other)
    assert read_directory(folder)["models"] == (str(folder / "model.intgemm.alphas.bin"),)
    files(two_yml=other.replace("- model.npz", "- model.npz\n  - model.intgemm.alphas.bin"))
    assert read_directory(folder)["models"] == (str(folder / "model.intgemm.alphas.bin"),), "all models"
    files("model.npz", two_yml=other)
    with pytest.raises(
        DirectoryError, match=r"several configurations: one\.yml, two\.yml; choose one with config="
    ):
        read_directory(folder)
    assert read_directory(folder, "two.yml")["models"] == (str(folder / "model.npz"),)
    with pytest.raises(DirectoryError, match=r"three\.yml does not exist;\n.* holds 5 files: model"):
        read_directory(folder, "three.yml")


def test_a_directory_of_marians_training_that_was_moved(files: Files) -> None:
    decoder = "relative-paths: false\nmodels:\n  - /far/model.npz\nvocabs:\n  - /far/v.en.yml\n  - v.de.yml\n"
    folder = files(
        *("model.npz", "model.npz.optimizer.npz", "model.npz.progress.yml", "v.en.yml", "v.de.yml"),
        decoder_yml=decoder + "beam-size: 12\nskip-cost: false\n",
        training_yml="model: model.npz\nvocabs:\n  - v.en.yml\n  - v.de.yml\n",
    )
    found = read_directory(folder, beam_size=3)
    assert found["models"] == (str(folder / "model.npz"),)
    assert found["vocabs"] == (str(folder / "v.en.yml"), str(folder / "v.de.yml"))
    assert found["beam_size"] == 3 and found["skip_cost"] is False


@pytest.mark.parametrize(
    "models", ["models: a.npz", '"models":\n  - a.npz', "models:  # one\n- a.npz", "\ufeffmodels: [a.npz]"]
)
def test_yaml_of_any_style_is_a_configuration(models: str, files: Files) -> None:
    words = "".join(f"{word}: {number}\n" for number, word in enumerate(["</s>", "<unk>", "models"]))
    folder = files("a.npz", decoder_yml=f"beam-size: 3\nvocabs: [vocab.yml, vocab.yml]\n{models}\n")
    if models.startswith("\ufeff"):  # a byte-order mark can only be at the start of a file
        files(decoder_yml=f"{models}\nbeam-size: 3\n")
    files(vocab_yml=words)  # has the word, but is no configuration
    found = read_directory(folder)
    assert found["models"] == (str(folder / "a.npz"),) and found["beam_size"] == 3


def test_a_path_that_leads_nowhere_stays(files: Files) -> None:
    """So the error names it as the configuration does."""
    folder = files("model.npz", decoder_yml="models: [/moved/other.npz]\nvocabs: [/moved/a.yml, b.yml]\n")
    found = read_directory(folder)
    assert (found["models"], found["vocabs"]) == (("/moved/other.npz",), ("/moved/a.yml", "b.yml"))


def test_a_path_that_leads_elsewhere_stays(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """But a bare name means the file in the directory, even if the working directory has another one."""
    folder = files("model.npz", "v.spm")
    (elsewhere := folder / "elsewhere").mkdir()
    for name in "model.npz", "v.spm":
        (elsewhere / name).touch()
    files(decoder_yml=f"models: [{elsewhere / 'model.npz'}]\nvocabs: [v.spm, v.spm]\n")
    monkeypatch.chdir(elsewhere)
    found = read_directory(folder)
    assert found["models"] == (str(elsewhere / "model.npz"),)
    assert found["vocabs"] == (str(folder / "v.spm"),) * 2


def test_files_that_only_look_like_those_of_a_model(files: Files) -> None:
    folder = files("pytorch_model.bin", "vocab.spm", "vocab.spm.md5", README_md="models: [b.npz]\n")
    found = read_directory(folder)
    assert found["models"] == (str(folder / "pytorch_model.bin"),), "not HuggingFace's without config.json"
    assert found["vocabs"] == (str(folder / "vocab.spm"),) * 2
    (folder / "pytorch_model.bin").unlink()
    files("model.npz", "config.json", good_yml="models: [model.npz]\n", wrong_yml="models: [model.npz]\nb: [")
    assert read_directory(folder)["models"] == (str(folder / "model.npz"),)
    (folder / "good.yml").unlink()
    with pytest.raises(OptionError, match=r"wrong\.yml"):
        read_directory(folder)
    (folder / "wrong.yml").unlink()
    assert read_directory(folder)["models"] == (str(folder / "model.npz"),)


def test_an_empty_list_of_a_configuration_is_looked_for(files: Files) -> None:
    folder = files("a.npz", "vocab.spm", config_yml="models:\nvocabs:\nbeam-size: 2\n")
    found = read_directory(folder)
    assert found["models"] == (str(folder / "a.npz"),) and found["beam_size"] == 2
    assert found["vocabs"] == (str(folder / "vocab.spm"),) * 2


def test_what_the_caller_says_is_not_looked_for(files: Files) -> None:
    folder = files("a.npz", "b.npz", "v.yml", "w.yml")
    given = {"models": [str(folder / "a.npz")], "vocabs": ["v", "w"]}
    assert read_directory(folder, **given) == given
    files("source.spm", "target.spm")
    assert read_directory(folder, **given, pieces=()) == given | {"pieces": ()}
    assert read_directory(folder, **given)["pieces"][1] == str(folder / "target.spm")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_single_path_is_a_list_of_one(files: Files, kind: type) -> None:
    folder = files("m.bin", "n.bin", "v.spm", "lex.s2t.bin", "source.spm", "target.spm")
    found = read_directory(folder, models=kind(folder / "m.bin"), vocabs=[kind(folder / "v.spm")] * 2)
    assert found == read_directory(folder, models=[folder / "m.bin"], vocabs=[folder / "v.spm"] * 2) | {
        "models": (kind(folder / "m.bin"),),
        "vocabs": [kind(folder / "v.spm")] * 2,
    }
    assert found["shortlist"] and found["beam_size"] == 1 and "pieces" not in found


ERRORS: dict[tuple[str, ...], str] = {
    (): r"no model \(\.npz or \.bin\);\nthe directory holds 0 files: none$",
    ("vocab.spm", "notes"): r"no model .*\n.*2 files: notes, vocab\.spm",
    ("a.npz", "b.bin", "vocab.spm"): r"several models: a\.npz, b\.bin; choose with models=",
    ("a.npz",): r"no vocabulary \(vocab\*\.spm, \*\.vocab\.yml\);\n.*a\.npz",
    (
        "a.npz",
        "vocab.en.yml",
        "vocab.de.yml",
    ): r"several vocabularies: vocab\.de\.yml, vocab\.en\.yml; choose",
    (
        "model.bin",
        "vocab.spm",
        "lex.1.s2t.bin",
        "lex.2.s2t.bin",
    ): r"several shortlists: .* choose with shortlist=",
    (
        "model.deen.intgemm.bin.gz",
        "vocab.deen.spm.gz",
    ): r"no model(.|\n)*unpacked first \(gunzip\): model\.deen",
    (
        "o.npz",
        "o.vocab.yml",
        "source.bpe",
        "target.bpe",
    ): r"source\.bpe: this model needs text tokenized",
    ("a.npz", "srcvocab.en.spm"): r"srcvocab\.en\.spm without that of the target;\n",
    ("._a.npz", "._vocab.spm"): r"holds 0 files: none",
    ("o.npz", "o.vocab.yml", "source.spm"): r"source\.spm without target\.spm",
    (
        "config.json",
        "pytorch_model.bin",
        "vocab.json",
    ): r"of HuggingFace; .* \(mgraph convert -f .* -t NEW_FOLDER/model\.npz\)",
    (
        "config.json",
        "model.safetensors",
        "vocab.json",
    ): r"of HuggingFace; .* \(mgraph convert -f .* -t NEW_FOLDER/model\.npz\)",
    (
        "config.json",
        "model-00001-of-00001.safetensors",
        "model.safetensors.index.json",
    ): r"of HuggingFace; .* \(mgraph convert -f .* -t NEW_FOLDER/model\.npz\)",
}


@pytest.mark.parametrize("names", ERRORS, ids=lambda names: "+".join(names) or "nothing")
def test_errors_list_what_was_found(names: tuple[str, ...], files: Files) -> None:
    with pytest.raises(DirectoryError, match=ERRORS[names]):
        read_directory(files(*names))
    assert issubclass(DirectoryError, MGraphError)


def test_directories_inside_are_named(files: Files) -> None:
    for name in "model.npz", "de", "en":
        (files("notes") / name).mkdir()
    with pytest.raises(
        DirectoryError, match=r"no model (.|\n)*\nand other .*, which are not searched: de, en, model\.npz$"
    ):
        read_directory(files())


def test_what_is_no_directory(files: Files) -> None:
    folder = files("model.npz")
    for path in (folder / "model.npz", folder / "nothing"):
        with pytest.raises(DirectoryError, match=rf"{path}: expected a model directory"):
            Translator.from_dir(str(path))


def test_a_directory_is_no_model_file() -> None:
    folder = str(DATA / "opus-mt")
    for make in (Translator, Scorer):
        with pytest.raises(OptionError, match=rf"{folder} is a directory: .* \(in Python from_dir\)"):
            make(folder)  # type: ignore[operator]
    with pytest.raises(OptionError, match="is a directory"):
        Translator([folder, folder], [str(DATA / "opus-mt" / "source.spm")] * 2)


def test_pieces_can_be_named_without_a_directory() -> None:
    found = read_directory(DATA / "opus-mt")
    translator = Translator(found["models"], found["vocabs"], pieces=found["pieces"])
    for vocab in (*translator.source_vocabs, translator.target_vocab):
        assert isinstance(vocab, SegmentedVocab)
    with pytest.raises(OptionError, match="pieces: expected one SentencePiece model"):
        Translator(found["models"], found["vocabs"], pieces=found["pieces"][:1])


@pytest.mark.parametrize("change", ["more", "fewer"])
def test_a_vocabulary_of_another_size_is_warned_of(
    change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Marian takes it silently, because it may be intended: then --dim-vocabs was given in training."""
    found = read_directory(DATA / "opus-mt")
    words = Path(found["vocabs"][0]).read_text().splitlines()
    size = len(words)
    other = tmp_path / "other.yml"
    other.write_text("\n".join([*words, f"more: {size}"] if change == "more" else words[:-1]) + "\n")
    Translator(found["models"], [str(other)] * 2, pieces=found["pieces"])
    (message,) = {r.getMessage() for r in caplog.records if r.levelname == "WARNING"}
    number = size + (1 if change == "more" else -1)
    assert f"WRONG VOCABULARY? {other} has {number} ids, but {found['models'][0]} has {size}" in message
    caplog.clear()
    Translator(found["models"], found["vocabs"], pieces=found["pieces"])
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_what_is_no_path_is_refused() -> None:
    for make in (Translator.from_dir, Translator.from_config):
        with pytest.raises(ArgumentError, match="expected the path of a file, got an int"):
            make(3)  # type: ignore[arg-type]


def test_pieces_in_a_configuration_move_with_the_folder(files: Files) -> None:
    text = "models: [m.npz]\nvocabs: [v.yml, v.yml]\npieces: [/gone/source.spm, ./gone/target.spm]\n"
    folder = files("m.npz", "v.yml", "source.spm", "target.spm", config_yml=text)
    assert read_directory(folder)["pieces"] == (str(folder / "source.spm"), str(folder / "target.spm"))
