"""The processes that share a training run: what they exchange, and how they agree."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mgraph import DeviceError
from mgraph.errors import first_line

AXIS = "processes"
LAG = 1
"""Processes act on a request this many batches later. The request was sent before the previous update, which
the device is still computing, so reading it does not block."""
NETWORKS = ("Gloo", "NCCL", "RCCL", "heartbeat", "Connection")
"""Words in JAX's errors about lost processes."""
LEAST_ROOM = 1 << 12
POLL_SECONDS = 0.05
MOST_NAMED = 5
SIGN_SECONDS = 5.0
"""How often processes exchange signs of life while they wait for the first: often enough that training can
save between SIGTERM and SIGKILL, which are often half a minute apart. On CPUs XLA gives up after half an hour
without a sign."""
_BUSY, _DONE, _FAILED = range(3)


class Processes:
    """The processes of this run (``devices.join_processes``), by default one.

    All must call these methods in the same order, because they wait for each other. All read the same files
    and compute the same results; only the first writes files, validates and logs. If one dies, the others
    fail.
    """

    def __init__(self) -> None:
        self.count, self.index = jax.process_count(), jax.process_index()
        self.is_first = self.index == 0
        own = {device.process_index: device for device in reversed(jax.devices())}
        mesh = Mesh(np.array([own[i] for i in range(self.count)]), (AXIS,))
        self._rows = NamedSharding(mesh, PartitionSpec(AXIS))
        self._gather = jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))

    def shared(self, value: Any) -> Any:
        """The ``value`` of the first process, as JSON; all processes wait for it."""
        if self.count == 1:
            return value
        data = np.frombuffer(json.dumps(value).encode(), np.uint8)
        length = int(np.asarray(self.gathered(np.array(len(data), np.int32)))[0])
        row = data if self.is_first else np.zeros(length, np.uint8)
        return json.loads(np.asarray(self.gathered(row))[0].tobytes())

    def require_same(self, own: Callable[[], Mapping[str, str]]) -> None:
        """DeviceError in all processes if one has other values than the first; all wait for each other.

        own: returns the values of this process; not called if it is alone.
        """
        if self.count == 1:
            return
        values = own()
        first: Mapping[str, str] = self.shared(values)
        names = [name for name in {**first, **values} if first.get(name) != values.get(name)]
        said = [
            f"{name}: {values.get(name, 'nothing')}, the first one: {first.get(name, 'nothing')}"
            for name in names[:MOST_NAMED]
        ]
        said += [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        data = np.frombuffer("; ".join(said).encode(), np.uint8).astype(np.int32)
        others = [bytes(each.tolist()).decode() for each in self.exchanged(data)]
        differ = [f"process {index} has {other}" for index, other in enumerate(others) if other]
        if differ:
            raise DeviceError(
                f"processes that train together need the same options and files; {'; '.join(differ)}"
            )

    def least(self, number: int) -> int:
        """The least ``number`` of all processes, which wait for each other; numbers are below 2^31."""
        if self.count == 1:
            return number
        return int(np.asarray(self.gathered(np.array(number, np.int32))).min())

    def exchanged(self, numbers: np.ndarray) -> list[np.ndarray]:
        """The int32 ``numbers [n]`` of each process, whose ``n`` may differ; all processes wait for them."""
        lengths = np.asarray(self.gathered(np.array(len(numbers), np.int32)))
        row = np.zeros(_room(int(lengths.max())), np.int32)
        row[: len(numbers)] = numbers
        rows = np.asarray(self.gathered(row))
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    @contextmanager
    def in_turn(self, wanted: Callable[[], bool] = lambda: False) -> Iterator[Callable[[], bool]]:
        """Run the block in the first process, however long that takes, then in the others.

        For files that only the first process writes, or creates if missing. In the block the first process
        must not wait for the others. If it fails there, they raise DeviceError.

        wanted: whether this process wants something, such as an early end of the block. Yields a function
        that returns whether any process does; it learns of the others within two ``SIGN_SECONDS``.
        """
        if self.count == 1:
            yield wanted
        elif self.is_first:
            state, ended, asked = _FAILED, threading.Event(), threading.Event()

            def sign() -> None:
                while self._told(state if ended.wait(SIGN_SECONDS) else _BUSY, wanted(), asked) == _BUSY:
                    pass

            with ThreadPoolExecutor(1) as pool:
                signs = pool.submit(sign)
                try:
                    yield lambda: wanted() or asked.is_set()
                    state = _DONE
                finally:
                    ended.set()
                signs.result()
        else:
            asked = threading.Event()
            while (told := self._told(_BUSY, wanted(), asked)) == _BUSY:
                pass
            if told == _FAILED:
                raise DeviceError(
                    "the first of the processes that train together has failed; its log says why"
                )
            yield asked.is_set

    def _told(self, state: int, wanted: bool, asked: threading.Event) -> int:
        """The ``state`` of the first process; sets ``asked`` if any wants something. All must call this."""
        told = np.asarray(self.gathered(np.array([state, wanted], np.int32)))
        if told[:, 1].any():
            asked.set()
        return int(told[0, 0])

    def gathered(self, row: np.ndarray) -> jax.Array:
        """The ``row`` of each process as one array; all rows have one shape. Does not wait for the others."""
        shape = (self.count, *row.shape)
        rows = jax.make_array_from_callback(shape, self._rows, lambda index: row[None])
        gathered: jax.Array = self._gather(rows)
        return gathered


@contextmanager
def lost_processes() -> Iterator[None]:
    """Raise DeviceError in the block when another process of this run has ended or cannot be reached."""
    try:
        yield
    except (JaxRuntimeError, ValueError) as error:  # ValueError from a jax.jit that has run before
        said = first_line(error)
        if jax.process_count() == 1 or not any(network in said for network in NETWORKS):
            raise
        raise DeviceError(
            "a process that trains together with this one has ended or cannot be reached; start all of them, "
            f"or another number, to go on from the last checkpoint ({said})"
        ) from None


def _room(length: int) -> int:
    """The length of rows to gather: a power of two, because a program is compiled for each length."""
    return max(LEAST_ROOM, 1 << (length - 1).bit_length())


class Agreement:
    """Whether any process wants something; all processes learn it at the same batch.

    wanted: whether this process wants it.
    """

    def __init__(self, processes: Processes, wanted: Callable[[], bool]) -> None:
        self._processes, self.wanted = processes, wanted
        self._asked: deque[jax.Array] = deque()
        self._agreed = False

    def __call__(self) -> bool:
        """The agreed answer; with one process its own."""
        return self.wanted() if self._processes.count == 1 else self._agreed

    def agree(self) -> None:
        """Note that all processes have learned by other means, at the same point, that one wants it."""
        self._agreed = True

    def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until all processes are ``ready``, or until one of them wants it."""
        if self._processes.count == 1:
            return
        while True:
            own = np.array([self.wanted(), ready()])
            wanted, all_ready = np.asarray(self._processes.gathered(own)).T
            self._agreed |= bool(wanted.any())
            if self._agreed or all_ready.all():
                return
            time.sleep(POLL_SECONDS)

    def ask(self) -> None:
        """Send the answer of this process; call it for each batch. It takes effect ``LAG`` batches later."""
        if self._processes.count == 1:
            return
        self._asked.append(self._processes.gathered(np.array(self.wanted())))
        if len(self._asked) > LAG:
            self._agreed |= bool(np.asarray(self._asked.popleft()).any())
