"""The benchmark of decoding: its made models copy, its processes answer, and it says what it cannot do."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import decode
from benchmarks.copying.text import STOP, copied, made_lines, word, write_shortlist, write_vocab
from benchmarks.decoding import company, jobs, latency, models, programs, reporting
from benchmarks.decoding.calling import Caller
from benchmarks.decoding.child import Translating
from benchmarks.decoding.models import Task, given_task, int8_file, made_tasks, write_model
from benchmarks.decoding.rows import (
    CTRANSLATE2,
    MARIAN,
    OURS,
    Measuring,
    chosen,
    ctranslate2,
    our_command,
    same,
    slower,
)
from benchmarks.measuring import Finished, ProcessError, Samples, alternate, finished
from benchmarks.peers import ctranslate2_decoding
from benchmarks.peers.programs import Programs
from nmt import Translator
from nmt.search.shortlist import read_binary
from nmt.text.vocabs.loading import load_vocab

WORDS = 64
SMALL: dict[str, dict[str, Any]] = {
    "transformer": {
        "type": "transformer",
        "dim_emb": 128,
        "transformer_heads": 4,
        "transformer_dim_ffn": 64,
        "enc_depth": 2,
        "dec_depth": 2,
    },
    "student": {
        "type": "transformer",
        "dim_emb": 128,
        "transformer_heads": 4,
        "transformer_dim_ffn": 64,
        "enc_depth": 2,
        "dec_depth": 1,
        "transformer_decoder_autoreg": "rnn",
        "dec_cell": "ssru",
        "tied_embeddings_all": True,
    },
    "s2s": {"type": "s2s", "dim_emb": 64, "dim_rnn": 128},
}


def measuring(**given: Any) -> Measuring:
    """Settings for short measurements without peers."""
    defaults: dict[str, Any] = {
        "programs": Programs("", ""),
        "precisions": ["float32"],
        "beams": [1],
        "batches": [4],
        "mini_batch": 4,
        "lines": [2, 1000],
        "call_lines": 2,
        "latencies": 2,
        "threads": 1,
        "own_threads": 1,
        "rounds": 1,
    }
    return Measuring(**{**defaults, **given})


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A small transformer that copies."""
    folder = tmp_path_factory.mktemp("task")
    vocab, model = folder / "vocab.yml", folder / "model.npz"
    write_vocab(vocab, WORDS)
    write_model(model, SMALL["transformer"], str(vocab), WORDS)
    text = folder / "text"
    text.write_text("w5 w6 w7\nw8 w9 stop w10\nw3\n")
    return given_task(str(model), [str(vocab)] * 2, str(text), [], folder, 10)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["transformer", "student", "s2s"])
def test_made_models_copy(name: str, tmp_path: Path) -> None:
    vocab, model, shortlist = tmp_path / "vocab.yml", tmp_path / "model.npz", tmp_path / "lex.bin"
    write_vocab(vocab, WORDS)
    write_shortlist(shortlist, WORDS)
    write_model(model, SMALL[name], str(vocab), WORDS)
    lines = ["w5 w6 w7 w8 w60", "w9 w10 stop w11 w12 w13", "w3", *islice(made_lines(WORDS), 3)]
    lines = [" ".join(line.split()[:20]) for line in lines]
    options: dict[str, Any] = {"normalize": 0.6, "mini_batch": 8, "compilation_cache": "none"}
    for given in ({"beam_size": 1}, {"beam_size": 3}, {"beam_size": 1, "shortlist": [str(shortlist)]}):
        translator = Translator(str(model), [str(vocab)] * 2, **options, **given)
        assert translator.translate(lines) == list(map(copied, lines))


def test_the_made_text(tmp_path: Path) -> None:
    write_vocab(tmp_path / "vocab.yml", WORDS)
    assert len((tmp_path / "vocab.yml").read_text().splitlines()) == WORDS
    lines = list(islice(made_lines(2_000), 500))
    assert lines == list(islice(made_lines(2_000), 500))
    sources, targets = ([len(line.split()) for line in text] for text in (lines, map(copied, lines)))
    assert 22 < sum(sources) / 500 < 34 and max(sources) > 70 and min(sources) < 8
    assert 0.7 < sum(targets) / sum(sources) < 0.9
    assert copied(f"a {word(STOP)} b") == "a" and copied("a stopped b") == "a stopped b"
    write_shortlist(tmp_path / "lex.bin", 200)
    vocab = load_vocab(tmp_path / "vocab.yml")
    lexicon = read_binary((tmp_path / "lex.bin").read_bytes(), "lex.bin", 200, vocab)
    assert all(source in lexicon.of(source) for source in range(200))


def test_the_models_have_the_sizes_that_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.MODELS, "student", (WORDS, SMALL["student"]))
    plain, short = made_tasks("student", tmp_path, 5)
    assert (plain.name, short.name, len(plain.lines)) == ("student", "student, shortlist", 5)
    assert not plain.shortlist and Path(short.shortlist[0]).exists()
    assert plain.options("int8")["models"].endswith(f".{models.int8_type()}.bin")
    made = Path(plain.files["int8"]).stat().st_mtime_ns
    again, _ = made_tasks("student", tmp_path, 5)
    assert Path(again.files["int8"]).stat().st_mtime_ns == made
    assert int8_file(Path(plain.files["float32"]), tmp_path / "student") == again.files["int8"]


def test_a_process_translates_again_and_again(task: Task) -> None:
    child = Translating({**task.options("float32"), "compilation_cache": "none"})
    details: dict[str, Any] = {"beam": 1, "normalize": 0.0}
    first, second = (child.decode(task.lines, batch=2, **details) for _ in range(2))
    assert first["lines"] == second["lines"] == list(map(copied, task.lines))
    assert second["programs"] == 0 < second["seconds"]
    child.latency(task.lines, batch=1, **details)
    found = child.latency(task.lines, batch=1, **details)
    assert len(found["seconds"]) == 3 and found["programs"] == 0


def test_with_batches_of_1_nobody_else_is_searched(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    translate = Translator.translate

    def counted(translator: Translator, lines: list[str]) -> list[str]:
        calls.append(len(lines))
        return translate(translator, lines)

    monkeypatch.setattr(Translator, "translate", counted)
    child = Translating({**task.own_options("float32"), "cpu_threads": 2, "compilation_cache": "none"})
    details: dict[str, Any] = {"beam": 1, "normalize": 0.0}
    copies = list(map(copied, task.lines))
    assert child.decode(task.lines, batch=1, **details)["lines"] == copies and calls == [1, 1, 1]
    assert child.calls(task.lines, batch=2, **details)["lines"] == copies and calls[3:] == [2, 1]
    assert child.decode(task.lines, batch=2, **details)["lines"] == copies and calls[5:] == [3]


def test_what_company_changes(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two programs whose translations depend on the other lines in the batch, and one that fails."""

    def depends(lines: list[str], count: int, beam: int) -> list[str]:
        return [f"{line} {place % count == 1}" for place, line in enumerate(lines)]

    def fails(lines: list[str], count: int, beam: int) -> list[str]:
        raise ProcessError("ended", ["Error: no"])

    names = {f"{OURS} int8": depends, f"{MARIAN} int8": depends, f"{CTRANSLATE2} int8": fails}
    found = {name: Caller(pytest.fail, together, pytest.fail, False) for name, together in names.items()}
    monkeypatch.setattr(company, "callers", lambda *_: found)
    company.compare_company(task, measuring(batches=[3, 2, 1], mini_batch=1, call_lines=3), tmp_path)
    title, *rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert " ".join(title).endswith("of 3 lines, those translated otherwise, beam 1")
    assert rows[1:] == [
        ["mgraph", "int8", "0", "0", "1"],
        ["pymarian", "int8", "1", "1", "0"],
        "CTranslate2 int8: left out: Error: no".split(),
    ]


def test_commands_and_reports(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    how = measuring()
    words = our_command(task, how, "int8", module="a.module", beam_size=4)
    assert words[:4] == [sys.executable, "-m", "a.module", "decode"]
    assert words[words.index("--models") + 1] == task.files["int8"] and "--shortlist" not in words
    assert set(programs.COLUMNS.values()) == set(reporting.report(reporting.Searched()))
    jobs.compare_jobs(task, measuring(lines=[1000]))
    assert capsys.readouterr().out == "\njobs of 1,000 lines: left out: the text has 3\n"
    assert task.typical == "w5 w6 w7"


def test_what_ctranslate2_cannot_do_is_said(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python without CTranslate2 runs its script."""
    how = measuring(programs=Programs("", sys.executable), threads=2)
    peers = ctranslate2(task, how, "int8")
    assert list(peers) == ["CTranslate2 int8, 2 x 1", "CTranslate2 int8, 1 x 2"]
    broken = tmp_path / "script.py"
    broken.write_text("raise ValueError('Option --dec-cell is not supported')")
    monkeypatch.setattr(ctranslate2_decoding, "SCRIPT", str(broken))
    with pytest.raises(ProcessError) as raised:
        next(iter(peers.values())).serving()
    assert raised.value.reason == "ValueError: Option --dec-cell is not supported"
    (task.folder / "ctranslate2-int8").mkdir()
    serving = next(iter(peers.values())).serving()
    assert json.loads(serving[-1])["workers"] == 2


def test_rows_that_fail_are_left_out() -> None:
    said: list[tuple[str, str]] = []

    def fails() -> float:
        raise ProcessError("ended", ["Error: no", "trace"])

    found = alternate(
        {"good": lambda: 1.0, "bad": fails},
        rounds=2,
        left_out=lambda name, error: said.append((name, error.reason)),
    )
    assert found == {"good": Samples((1.0, 1.0))} and said == [("bad", "Error: no")]
    with pytest.raises(ProcessError, match=r"ended\n  Error: no\n  trace"):
        alternate({"bad": fails})
    code = "import sys; print('Error: why'); [print(n) for n in range(20)]; sys.exit(3)"
    with pytest.raises(ProcessError) as raised:
        finished([sys.executable, "-S", "-c", code])
    assert raised.value.reason == "Error: why" and str(raised.value).endswith("\n  6")


def test_rows_are_compared() -> None:
    taken = {
        "mgraph int8": Samples((1.0, 2.0)),
        "CTranslate2 int8, 2 x 1": Samples((3.0, 3.0)),
        "CTranslate2 int8, 1 x 2": Samples((2.0, 4.2)),
        "pymarian float32": Samples((5.0, 6.0)),
    }
    assert chosen(taken, ["float32", "int8"]) == [
        "mgraph int8",
        "CTranslate2 int8, 2 x 1",
        "pymarian float32",
    ]
    assert slower("CTranslate2 int8, 2 x 1", taken) == Samples((3.0, 1.5))
    assert slower("mgraph int8", taken) == slower("pymarian float32", taken) == ""
    assert same(["a", "b"], ["a", "c"]) == "50.0%" and same(["a"], ["a", "c"]) == same(None, ["a"]) == ""
    assert latency.percentile([5, 1, 3, 2, 4], 95) == 5 and latency.percentile([5, 1, 3, 2, 4], 60) == 3
    done = Finished(3.0, 1, ((0.5, "a warning"), (1.0, "one"), (2.0, "two")))
    assert latency.first_line(done, 2) == 1.0
    with pytest.raises(ProcessError, match="expected 4 lines, got 3"):
        latency.first_line(done, 4)


def test_options() -> None:
    given = decode.options().parse_args(
        ["--tables", "calls", "--lines", "1", "20000", "--pymarian", "none", "--threads", "3"]
    )
    how = decode.measuring(given)
    assert how.longest == 20_000 and how.threads == 3 and how.programs == Programs("", "")
    assert isinstance(given, argparse.Namespace) and given.tables == ["calls"]


@pytest.mark.thorough
def test_all_tables(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    """All tables in full, for a few lines and without peers."""
    decode.measure(task, measuring(), list(decode.TABLES))
    found = capsys.readouterr().out
    for title in (
        "a job of 2 lines, beam 1",
        "a second call, 2 lines, batch 4, beam 1",
        "2 lines, each by itself, beam 1",
        "the first translated line of a job of 1 line, beam 1",
        "what a job of 2 lines compiles, beam 1",
        "of 2 lines, those translated otherwise, beam 1",
    ):
        assert f"model.npz: {title}\n" in found
    assert "left out" in found and "Traceback" not in found
    assert found.count("mgraph float32") == 11
