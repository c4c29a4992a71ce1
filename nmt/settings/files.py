"""The files that options name: they are asked for before anything is loaded, made or computed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from nmt.settings.option import OptionError
from nmt.text.lines import STANDARD_INPUT, STANDARD_OUTPUT


def require_files(option: str, models: Sequence[str], vocabs: Sequence[str]) -> None:
    """OptionError unless a model, by the option that names it, and vocabularies are named; how many the model
    itself says."""
    if not any(models):
        raise OptionError(f"{option}: at least one model is needed, got 0")
    if not vocabs:
        raise OptionError("--vocabs: the vocabularies of the sources and the target are needed, got none")


def require_readable(option: str, paths: Iterable[str]) -> None:
    """OSError that names the file and the option (``--input``) unless all of these can be read; empty names
    and standard input can. Nothing is opened: a pipe could not be opened again."""
    for path in paths:
        if not path or path in STANDARD_INPUT:
            continue
        if not os.path.exists(path):
            raise _error(errno.ENOENT, option, path)
        if os.path.isdir(path):
            raise _error(errno.EISDIR, option, path)
        if not os.access(path, os.R_OK):
            raise _error(errno.EACCES, option, path)


def require_writable(option: str, path: str) -> None:
    """OSError that names the file and the option unless it can be written, or made in a folder that there is;
    an empty name and standard output can."""
    if not path or path in STANDARD_OUTPUT:
        return
    if os.path.isdir(path):
        raise _error(errno.EISDIR, option, path)
    if os.path.exists(path):
        if not os.access(path, os.W_OK):
            raise _error(errno.EACCES, option, path)
        return
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise _error(errno.ENOENT, option, path, f"there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _error(errno.EACCES, option, path)


def require_folder(option: str, path: str) -> None:
    """The same for a folder, which is made with those above it where there is none."""
    if not path:
        return
    present = os.path.abspath(path)
    while not os.path.exists(present):
        present = os.path.dirname(present)
    if not os.path.isdir(present):
        raise _error(errno.ENOTDIR, option, path)
    if not os.access(present, os.W_OK | os.X_OK):
        raise _error(errno.EACCES, option, path)


def require_tempdir(folder: str) -> None:
    """OptionError unless there is the folder for temporary files."""
    if not os.path.isdir(folder):
        raise OptionError(f"--tempdir {folder}: there is no such directory")


def _error(number: int, option: str, path: str, reason: str = "") -> OSError:
    """``path: No such file or directory (--option)``, of the class that the system's own error has."""
    said = f"{os.strerror(number)}; {reason}" if reason else os.strerror(number)
    return OSError(number, f"{said} ({option})", path)
