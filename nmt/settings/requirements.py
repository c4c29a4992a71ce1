"""Checks of the files that options name, before a command starts."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence

from nmt.settings.option import OptionError
from nmt.text.lines import STANDARD_INPUT, STANDARD_OUTPUT


def require_files(
    option: str, models: Sequence[str], vocabs: Sequence[str], of: str = "the sources and the target"
) -> None:
    """OptionError unless ``option`` names a model, and no folder, and there are vocabularies; the model says
    how many.

    of: what the vocabularies are for, in the error message.
    """
    if not any(models):
        raise OptionError(f"{option}: at least one model is needed, got 0")
    if folder := next(filter(os.path.isdir, models), ""):
        raise OptionError(
            f"{option}: {folder} is a directory: expected model files and --vocabs, or in decode, score, "
            "server and distill one directory alone (in Python from_dir)"
        )
    if not vocabs:
        absent = [f"; {path} does not exist ({option})" for path in models if not os.path.exists(path)]
        raise OptionError(f"--vocabs: the vocabularies of {of} are needed, got none{''.join(absent[:1])}")


def require_readable(option: str, paths: Iterable[str]) -> None:
    """OSError, naming file and option (``--input``), unless all files are readable. Empty names and standard
    input pass. Opens nothing, because a pipe cannot be opened twice."""
    for path in paths:
        if not path or path in STANDARD_INPUT:
            continue
        if not os.path.exists(path):
            raise _error(errno.ENOENT, option, path)
        if os.path.isdir(path):
            raise _error(errno.EISDIR, option, path)
        _require_access(os.R_OK, path, option, path)


def require_writable(option: str, path: str) -> None:
    """OSError, naming file and option, unless the file is writable or can be created in an existing folder.
    An empty name and standard output pass."""
    if not path or path in STANDARD_OUTPUT:
        return
    if os.path.isdir(path):
        raise _error(errno.EISDIR, option, path)
    if os.path.exists(path):
        _require_access(os.W_OK, path, option, path)
        return
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise _error(errno.ENOENT, option, path, f"there is no folder {folder}")
    _require_access(os.W_OK | os.X_OK, folder, option, path)


def require_folder(option: str, path: str) -> None:
    """OSError, naming folder and option, unless it is writable or can be created with its parents."""
    if not path:
        return
    present = os.path.abspath(path)
    while not os.path.exists(present):
        present = os.path.dirname(present)
    if not os.path.isdir(present):
        raise _error(errno.ENOTDIR, option, path)
    _require_access(os.W_OK | os.X_OK, present, option, path)


def require_tempdir(folder: str) -> None:
    """OptionError unless the folder for temporary files exists."""
    if not os.path.isdir(folder):
        raise OptionError(f"--tempdir {folder}: there is no such directory")


def _require_access(mode: int, place: str, option: str, path: str) -> None:
    """OSError for ``path`` unless ``place``, the path or the folder it would be in, allows this access."""
    if not os.access(place, mode):
        fixed = mode & os.W_OK and os.statvfs(place).f_flag & os.ST_RDONLY
        raise _error(errno.EROFS if fixed else errno.EACCES, option, path)


def _error(number: int, option: str, path: str, reason: str = "") -> OSError:
    """``path: No such file or directory (--option)``, in the class of the system's own error."""
    said = f"{os.strerror(number)}; {reason}" if reason else os.strerror(number)
    return OSError(number, f"{said} ({option})", path)
