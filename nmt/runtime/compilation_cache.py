"""The compilation cache: compiled programs in a folder, so that the next process need not compile them.

JAX keeps them there, under keys that are made of the whole program, the versions of JAX and XLA and the
options of the compiler. Machines with one home directory may have different processors, so there is a folder
for each kind. Whoever has given JAX a folder of his own (``JAX_COMPILATION_CACHE_DIR``) keeps it.

What lies there is run as it is. So folders are made for the user alone, and one that somebody else could have
put a program into is not used: the job goes on and compiles, which costs time and nothing else.
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

logger = logging.getLogger(__name__)

VARIABLE = "MGRAPH_COMPILATION_CACHE"
"""The environment variable that stands for the option where that is not given."""
NONE = "none"
MOST_BYTES = 2 << 30
"""How large the folder may be when a process begins; more is deleted, what was unused longest first."""
FOLDER = "jax_compilation_cache_dir"
SHORTEST = "jax_persistent_cache_min_compile_time_secs"
PROGRAM, ACCESS = "-cache", "-atime"
"""How the names of JAX's files end: of a program, and of a file that says when it was used last."""
_NEVER = 1e9
"""Seconds of compiling from which on a program is worth keeping, where nothing can be written."""


def use(folder: str = "") -> None:
    """Let this process take compiled programs from a folder, and put into it what it compiles.

    folder: which one, or ``none``; empty for what ``MGRAPH_COMPILATION_CACHE`` says, or else
    ``$XDG_CACHE_HOME/mgraph/programs``, by default ``~/.cache/mgraph/programs``.

    Changes nothing if JAX has a folder already, its own or that of the first call. One that cannot be made,
    or that others than the user and root can write to, is passed over with a warning (``make_private``); one
    that cannot be written is only read.
    """
    present = getattr(jax.config, FOLDER)
    if present:
        named = Path(os.path.expanduser(folder))
        if folder and folder.lower() != NONE and not Path(present).is_relative_to(named):
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
    except (OSError, RuntimeError) as error:  # the latter where there is no home
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
    """Where compiled programs are kept if nobody says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache")) / "mgraph" / "programs"


def processor() -> str:
    """A name for processors that understand the same instructions."""
    instructions = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        with cpuinfo.open() as lines:
            instructions = next((line for line in lines if line.lower().startswith(("flags", "feat"))), "")
    return f"{platform.machine()}-{hashlib.sha256(instructions.encode()).hexdigest()[:12]}"


def make_private(path: Path) -> None:
    """Make the folder ``path``, absolute and without links, and what is missing above it, for the user alone.

    Raises OSError if it cannot be made, or if somebody else, root excepted, could put something there: into
    it, or another folder in its place. Those above it may be sticky, as ``/tmp`` is, where others can rename
    only what is theirs. OpenSSH's ``StrictModes`` asks as much of the folders of keys.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(0o700, exist_ok=True)
        if why := _not_private(folder, within=folder == path):
            raise OSError(why)


def _not_private(folder: Path, within: bool) -> str:
    """Why others can put something into a folder (``within``), or in place of what is ours there, and what to
    do about it; empty if they cannot."""
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
    """Whether the group of a folder is its owner's private one, which many systems give every user."""
    try:
        import grp
        import pwd

        owner, group = pwd.getpwuid(state.st_uid), grp.getgrgid(state.st_gid)
    except (ImportError, KeyError):
        return False
    alone = not set(group.gr_mem) - {owner.pw_name}
    return owner.pw_gid == state.st_gid and owner.pw_name == group.gr_name and alone


def prune(folder: Path, most: int) -> None:
    """Delete programs of a cache, those first that were read or written longest ago, until at most so many
    bytes are left. Nothing else that is in the folder is touched, nor what cannot be deleted. Other processes
    may use it at the same time."""
    found = []
    for path in folder.glob(f"{platform.machine()}-*/*{PROGRAM}"):
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
