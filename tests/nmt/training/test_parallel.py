"""Training that several devices, or several processes, share: the numbers are those of one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

from mgraph.device import memory_of
from nmt.runtime.signals import on_signals
from nmt.text.batches import Batch
from nmt.training.learning.fit import MIB
from tests.helpers import placements

ON_CPUS = {"JAX_PLATFORMS": "cpu"}
CLOSE = 1e-5
NUMBER = re.compile(r"[0-9][0-9.,]*")
UPDATE = re.compile(r": Up\. ([0-9]+) ")
S2S = "--type s2s --dim-rnn 8 --dropout-rnn 0.2".split()
TRANSFORMER = (
    "--type transformer --enc-depth 1 --dec-depth 1 --transformer-heads 2 --transformer-dim-ffn 12"
    " --transformer-dropout 0.1 --optimizer-params 0.9 0.98 0.001"
).split()
"""Its sentences are packed. Adam's last parameter keeps rounding in zero gradients small."""


# ---------------------------------------------------------------- devices


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    ["--cpu-devices 2 --optimizer-delay 2", "--cpu-devices 4 --tensor-parallel 2 --shard-state"],
)
@pytest.mark.sampled("--cpu-devices 4 --tensor-parallel 2 --shard-state")
def test_a_later_process_with_the_same_devices_compiles_nothing(tmp_path: Path, more: str) -> None:
    write_texts(tmp_path, [4])
    programs = tmp_path / "programs"
    run = [
        "--after-batches",
        "2",
        "--compilation-cache",
        str(programs),
        "--log-level",
        "debug",
        *more.split(),
    ]
    for name in ("first", "later"):
        subprocess.run(
            training(tmp_path, name, *run, model=TRANSFORMER), env=os.environ | ON_CPUS, check=True
        )
        traced = {path: path.stat().st_mtime_ns for path in programs.glob("*/traced/*")}
        log = (tmp_path / f"{name}.log").read_text()
        assert "not stored" not in log
        if name == "first":
            written = traced
            assert len(written) == log.count(": traced in ") > 1
    assert traced == written
    assert re.search(f"Compiled 0, read {len(written)} from the compilation cache", log)
    assert (tmp_path / "later.npz").read_bytes() == (tmp_path / "first.npz").read_bytes()


def found(model: str, where: str = "alone") -> dict:
    """What ``tests.helpers.placements`` prints for this model and placement."""
    script = [sys.executable, "-W", "error", str(Path(placements.__file__)), model, where]
    said = subprocess.run(script, env=os.environ | ON_CPUS, check=True, stdout=subprocess.PIPE)
    return json.loads(said.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "where"), [("transformer", "divided"), ("s2s", "shared"), ("optax", "divided")]
)
@pytest.mark.sampled("s2s-shared")
def test_updates_are_those_of_one_device_in_less_memory(model: str, where: str) -> None:
    # Five or six sentences for four devices, with words and links divided unevenly, and all kinds of dropout;
    # the transformer has two batches per update.
    shared, alone = found(model, where), found(model)
    for figure in ("costs", "labels", "norms"):
        np.testing.assert_allclose(shared[figure], alone[figure], rtol=CLOSE)
    for part in ("params", "moments", "average"):
        for name, value in alone[part].items():
            np.testing.assert_allclose(
                shared[part][name], value, rtol=CLOSE, atol=CLOSE, err_msg=f"{part} {name}"
            )
    assert shared["restored"], "a state can be restored where it was"
    assert shared["memory"] < 0.8 * alone["memory"]
    if where == "shared":
        assert shared["held"] == alone["held"]
    elif model == "transformer":
        assert alone["held"] < 4.01 * shared["held"] < 1.3 * alone["held"], "arrays of odd sizes are whole"
    # The program whose memory was asked for is compiled already; the first of two batches has its own.
    assert shared["compiled"] == alone["compiled"] == (1 if model == "transformer" else 0)


def test_rows_that_are_added_count_nothing() -> None:
    ids, mask = np.array([[5, 6], [7, 0]], np.int32), np.array([[1, 1], [1, 0]], np.float32)
    batch = Batch((ids, ids), (mask, mask), 2, weights=mask)
    more = batch.with_rows(4)
    assert more.shape == (4, 2, 2) and (more.sentences, more.words) == (2, 3)
    np.testing.assert_array_equal(more.ids[0][2:], ids[[0, 0]])
    assert more.masks[0][2:].all() and not more.masks[1][2:].any()
    assert batch.with_rows(2) is batch


# ---------------------------------------------------------------- processes


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port: int = free.getsockname()[1]
        return port


def training(folder: Path, name: str, *more: str, model: Sequence[str] = S2S) -> list[str]:
    """A command that trains ``name.npz`` with updates of five sentences, which need one program if all are
    equally long."""
    text = [str(folder / "text.a"), str(folder / "text.b")]
    options = {
        "--train-sets": text,
        "--valid-sets": text,
        "--vocabs": [f"{path}.yml" for path in text],
        "--model": [str(folder / f"{name}.npz")],
        "--log": [str(folder / f"{name}.log")],
        "--dim-emb": ["8"],
        "--mini-batch": ["5"],
        "--valid-freq": ["3u"],
        "--save-freq": ["6u"],
        "--valid-metrics": ["cross-entropy"],
        "--disp-freq": ["1"],
        "--learn-rate": ["0.01"],
        "--seed": ["3"],
        "--cpu-threads": ["1"],
    }
    words = [word for option, values in options.items() for word in (option, *values)]
    return [sys.executable, "-m", "nmt", "train", *words, *model, "--quiet", *more]


def slurm(count: int, index: int) -> dict[str, str]:
    """The variables that SLURM sets for a task on this machine."""
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": str(count),
        "SLURM_PROCID": str(index),
        "SLURM_LOCALID": str(index),
    }


def open_mpi(count: int, index: int) -> dict[str, str]:
    """The variables that Open MPI 4 sets for a process on this machine."""
    return {
        "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1",
        "OMPI_COMM_WORLD_SIZE": str(count),
        "OMPI_COMM_WORLD_RANK": str(index),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(index),
    }


Processes = AbstractContextManager[list[subprocess.Popen]]


@contextmanager
def started(*each: tuple[list[str], dict[str, str]]) -> Iterator[list[subprocess.Popen]]:
    """One process for each command with its variables."""
    with ExitStack() as stack:
        processes = []
        for command, more in each:
            process = subprocess.Popen(
                command, env=os.environ | ON_CPUS | more, stderr=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def launched(launcher: Callable[[int, int], dict[str, str]], count: int, command: list[str]) -> Processes:
    """The processes that a launcher starts with the same command."""
    port = {"JAX_COORDINATOR_PORT": str(free_port())}
    return started(*((command, port | launcher(count, index)) for index in range(count)))


def cluster() -> list[str]:
    """Options of two processes that train together, without the number of each."""
    return ["--coordinator", f"localhost:{free_port()}", "--num-processes", "2"]


def together(folder: Path, name: str, *more: str, model: Sequence[str] = S2S) -> Processes:
    """Two processes that train together because of their options; only the first has a log."""
    both = [*cluster(), *more]
    commands = (training(folder, name, *both, "--process-id", str(index), model=model) for index in range(2))
    return started(*((command, {}) for command in commands))


def wait_until_logged(log: Path, said: str, processes: Sequence[subprocess.Popen]) -> None:
    """Wait until the log has this text; no process may end before."""
    while not (log.exists() and said in log.read_text()):
        assert [process.poll() for process in processes] == [None] * len(processes)
        time.sleep(0.05)


def assert_ended(processes: Sequence[subprocess.Popen], code: int) -> None:
    """Assert that all processes end with this exit code."""
    for process in processes:
        _, said = process.communicate(timeout=300)
        assert process.returncode == code, said


def lines(log: Path) -> list[str]:
    """Lines about training and validation, without times and speeds."""
    wanted = [line for line in log.read_text().splitlines() if "Ep. " in line]
    return [re.sub(r"^\[.*?\] | : Time .*? words/s", "", line) for line in wanted]


def numbers(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def assert_close(path: Path, other: Path) -> None:
    """Assert that two model files have the same parameters."""
    with np.load(path) as found, np.load(other) as expected:
        assert found.files == expected.files
        for name in expected.files:
            if expected[name].dtype == np.float32:
                np.testing.assert_allclose(found[name], expected[name], rtol=CLOSE, atol=CLOSE, err_msg=name)


def write_texts(folder: Path, lengths: Sequence[int]) -> None:
    """Write texts of 40 sentences with numbers of words from ``lengths``."""
    rng = np.random.default_rng(0)
    for name in ("text.a", "text.b"):
        rows = (rng.choice(["one", "two", "three", "four"], rng.choice(lengths)) for _ in range(40))
        (folder / name).write_text("".join(" ".join(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text whose sentences are all equally long."""
    folder = tmp_path_factory.mktemp("processes")
    write_texts(folder, [4])
    return folder


@pytest.mark.slow
def test_two_processes_train_as_one_and_stop_together(folder: Path) -> None:
    subprocess.run(training(folder, "one", "--after-batches", "6"), env=os.environ | ON_CPUS, check=True)
    assert len(lines(folder / "one.log")) == 8
    with together(folder, "two", "--shard-state", "--after-epochs", "100000") as processes:
        log = folder / "two.log"
        while not (log.exists() and len(lines(log)) > 8):
            assert [process.poll() for process in processes] == [None, None]
            time.sleep(0.1)
        processes[1].send_signal(signal.SIGTERM)
        assert_ended(processes, 143)
    for two, one in zip(lines(log), lines(folder / "one.log"), strict=False):
        assert NUMBER.sub("", two) == NUMBER.sub("", one)
        assert numbers(two) == pytest.approx(numbers(one), rel=CLOSE)
    assert_close(folder / "two.iter6.npz", folder / "one.iter6.npz")
    with np.load(folder / "two.npz.optimizer.npz") as moments:
        assert set(moments.files) >= {"adam_mt", "adam_vt"}
    assert "epochs: " in (folder / "two.npz.progress.yml").read_text()


@pytest.mark.slow
def test_the_first_process_stops_all_and_saves_once(folder: Path) -> None:
    both = cluster()
    names = ["first", "second"]  # each would save its own files
    commands = (
        training(folder, name, *both, "--process-id", str(index), "--after-epochs", "100000")
        for index, name in enumerate(names)
    )
    with started(*((command, {}) for command in commands)) as processes:
        log = folder / "first.log"
        wait_until_logged(log, "Saving optimizer", processes)
        processes[0].send_signal(signal.SIGTERM)
        assert_ended(processes, 143)
    updates = max(map(int, UPDATE.findall(log.read_text())))
    assert log.read_text().count("Saving optimizer") == updates // 6 + 1
    assert yaml.safe_load((folder / "first.npz.progress.yml").read_text())["batches"] == updates
    assert not list(folder.glob("second*"))


@pytest.mark.slow
def test_processes_stop_together_while_statistics_are_collected(folder: Path) -> None:
    fit = "--mini-batch-fit", "--mini-batch-fit-step", "1", "--max-length", "200", "--workspace", "256"
    with together(folder, "fit", *fit) as processes:
        log = folder / "fit.log"
        wait_until_logged(log, "Collecting statistics", processes)
        processes[1].send_signal(signal.SIGTERM)
        assert_ended(processes, 143)
    assert "Stopped while collecting statistics" in log.read_text()
    assert "Typical MB size" not in log.read_text()
    assert not (folder / "fit.npz").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_process_that_waits_for_the_others_ends_at_once(
    folder: Path, sent: signal.Signals, code: int
) -> None:
    name = f"waits{code}"
    alone = training(folder, name, *cluster(), "--process-id", "0")
    # The process that runs the tests may ignore SIGINT, and then this process would, too.
    with on_signals(lambda: None, sent), started((alone, {})) as (process,):
        log = folder / f"{name}.log"
        wait_until_logged(log, "process 0 of 2", [process])
        time.sleep(0.5)  # until it waits; JAX would wait for five minutes
        process.send_signal(sent)
        _, said = process.communicate(timeout=30)
        assert (process.returncode, said) == (code, "")


@pytest.mark.slow
def test_processes_with_other_options_do_not_train(folder: Path) -> None:
    both = cluster()
    commands = (
        training(folder, "other", *both, "--process-id", str(index), "--label-smoothing", f"0.{index + 1}")
        for index in range(2)
    )
    with started(*((command, {}) for command in commands)) as processes:
        for process in processes:
            _, said = process.communicate(timeout=300)
            assert process.returncode == 1
            assert said.endswith("process 1 has --label-smoothing: 0.2, the first one: 0.1\n")
    assert not (folder / "other.npz").exists()


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.sampled("True")
def test_whether_to_validate_is_what_the_first_process_says(folder: Path, first: bool) -> None:
    """The other process has no validation set, or would not find it."""
    name, both = f"validates{first}", cluster()
    commands = [
        training(folder, name, *both, "--process-id", str(index), "--after-batches", "4")
        for index in range(2)
    ]
    command = commands[first]
    at = command.index("--valid-sets") + 1
    if first:
        command[at : at + 2] = ["gone.a", "gone.b"]
    else:
        del command[at - 1 : at + 2]
    with started(*((command, {}) for command in commands)) as processes:
        assert_ended(processes, 0)
    assert len(lines(folder / f"{name}.log")) == (6 if first else 4)


@pytest.mark.thorough
@pytest.mark.parametrize("devices", [1, 2])
def test_processes_that_divide_a_packed_transformer_train_as_one_device(tmp_path: Path, devices: int) -> None:
    """With one device each, two processes divide each layer; with two devices each, a process has all layers
    and half of the sentences."""
    write_texts(tmp_path, range(1, 8))
    alone = training(tmp_path, "one", "--after-batches", "6", model=TRANSFORMER)
    subprocess.run(alone, env=os.environ | ON_CPUS, check=True)
    expected = lines(tmp_path / "one.log")
    assert len(expected) == 8
    more = ["--after-batches", "6", "--tensor-parallel", "2", "--cpu-devices", str(devices)]
    with together(tmp_path, "two", *more, model=TRANSFORMER) as processes:
        assert_ended(processes, 0)
    for two, one in zip(lines(tmp_path / "two.log"), expected, strict=True):
        assert NUMBER.sub("", two) == NUMBER.sub("", one)
        assert numbers(two) == pytest.approx(numbers(one), rel=CLOSE)
    assert_close(tmp_path / "two.npz", tmp_path / "one.npz")


@pytest.mark.thorough
def test_processes_fit_batches_into_what_they_all_have_left(folder: Path) -> None:
    beyond = 2 - memory_of(None) // MIB  # so that two megabytes are left
    more = ["--mini-batch-fit", "--workspace", str(beyond), "--max-length", "8", "--after-batches", "2"]
    with together(folder, "fitted", *more, model=TRANSFORMER) as processes:
        assert_ended(processes, 0)
    assert "Typical MB size" in (folder / "fitted.log").read_text()


@pytest.mark.thorough
def test_another_number_of_processes_goes_on_where_one_was_killed(folder: Path) -> None:
    log = folder / "four.log"
    with launched(slurm, 4, training(folder, "four", "--after-epochs", "100000")) as processes:
        wait_until_logged(log, "Saving optimizer", processes)
        time.sleep(0.5)  # for some more updates, which are lost
        processes[2].kill()
        codes = []
        for process in processes:
            _, said = process.communicate(timeout=300)
            assert process is processes[2] or "trains together with this one" in said
            codes.append(process.returncode)
    assert codes == [1, 1, -signal.SIGKILL, 1], "by an error of ours, before JAX misses a heartbeat"
    saved = yaml.safe_load((folder / "four.npz.progress.yml").read_text())["batches"]
    shown = len(lines(log))
    for launcher, count, devices, updates in ((open_mpi, 2, 2, 3), (slurm, 1, 1, 6), (slurm, 2, 1, 9)):
        more = ["--after-batches", str(saved + updates), "--cpu-devices", str(devices)]
        with launched(launcher, count, training(folder, "four", *more)) as processes:
            assert_ended(processes, 0)
    whole = training(folder, "whole", "--after-batches", str(saved + 9))
    subprocess.run(whole, env=os.environ | ON_CPUS, check=True)
    expected = lines(folder / "whole.log")
    before = sum(int(UPDATE.findall(line)[0]) <= saved for line in expected)
    found = lines(log)
    for one, other in zip(found[:before] + found[shown:], expected, strict=True):
        assert NUMBER.sub("", one) == NUMBER.sub("", other)
        assert numbers(one) == pytest.approx(numbers(other), rel=CLOSE)
