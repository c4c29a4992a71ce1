"""``Profile``: the seconds that each kernel of a compiled step takes, as XLA's profiler measures them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from ..errors import DeviceError, GraphError
from ..places import here
from ..tables import table
from .fusion import FusionReport, Kernel


@dataclass(frozen=True)
class Profile:
    """The time of a run, kernel by kernel; prints as a table of nodes computed together, slowest first.

    report: the kernels and the nodes that they compute.
    seconds: those of each kernel by name, for one run, as the mean over all runs.
    wall: the seconds of one run from start to end, without the profiler.
    runs: number of runs.

    Kernels that run in parallel each have their full time, so their sum may be more than ``wall``. A kernel
    inside a loop has the seconds of all its steps.
    """

    report: FusionReport
    seconds: dict[str, float]
    wall: float
    runs: int

    @property
    def nodes(self) -> dict[int, float]:
        """For each node the seconds of all kernels that compute it; they may compute other nodes, too."""
        found: dict[int, float] = {}
        for kernel in self.report.kernels:
            for node in kernel.nodes:
                found[node] = found.get(node, 0.0) + self.seconds.get(kernel.name, 0.0)
        return found

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels, the slowest first."""
        return tuple(sorted(self.report.kernels, key=lambda kernel: -self.seconds.get(kernel.name, 0.0)))

    @property
    def clusters(self) -> dict[int, str]:
        """For each node the slowest kernel that computes it."""
        found: dict[int, str] = {}
        for kernel in self.kernels:
            for node in kernel.nodes:
                found.setdefault(node, kernel.name)
        return found

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        groups: dict[str, list[float]] = {}
        for kernel in self.kernels:
            if kernel.name in self.seconds:
                groups.setdefault(self.report.contents(kernel), []).append(self.seconds[kernel.name])
        rows = [
            (f"{1e6 * sum(found):.1f}", f"{100 * sum(found) / total:.0f} %", str(len(found)), nodes)
            for nodes, found in sorted(groups.items(), key=lambda item: -sum(item[1]))
        ]
        wall, inside = f"{1e6 * self.wall:.1f} microseconds a run", f"{1e6 * total:.1f} in kernels"
        head = f"{wall}, {inside}; mean of {self.runs} runs"
        return "\n".join([head, *table([("microseconds", "share", "kernels", "nodes"), *rows], ">>><")])

    __repr__ = __str__  # for prompts and notebooks


def profiled(run: Callable[[], Any], report: FusionReport, runs: int) -> Profile:
    """The profile of ``run``, which starts the program that the report is about and returns its results.

    ``GraphError`` if something else is profiled already, ``DeviceError`` if the profiler reports no kernels.
    """
    jax.block_until_ready(run())
    start = time.perf_counter()
    for _ in range(runs):
        jax.block_until_ready(run())
    wall = (time.perf_counter() - start) / runs
    with tempfile.TemporaryDirectory() as folder:
        try:
            jax.profiler.start_trace(folder)
        except RuntimeError as error:
            raise GraphError(f"profile: {error}{here()}") from None
        try:
            for _ in range(runs):
                jax.block_until_ready(run())
        finally:
            jax.profiler.stop_trace()
        names = {kernel.name for kernel in report.kernels}
        spent: dict[str, float] = {}
        for event in kernel_events(Path(folder), names):
            spent[event.name] = spent.get(event.name, 0.0) + event.duration_ns * 1e-9
    if names and not spent:
        raise DeviceError("profile: the profiler of this platform reports no kernels")
    return Profile(report, {name: seconds / runs for name, seconds in spent.items()}, wall, runs)


def kernel_events(folder: Path, names: Collection[str]) -> Iterator[jax.profiler.ProfileEvent]:
    """The executions of the kernels ``names`` in a trace."""
    for path in folder.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for line in plane.lines:
                yield from (event for event in line.events if event.name in names)
