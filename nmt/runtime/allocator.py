"""The C library's allocator, told to keep what XLA frees: it will ask for as much a moment later.

On the CPU XLA allocates what a program needs anew at every call. The C library of Linux maps such large
pieces into memory and back each time, and the kernel fills every page with zeros at its first use: a fifth of
the time of a training step.
"""

from __future__ import annotations

import ctypes
import platform

# Of glibc's malloc.h.
_ARENA_MAX, _MMAP_MAX, _TRIM_THRESHOLD = -8, -4, -1
_MOST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let freed memory stay with the process, to be used again; whether the platform has a way to.

    One arena for all threads, since only the first can grow without mapping; nothing mapped; nothing given
    back, up to 2 GiB at its end. To be called before threads that allocate are started. The process then may
    hold more memory than it uses at a moment.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _MOST))
    return all(mallopt(name, value) == 1 for name, value in settings)
