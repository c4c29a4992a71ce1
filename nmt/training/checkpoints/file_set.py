"""Several files that change together: after a kill at any moment all are old or all are new."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

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
    not call it finds whole files. A symbolic link stays one. An ``OSError`` names ``path``.
    """
    settle(path)
    folder, name = os.path.split(os.path.abspath(path))
    growing = os.path.join(folder, f".{name}{GROWING}")
    try:
        os.mkdir(growing)
        yield growing
        sync_folder(growing)
        os.rename(growing, os.path.join(folder, f".{name}{WRITTEN}"))
    except BaseException as error:
        shutil.rmtree(growing, ignore_errors=True)
        if isinstance(error, OSError) and error.filename in (None, growing):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    sync_folder(folder)
    settle(path)


def settle(path: Path) -> None:
    """Finish, or forget, the sets of files that a process has left unfinished beside ``path``: its own and
    those of files whose names begin with its name and a dot."""
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return
    left = [entry for entry in sorted(os.listdir(folder)) if entry.startswith(f".{name}.")]
    for written in (os.path.join(folder, entry) for entry in left if entry.endswith(WRITTEN)):
        for moved in sorted(os.listdir(written)):
            _move(os.path.join(written, moved), os.path.join(folder, moved))
        sync_folder(folder)
        os.rmdir(written)
    for growing in (os.path.join(folder, entry) for entry in left if entry.endswith(GROWING)):
        shutil.rmtree(growing)


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
