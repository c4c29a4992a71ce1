"""The machine, the versions and the settings of a run: figures depend on them."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax


def print_machine(**settings: Any) -> None:
    """Print what the figures below depend on: processor or GPU, cores, versions, load, and ``settings``."""
    devices = jax.devices()
    print(
        f"machine: {_processor()}, {os.cpu_count()} cores; {len(devices)} x {devices[0].device_kind} for JAX"
    )
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    print(
        f"versions: Python {platform.python_version()}, "
        + ", ".join(f"{name} {_version(name)}" for name in ("jax", "jaxlib", "numpy"))
        + f"; load before the run {load}"
    )
    if sys.dont_write_bytecode:
        print("PYTHONDONTWRITEBYTECODE is set: every process compiles our sources again")
    if settings:
        print(
            "settings: " + ", ".join(f"{name.replace('_', '-')} {value}" for name, value in settings.items())
        )
    print()


def share_gpu() -> None:
    """Let JAX take no more of a GPU's memory than it needs, in this process and those it starts. Call this
    before JAX starts."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _processor() -> str:
    """The name of the processor as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
