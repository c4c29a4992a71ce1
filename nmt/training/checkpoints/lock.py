"""The lock of a model in training: two processes would write the same files and destroy each other's.

A file beside the model, ``.model.lock``, which its process holds by ``flock``. The system lets go of such a
lock when the process ends, however it ends: the dead hold none, no number of a process has to be judged, and
of two that take over at once one succeeds. A file that is itself the lock, made by ``O_EXCL``, would promise
none of this. What the file says, in JSON, is for people. Between machines the lock counts where the file
system carries it (NFS does, on Linux); where there are no locks, a warning says so.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import socket
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mgraph.errors import MGraphError

logger = logging.getLogger(__name__)

Path = str | os.PathLike[str]

LOCK = ".lock"
"""Ending of the file."""
_MOST_BYTES = 1 << 12
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class ModelLockedError(MGraphError, RuntimeError):
    """Another training writes the files of this model; the message says which process, where, since when."""


@contextmanager
def training_lock(model: Path) -> Iterator[None]:
    """Keep other trainings from the model ``model`` while the block runs.

    Models of one folder have a lock each, by their names without the ending: ``model.npz`` and ``model.bin``
    share ``model.iterN.npz``. Symbolic links are followed: what they lead to is what is locked.

    What a dead process left is taken over, and the log says so. Children of this process neither hold the
    lock nor let go of it. ``ModelLockedError`` if it is held, ``OSError`` if the file cannot be made.
    """
    lock = _Lock(os.fspath(model))
    try:
        yield
    finally:
        lock.release()


def lock_path(model: Path) -> str:
    """The file by which the training of ``model`` is locked."""
    folder, name = os.path.split(os.path.realpath(model))
    return os.path.join(folder, f".{os.path.splitext(name)[0]}{LOCK}")


class _Lock:
    """A lock that is held until ``release``."""

    def __init__(self, model: str) -> None:
        self.path = lock_path(model)
        self._file: int | None = self._acquired(model)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_Leaving(self))

    def release(self) -> None:
        """Remove the file and let go of it; nothing happens in a child of the process that took the lock."""
        if self._file is None:
            return
        if _is_at(self._file, self.path):
            os.unlink(self.path)
        self.leave()

    def leave(self) -> None:
        """Close the file. A child that does so changes nothing for its parent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _acquired(self, model: str) -> int:
        """The open file, locked, that says whose it is."""
        while True:
            file = _opened(self.path)
            try:
                locked = _lock(file, self.path, model)
                # Whoever lets go removes the file first: the one that was locked may be no more.
                if _is_at(file, self.path):
                    left = _content(file)
                    if not locked and _is_alive(_said(left)):
                        raise _refusal(left, self.path, model)
                    if not left:
                        _say(file, model)
                        return file
                    _announce(left, model)
                    os.unlink(self.path)
            except BaseException:
                os.close(file)
                raise
            os.close(file)


class _Leaving:
    """What a child does with a lock of its parent; the lock itself may be gone by then."""

    def __init__(self, lock: _Lock) -> None:
        self._lock = weakref.ref(lock)

    def __call__(self) -> None:
        lock = self._lock()
        if lock is not None:
            lock.leave()


def _opened(path: str) -> int:
    """The file to lock, made if missing. NFS locks only what is open for writing; of somebody else's, which
    may not be written, it is enough elsewhere that it can be read."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        if not os.path.exists(path):
            raise
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def _lock(file: int, path: str, model: str) -> bool:
    """Lock an open file; False, and a warning, where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            raise _refusal(_content(file), path, model) from None
        if error.errno not in _NO_LOCKS:
            raise OSError(error.errno, error.strerror, path) from None
        logger.warning(
            "[training] %s: this file system has no locks (%s); see to it that no other machine trains %s",
            path,
            error.strerror,
            model,
        )
        return False
    return True


def _refusal(content: bytes, path: str, model: str) -> ModelLockedError:
    said = _said(content)
    holder = _process(said) if said else "another process"
    what = os.path.basename(str(said["model"]) if said else model)
    what = model if what == os.path.basename(model) else f"{model}: {what}"
    return ModelLockedError(f"{what} is being trained by {holder} (lock: {path})")


def _is_alive(said: dict[str, Any]) -> bool:
    """Whether another process of this machine is the one that a lock names: all that can be known of a lock
    that the system does not keep."""
    process = said.get("process")
    if said.get("host") != socket.gethostname() or not isinstance(process, int) or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _is_at(file: int, path: str) -> bool:
    """Whether an open file is the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _content(file: int) -> bytes:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return b""
    return os.pread(file, _MOST_BYTES, 0)


def _say(file: int, model: str) -> None:
    """Write who holds the lock."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    said = {"model": os.path.abspath(model), "process": os.getpid(), "host": socket.gethostname()}
    os.write(file, json.dumps({**said, "since": since}).encode() + b"\n")


def _said(content: bytes) -> dict[str, Any]:
    """What a lock says; empty for what cannot be read."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    known = isinstance(said, dict) and all(said.get(key) for key in ("model", "process", "host", "since"))
    return said if known else {}


def _process(said: dict[str, Any]) -> str:
    return f"process {said['process']} on host {said['host']}, since {said['since']}"


def _announce(content: bytes, model: str) -> None:
    """Log whose lock is taken over."""
    said = _said(content)
    if not said:
        logger.warning("[training] The lock of %s cannot be read and nobody holds it: taking it over", model)
    elif said["host"] == socket.gethostname():
        logger.info("[training] Taking over the lock of %s, which has ended", _process(said))
    else:
        logger.warning(
            "[training] Taking over the lock of %s, which does not hold it any more; if it trains %s still, "
            "this file system does not carry locks between machines: stop one of the two",
            _process(said),
            model,
        )
