"""How processes that train together wait for each other; here they are threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import DeviceError
from nmt.settings import TRAIN
from nmt.settings.option import options_of
from nmt.training import processes
from nmt.training.in_common import MAY_DIFFER, in_common
from nmt.training.processes import Processes


class Threads(Processes):
    """One of several threads; ``gathers`` counts how often it got the rows of all."""

    def __init__(self, index: int, rows: list[np.ndarray], barrier: threading.Barrier) -> None:
        self.count, self.index, self.is_first = len(rows), index, index == 0
        self.gathers = 0
        self._sent, self._barrier = rows, barrier

    def gathered(self, row: np.ndarray) -> jax.Array:
        self._sent[self.index] = row
        self._barrier.wait()
        found = jnp.stack(self._sent)
        self._barrier.wait()
        self.gathers += 1
        return found


def together(count: int, run: Callable[[Processes], Any]) -> list[tuple[Any, int]]:
    """What ``run`` returns in each thread, and how many gathers the thread took part in."""
    barrier, rows = threading.Barrier(count, timeout=30), [np.zeros(0)] * count
    threads = [Threads(index, rows, barrier) for index in range(count)]
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(run, threads))
    return list(zip(found, (thread.gathers for thread in threads), strict=True))


def test_the_others_hear_of_the_first_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # A collective operation that waits for half an hour fails; each of these waits for a sign of life.
    monkeypatch.setattr(processes, "SIGN_SECONDS", 0.01)
    order: list[int] = []

    def run(own: Processes) -> None:
        with own.in_turn():
            if own.is_first:
                time.sleep(0.2)
            order.append(own.index)

    gathers = {count for _, count in together(3, run)}
    assert order[0] == 0 and sorted(order) == [0, 1, 2]
    assert len(gathers) == 1 and 2 <= gathers.pop() <= 21


@pytest.mark.parametrize("who", [0, 2])
def test_the_first_hears_meanwhile_what_another_wants(who: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SIGN_SECONDS", 0.01)
    began = threading.Event()

    def run(own: Processes) -> bool:
        with own.in_turn(lambda: own.index == who and began.is_set()) as wanted:
            if own.is_first:
                assert not wanted()
                began.set()
                deadline = time.monotonic() + 20
                while not wanted() and time.monotonic() < deadline:
                    time.sleep(0.005)
            return wanted()

    first, *_ = together(3, run)
    assert first[0]


def test_if_the_first_fails_the_others_do_not_go_on() -> None:
    def run(own: Processes) -> str:
        with pytest.raises(OSError if own.is_first else DeviceError) as error, own.in_turn():
            raise OSError(f"disk of process {own.index} full")
        return str(error.value)

    ended = "the first of the processes that train together has failed; its log says why"
    assert together(3, run) == [("disk of process 0 full", 1), (ended, 1), (ended, 1)]


def test_all_are_told_how_one_differs_from_the_first() -> None:
    same = {f"--{name}": "1" for name in "abcdefg"}
    values = [same, same, same | {"--b": "2", "more": "é"}, dict.fromkeys("xyz", "1")]

    def run(own: Processes) -> str:
        with pytest.raises(DeviceError) as error:
            own.require_same(lambda: values[own.index])
        return str(error.value)

    said, *others = (found for found, _ in together(4, run))
    assert others == [said] * 3
    _, third, fourth = said.split("process ")[-3:]
    assert third == "2 has --b: 2, the first one: 1; more: é, the first one: nothing; "
    assert fourth.startswith("3 has --a: nothing, the first one: 1; --b: nothing")
    assert fourth.endswith("--e: nothing, the first one: 1; 5 more")
    assert together(2, lambda own: own.require_same(lambda: same)) == [(None, 4)] * 2


def test_all_are_told_the_least() -> None:
    assert together(3, lambda own: own.least((70, 50, 60)[own.index])) == [(50, 1)] * 3


def test_what_all_must_have_in_common(tmp_path: Path) -> None:
    def options(folder: str, **more: Any) -> Any:
        files = [tmp_path / folder / name for name in ("a", "b", "a.yml", "b.yml")]
        files[0].parent.mkdir(exist_ok=True)
        for file in files:
            file.write_text(f"{file.name}\n")
        return TRAIN.from_python({"train_sets": files[:2], "vocabs": files[2:], **more})

    def differing(other: Any, updates: int | None = None) -> list[str]:
        first, found = in_common(options("one"), None), in_common(other, updates)
        return sorted(name for name in {**first, **found} if first.get(name) != found.get(name))

    assert set(options_of(TRAIN.made)) >= MAY_DIFFER
    own = {"model": "other.npz", "process_id": 1, "cpu_threads": 3, "tempdir": str(tmp_path), "seed": 7}
    assert differing(options("two", **own, sync_freq="9u")) == [], "nor does what is ignored count"
    assert differing(options("two", learn_rate=0.5, clip_norm=0)) == ["--clip-norm", "--learn-rate"]
    assert differing(options("two"), 7) == ["the checkpoint"]
    said = [in_common(options("two"), updates)["the checkpoint"] for updates in (None, 7)]
    assert said == ["missing", "after 7 updates"]
    changed = options("two")
    Path(changed.train_sets[1]).write_text("c\n")
    Path(changed.vocabs[0]).write_text("c\n")
    assert differing(changed) == ["--train-sets, with alignments and weights, file 2", "--vocabs file 1"]
    start = tmp_path / "start.npz"
    start.write_bytes(b"parameters")
    assert differing(replace(options("two"), model=str(start)), 7) == [
        "the checkpoint",
        "the model to start from file 1",
    ]
    assert differing(replace(options("two"), pretrained_model=str(start))) == [
        "the model to start from file 1"
    ]
    vectors = [
        in_common(replace(options("two"), embedding_vectors=paths), None)
        for paths in ((str(start), ""), ("", str(start)))
    ]
    assert vectors[0]["--embedding-vectors file 1"].startswith("10 bytes (SHA-256 of the ends ")
    assert vectors[0]["--embedding-vectors file 1"] == vectors[1]["--embedding-vectors file 2"]
    assert vectors[0] != vectors[1], "vectors of the source are none of the target"
