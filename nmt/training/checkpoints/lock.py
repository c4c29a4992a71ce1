"""The lock of a model in training: without it two processes would overwrite each other's files.

It is a system lock on a file next to the model, ``.model.lock``. It ends with its process, and if two
processes try to take it over at the same time, only one succeeds; a lock file created with ``O_EXCL``
guarantees neither. The JSON in the file is for people. If the file system has no locks, a warning is logged,
and the JSON also serves to check whether the holder is alive.
"""

from __future__ import annotations

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
from mgraph.files.parameter_files import Path
from nmt.runtime.file_locks import lock_file

logger = logging.getLogger(__name__)

LOCK = ".lock"
"""The file name extension."""
_MOST_BYTES = 1 << 12


class ModelLockedError(MGraphError, RuntimeError):
    """Another process is training this model; the message says which one, where, and since when."""


@contextmanager
def training_lock(model: Path) -> Iterator[None]:
    """Lock ``model`` against other trainings while the block runs.

    ``model.npz`` and ``model.bin`` have one lock, because both write ``model.iterN.npz``. Symbolic links are
    followed. The lock of a dead process is taken over and logged. Child processes neither hold nor release
    the lock. ``ModelLockedError`` if it is held, ``OSError`` if the file cannot be created.
    """
    lock = _Lock(os.fspath(model))
    try:
        yield
    finally:
        lock.release()


def lock_path(model: Path) -> str:
    """The lock file of ``model``."""
    folder, name = os.path.split(os.path.realpath(model))
    return os.path.join(folder, f".{os.path.splitext(name)[0]}{LOCK}")


class _Lock:
    def __init__(self, model: str) -> None:
        self.path = lock_path(model)
        self._file: int | None = self._acquired(model)
        own = weakref.ref(self)  # a child may be forked after the lock is gone

        def leave() -> None:
            if lock := own():
                lock.leave()

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=leave)

    def release(self) -> None:
        """Remove and close the file; in a child process this does nothing."""
        if self._file is None:
            return
        if _is_at(self._file, self.path):
            os.unlink(self.path)
        self.leave()

    def leave(self) -> None:
        """Close the file; in a child process this does not affect the parent's lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _acquired(self, model: str) -> int:
        """Open and lock the file, and write the owner into it."""
        while True:
            file = _opened(self.path)
            try:
                locked = _lock(file, self.path, model)
                # The previous holder removes the file before it unlocks, so ours may be gone.
                if _is_at(file, self.path):
                    left = _content(file)
                    if not locked and _is_alive(_said(left)):
                        raise _refusal(left, self.path, model)
                    if not left:
                        self._say(file, model)
                        return file
                    _announce(left, model)
                    os.unlink(self.path)
            except BaseException:
                os.close(file)
                raise
            os.close(file)

    def _say(self, file: int, model: str) -> None:
        """Write this process into the file as the holder; remove the file if that fails."""
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        said = {"model": os.path.abspath(model), "process": os.getpid(), "host": socket.gethostname()}
        try:
            os.write(file, json.dumps({**said, "since": since}).encode() + b"\n")
        except OSError as error:
            os.unlink(self.path)
            raise OSError(error.errno, error.strerror, self.path) from None


def _opened(path: str) -> int:
    """The file to lock, created if missing. NFS locks only files open for writing; elsewhere another user's
    file may be opened for reading."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        if not os.path.exists(path):
            raise
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def _lock(file: int, path: str, model: str) -> bool:
    """Lock an open file; False, with a warning, if the file system has no locks."""
    try:
        missing = lock_file(file)
    except BlockingIOError:
        raise _refusal(_content(file), path, model) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    if missing:
        logger.warning(
            "[training] %s: this file system has no locks (%s); make sure that no other machine trains %s",
            path,
            missing,
            model,
        )
    return not missing


def _refusal(content: bytes, path: str, model: str) -> ModelLockedError:
    said = _said(content)
    holder = _process(said) if said else "another process"
    what = os.path.basename(str(said["model"]) if said else model)
    what = model if what == os.path.basename(model) else f"{model}: {what}"
    return ModelLockedError(f"{what} is being trained by {holder} (lock: {path})")


def _is_alive(said: dict[str, Any]) -> bool:
    """Whether the named process is alive on this machine and not this one: the best check without locks."""
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


def _said(content: bytes) -> dict[str, Any]:
    """The holder of a lock; empty if the content is invalid."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    known = isinstance(said, dict) and all(said.get(key) for key in ("model", "process", "host", "since"))
    return said if known else {}


def _process(said: dict[str, Any]) -> str:
    return f"process {said['process']} on host {said['host']}, since {said['since']}"


def _announce(content: bytes, model: str) -> None:
    """Log the previous holder of the lock."""
    said = _said(content)
    if not said:
        logger.warning("[training] The lock of %s cannot be read and nobody holds it: taking it over", model)
    elif said["host"] == socket.gethostname():
        logger.info("[training] Taking over the lock of %s, which has ended", _process(said))
    else:
        logger.warning(
            "[training] Taking over the lock of %s, which no longer holds it; if it still trains %s, "
            "this file system does not carry locks between machines: stop one of the two",
            _process(said),
            model,
        )
