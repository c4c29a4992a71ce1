"""Locks of open files between processes.

The system releases a lock when its process ends, no matter how, so there are no stale locks to detect by
process number. Locks work between machines if the file system supports it (NFS on Linux does).
"""

from __future__ import annotations

import errno
import fcntl
import os

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


def lock_file(file: int) -> str:
    """Lock an open file until it is closed; NFS locks only files open for writing.

    Returns an empty text, or the system's reason if the file system has no locks. BlockingIOError if another
    process holds the lock; OSError if locking fails for another reason.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK)) from None
        if error.errno not in _NO_LOCKS:
            raise
        return error.strerror or str(error)
    return ""
