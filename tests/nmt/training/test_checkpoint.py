"""Checkpoints: Marian's files byte for byte, and all or nothing as a set.

``data/checkpoint`` has checkpoints that Marian made; ``check_with_marian.py`` there lets it go on from ours.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
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

from mgraph import ModelFileError, ParameterError
from mgraph.files.items import MODEL_YML, read_npz, write_npz
from nmt.files import load_model
from nmt.settings import TRAIN, OptionError, TrainOptions
from nmt.settings.config import parse
from nmt.settings.training import Learning
from nmt.training.checkpoints.checkpoint import (
    Checkpoint,
    load_checkpoint,
    save_best,
    save_checkpoint,
    save_for_script,
)
from nmt.training.checkpoints.file_set import replacing_set, settle
from nmt.training.checkpoints.state_files import Moments
from nmt.training.update import LearnerState
from tests.helpers import places
from tests.helpers.places import ROOT

DATA = places.DATA / "checkpoint"
NAMES = sorted(path.parent.name for path in DATA.glob("*/model.npz"))
FILES = [f"model.npz{ending}" for ending in ("", ".decoder.yml", ".optimizer.npz", ".progress.yml", ".yml")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory beside the texts of the checkpoints."""
    for text in DATA.glob("*.*"):
        shutil.copy(text, tmp_path)
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def loaded(source: Path, **changed: Any) -> tuple[TrainOptions, Checkpoint]:
    """A checkpoint and the options that it was made with, but for some."""
    values = replace(parse(TRAIN, ["-c", str(source / "model.npz.yml")]), **changed)
    found = load_checkpoint(source / "model.npz", values)
    assert found is not None
    return values, found


def save(values: TrainOptions, found: Checkpoint, *, final: bool = True) -> None:
    save_checkpoint(values.model, values, found.options, found.learner, found.state, final=final)


def contents(folder: Path) -> dict[str, bytes]:
    """All that is in a folder."""
    return {path.name: path.read_bytes() if path.is_file() else b"folder" for path in folder.iterdir()}


def equal(first: LearnerState, second: LearnerState) -> bool:
    """Whether two states are the same to the last bit."""
    trees = [
        [state.params, *(state.moments[name] for name in sorted(state.moments)), state.average or {}]
        for state in (first, second)
    ]
    flat = [[(name, np.asarray(t[name]).tobytes()) for t in tree for name in sorted(t)] for tree in trees]
    numbers = [(s.steps, s.cost_scale, s.average_words, sorted(s.moments)) for s in (first, second)]
    return flat[0] == flat[1] and numbers[0] == numbers[1]


@pytest.mark.parametrize("name", NAMES)
def test_marians_checkpoints_come_out_byte_for_byte(name: str, folder: Path) -> None:
    values, found = loaded(DATA / name)
    save(values, found)
    wanted = contents(DATA / name)
    assert sorted(wanted) == FILES
    assert contents(folder) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_the_model_has_the_smoothed_parameters(name: str) -> None:
    """Which also shows that the rows of the optimizer's file are cut where Marian cuts them."""
    _, found = loaded(DATA / name)
    model = load_model(DATA / name / "model.npz").params
    shown = found.learner.params if found.learner.average is None else found.learner.average
    assert model.keys() == shown.keys()
    assert all(np.array_equal(model[parameter], shown[parameter]) for parameter in model)
    assert (found.learner.average is None) == (name in ("lm-adagrad", "new-sgd"))
    assert found.learner.steps == found.state.batches == 3


def test_a_state_comes_back_to_the_last_bit(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    generator = np.random.default_rng(1)

    def drawn(tensors: dict[str, Any]) -> dict[str, Any]:
        return {name: generator.normal(size=np.shape(x)).astype(np.float32) for name, x in tensors.items()}

    params = found.learner.params
    moments = {name: drawn(params) for name in ("adam_mt", "adam_vt")}
    learner = LearnerState(drawn(params), moments, 200, drawn(params), (256.0, 17), 0.1 + 0.2)
    found = replace(
        found, learner=learner, state=replace(found.state, batches=20000, eta=0.1, seed_batch="1 2")
    )
    save(values, found)
    again = load_checkpoint("model.npz", values)
    assert again is not None
    assert equal(again.learner, learner)
    assert replace(again.state, eta=0, loaded=False) == replace(found.state, eta=0, loaded=False)
    assert np.float32(again.state.eta) == np.float32(0.1)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.98), (0.0, 0.9999)])
def test_the_number_of_updates_is_read_from_the_denominators(betas: tuple[float, float]) -> None:
    moments = Moments(Learning(optimizer="adam", optimizer_params=(*betas, 1e-8)))
    params = {"w": np.ones((1, 3), np.float32)}
    for steps in (0, 1, 2, 100, 999, 17000):
        state = replace(moments.fresh(params), steps=steps)
        found = moments.state(moments.items(state, ["w"]), params, "file", updates=steps)
        assert found.steps == steps


def test_denominators_of_another_marian_need_not_be_exact() -> None:
    moments, params = Moments(Learning()), {"w": np.ones((1, 3), np.float32)}
    for steps, error in ((7, -1e-13), (7, 1e-13), (500, -1e-12)):
        items = moments.items(replace(moments.fresh(params), steps=steps), ["w"])
        items["adam_denoms"] = items["adam_denoms"] + error
        assert moments.state(items, params, "file", updates=1000).steps == steps


# -- all or nothing


class Killed(BaseException):
    """The process is gone: nothing that would clean up can."""


@contextmanager
def killed_before(operation: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the file operations before this one happen, and none from then on."""
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
    """A checkpoint in the folder, one that follows, and the files of both."""
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


def test_links_stay_links(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    (folder / "elsewhere").mkdir()
    (folder / "model.npz").symlink_to("elsewhere/first.npz")
    save(values, found)
    assert (folder / "model.npz").is_symlink()
    wanted = (DATA / "lm-adam" / "model.npz").read_bytes()
    assert (folder / "elsewhere" / "first.npz").read_bytes() == wanted


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
    """Not even what is ours and sound beside it is moved before somebody has looked."""
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


def test_the_folder_of_a_set_is_the_users_alone(folder: Path) -> None:
    with replacing_set("set") as place:
        assert os.name != "posix" or os.stat(place).st_mode & 0o777 == 0o700


# -- which files


def test_copies_of_iterations(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam", overwrite=False)
    save(values, found, final=False)
    copies = ["model.iter3.npz", "model.iter3.npz.decoder.yml"]
    assert sorted(contents(folder)) == copies + FILES
    assert contents(folder)["model.iter3.npz"] == contents(folder)["model.npz"]
    assert "  - model.iter3.npz\n" in (folder / copies[1]).read_text()
    save(replace(values, overwrite_checkpoint=False), found, final=False)
    assert sorted(contents(folder)) == [name.replace(".npz", ".iter3.npz", 1) for name in FILES] + FILES
    assert contents(folder)["model.iter3.npz.optimizer.npz"] == contents(folder)["model.npz.optimizer.npz"]


def test_a_set_of_bin(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam", overwrite=False, model="model.bin")
    save(values, found, final=False)
    assert {"model.bin", "model.bin.optimizer.npz", "model.iter3.npz"} <= contents(folder).keys()
    again = load_checkpoint("model.bin", values)
    assert again is not None
    assert equal(again.learner, found.learner)


def test_the_best_model(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    assert found.learner.average is not None
    save_best("model.npz", values, found.options, found.learner.average, "ce-mean-words")
    best = "model.npz.best-ce-mean-words.npz"
    assert sorted(contents(folder)) == [best, f"{best}.decoder.yml"]
    assert (folder / best).read_bytes() == (DATA / "lm-adam" / "model.npz").read_bytes()
    assert f"  - {best}\n" in (folder / f"{best}.decoder.yml").read_text()


def test_the_model_for_a_script(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    assert found.learner.average is not None
    save_for_script("model.npz", values, found.options, found.learner.average)
    assert sorted(contents(folder)) == ["model.npz.dev.npz", "model.npz.dev.npz.decoder.yml"]
    assert (folder / "model.npz.dev.npz").read_bytes() == (DATA / "lm-adam" / "model.npz").read_bytes()
    assert "  - model.npz.dev.npz\n" in (folder / "model.npz.dev.npz.decoder.yml").read_text()


# -- what is missing or does not fit


def without(source: str, folder: Path, *endings: str) -> Path:
    """A copy of a checkpoint that lacks some files."""
    for name in FILES:
        if not name.endswith(endings):
            shutil.copy(DATA / source / name, folder)
    return folder


def test_no_model_no_checkpoint(folder: Path) -> None:
    values, _ = loaded(DATA / "lm-adam")
    assert load_checkpoint("model.npz", values) is None


def test_a_model_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, found = loaded(without("lm-adam", folder, ".optimizer.npz", ".progress.yml"))
    model = load_model("model.npz").params
    assert all(np.array_equal(found.learner.params[name], model[name]) for name in model)
    assert all(not value.any() for tree in found.learner.moments.values() for value in tree.values())
    assert found.learner.steps == 0
    assert found.state.batches == 0
    assert found.state.eta == 0.01
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.split(" does not exist")[0].rpartition("/")[2] for message in warned] == [
        "model.npz.progress.yml",
        "model.npz.optimizer.npz",
    ]


def test_without_the_optimizer() -> None:
    _, found = loaded(DATA / "lm-adam", no_optimizer_reload=True)
    model = load_model(DATA / "lm-adam" / "model.npz").params
    assert all(np.array_equal(found.learner.params[name], model[name]) for name in model)
    assert found.state.batches == 3
    assert found.learner.steps == 0


def test_another_optimizer_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    _, adam = loaded(DATA / "lm-adam")
    _, found = loaded(DATA / "lm-adam", optimizer="adagrad", exponential_smoothing=0.0)
    assert "no adagrad_gt: the moments of adagrad are new" in caplog.text
    assert list(found.learner.moments) == ["adagrad_gt"]
    assert not any(value.any() for value in found.learner.moments["adagrad_gt"].values())
    assert found.learner.average is None
    assert all(np.array_equal(found.learner.params[n], x) for n, x in adam.learner.params.items())


def test_smoothing_that_begins_late(caplog: pytest.LogCaptureFixture) -> None:
    _, found = loaded(DATA / "lm-adagrad", exponential_smoothing=1e-4)
    assert "no exp_smoothing: smoothing begins with the parameters" in caplog.text
    assert found.learner.average == found.learner.params


def test_files_of_another_model(folder: Path) -> None:
    without("lm-adam", folder, ".optimizer.npz")
    shutil.copy(DATA / "new-sgd" / "model.npz.optimizer.npz", folder)
    wrong = r"here/model\.npz\.optimizer\.npz: master_parameters: expected 1088 numbers, .* got 2944; is it"
    with pytest.raises(ModelFileError, match=wrong):
        loaded(folder)
    items = read_npz(DATA / "lm-adam" / "model.npz.optimizer.npz")
    for name, item in (("adam_denoms", np.zeros(3)), ("adam_mt", items["adam_mt"].astype(np.float16))):
        write_npz(folder / "model.npz.optimizer.npz", items | {name: item})
        with pytest.raises(ModelFileError, match=rf"optimizer\.npz: {name}: expected .*, got "):
            loaded(folder)
    with pytest.raises(OptionError, match="--optimizer must be one of sgd, adagrad, adam; got 'lion'"):
        loaded(folder, optimizer="lion")


def test_an_old_marian_has_no_denominators(folder: Path) -> None:
    without("lm-adam", folder, ".optimizer.npz")
    items = read_npz(DATA / "lm-adam" / "model.npz.optimizer.npz")
    del items["adam_denoms"]
    write_npz(folder / "model.npz.optimizer.npz", items)
    assert loaded(folder)[1].learner.steps == 0


def test_options_of_a_model_without_its_own(folder: Path) -> None:
    """They are the command line's then, and with ``--ignore-model-config`` always."""
    without("lm-adam", folder)
    items = read_npz("model.npz")
    with pytest.raises(ParameterError, match=r"(?s)model\.npz: .*told otherwise by the shapes:\s+dim-rnn 4"):
        loaded(folder, ignore_model_config=True, dim_rnn=8)
    del items[MODEL_YML]
    write_npz("model.npz", items)
    _, found = loaded(folder)
    assert (found.options.type, found.options.dim_rnn, found.options.dim_vocabs) == ("lm", 4, (8,))
    with pytest.raises(ParameterError, match=r"model\.npz: "):
        loaded(folder, dim_rnn=8)


def test_a_full_disk_is_named_and_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"m\.npz"), replacing_set(tmp_path / "m.npz"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as writing raises it, without a name
    assert not os.listdir(tmp_path)
