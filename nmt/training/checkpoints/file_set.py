"""Atomic replacement of several files: after a kill at any moment all are old or all are new."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from mgraph.errors import ModelFileError
from mgraph.files.items import keep_mode, refuse_folder, replacing, sync_folder
from mgraph.files.parameter_files import Path
from mgraph.files.paths import is_special

GROWING, WRITTEN = ".growing", ".written"
"""Name extensions of a set's folder: while it is being written, and once it is complete."""


@contextmanager
def replacing_set(path: Path) -> Iterator[str]:
    """Yield a new folder; its files replace files of the same names next to ``path`` unless the block raises.

    The folder is next to ``path`` and named after it. Once its files are on disk it is renamed, and the set
    is complete: ``settle`` can finish moving its files. So if the process or the machine stops at any moment,
    readers that call ``settle`` first find one complete set; other readers find complete files, perhaps from
    both sets. Symbolic links and permissions are kept.
    ``OSError`` names ``path``, or a folder that stands where a file belongs; ``ModelFileError`` as in
    ``settle``.
    """
    settle(path)
    folder, name = os.path.split(os.path.abspath(path))
    growing, written = (os.path.join(folder, f".{name}{ending}") for ending in (GROWING, WRITTEN))
    try:
        os.mkdir(growing, 0o700)
        yield growing
        sync_folder(growing)
        _check_targets(growing)
        os.rename(growing, written)
    except BaseException as error:
        shutil.rmtree(growing, ignore_errors=True)
        # The user would not find a file in the folder that has just been removed.
        if isinstance(error, OSError) and str(error.filename or growing).startswith(growing):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    sync_folder(folder)
    _finish(written)


def settle(path: Path) -> None:
    """Finish complete sets of files that a killed process left next to ``path``, and remove incomplete ones.

    These are the sets of ``path`` and of files whose names begin with its name and a dot. Each must be a
    folder that a training of this user wrote, not a symbolic link, a folder of another user, or one that
    contains anything but files; otherwise ``ModelFileError`` is raised before anything is moved or removed.
    Without this check anyone who can write next to the model could inject files or delete other users' files.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return
    left = [
        os.path.join(folder, entry)
        for entry in sorted(os.listdir(folder))
        if entry.startswith(f".{name}.") and entry.endswith((GROWING, WRITTEN))
    ]
    for place in left:
        if foreign := _foreign(place):
            raise ModelFileError(
                f"{place}: expected the folder of a checkpoint that a training of yours has left, got "
                f"{foreign}; nothing was moved or removed: see what it is, take it away and start again"
            )
    for place in left:
        if place.endswith(WRITTEN):
            _check_targets(place)
            _finish(place)
        else:
            shutil.rmtree(place)


def _foreign(place: str) -> str:
    """What ``place`` is if a process of this user did not leave it; else empty."""
    state = os.lstat(place)
    if stat.S_ISLNK(state.st_mode):
        return f"a symbolic link to {os.readlink(place)}"
    if not stat.S_ISDIR(state.st_mode):
        return "no folder"
    if hasattr(os, "geteuid") and state.st_uid != os.geteuid():
        return f"one of user {state.st_uid}, and you are user {os.geteuid()}"
    others = [entry.name for entry in os.scandir(place) if not entry.is_file(follow_symlinks=False)]
    return f"one with something that is no file in it, {min(others)}" if others else ""


def _check_targets(place: str) -> None:
    """``IsADirectoryError`` if a folder stands where a file of the set in ``place`` belongs."""
    for name in sorted(os.listdir(place)):
        refuse_folder(os.path.join(os.path.dirname(place), name))


def _finish(written: str) -> None:
    """Move the files of a complete set to their places."""
    folder = os.path.dirname(written)
    for moved in sorted(os.listdir(written)):
        _move(os.path.join(written, moved), os.path.join(folder, moved))
    sync_folder(folder)
    os.rmdir(written)


def _move(source: str, target: str) -> None:
    target = os.path.realpath(target)
    try:
        if not is_special(target):
            keep_mode(target, source)
            os.replace(source, target)
            return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise OSError(error.errno, error.strerror, target) from None
    with open(source, "rb") as old, replacing(target) as new:
        shutil.copyfileobj(old, new)
    os.unlink(source)
