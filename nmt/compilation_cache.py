"""The compilation cache: compiled programs in a folder, so that the next process need not compile them.

JAX keeps them there, under keys that are made of the whole program, the versions of JAX and XLA and the
options of the compiler. Machines with one home directory may have different processors, so there is a folder
for each kind. Whoever has given JAX a folder of his own (``JAX_COMPILATION_CACHE_DIR``) keeps it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
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

    Changes nothing if JAX has a folder already, its own or that of the first call. One that cannot be made is
    passed over with a warning; one that cannot be written is only read.
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
        whole = Path(folder).expanduser()
        path = whole / processor()
        path.mkdir(parents=True, exist_ok=True)
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
