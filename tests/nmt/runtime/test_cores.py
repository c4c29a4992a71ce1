"""Cores that control groups allow, read from files as on Linux."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

from nmt.runtime import cores as module
from nmt.runtime.cores import cores, time_limit

V1 = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000"}, math.inf),
        ("0::/\n", {}, math.inf),
        ("0::/\n", {"cpu.max": "nonsense"}, math.inf),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2.0),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "25000 50000"}, 0.5),
        ("0::/../other\n", {"cpu.max": "300000 100000"}, 3.0),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, 0.5),
        (V1, {"cpu/docker/abc/cpu.cfs_quota_us": "70000", "cpu/docker/abc/cpu.cfs_period_us": "10000"}, 7.0),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        (V1, {"unified/cpu.max": "100000 100000"}, 1.0),
        (None, {"cpu.max": "100000 100000"}, math.inf),
    ],
)
def test_the_least_limit_of_all_groups_counts(
    groups: str | None, files: dict[str, str], limit: float, tmp_path: Path
) -> None:
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert time_limit(tmp_path) == limit


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux'")
@pytest.mark.parametrize(("limit", "most"), [(0.2, 1), (1.0, 1), (1.5, 2), (math.inf, math.inf)])
def test_cores_are_those_of_the_limit_rounded_up(
    limit: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time_limit", lambda: limit)
    assert cores() == min(len(os.sched_getaffinity(0)), most)
