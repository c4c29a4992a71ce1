"""Devices, named as Marian does: a number and ``"cpu"`` or ``"gpu"``."""

from __future__ import annotations

import os

import jax

from .errors import DeviceError

_DEFAULT = "jax_default_device"


def find_device(number: int, kind: str) -> jax.Device:
    """The JAX device ``number`` of ``kind``; if there is none, ``DeviceError``, which lists the devices."""
    if not isinstance(kind, str) or kind not in ("cpu", "gpu"):
        raise DeviceError(f'expected the device type "cpu" or "gpu", got {kind!r}')
    if not isinstance(number, int) or isinstance(number, bool):
        raise DeviceError(f"expected the number of a device, got {number!r}")
    devices = _devices(kind)
    if not 0 <= number < len(devices):
        available = ", ".join(f"{k}{i}" for k in ("cpu", "gpu") for i in range(len(_devices(k))))
        raise DeviceError(f"there is no device {kind}{number} here; available: {available}")
    return devices[number]


def _devices(kind: str) -> list[jax.Device]:
    try:
        return jax.devices(kind)
    except RuntimeError:
        return []


def device_name(device: jax.Device | None) -> str:
    """``cpu0`` or ``gpu1``, as Marian prints it."""
    device = device or jax.devices()[0]
    return f"{'cpu' if device.platform == 'cpu' else 'gpu'}{device.id}"


def platform_of(device: jax.Device | None) -> str:
    """The platform of a device, or of JAX's default one: ``cpu``, ``gpu``, ``tpu``."""
    device = device or getattr(jax.config, _DEFAULT)
    if isinstance(device, str):
        return device
    return str(device.platform) if device else jax.default_backend()


def started() -> bool:
    """Whether JAX has started a backend, which fixes its devices and threads."""
    before = jax.config.values["jax_num_cpu_devices"]
    try:  # JAX refuses to change this option once a backend has started
        jax.config.update("jax_num_cpu_devices", 2 if before == 1 else 1)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", before)
    return False


def memory_of(device: jax.Device | None) -> int:
    """The memory of a device in bytes; the machine's memory if the device, such as a CPU, reports none.

    device: a device of this process, its first if ``None``; JAX cannot query other processes' devices.
    """
    stats = (device or jax.local_devices()[0]).memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Process:
    """What is known about this process; updated in the child after a fork.

    JAX computes in threads, and a fork copies no threads: a child whose parent has used JAX would wait for
    them forever.
    """

    def __init__(self) -> None:
        self.lacks_threads = False
        """Whether JAX was already running when this process was forked."""
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.lacks_threads = started()


_PROCESS = _Process()


def check_process() -> None:
    """``DeviceError`` in a process that was forked from one in which JAX ran."""
    if _PROCESS.lacks_threads:
        raise DeviceError(
            "this process was forked from one in which JAX was running, and JAX's threads do not survive a "
            'fork: use the start method "spawn" or "forkserver" of multiprocessing, or fork before anything '
            "is computed and make the graph, Translator, Scorer or Trainer in the child"
        )
