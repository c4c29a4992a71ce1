"""The benchmarks start, and measure what they say."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import benchmarks
from benchmarks import memory, train
from benchmarks.measuring import Child, Finished, ProcessError, Samples, Table, alternate, finished, lines_of
from benchmarks.peers.programs import Programs
from benchmarks.peers.pymarian_training import read_log
from benchmarks.training import curves
from benchmarks.training.child import Timing
from benchmarks.training.models import command_line
from benchmarks.training.text import write_text
from mgraph import compile_stats
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.places import ROOT

NAMES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.ispkg]
LOG = """\
[2026-11-21 23:32:12] Training started
[2026-11-21 23:32:14] Ep. 1 : Up. 1 : Sen. 64 : Cost 7.83 * 1,727 @ 1,727 after 1,727 : Time 2.06s : \
863.50 words/s : gNorm 0.0000
[2026-11-21 23:32:15] Ep. 1 : Up. 2 : Sen. 128 : Cost 7.79 * 2,502 @ 2,502 after 4,229 : Time 0.65s : \
5004.00 words/s : gNorm 0.0000
"""
ECHO = """\
from benchmarks.measuring import answering
def twice(number):
    print("not an answer")
    return {"answer": 2 * number}
answering({"twice": twice})
"""


@pytest.mark.parametrize("name", [name for name in NAMES if name != "__main__"])
def test_every_benchmark_has_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert (module.__doc__ or "").split()[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("ops", ["--only", "relu", "rleu"], "--only: no operator that is measured: rleu"),
        ("compile", ["--rnn", "gru"], "argument --rnn: invalid choice: 'gru'"),
    ],
)
def test_unknown_names_are_refused(
    name: str,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_every_module_can_be_imported() -> None:
    for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def test_the_list_says_what_each_benchmark_measures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    importlib.import_module("benchmarks.__main__").main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [name for name in NAMES if name != "__main__"]
    assert all(line.endswith(".") for line in lines), "no sentence is cut off"


def test_samples() -> None:
    times = Samples((2.0, 4.0, 3.0, 1.0, 5.0))
    assert times.median == 3 and times.spread == pytest.approx(1 / 3)
    assert times.over(Samples((1.0, 2.0, 2.0, 1.0, 5.0))).values == (2, 2, 1.5, 1, 1)
    assert times.rates(20).values == (10, 5, 20 / 3, 20, 4)
    assert Samples((7.0,)).spread == 0
    with pytest.raises(ValueError):
        times.over(Samples((1.0,)))


def test_candidates_take_turns() -> None:
    calls: list[str] = []

    def candidate(name: str, result: Any) -> Any:
        return lambda: calls.append(name) or result

    found = alternate({"a": candidate("a", 0.5), "b": candidate("b", None)}, rounds=3, warm_up=2)
    assert "".join(calls) == "aabb" + 3 * "ab"
    assert found["a"].values == (0.5, 0.5, 0.5)  # the value that it returned
    assert len(found["b"].values) == 3 and 0 < found["b"].median < 0.1


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    Table(["what", "how much"], width=6).row("it", Samples((1234.0, 1234.0)))
    assert capsys.readouterr().out == "what        how much\nit         1,234 ±0%\n"


def test_a_finished_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; print('one'); x = b'.' * 2**26; time.sleep(0.1); print(input(), file=sys.stderr)"
    )
    (tmp_path / "in").write_text("two\n")
    found = finished([sys.executable, "-S", "-c", code], stdin=tmp_path / "in", stdout=tmp_path / "out")
    assert [line for _, line in found.lines] == ["two"] and (tmp_path / "out").read_text() == "one\n"
    assert 0.1 < found.lines[0][0] <= found.seconds and 2**26 < found.peak < 2**28
    assert found.until("tw") == found.lines[0][0]
    with pytest.raises(ProcessError, match="no line with 'three'"):
        found.until("three")
    with pytest.raises(ProcessError, match=r"ended with 1(.|\n)*NameError"):
        finished([sys.executable, "-S", "-c", "unknown"])


def test_only_line_ends_end_lines(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes("a\u2028b\u0085\r\n\rc\n".encode() + b"\xff")
    assert lines_of(tmp_path / "text") == ["a\u2028b\u0085", "\rc", "\udcff"]


def test_a_child_answers(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    child = Child("echo", environment={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    try:
        assert child.ask("twice", number=21) == {"answer": 42}
        assert child.ask("twice", number=4) == {"answer": 8}
        with pytest.raises(ProcessError, match="echo ended when asked for 'thrice'"):
            child.ask("thrice")
    finally:
        child.close()


def test_the_log_of_marian() -> None:
    first, second = read_log(LOG.splitlines())
    assert first == (1, 1727, 2.0) and second == (2, 2502, 0.5)
    options = {"dim_vocabs": (2, 3), "no_reload": True, "model": Path("m.npz")}
    assert command_line(options) == ["--dim-vocabs", "2", "3", "--no-reload", "--model", "m.npz"]


@pytest.mark.parametrize("own", [2, 0])
def test_marian_has_no_share_of_the_peak_of_a_gpu(
    own: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers: dict[str, Any] = {
        "prepare": {"shapes": 1, "seconds": 0.0},
        "run": {"seconds": 1.0, "words": 1},
        "epoch": {"words": 1},
        "work": {"per_word": 1e12},
    }
    child = SimpleNamespace(ask=lambda question: answers.get(question, {}))
    monkeypatch.setattr(train, "_child", lambda job, row: nullcontext(child))
    monkeypatch.setattr(train, "_marian_candidate", lambda job, row: lambda: 0.5)
    job = train.Job({}, "float32", 8.0, "pymarian", (2,), (own,), False, 0, 1, tmp_path)
    train.compare_updates(job, rounds=1)
    *_, marian, ours = capsys.readouterr().out.splitlines()
    assert "12.5" in ours and ("25.0" in marian) == (own == 2)


def test_memory_leaves_out_what_a_peer_cannot_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(*_: Any) -> float:
        raise ProcessError("it ended with 1", ["error: no vocabulary"])

    monkeypatch.setattr(memory, "_ctranslate2", fails)
    monkeypatch.setattr(memory, "finished", lambda *_, **__: Finished(1.0, 3 << 20, ()))
    texts, vocabs = write_text(tmp_path, pairs=5)
    sizes = {"dim_emb": 8, "transformer_heads": 2, "transformer_dim_ffn": 8, "enc_depth": 1, "dec_depth": 1}
    files = {"train_sets": texts, "vocabs": vocabs, "mini_batch": 4, "max_length": 100}
    options = {"type": "transformer", **sizes, **files}
    memory.decoding(options, memory.Peers(Programs("", "python"), 1), [1], tmp_path)
    _, peer, ours, _ = capsys.readouterr().out.splitlines()
    assert peer == "CTranslate2: left out: error: no vocabulary" and ours.split() == ["mgraph", "3.00"]


def test_a_training_with_other_options_is_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trained: list[int] = []

    def trainer(after_batches: int, log_json: str, **_: Any) -> Any:
        line = {"kind": "valid", "update": after_batches, "ce-mean-words": 1.5}
        Path(log_json).write_text(json.dumps(line) + "\n")
        return SimpleNamespace(train=lambda: trained.append(after_batches))

    monkeypatch.setattr(curves, "Trainer", trainer)
    for updates in (3, 3, 6):
        found = curves.curve(tmp_path, "right.1", {"after_batches": updates, "betas": (0.9, 0.98)})
        assert found == [(updates, 1.5)]
    assert trained == [3, 6]


@pytest.mark.thorough
@pytest.mark.parametrize("trainer", ["mgraph", "plain JAX"])
def test_updates_are_timed(trainer: str, tmp_path: Path) -> None:
    texts, vocabs = write_text(tmp_path, pairs=20)
    assert len(load_vocab(vocabs[0])) == 2002
    options = {
        "type": "transformer",
        "dim_emb": 8,
        "transformer_heads": 2,
        "transformer_dim_ffn": 8,
        "enc_depth": 1,
        "dec_depth": 1,
        "train_sets": texts,
        "vocabs": vocabs,
        "mini_batch": 4,
        "max_length": 100,
        "seed": 1,
        "model": str(tmp_path / "none.npz"),
        "compilation_cache": "none",
    }
    timing = Timing(trainer, options, skipped=1, updates=1)
    assert timing.prepare()["shapes"] == 1
    one, two = timing.run(), timing.run()
    assert one["words"] == two["words"] < timing.epoch()["words"]
    assert one["seconds"] > 0
    assert 1e4 < timing.work()["per_word"] < 1e6
    memory = timing.memory()
    assert memory["held"] > 3 * 4 * 2 * 2002 * 8 and memory["more"] > 0 and memory["peak"] > memory["held"]
    timing.fill()
    programs = compile_stats()
    timing.fill()
    assert compile_stats().misses == programs.misses
    assert not list(tmp_path.glob("none*"))
