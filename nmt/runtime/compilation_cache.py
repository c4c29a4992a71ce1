"""The compilation cache: a folder of compiled programs for later processes.

JAX stores them under keys of the whole program, the versions of JAX and XLA, and the compiler's options; the
engine adds traced programs (``mgraph.running.stored``). Each kind of processor has its own folder, because
machines may share a home directory. A folder set with ``JAX_COMPILATION_CACHE_DIR`` takes precedence.

Cached programs are executed unchecked, so folders are private to the user. A folder that others could write
to is not used: the job then only takes longer, because it compiles.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import stat
from contextlib import suppress
from pathlib import Path

import jax

from mgraph.running import stored

logger = logging.getLogger(__name__)

VARIABLE = "MGRAPH_COMPILATION_CACHE"
"""The environment variable that replaces a missing option."""
NONE = "none"
MOST_BYTES = 2 << 30
"""The largest folder at the start of a process; the least recently used programs beyond it are deleted."""
FOLDER = "jax_compilation_cache_dir"
SHORTEST = "jax_persistent_cache_min_compile_time_secs"
PROGRAM, ACCESS = "-cache", "-atime"
"""The endings of JAX's files: a program, and the time of its last use."""
_NEVER = 1e9
"""The minimum compile time, in seconds, of a program to store, if the folder is read-only."""


def use(folder: str = "") -> None:
    """Read and store this process's compiled programs in a folder.

    folder: its path, or ``none``; empty for that of ``MGRAPH_COMPILATION_CACHE``, or else
    ``$XDG_CACHE_HOME/mgraph/programs``, by default ``~/.cache/mgraph/programs``.

    If JAX already has a folder, its own or that of an earlier call, that one stays; a warning says so if
    another is asked for. A folder that cannot be made, or that others than the user and root can write to, is
    ignored with a warning (``make_private``); a read-only one is only read.
    """
    present = getattr(jax.config, FOLDER)
    if present:
        named, real = os.path.realpath(os.path.expanduser(folder)), os.path.realpath(present)
        if folder and folder.lower() != NONE and not Path(real).is_relative_to(named):
            logger.warning("[device] compilation cache: %s, which JAX has already; not %s", present, folder)
        return
    folder = folder or os.environ.get(VARIABLE, "") or str(default_folder())
    if folder.lower() == NONE:
        return
    try:
        whole = Path(folder).expanduser().resolve()
        make_private(whole)
        path = (whole / processor()).resolve()
        make_private(path)
    except (OSError, RuntimeError) as error:  # RuntimeError if there is no home
        reason = getattr(error, "strerror", None) or error
        logger.warning("[device] no compilation cache: %s: %s", folder, reason)
        return
    prune(whole, MOST_BYTES)
    jax.config.update(FOLDER, str(path))
    if not os.access(path, os.W_OK | os.X_OK):
        jax.config.update(SHORTEST, _NEVER)
    elif SHORTEST.upper() not in os.environ:
        jax.config.update(SHORTEST, 0.0)


def default_folder() -> Path:
    """The default folder of compiled programs."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache")) / "mgraph" / "programs"


def processor() -> str:
    """A name shared by processors with the same instruction set."""
    instructions = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        with cpuinfo.open() as lines:
            instructions = next((line for line in lines if line.lower().startswith(("flags", "feat"))), "")
    return f"{platform.machine()}-{hashlib.sha256(instructions.encode()).hexdigest()[:12]}"


def make_private(path: Path) -> None:
    """Create the folder ``path``, absolute and without links, and missing parents, private to the user.

    Raises OSError if it cannot be made, or if anyone but root could write to it or replace it. Parents may be
    sticky, like ``/tmp``, where others can rename only their own files. OpenSSH's ``StrictModes`` makes the
    same demands.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(0o700, exist_ok=True)
        if why := _not_private(folder, within=folder == path):
            raise OSError(why)


def _not_private(folder: Path, within: bool) -> str:
    """Why others can write into a folder (``within``) or replace our folder in it, and the remedy; empty if
    they cannot."""
    if not hasattr(os, "geteuid"):
        return ""
    state, user = folder.stat(), os.geteuid()
    if state.st_uid not in (0, user):
        return (
            f"{folder} belongs to user {state.st_uid}, who could put programs there for you, user {user}, to "
            "run; choose a folder of your own with --compilation-cache"
        )
    writable = state.st_mode & stat.S_IWOTH or (state.st_mode & stat.S_IWGRP and not _is_of_one(state))
    if not writable or (state.st_mode & stat.S_ISVTX and not within):
        return ""
    cure = f"empty it and `chmod 700 {folder}`" if within else f"`chmod go-w {folder}` if it is yours alone"
    return (
        f"others can write to {folder}, so they could put programs there for you to run; {cure}, or choose "
        "another with --compilation-cache"
    )


def _is_of_one(state: os.stat_result) -> bool:
    """Whether a folder's group is its owner's private group, which many systems give every user."""
    try:
        import grp
        import pwd

        owner, group = pwd.getpwuid(state.st_uid), grp.getgrgid(state.st_gid)
    except (ImportError, KeyError):
        return False
    alone = not set(group.gr_mem) - {owner.pw_name}
    return owner.pw_gid == state.st_gid and owner.pw_name == group.gr_name and alone


def prune(folder: Path, most: int) -> None:
    """Delete the least recently used programs of a cache, compiled and traced ones, until at most ``most``
    bytes are left. Other files, and programs that cannot be deleted, stay. Other processes may use the cache
    at the same time."""
    found = []
    own = f"{platform.machine()}-*"
    traced = folder.glob(f"{own}/{stored.FOLDER}/*{stored.ENDING}")
    for path in (*folder.glob(f"{own}/*{PROGRAM}"), *traced):
        with suppress(OSError):
            state = path.stat()
            found.append((max(state.st_atime, state.st_mtime), path, state.st_size))
    excess = sum(size for _, _, size in found) - most
    for _, path, size in sorted(found):
        if excess <= 0:
            break
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.with_name(path.name.removesuffix(PROGRAM) + ACCESS).unlink(missing_ok=True)
        excess -= size
