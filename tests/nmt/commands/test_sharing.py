"""``decode`` and ``score`` in shares: the joined output is what one process writes."""

from __future__ import annotations

import gzip
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmt import cli
from nmt.commands import sharing
from nmt.settings import DECODE, OptionError
from nmt.settings.config import parse
from nmt.text.sharing import parts
from nmt.text.sharing.parts import PartError
from tests.helpers.places import DATA, ROOT, SHIPPED

MODEL, VOCAB = str(SHIPPED / "model.npz"), str(SHIPPED / "vocab.spm")
PAIR = ["-m", MODEL, "-v", VOCAB, VOCAB, "--quiet"]
SOURCE, TARGET = (str(DATA / "numbers" / f"input.{side}") for side in ("en", "de"))
SLURM = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "a", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0"}
SCORE_OF = re.compile(r"-?\d+\.\d+(?:e-\d+)?")
BATCHED = ["--mini-batch", "8", "--maxi-batch", "2"]


def mgraph(*words: str | Path) -> None:
    assert cli.main([*map(str, words)]) == 0


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the environment as if SLURM had started this process as one of three."""

    def launched(number: int) -> None:
        for name, value in {**SLURM, "SLURM_PROCID": str(number)}.items():
            monkeypatch.setenv(name, value)

    return launched


@pytest.mark.parametrize(
    "options",
    [
        ["-b", "2", "--n-best", "--alignment", "hard"],
        ["-b", "1", "--output-sampling", "--seed", "5"],
    ],
    ids=["n-best", "sampling"],
)
@pytest.mark.sampled("n-best")
def test_processes_of_a_launcher_translate_what_one_does(
    options: list[str], slurm: Any, tmp_path: Path
) -> None:
    """More shares than lines, so that some are empty."""
    source, out = tmp_path / "source.gz", tmp_path / "out"
    source.write_bytes(gzip.compress(b"\n".join(Path(SOURCE).read_bytes().split(b"\n")[:20])))  # not ended
    words = ["decode", *PAIR, "-i", source, *options]
    mgraph(*words, "-o", tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    assert whole.count(b"\n") == (40 if "--n-best" in options else 20)
    for process in (2, 0, 1):
        assert not out.exists()
        slurm(process)
        mgraph(*words, "-o", out, "--shares", "23")
    assert sorted(tmp_path.glob("out*")) == [out, Path(f"{out}{parts.NOTE}")]
    assert_alike(out.read_bytes(), whole)


def assert_alike(found: bytes, expected: bytes) -> None:
    """Assert that lines are the same; programs of other shapes round the last digit of scores differently."""
    lines, wanted = (text.decode().split("\n") for text in (found, expected))
    assert len(lines) == len(wanted)
    for line, other in zip(lines, wanted, strict=True):
        assert SCORE_OF.sub("#", line) == SCORE_OF.sub("#", other)
        numbers = [list(map(float, SCORE_OF.findall(text))) for text in (line, other)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=2e-5)


def killed_after(rows: int, folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> Path:
    """A copy of ``folder`` made when ``rows`` rows have been written, with half a line more."""
    write, copy, written = parts.PartWriter.write, folder.with_name("killed"), []

    def watched(part: Any, text: str, counts: Any) -> None:
        write(part, text, counts)
        written.append(text)
        if len(written) == rows:
            shutil.copytree(folder, copy)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "NOTE_SECONDS", 0.0)
        patch.setattr(parts.PartWriter, "write", watched)
        mgraph(*words)
    (note,) = (path for path in copy.glob(f"*{parts.NOTE}") if b'"complete": false' in path.read_bytes())
    with open(str(note).removesuffix(parts.NOTE), "ab") as file:
        file.write(b"half a l")
    return copy


@pytest.mark.parametrize("kind", ["decode", "score", "n-best", "summary"])
@pytest.mark.sampled("score")
def test_a_killed_process_goes_on(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    monkeypatch.chdir(folder)
    words = ["decode", *PAIR, "-i", SOURCE, "-b", "2", "--n-best", *BATCHED]
    if kind == "n-best":
        mgraph(*words, "-o", tmp_path / "list")
    if kind != "decode":
        target = tmp_path / "list" if kind == "n-best" else TARGET
        options = {"score": ["--word-scores"], "n-best": ["--n-best"], "summary": ["--summary"]}[kind]
        words = ["score", *PAIR, "-t", SOURCE, target, *options]
    mgraph(*words, "-o", tmp_path / "alone")
    copy = killed_after(47, folder, monkeypatch, *words, "-o", "out", "--shares", "3")
    done: list[int] = []
    going_on = parts.Part.writing
    monkeypatch.setattr(parts.Part, "writing", lambda part: (done.append(part.note.rows), going_on(part))[1])
    monkeypatch.chdir(copy)
    mgraph(*words, "-o", "out", "--shares", "3")
    assert done == ([7, 0] if kind == "n-best" else [7])
    assert_alike((copy / "out").read_bytes(), (tmp_path / "alone").read_bytes())
    assert_alike((folder / "out").read_bytes(), (tmp_path / "alone").read_bytes())


def test_parts_of_other_models_texts_and_options_are_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.write_text("six\nseven\n")
    words = ["-v", VOCAB, VOCAB, "--quiet", "-i", source, "-o", tmp_path / "out", "--shares", "2"]
    mgraph("decode", "-m", MODEL, *words, *BATCHED, "-b", "2", "--share", "0")
    source.write_text("six\nseveN\n")
    other = DATA / "s2s-numbers" / "model.npz"
    assert cli.main([*map(str, ["decode", "-m", other, *words, "-b", "3"])]) == 2
    assert (
        "started with another value of --beam-size, --input, --models: give another"
        in capsys.readouterr().err
    )
    source.write_text("six\nseven\n")
    mgraph("decode", "-m", MODEL, *words, "-b", "2", "--cpu-threads", "1")
    assert (tmp_path / "out").read_text() == "sechs\nsieben\n"


def copying(texts: Sequence[Iterator[bytes]], *, first: int = 0, done: int = 0) -> sharing.Results:
    """Work whose results are its input lines."""
    return ((line.decode().removesuffix("\n"), {}) for line in itertools.islice(texts[0], done, None))


def shared(out: Path, *words: str, shares: int = 4) -> sharing.SharedWork:
    given = ["-m", MODEL, "-v", VOCAB, "-i", SOURCE, "-o", str(out), "--shares", str(shares), *words]
    options = parse(DECODE, given)
    return sharing.SharedWork(DECODE, options, options.input)


def test_nothing_is_loaded_if_nothing_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def loading() -> sharing.Work:
        raise AssertionError("loaded")

    assert shared(tmp_path / "out", "--share", "3", "1").do(lambda: copying) is None
    assert shared(tmp_path / "out", "--share", "1").do(loading) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"out.part-00{share}-of-004{end}" for share in (1, 3) for end in ("", parts.NOTE)
    ]
    assert shared(tmp_path / "out").do(lambda: copying) == {}
    assert (tmp_path / "out").read_bytes() == Path(SOURCE).read_bytes()
    assert shared(tmp_path / "out", "--share", "3").do(loading) == {}
    with caplog.at_level("INFO"):  # an output of 4 shares serves a call for 5
        assert shared(tmp_path / "out", shares=5).do(loading) == {}
    assert caplog.messages == [f"[shares] All shares are complete: {tmp_path / 'out'}"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", f"out{parts.NOTE}"]


@pytest.mark.parametrize(
    "words", ["--seed 5", "--normalize 0.6", "--max-length 9", "--precision int8", "--tsv"]
)
def test_what_decides_the_output(words: str, tmp_path: Path) -> None:
    shared(tmp_path / "out", "--share", "0").do(lambda: copying)
    with pytest.raises(OptionError, match=f"started with another value of {words.split()[0]}: "):
        shared(tmp_path / "out", *words.split()).do(lambda: copying)


@pytest.mark.parametrize(
    "words", ["--mini-batch 9", "--cpu-devices 2", "--devices 1", "--log-level debug -w 9"]
)
def test_what_does_not(words: str, tmp_path: Path) -> None:
    shared(tmp_path / "out", "--share", "0").do(lambda: copying)
    assert shared(tmp_path / "out", *words.split()).do(lambda: copying) == {}


def test_a_text_that_shrinks_is_no_complete_share(tmp_path: Path) -> None:
    def half(texts: Sequence[Iterator[bytes]], *, first: int = 0, done: int = 0) -> sharing.Results:
        return copying([itertools.islice(texts[0], 7)])

    with pytest.raises(PartError, match="share 0 has 15 lines, and 7 were read: the texts must not change"):
        shared(tmp_path / "out").do(lambda: half)
    note = parts.Note.read(str(tmp_path / "out.part-000-of-004"))
    assert note and note.rows == 7 and not note.complete


def own(*words: str) -> list[int]:
    return list(sharing.own_shares(parse(DECODE, ["--shares", "7", *words])))


def test_which_shares_a_process_has(slurm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own() == [0, 1, 2, 3, 4, 5, 6] and own("--share", "4", "2") == [4, 2]
    slurm(1)
    assert own() == [1, 4] and own("--share", "5") == [5]
    monkeypatch.setenv("SLURM_NTASKS", "20")
    monkeypatch.setenv("SLURM_PROCID", "9")
    assert own() == []
    for name in SLURM:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "a")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "6")
    assert own() == [6]
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "7")
    with pytest.raises(
        OptionError, match="--shares 7: Kubernetes started process 7, and does not tell how many"
    ):
        own()


@pytest.mark.parametrize(
    ("command", "texts"), [("decode", ["-i", SOURCE]), ("score", ["-t", SOURCE, TARGET])]
)
@pytest.mark.parametrize("options", [["--shares", "3"], []])
def test_processes_on_a_host_take_their_own_gpus(
    command: str,
    texts: list[str],
    options: list[str],
    slurm: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without shares, a process does what it would do alone."""
    asked = []

    def started(*words: Any, local_index: int | None = None) -> None:
        asked.append(local_index if len(words) < 4 else words[3])
        raise OptionError("started")

    slurm(2)
    monkeypatch.setenv("SLURM_LOCALID", "1")
    monkeypatch.setattr("nmt.runtime.devices.start_all", started)
    assert cli.main([command, *PAIR, *texts, "-o", str(tmp_path / "out"), *options]) == 2
    assert asked == [1 if options else None]


KILLED = """
import sys
from nmt import cli
from nmt.text.sharing import parts
parts.NOTE_SECONDS = 0.0
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_lost_processes_cost_their_shares_only(tmp_path: Path) -> None:
    """One of three processes is killed in its second share; nothing is joined until that share runs again."""
    source, out = tmp_path / "source", tmp_path / "out"
    source.write_bytes(Path(SOURCE).read_bytes() * 20)
    words = ["decode", *PAIR, "-i", str(source), "-o", str(out), "--shares", "6", "-b", "1"]
    environment = os.environ | SLURM | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, *words], env={**environment, "SLURM_PROCID": str(number)}
        )
        for number in range(3)
    ]
    try:
        lost = parts.Part(f"{out}.part-004-of-006", {})
        until = time.monotonic() + 120
        while not ((note := parts.Note.read(lost.path)) and note.rows > 50) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(processes[1].pid, signal.SIGKILL)
        assert [process.wait(timeout=120) for process in processes] == [0, -signal.SIGKILL, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    note = parts.Note.read(lost.path)
    assert note and 50 < note.rows < 200 and not note.complete and not out.exists()
    complete = [parts.Note.read(f"{out}.part-00{share}-of-006") for share in (0, 1, 2, 3, 5)]
    assert all(each and each.complete and each.rows == 200 for each in complete)
    mgraph(*words, "--share", "4")
    alone = tmp_path / "alone"
    mgraph("decode", *PAIR, "-i", source, "-o", alone, "-b", "1")
    assert out.read_bytes() == alone.read_bytes() and out.read_bytes().count(b"\n") == 1200
