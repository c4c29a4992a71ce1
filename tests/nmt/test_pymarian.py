"""Scripts for Marian's Python bindings: the same text runs on ``nmt.pymarian`` and prints the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mgraph.errors import ArgumentError
from nmt.pymarian import Evaluator, Trainer, Translator, help, lines_of, words_of
from nmt.settings import DECODE, OptionError
from tests.helpers.places import DATA, SHIPPED

FOLDER, METRICS = DATA / "pymarian", DATA / "metrics"
MODEL, VOCAB = str(SHIPPED / "model.npz"), str(SHIPPED / "vocab.spm")
NUMBER = re.compile(r"-?\d+\.\d+")

Script = Callable[..., None]


@pytest.fixture
def agrees(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """Run a script with our import, and compare its output with that of Marian's bindings."""

    def run(name: str, *words: str) -> None:
        text = (FOLDER / f"{name}.py").read_text()
        changed = text.replace("from pymarian import", "from nmt.pymarian import")
        assert changed != text
        monkeypatch.setattr(sys, "argv", [name, *words])
        exec(compile(changed, name, "exec"), {})
        found, marians = capsys.readouterr().out, (FOLDER / f"{name}.txt").read_text()
        assert NUMBER.sub("#", found) == NUMBER.sub("#", marians)
        numbers = [float(number) for number in NUMBER.findall(marians)]
        assert [float(n) for n in NUMBER.findall(found)] == pytest.approx(numbers, abs=2e-5)

    return run


def test_translation(agrees: Script) -> None:
    agrees("translate", MODEL, VOCAB)


def test_the_folder_of_a_published_model() -> None:
    folder = DATA / "directories"
    text = (folder / "raw.txt").read_text()
    found = Translator(models=str(folder / "opus-mt"), quiet=True).translate(text)
    assert f"{found}\n" == (folder / "opus-mt.txt").read_text()


@pytest.mark.slow
def test_options_of_a_call(agrees: Script) -> None:
    agrees("override", MODEL, VOCAB)


@pytest.mark.slow
def test_training(agrees: Script, tmp_path: Path) -> None:
    texts = [
        str(DATA / "options" / name) for name in ("source.txt", "target.txt", "source.yml", "target.yml")
    ]
    agrees("train", *texts, str(tmp_path / "model.npz"))


@pytest.mark.thorough
def test_training_in_a_thread(tmp_path: Path) -> None:
    """No signal can be handled there."""
    texts = [tmp_path / name for name in ("text.en", "text.de")]
    for path, line in zip(texts, ("one", "eins"), strict=True):
        path.write_text(f"{line}\n")
    vocabs = [str(SHIPPED / "vocab.spm")] * 2
    trainer = Trainer(
        "--dim-emb 8 --dim-rnn 8 --after-batches 1 --quiet",
        model=str(tmp_path / "model.npz"), train_sets=[str(path) for path in texts], vocabs=vocabs,
    )  # fmt: skip
    with ThreadPoolExecutor() as pool:
        assert pool.submit(trainer.train).result() == 0
    assert (tmp_path / "model.npz").exists()


def test_evaluation(agrees: Script) -> None:
    agrees("evaluate", str(METRICS / "comet-qe.npz"), VOCAB, str(METRICS / "pairs.tsv"))


def test_embedding(agrees: Script, tmp_path: Path) -> None:
    agrees("embed", MODEL, VOCAB, str(METRICS / "source.txt"), str(tmp_path / "vectors.txt"))


def test_rows_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = Evaluator(f"-m {METRICS}/comet-qe.npz -v {VOCAB} {VOCAB} --like comet-qe --quiet")
    (found,) = evaluator.run([["three", "drei"]])
    assert found == pytest.approx([0.112857, 0.231031], abs=5e-6)
    assert list(evaluator.evaluate([["three", "drei"]] * 2, "only")) == pytest.approx(found[:1])
    assert evaluator.run([]) == []
    assert evaluator.run([b"three\tdrei\r\n", (b"three", "drei")]) == [found, found]
    assert list(evaluator.evaluate(["three\tdrei"] * 3, batch_size=0)) == pytest.approx(found[:1] * 3)
    with pytest.raises(ArgumentError, match="row 2: expected a line or its texts, got 3"):
        evaluator.run(["three\tdrei", 3])  # type: ignore[list-item]
    for size in (-1, 1.5, "2"):
        with pytest.raises(OptionError, match=f"batch_size must be a whole number from 0, got {size!r}"):
            list(evaluator.evaluate(["three\tdrei"], batch_size=size))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"row 1: expected 2 texts \(source, translation\), got 1"):
        evaluator.run([["three"]])
    with pytest.raises(OptionError, match="row 3: expected 2 texts"):
        list(evaluator.evaluate(["three\tdrei", "three\tdrei", "three"], batch_size=2))
    with pytest.raises(ArgumentError, match=r"expected a list of lines, got 'three\\tdrei' \(str\)"):
        next(evaluator.evaluate("three\tdrei"))
    with pytest.raises(OptionError, match="like: expected one of comet-qe"):
        Evaluator.new("comet-qe.npz", VOCAB, like="bleu")
    with pytest.raises(
        OptionError, match="like: expected one of comet-qe, comet, bleurt, got 'comet-unified'"
    ):
        Evaluator.new("comet-qe.npz", VOCAB, like="comet-unified")
    help("evaluate")
    assert "--compute-similarity" not in capsys.readouterr().out


def test_keywords_are_words() -> None:
    given = {"n_best": True, "quiet": "", "vocabs": ["a b", "c"], "config": None, "normalize": 0.6}
    words = ["-m", "x", "--n-best", "true", "--quiet", "--vocabs", "a b", "c", "--normalize", "0.6"]
    assert words_of(" -m  x", given, DECODE.options) == words


def test_a_string_with_spaces_is_several_values_unless_it_is_a_path(tmp_path: Path) -> None:
    model = tmp_path / "a b.npz"
    model.touch()
    given = {"models": str(model), "vocabs": "v v", "shortlist": "lex.s2t 10 10 0", "log": "a b.log"}
    words = ["--models", str(model), "--vocabs", "v", "v", "--shortlist", "lex.s2t", "10", "10", "0"]
    assert words_of("", given, DECODE.options) == [*words, "--log", "a b.log"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\n\ntwo\n", ["one", "", "two"]),
        (b"one\ntwo", ["one", "two"]),
        ("", [""]),
        (["one\ntwo", b"six"], ["one", "two", "six"]),
        (["one\n", "six"], ["one", "", "six"]),
        (["one", "six\n"], ["one", "six"]),
        (["one", "\n"], ["one", ""]),
        (["one", ""], ["one", ""]),  # Marian drops the last
        ([], []),  # one empty line in Marian
    ],
)
def test_lines_are_those_of_marian(text: str | bytes | list[str | bytes], lines: list[str]) -> None:
    assert lines_of(text) == [line.encode() for line in lines]


def test_errors() -> None:
    with pytest.raises(OptionError, match="one string, got"):
        Translator(["-m", MODEL])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="did you mean --beam-size"):
        Translator(f"-m {MODEL} -v {VOCAB} {VOCAB} --beam 2")
    translator = Translator(f"-m {MODEL} -v {VOCAB} {VOCAB} --quiet")
    with pytest.raises(OptionError, match="--vocabs takes effect only when a Translator is made"):
        translator.translate("three", vocabs=[VOCAB])
    with pytest.raises(TypeError, match="did you mean beam_size"):
        translator.translate("three", beam=2)
    assert translator.translate([]) == []
    with pytest.raises(ArgumentError, match=r"expected a text or a list of lines, got None \(NoneType\)"):
        translator.translate(None)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match=r"a line must be str or bytes, got 5 \(int\)"):
        translator.translate([5])
