"""Forked processes. JAX computes in threads, and a fork copies none of them: a child whose parent has used
JAX would wait for them for ever."""

from __future__ import annotations

import os

from ..device import started
from ..errors import DeviceError


class _Process:
    """What is known of this process, which is another one after a fork."""

    def __init__(self) -> None:
        self.lacks_threads = False
        """Whether JAX was running already when this process was forked."""
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.lacks_threads = started()


_PROCESS = _Process()


def check_process() -> None:
    """``DeviceError`` in a process that was forked from one in which JAX ran."""
    if _PROCESS.lacks_threads:
        raise DeviceError(
            "this process was forked from one in which JAX was running, and JAX's threads do not survive a "
            'fork: use the start method "spawn" or "forkserver" of multiprocessing, or fork before anything '
            "is computed and make the graph, Translator, Scorer or Trainer in the child"
        )
