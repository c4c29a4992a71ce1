"""Several processes that train together: one writes and says what happens, all know the same."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "processes"
LAG = 1
"""So many batches after a process asked for something all act on it. What they asked was sent before the last
update, which the device still computes, so that it is there."""


class Processes:
    """The processes of this run (``devices.join_processes``); one, where nothing else was asked for.

    They call its methods in the same order, for they wait for each other. Each reads the same files and
    computes the same; only the first writes files, validates and logs. If one dies, the others end with an
    error.
    """

    def __init__(self) -> None:
        self.count, self.is_first = jax.process_count(), jax.process_index() == 0
        own = {device.process_index: device for device in reversed(jax.devices())}
        mesh = Mesh(np.array([own[i] for i in range(self.count)]), (AXIS,))
        self._rows = NamedSharding(mesh, PartitionSpec(AXIS))
        self._gather = jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))

    def shared(self, value: Any = None) -> Any:
        """What the first process gives here, something that JSON can say; all wait for it."""
        if self.count == 1:
            return value
        data = np.frombuffer(json.dumps(value).encode(), np.uint8)
        length = int(np.asarray(self.gathered(np.array(len(data), np.int32)))[0])
        row = data if self.is_first else np.zeros(length, np.uint8)
        return json.loads(np.asarray(self.gathered(row))[0].tobytes())

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process alone, then the others: for files that are made where they are missing."""
        if not self.is_first:
            self.shared()
        yield
        if self.is_first:
            self.shared()

    def gathered(self, row: np.ndarray) -> jax.Array:
        """What each process gives, of one shape, as the rows of an array. Does not wait for the others."""
        shape = (self.count, *row.shape)
        rows = jax.make_array_from_callback(shape, self._rows, lambda index: row[None])
        gathered: jax.Array = self._gather(rows)
        return gathered


class Agreement:
    """Whether any process wants something, known to all of them at the same batch.

    wanted: what this process wants by now.
    """

    def __init__(self, processes: Processes, wanted: Callable[[], bool]) -> None:
        self._processes, self._wanted = processes, wanted
        self._asked: deque[jax.Array] = deque()
        self._agreed = False

    def __call__(self) -> bool:
        """What was agreed upon; with one process what it wants."""
        return self._wanted() if self._processes.count == 1 else self._agreed

    def ask(self) -> None:
        """Tell the others. To be called for each batch; it counts ``LAG`` batches later."""
        if self._processes.count == 1:
            return
        self._asked.append(self._processes.gathered(np.array(self._wanted())))
        if len(self._asked) > LAG:
            self._agreed |= bool(np.asarray(self._asked.popleft()).any())
