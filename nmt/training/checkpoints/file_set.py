"""Several files that change together: after a kill at any moment all are old or all are new."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from mgraph.errors import ModelFileError
from mgraph.files.items import replacing, sync_folder

Path = str | os.PathLike[str]

GROWING, WRITTEN = ".growing", ".written"
"""Endings of the folder of a set that is being written, and of one that is."""


@contextmanager
def replacing_set(path: Path) -> Iterator[str]:
    """A new folder, whose files take the places of those of the same names beside ``path`` when the block
    ends well; else it leaves no trace.

    The folder lies beside ``path`` and is named after it. Once its files are on the disk it is renamed; from
    then on the set counts as written: ``settle`` moves the files that have not been moved yet. So a process,
    or a machine, may stop anywhere, and whoever calls ``settle`` before reading finds one whole set. Who does
    not call it finds whole files. A symbolic link stays one. An ``OSError`` names ``path``, and there is the
    ``ModelFileError`` of ``settle``.
    """
    settle(path)
    folder, name = os.path.split(os.path.abspath(path))
    growing, written = (os.path.join(folder, f".{name}{ending}") for ending in (GROWING, WRITTEN))
    try:
        os.mkdir(growing, 0o700)
        yield growing
        sync_folder(growing)
        os.rename(growing, written)
    except BaseException as error:
        shutil.rmtree(growing, ignore_errors=True)
        if isinstance(error, OSError) and error.filename in (None, growing):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    sync_folder(folder)
    _finish(written)


def settle(path: Path) -> None:
    """Finish, or forget, the sets of files that a process has left unfinished beside ``path``: its own and
    those of files whose names begin with its name and a dot.

    ``ModelFileError``, before anything is moved or removed, if something of such a name is no folder that a
    training of this user has left: a symbolic link, a folder of somebody else's, one with more than files in
    it. Whoever may write beside the model could else give it what to read, or take away what is not theirs.
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
            _finish(place)
        else:
            shutil.rmtree(place)


def _foreign(place: str) -> str:
    """What ``place`` is instead of a folder that this user's process has left; empty if it is one."""
    state = os.lstat(place)
    if stat.S_ISLNK(state.st_mode):
        return f"a symbolic link to {os.readlink(place)}"
    if not stat.S_ISDIR(state.st_mode):
        return "no folder"
    if hasattr(os, "geteuid") and state.st_uid != os.geteuid():
        return f"one of user {state.st_uid}, and you are user {os.geteuid()}"
    others = [entry.name for entry in os.scandir(place) if not entry.is_file(follow_symlinks=False)]
    return f"one with something that is no file in it, {min(others)}" if others else ""


def _finish(written: str) -> None:
    """Move the files of a set that is written to their places."""
    folder = os.path.dirname(written)
    for moved in sorted(os.listdir(written)):
        _move(os.path.join(written, moved), os.path.join(folder, moved))
    sync_folder(folder)
    os.rmdir(written)


def _move(source: str, target: str) -> None:
    target = os.path.realpath(target)
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with open(source, "rb") as old, replacing(target) as new:
            shutil.copyfileobj(old, new)
        os.unlink(source)
