"""Programs of later batches are compiled while earlier ones train."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgraph import clear_programs, compile_stats
from nmt.text.batches import Batch
from nmt.training.compile_ahead import CompileAhead
from nmt.training.learning.learner import Learner
from tests.helpers.placements import batch
from tests.helpers.small_models import small_trainer

SECONDS = 60
"""How long to wait for what must happen."""


def test_new_shapes_are_compiled_once_and_at_the_same_time() -> None:
    both = threading.Barrier(2)
    seen: list[Any] = []

    def prepare(batch: Batch) -> None:
        seen.append(batch.shape)
        both.wait(SECONDS)

    ahead = CompileAhead(prepare, 2)
    few, many = batch(2, 0), batch(4, 0)
    for announced in (few, many, few, many):
        ahead.announce(announced)
    ahead.close()
    assert sorted(seen) == sorted([few.shape, many.shape])
    assert not both.broken


def test_what_has_not_begun_is_dropped_at_the_end() -> None:
    begun, may_end = threading.Event(), threading.Event()
    seen: list[Any] = []

    def prepare(batch: Batch) -> None:
        seen.append(batch.shape)
        begun.set()
        may_end.wait(SECONDS)

    ahead = CompileAhead(prepare, 1)
    ahead.announce(batch(2, 0))
    ahead.announce(batch(4, 0))
    assert begun.wait(SECONDS)
    threading.Timer(0.1, may_end.set).start()
    ahead.close()
    assert seen == [batch(2, 0).shape]


@pytest.fixture
def prepared_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Replaces ``Learner.prepare``; programs cost nothing, so an epoch has many."""
    monkeypatch.setattr(Learner, "program", 0.0)
    return lambda prepare: monkeypatch.setattr(Learner, "prepare", prepare)


def trained(path: Path, **options: Any) -> bytes:
    """The parameters after an epoch, with newly compiled programs."""
    clear_programs()
    small_trainer(model=path, after_epochs=1, mini_batch=8, max_length=40, seed=5, **options).train()
    return path.read_bytes()


@pytest.mark.parametrize("delay", [1, 2])
@pytest.mark.sampled("1")
def test_training_is_the_same_and_no_program_is_compiled_twice(
    tmp_path: Path, prepared_by: Callable[[Any], None], delay: int
) -> None:
    threads: set[str] = set()
    prepare = Learner.prepare

    def noted(learner: Learner, batches: list[Batch]) -> None:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        prepare(learner, batches)

    prepared_by(noted)
    before = compile_stats()
    ahead = trained(tmp_path / "ahead.npz", optimizer_delay=delay)
    programs = (compile_stats() - before).misses
    assert threads == {"mgraph-compile"}

    prepared_by(lambda learner, batches: None)
    before = compile_stats()
    assert trained(tmp_path / "due.npz", optimizer_delay=delay) == ahead
    assert (compile_stats() - before).misses == programs > 2


def test_a_failure_is_left_to_the_batch_that_needs_the_program(
    tmp_path: Path, prepared_by: Callable[[Any], None]
) -> None:
    def failing(learner: Learner, batches: list[Batch]) -> None:
        raise RuntimeError("no memory to compile with")

    prepared_by(failing)
    assert trained(tmp_path / "failed.npz")
