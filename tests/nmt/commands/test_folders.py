"""The folder of a published model as ``-m``; ``data/directories`` holds what Marian makes of the models."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt import cli
from nmt.commands import decode, score, server
from nmt.settings import OptionError
from nmt.settings.config import parse
from tests.helpers.marian_lines import read_lines
from tests.helpers.places import DATA, SHIPPED

FOLDERS = DATA / "directories"
OPUS, FIREFOX = FOLDERS / "opus-mt", FOLDERS / "firefox"
SPM = [str(OPUS / "source.spm"), str(OPUS / "target.spm")]
YML = str(OPUS / "opus.spm60-spm60.vocab.yml")


def mgraph(*words: str | Path) -> None:
    assert cli.main([*map(str, words), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("folder", "source", "expected"),
    [(OPUS, "raw.txt", "opus-mt.txt"), (FIREFOX, "plain.txt", "firefox.txt")],
    ids=["opus-mt", "firefox"],
)
def test_a_folder_translates_as_marian(folder: Path, source: str, expected: str, tmp_path: Path) -> None:
    mgraph("decode", "-m", folder, "-i", FOLDERS / source, "-o", tmp_path / "out")
    assert read_lines(tmp_path / "out") == read_lines(FOLDERS / expected)


def test_a_folder_scores_raw_text_as_marian(tmp_path: Path) -> None:
    texts = FOLDERS / "raw.txt", FOLDERS / "opus-mt.txt"
    mgraph("score", "-m", OPUS, "-t", *texts, "-o", tmp_path / "out")
    found, expected = (
        [float(line) for line in read_lines(path)] for path in (tmp_path / "out", FOLDERS / "opus-mt.scores")
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_a_dumped_configuration_stands_for_the_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mgraph("decode", "-m", OPUS, "--dump-config", "minimal")
    (tmp_path / "config.yml").write_text(capfd.readouterr().out)
    mgraph("decode", "-c", tmp_path / "config.yml", "-i", FOLDERS / "raw.txt", "-o", tmp_path / "out")
    assert read_lines(tmp_path / "out") == read_lines(FOLDERS / "opus-mt.txt")


def test_shares_of_other_pieces_do_not_join(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["decode", "-m", OPUS, "-i", FOLDERS / "raw.txt", "-o", tmp_path / "out", "--shares", "2"]
    mgraph(*words, "--share", "0")
    assert cli.main([*map(str, words), "--quiet", "--pieces", *SPM[::-1]]) == 2
    assert "was started with another value of --pieces" in capsys.readouterr().err
    mgraph(*words)
    assert read_lines(tmp_path / "out") == read_lines(FOLDERS / "opus-mt.txt")


@pytest.mark.parametrize("command", [decode, server], ids=["decode", "server"])
def test_what_a_folder_gives_and_what_overrides_it(command: Any, tmp_path: Path) -> None:
    options = parse(command.COMMAND, ["-m", str(OPUS)])
    assert (options.beam_size, options.normalize, list(options.pieces)) == (6, 1, SPM)
    assert options.vocabs == (YML, YML)
    options = parse(command.COMMAND, ["-m", str(OPUS), "-b", "2", "--pieces", *SPM[::-1]])
    assert (options.beam_size, options.normalize, list(options.pieces)) == (2, 1, SPM[::-1])
    (tmp_path / "other.yml").write_text("beam-size: 3\nnormalize: 0.5\n")
    options = parse(command.COMMAND, ["-m", str(OPUS), "-c", str(tmp_path / "other.yml"), "-n", "2"])
    assert (options.beam_size, options.normalize, list(options.pieces)) == (3, 2, SPM)


def test_a_configuration_in_the_folder_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(OPUS, tmp_path, dirs_exist_ok=True)
    text = (OPUS / "decoder.yml").read_text()
    second = text.replace("relative-paths: true\n", "").replace("beam-size: 6", "beam-size: 4")
    (tmp_path / "second.yml").write_text(second)
    with pytest.raises(OptionError, match=r"several configurations: decoder\.yml, second\.yml; .*--config"):
        parse(decode.COMMAND, ["-m", str(tmp_path)])
    options = parse(decode.COMMAND, ["-m", str(tmp_path), "-c", str(tmp_path / "second.yml"), "-n", "2"])
    assert (options.beam_size, options.normalize) == (4, 2)
    assert options.vocabs == (str(tmp_path / Path(YML).name),) * 2  # not relative to here
    monkeypatch.chdir(tmp_path)
    assert parse(decode.COMMAND, ["-m", ".", "-c", "second.yml"]).beam_size == 4


def test_the_last_configuration_has_precedence(tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text("beam-size: 3\nvocabs: [a.yml, b.yml]\n")
    given = ["-m", str(OPUS), "-c", str(OPUS / "decoder.yml")]
    options = parse(decode.COMMAND, [*given, str(other)])
    assert (options.beam_size, options.normalize, options.vocabs) == (3, 1, ("a.yml", "b.yml"))
    options = parse(decode.COMMAND, ["-m", str(OPUS), "-c", str(other), str(OPUS / "decoder.yml")])
    assert (options.beam_size, options.vocabs) == (6, (YML, YML))


def test_a_variable_in_the_path_of_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPUS", str(OPUS))
    words = ["-m", "${OPUS}", "-c", "${OPUS}/decoder.yml", "--interpolate-env-vars"]
    assert parse(decode.COMMAND, words).vocabs == (YML, YML)


def test_a_decoders_configuration_chooses_what_scores(tmp_path: Path) -> None:
    """As after training, which writes one for each model; ``score`` reads others in the folder as always."""
    for name in ("a.npz", "b.npz", "v.spm"):
        (tmp_path / name).touch()
    for name in ("a", "b"):
        text = f"models: [{name}.npz]\nvocabs: [v.spm, v.spm]\nbeam-size: 2\n"
        (tmp_path / f"{name}.npz.decoder.yml").write_text(text)
    (tmp_path / "score.yml").write_text("model: elsewhere.npz\nword-scores: true\n")
    with pytest.raises(OptionError, match=r"several configurations: a\.npz.*--config"):
        parse(score.COMMAND, ["-m", str(tmp_path)])
    chosen = [str(tmp_path / "b.npz.decoder.yml"), str(tmp_path / "score.yml")]
    options = parse(score.COMMAND, ["-m", str(tmp_path), "-c", *chosen])
    assert (options.model, options.word_scores) == (str(tmp_path / "b.npz"), True)
    assert options.vocabs == (str(tmp_path / "v.spm"),) * 2


def test_pieces_are_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(OPUS, tmp_path, dirs_exist_ok=True)
    spm, text = tmp_path / "source.spm", FOLDERS / "raw.txt"
    for words in (["decode", "-i", text], ["score", "-t", text, text]):
        assert cli.main([*map(str, words), "-m", str(tmp_path), "-o", str(spm), "--quiet"]) == 2
        assert "source.spm is also read by --pieces" in capsys.readouterr().err
    assert spm.read_bytes() == Path(SPM[0]).read_bytes()


def test_a_servers_configuration_in_the_folder(tmp_path: Path) -> None:
    shutil.copytree(OPUS, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "decoder.yml"
    config.write_text(f"{config.read_text()}\nport: 9090\nmax-connections: 7\n")
    options = parse(server.COMMAND, ["-m", str(tmp_path), "-c", str(config), "--max-connections", "8"])
    assert (options.port, options.max_connections, options.beam_size) == (9090, 8, 6)
    assert options.vocabs == (str(tmp_path / Path(YML).name),) * 2
    assert parse(server.COMMAND, ["-m", str(tmp_path)]).beam_size == 6


def test_folders_of_an_ensemble_and_missing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["decode", "-m", str(OPUS), str(FIREFOX)]) == 2
    assert "opus-mt is a directory: expected model files and --vocabs" in capsys.readouterr().err
    assert cli.main(["decode", "-m", "opus-mt-de-en"]) == 2
    assert "opus-mt-de-en does not exist (--models)" in capsys.readouterr().err


def test_only_one_model_scores(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz", "v.spm"):
        (tmp_path / name).touch()
    (tmp_path / "config.yml").write_text("models: [a.npz, b.npz]\nvocabs: [v.spm, v.spm]\n")
    with pytest.raises(OptionError, match=r"--model: one model scores; choose it among .*a\.npz, .*b\.npz"):
        parse(score.COMMAND, ["-m", str(tmp_path)])
    options = parse(score.COMMAND, ["-m", str(tmp_path / "a.npz"), "-v", "x.spm", "x.spm"])
    assert (options.model, options.vocabs) == (str(tmp_path / "a.npz"), ("x.spm", "x.spm"))


def test_only_the_files_of_a_folder_score() -> None:
    options = parse(score.COMMAND, ["-m", str(OPUS)])
    assert (options.model, options.vocabs) == (str(*OPUS.glob("*.npz")), (YML, YML))
    assert list(options.pieces) == SPM and options.normalize == 0, "decoder.yml has 1"


def test_files_that_are_given_are_not_looked_for(tmp_path: Path) -> None:
    for name in ("a.npz", "vocab.de.yml", "vocab.en.yml"):
        (tmp_path / name).touch()
    for command in decode, score:
        with pytest.raises(OptionError, match="several vocabularies"):
            parse(command.COMMAND, ["-m", str(tmp_path)])
        assert parse(command.COMMAND, ["-m", str(tmp_path), "-v", "x", "y"]).vocabs == ("x", "y")


def test_a_folder_without_a_model_lists_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").touch()
    assert cli.main(["decode", "-m", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "no model (.npz or .bin); the directory holds 1 files: notes.txt\n" in error
    for number in range(40):
        (tmp_path / f"{number:02}.txt").touch()
    assert cli.main(["decode", "-m", str(tmp_path)]) == 2
    assert "18.txt, 19.txt and 21 more" in capsys.readouterr().err


def test_files_as_before() -> None:
    vocab = str(SHIPPED / "vocab.spm")
    options = parse(decode.COMMAND, ["-m", str(SHIPPED / "model.npz"), "-v", vocab, vocab])
    assert (options.beam_size, options.pieces) == (12, ())
