"""How many processor cores a process may use, also in a container.

Docker's ``--cpus`` and Kubernetes' limits leave a process all cores, but give its control group only a share
of their time. More threads than that wait for each other most of the time.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def cores() -> int:
    """How many cores this process may use: those it may run on, or fewer if its control groups allow less
    processor time (rounded up to whole cores)."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    limit = time_limit()
    return allowed if limit >= allowed else math.ceil(limit)


def time_limit(root: Path = Path("/")) -> float:
    """The processor time that Linux's control groups allow this process, in cores; infinite without a limit.

    The smallest limit of its group and all enclosing groups, as far as a container sees them. Source: the
    kernel's ``cgroup-v2.rst`` (``cpu.max``) and ``sched-bwc.rst`` (``cpu.cfs_quota_us``).
    """
    return min((_limit(folder) for folder in _groups(root)), default=math.inf)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of the groups that may limit this process, of both versions of control groups."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tops = [mounted, mounted / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [mounted / controllers, mounted / "cpu"]
        else:
            continue
        group = Path(path.lstrip("/"))
        for top in tops:
            yield from (top / name for name in (group, *group.parents))


def _limit(folder: Path) -> float:
    """The time that one group allows: its quota in each period."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    try:
        limit = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max", or no such group
        return math.inf
    return limit if limit > 0 else math.inf  # -1 is no limit


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
