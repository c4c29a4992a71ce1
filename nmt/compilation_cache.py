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
from pathlib import Path

import jax

logger = logging.getLogger(__name__)

VARIABLE = "MGRAPH_COMPILATION_CACHE"
"""The environment variable that stands for the option where that is not given."""
NONE = "none"
MOST_BYTES = 2 << 30
"""How large the folder may be when a process begins; more is deleted, what was unused longest first."""
_NEVER = 1e9
"""Seconds of compiling from which on a program is worth keeping, where nothing can be written."""


def use(folder: str = "") -> None:
    """Let this process take compiled programs from a folder, and put into it what it compiles.

    folder: which one, or ``none``; empty for what ``MGRAPH_COMPILATION_CACHE`` says, or else
    ``$XDG_CACHE_HOME/mgraph/programs``, by default ``~/.cache/mgraph/programs``.

    Changes nothing if JAX has a folder already: only the first call counts. One that cannot be made is
    passed over with a warning; one that cannot be written is only read.
    """
    if jax.config.values["jax_compilation_cache_dir"]:
        return
    folder = folder or os.environ.get(VARIABLE, "") or str(default_folder())
    if folder == NONE:
        return
    whole = Path(folder).expanduser()
    path = whole / processor()
    try:
        path.mkdir(parents=True, exist_ok=True)
        prune(whole, MOST_BYTES)
    except OSError as error:
        logger.warning("[device] no compilation cache: %s: %s", path, error.strerror)
        return
    writable = os.access(path, os.W_OK | os.X_OK)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0 if writable else _NEVER)


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
    """Delete files of a cache, those first that were read or written longest ago, until at most so many bytes
    are left. Other processes may use it at the same time."""
    found = []
    for path in folder.glob("*/*"):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue
        found.append((max(state.st_atime, state.st_mtime), path, state.st_size))
    excess = sum(size for _, _, size in found) - most
    for _, path, size in sorted(found):
        if excess <= 0:
            break
        path.unlink(missing_ok=True)
        excess -= size
