"""Two trainings of one model: the second is refused; what a killed one leaves blocks no other."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from mgraph import MGraphError
from nmt import Trainer
from nmt.training.checkpoints.lock import ModelLockedError, lock_path, training_lock
from tests.helpers.places import ROOT
from tests.helpers.small_models import small_trainer

HOLD = """
import signal, sys
from nmt.training.checkpoints.lock import training_lock
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
with training_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(model: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a model until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def trainer(model: Path, **options: Any) -> Trainer:
    return small_trainer(model=model, after_batches=1, **options)


def test_a_second_training_of_a_model_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    vocab = tmp_path / "new.yml"
    with holder(model) as process:
        with pytest.raises(ModelLockedError) as refused:
            trainer(model, vocabs=[vocab]).train()
        said = str(refused.value)
        assert f"model.npz is being trained by process {process.pid} on host {socket.gethostname()}" in said
        assert "since 20" in said and str(tmp_path / ".model.lock") in said
        assert said.startswith(f"{model} is being") and isinstance(refused.value, MGraphError)
        assert not vocab.exists(), "refused before anything is made"
        with pytest.raises(ModelLockedError, match=r"model\.bin: model\.npz is being trained"):
            trainer(tmp_path / "model.bin").train()  # both models would write model.iter1.npz
        with training_lock(tmp_path / "other.npz"):
            assert sorted(path.name for path in tmp_path.iterdir()) == [".model.lock", ".other.lock"]
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    assert not list(tmp_path.iterdir())


def test_the_lock_is_gone_when_training_ends_and_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.npz"
    locked = []
    monkeypatch.setattr(
        "nmt.runtime.devices.start_all", lambda *words: locked.append(Path(lock_path(model)).exists())
    )
    with pytest.raises(TypeError):
        trainer(model).train()
    assert locked == [True] and not list(tmp_path.iterdir())
    monkeypatch.undo()
    trainer(model).train()
    assert model.exists() and not Path(lock_path(model)).exists()


def test_a_killed_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tmp_path / "model.npz"
    with holder(model) as process:
        process.kill()
        process.wait()
        assert (tmp_path / ".model.lock").exists()
        with caplog.at_level(logging.INFO, "nmt"), training_lock(model):
            left = json.loads((tmp_path / ".model.lock").read_text())
            assert left["process"] == os.getpid()
        assert f"Taking over the lock of process {process.pid} on host" in caplog.text
    assert not list(tmp_path.iterdir())


LEFT: dict[str, tuple[bytes, str, int]] = {
    "another-process-has-the-number": (
        json.dumps({"model": "m", "process": 1, "host": socket.gethostname(), "since": "then"}).encode(),
        "Taking over the lock of process 1 on host",
        logging.INFO,
    ),
    "another-machine": (
        json.dumps({"model": "m", "process": 1, "host": "elsewhere.", "since": "then"}).encode(),
        "process 1 on host elsewhere., since then, which no longer holds it",
        logging.WARNING,
    ),
    "nothing-readable": (b"\xff\0{", "cannot be read and nobody holds it", logging.WARNING),
    "another-form": (b"[1]", "cannot be read and nobody holds it", logging.WARNING),
    "deep": (b"[" * 4000, "cannot be read and nobody holds it", logging.WARNING),
    "no-model": (b'{"process": 1}', "cannot be read and nobody holds it", logging.WARNING),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_nobody_holds_is_taken_over_with_a_word(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content, line, level = LEFT[name]
    (tmp_path / ".model.lock").write_bytes(content)
    with caplog.at_level(logging.INFO, "nmt"), training_lock(tmp_path / "model.npz"):
        assert b'"process": %d' % os.getpid() in (tmp_path / ".model.lock").read_bytes()
    (record,) = caplog.records
    assert line in record.getMessage() and record.levelno == level


def test_of_many_that_take_over_at_once_one_succeeds(tmp_path: Path) -> None:
    """Locks exclude each other within a process, too, because they belong to open files."""
    model, rounds, takers = tmp_path / "model.npz", 40, 6
    taken = [0] * rounds

    def leave() -> None:
        (tmp_path / ".model.lock").write_bytes(b"left by the dead")

    begin = threading.Barrier(takers, leave, timeout=20)
    tried = threading.Barrier(takers, timeout=20)

    def take() -> None:
        for number in range(rounds):
            begin.wait()
            try:
                with training_lock(model):
                    taken[number] += 1
                    tried.wait()
            except ModelLockedError:
                tried.wait()

    in_threads(take, takers)
    assert taken == [1] * rounds


def test_a_lock_that_is_gone_leaves_no_open_file(tmp_path: Path) -> None:
    def lowest() -> int:
        os.close(number := os.open(os.devnull, os.O_RDONLY))
        return number

    before = lowest()
    with training_lock(tmp_path / "model.npz"):
        assert lowest() > before
    assert lowest() == before


def test_letting_go_and_taking_exclude_each_other(tmp_path: Path) -> None:
    model, inside, most, taken = tmp_path / "model.npz", 0, 0, 0

    def take() -> None:
        nonlocal inside, most, taken
        for _ in range(200):
            with suppress(ModelLockedError), training_lock(model):
                inside += 1
                most, taken = max(most, inside), taken + 1
                inside -= 1

    in_threads(take, 4)
    assert most == 1 and taken and not list(tmp_path.iterdir())


def in_threads(work: Callable[[], None], count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(work) for _ in range(count)]:
            future.result()


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_a_child_neither_holds_the_lock_nor_lets_go_of_it(tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    lock = training_lock(model)
    lock.__enter__()
    read, write = os.pipe()
    if os.fork() == 0:  # a child that outlives the training
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    if os.fork() == 0:  # a child that leaves the block
        lock.__exit__(None, None, None)
        os._exit(0)
    os.wait()
    with pytest.raises(ModelLockedError), training_lock(model):
        pass
    lock.__exit__(None, None, None)
    with training_lock(model):
        pass
    os.write(write, b"!")
    os.wait()


def test_a_full_disk_is_named_and_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        named = pytest.raises(OSError, match=r"No space left on device: '.*/\.model\.lock'")
        with named, training_lock(tmp_path / "model.npz"):
            pass
    assert not list(tmp_path.iterdir())


def test_links_lead_to_one_lock(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "model.npz").symlink_to(tmp_path / "models" / "first.npz")
    with training_lock(tmp_path / "models" / "first.npz"):
        with pytest.raises(ModelLockedError, match=r"first\.npz is being trained by process"):
            trainer(tmp_path / "model.npz").train()
        with training_lock(tmp_path / "models" / "second.npz"):
            pass


def test_the_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"")
    (tmp_path / ".model.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match=r"\.model\.lock"), training_lock(tmp_path / "model.npz"):
        pass
    assert (tmp_path / "precious").read_bytes() == b""


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file system have no locks."""

    def missing(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", missing)


@pytest.mark.usefixtures("no_locks")
def test_where_there_are_no_locks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A live process on this machine is still seen."""
    model = tmp_path / "model.npz"
    with training_lock(model):
        assert "has no locks (No locks available)" in caplog.text
    said = {"model": "model.npz", "process": os.getppid(), "host": socket.gethostname(), "since": "then"}
    (tmp_path / ".model.lock").write_text(json.dumps(said))
    with pytest.raises(ModelLockedError, match=f"by process {os.getppid()}"), training_lock(model):
        pass
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / ".model.lock").write_text(json.dumps({**said, "process": ended.pid}))
    with training_lock(model):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    "said, alive",
    [
        ({}, True),
        ({"host": "elsewhere."}, False),
        ({"process": os.getpid()}, False),
        ({"process": str(os.getppid())}, False),
        ({"process": 10**30}, False),
    ],
)
def test_who_is_seen_where_there_are_no_locks(said: dict[str, Any], alive: bool, tmp_path: Path) -> None:
    left = {"model": "model.npz", "process": os.getppid(), "host": socket.gethostname(), "since": "then"}
    (tmp_path / ".model.lock").write_text(json.dumps(left | said))
    with pytest.raises(ModelLockedError) if alive else nullcontext(), training_lock(tmp_path / "model.npz"):
        pass


@pytest.mark.usefixtures("no_locks")
def test_a_process_of_another_user_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(process: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    left = {"model": "model.npz", "process": 1, "host": socket.gethostname(), "since": "then"}
    (tmp_path / ".model.lock").write_text(json.dumps(left))
    with pytest.raises(ModelLockedError), training_lock(tmp_path / "model.npz"):
        pass
