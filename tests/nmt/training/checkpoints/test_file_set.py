"""Files that belong together: all or none are replaced, whenever the process is killed."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgraph import ModelFileError
from nmt.settings import TrainOptions
from nmt.training.checkpoints.checkpoint import Checkpoint, load_checkpoint
from nmt.training.checkpoints.file_set import replacing_set, settle
from tests.helpers.places import ROOT
from tests.helpers.saved import DATA, contents, equal, loaded, save


class Killed(BaseException):
    """Stands for a killed process: no code can clean up."""


@contextmanager
def killed_before(operation: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets file operations before this one happen, and raises Killed in all from this one on."""
    done = count()

    def mortal(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(done) >= operation:
                raise Killed
            return function(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for name in ("mkdir", "rename", "replace", "rmdir", "unlink", "fsync", "open"):
            patched.setattr(os, name, mortal(getattr(os, name)))
        patched.setattr("builtins.open", mortal(open))
        yield


def two_checkpoints(folder: Path) -> tuple[TrainOptions, Checkpoint, dict[str, bytes], dict[str, bytes]]:
    """The options, the checkpoint after the one in the folder, and the files of both, earlier first."""
    values, first = loaded(DATA / "lm-adam")
    moved = {name: np.asarray(value) + np.float32(1) for name, value in first.learner.params.items()}
    second = replace(
        first,
        learner=replace(first.learner, params=moved, average=moved, steps=4),
        state=replace(first.state, batches=4, eta=0.5),
    )
    save(values, second)
    after = contents(folder)
    save(values, first)
    before = contents(folder)
    assert before.keys() == after.keys()
    assert sum(before[name] != after[name] for name in before) == 3
    return values, second, before, after


def test_a_kill_at_any_file_operation_leaves_one_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, second, before, after = two_checkpoints(folder)
    ends = []
    for operation in count():
        for name, data in before.items():
            (folder / name).write_bytes(data)
        try:
            with killed_before(operation, monkeypatch):
                save(values, second)
        except Killed:
            pass
        else:
            break
        assert all(contents(folder)[name] in (before[name], after[name]) for name in before)
        settle("model.npz")
        ends.append(contents(folder))
        assert ends[-1] in (before, after)
    kept = [end == before for end in ends]
    assert kept == sorted(kept, reverse=True)
    assert kept.count(True) > 20
    assert kept.count(False) > 5


def test_a_kill_while_a_set_is_moved_is_mended_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, second, before, after = two_checkpoints(folder)
    for operation in count():
        for name, data in before.items():
            (folder / name).write_bytes(data)
        (folder / ".model.npz.written").mkdir()
        for name, data in after.items():
            (folder / ".model.npz.written" / name).write_bytes(data)
        try:
            with killed_before(operation, monkeypatch):
                settle("model.npz")
        except Killed:
            found = load_checkpoint("model.npz", values)
            assert found is not None
            assert equal(found.learner, second.learner)
            assert contents(folder) == after
        else:
            assert operation > 5
            return


WRITER = """
import itertools, os
from nmt.training.checkpoints.file_set import replacing_set
for number in itertools.count():
    with replacing_set("set") as folder:
        for name in ("set", "set.one", "set.two"):
            with open(os.path.join(folder, name), "w") as file:
                file.write(str(number) * 100_000)
"""


def test_sigkill_leaves_one_set(folder: Path) -> None:
    dice = random.Random(1)
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", WRITER], env=os.environ | {"PYTHONPATH": str(ROOT)})
        while not (folder / "set.two").exists():
            assert writer.poll() is None
            time.sleep(0.02)
        time.sleep(dice.uniform(0, 0.1))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        settle("set")
        assert sorted(contents(folder)) == ["set", "set.one", "set.two"]
        assert len(set(contents(folder).values())) == 1
        (folder / "set.two").unlink()


def test_a_failure_leaves_the_old_set(folder: Path) -> None:
    values, second, before, _ = two_checkpoints(folder)
    second.learner.params["decoder_Wemb"] = "no numbers"
    with pytest.raises(ValueError, match="no numbers"):
        save(values, second)
    assert contents(folder) == before
    with pytest.raises(FileNotFoundError, match=r"none/model\.npz"), replacing_set("none/model.npz"):
        raise AssertionError


def test_a_folder_in_the_place_of_a_file_is_named_before_anything_moves(folder: Path) -> None:
    """It may exist when the set is written, or only when another process finishes moving the set."""
    for name in ("set.one", "set.two"):
        Path(name).write_text("old")
    Path("set.two").rename("away")
    Path("set.two").mkdir()
    with pytest.raises(IsADirectoryError, match=r"'.*/set\.two'$"), replacing_set("set") as place:
        for name in ("set.one", "set.two"):
            Path(place, name).write_text("new")
    assert Path("set.one").read_text() == "old" and not list(folder.glob(".set.*"))
    Path(".set.written").mkdir()
    for name in ("set.one", "set.two"):
        Path(".set.written", name).write_text("new")
    with pytest.raises(IsADirectoryError, match=r"'.*/set\.two'$"):
        settle("set")
    assert Path("set.one").read_text() == "old"
    Path("set.two").rmdir()
    settle("set")
    assert Path("set.one").read_text() == Path("set.two").read_text() == "new"


def test_links_stay_links(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    (folder / "elsewhere").mkdir()
    (folder / "model.npz").symlink_to("elsewhere/first.npz")
    save(values, found)
    assert (folder / "model.npz").is_symlink()
    wanted = (DATA / "lm-adam" / "model.npz").read_bytes()
    assert (folder / "elsewhere" / "first.npz").read_bytes() == wanted


def test_permissions_and_pipes_stay(folder: Path) -> None:
    Path("model").write_text("old")
    Path("model").chmod(0o600)
    os.mkfifo("model.yml")
    reader = subprocess.Popen(["cat", "model.yml"], stdout=subprocess.PIPE)
    with replacing_set("model") as place:
        Path(place, "model").write_text("new")
        Path(place, "model.yml").write_text("through")
    assert reader.communicate(timeout=5)[0] == b"through"
    assert Path("model").read_text() == "new" and Path("model").stat().st_mode & 0o777 == 0o600
    assert Path("model.yml").is_fifo()


def test_links_to_another_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "disk").mkdir()
    (folder / "model").symlink_to("disk/model")
    rename = os.replace

    def within_disks(source: str, target: str) -> None:
        if ("disk" in source) != ("disk" in target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        rename(source, target)

    monkeypatch.setattr(os, "replace", within_disks)
    with replacing_set("model") as place:
        Path(place, "model").write_text("new")
    assert (folder / "disk" / "model").read_text() == "new"
    assert sorted(path.name for path in folder.rglob("*")) == ["disk", "model", "model"]


def somebody_elses(place: Path) -> None:
    place.mkdir()
    (place / "model.npz").write_text("theirs")


def as_a_link(place: Path) -> None:
    somebody_elses(place.with_name("theirs"))
    place.symlink_to("theirs")


def as_a_file(place: Path) -> None:
    place.write_text("a note")


def with_a_link_in_it(place: Path) -> None:
    place.mkdir()
    (place / "model.npz").symlink_to("/etc/hostname")


def of_another_user(place: Path) -> None:
    somebody_elses(place)
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(place, 12345, -1)


@pytest.mark.skipif(os.name != "posix", reason="links and owners of POSIX")
@pytest.mark.parametrize("ending", [".written", ".growing"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (as_a_link, "got a symbolic link to theirs"),
        (as_a_file, "got no folder"),
        (with_a_link_in_it, "no file in it, model.npz"),
        (of_another_user, "got one of user 12345, and you are user 0"),
    ],
)
def test_what_no_training_of_ours_left_stays(
    folder: Path, make: Callable[[Path], None], message: str, ending: str
) -> None:
    """Not even our own intact files next to it are moved before a user has looked."""
    (folder / "model.npz").write_text("ours")
    (folder / ".model.npz.best.npz.written").mkdir()
    (folder / ".model.npz.best.npz.written" / "model.npz.best.npz").write_text("best")
    make(folder / f".model.npz{ending}")
    before = sorted(os.walk(folder))
    for act in (settle, lambda path: replacing_set(path).__enter__()):
        with pytest.raises(ModelFileError, match=rf"\.model\.npz\{ending}: expected .*{message}; nothing"):
            act("model.npz")
        assert sorted(os.walk(folder)) == before
    assert (folder / "model.npz").read_text() == "ours"


def test_sets_of_other_models_stay(tmp_path: Path) -> None:
    others = [tmp_path / name for name in (".a.npz.growing", ".model.written", ".model.npz.kept")]
    for other in others:
        other.mkdir()
    settle(tmp_path / "model.npz")
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_the_folder_of_a_set_is_the_users_alone(folder: Path) -> None:
    with replacing_set("set") as place:
        assert os.name != "posix" or os.stat(place).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("of_a_file", [False, True], ids=["as writing raises it", "with the written file"])
def test_a_full_disk_is_named_and_leaves_no_trace(of_a_file: bool, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as raised, replacing_set(tmp_path / "m.npz") as folder:
        written = [os.path.join(folder, "m.npz.yml")] if of_a_file else []
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *written)
    assert raised.value.filename == str(tmp_path / "m.npz")
    assert not os.listdir(tmp_path)
