"""How processes that train together wait for each other; here they are threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nmt.training import processes
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
    """What ``run`` returns in each, and how many gathers it took part in."""
    barrier, rows = threading.Barrier(count, timeout=30), [np.zeros(0)] * count
    threads = [Threads(index, rows, barrier) for index in range(count)]
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(run, threads))
    return list(zip(found, (thread.gathers for thread in threads), strict=True))


def test_the_others_hear_of_the_first_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # A collective operation that waits for half an hour fails; these wait for a sign of life each.
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


def test_an_error_of_the_first_does_not_keep_the_others() -> None:
    def run(own: Processes) -> str:
        if not own.is_first:
            with own.in_turn():
                return "went on"
        with pytest.raises(OSError, match="disk"), own.in_turn():
            raise OSError("disk full")
        return "failed"

    assert together(2, run) == [("failed", 1), ("went on", 1)]
