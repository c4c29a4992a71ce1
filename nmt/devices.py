"""The device of a process: chosen, and limited in threads, before JAX starts.

JAX starts its backends at the first computation and cannot change them afterwards. Importing nmt,
layers and mgraph starts nothing.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import jax

from mgraph.errors import DeviceError

logger = logging.getLogger(__name__)

# XLA reads these (older versions only the second) when it makes its CPU client: the size of the
# pool that all kernels run in. Affinity would limit the threads as well, but would pin every such
# process to the same cores.
THREADS_VARIABLES = ("PJRT_NPROC", "NPROC")


def start(cpu_threads: int = 0, devices: Sequence[str] = ("0",)) -> jax.Device:
    """Start JAX on the device that Marian's options name, and log which it is.

    cpu_threads: N > 0 takes the CPU with at most N compute threads; 0 takes a GPU if there is
        one, else the CPU with all its cores (Marian's ``--cpu-threads``). The limit is for
        computing: while a program is compiled, XLA uses threads of its own besides.
    devices: the number of that GPU (Marian's ``--devices``); one device is used.
    Raises DeviceError if there is no such device, or if JAX runs already on another.
    """
    return _start_cpu(cpu_threads) if cpu_threads else _start_any(_gpu_number(devices))


def started() -> bool:
    """True if JAX has started a backend, so that devices and threads are settled."""
    before = jax.config.values["jax_num_cpu_devices"]
    try:  # JAX refuses to change this option from then on
        jax.config.update("jax_num_cpu_devices", 2 if before == 1 else 1)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", before)
    return False


def _start_cpu(threads: int) -> jax.Device:
    if started():
        device = jax.devices()[0]
        if device.platform != "cpu":
            raise DeviceError(f"--cpu-threads {threads}: JAX runs already on {device.device_kind}")
        logger.warning("[device] JAX runs already: its threads cannot be limited to %d", threads)
        return device
    jax.config.update("jax_platforms", "cpu")
    with _environment(dict.fromkeys(THREADS_VARIABLES, str(threads))):
        device = jax.devices()[0]
    logger.info("[device] using the CPU, threads: at most %d", threads)
    if sys.platform != "linux":
        logger.warning("[device] that XLA keeps this limit was measured on Linux only")
    return device


def _start_any(number: int) -> jax.Device:
    if not started():
        for option in ("jax_cuda_visible_devices", "jax_rocm_visible_devices"):
            jax.config.update(option, str(number))
    elif number:
        raise DeviceError(f"--devices {number}: JAX runs already, with the devices it has")
    device = jax.devices()[0]
    if device.platform == "cpu":
        if number:
            raise DeviceError(f"--devices {number}: JAX finds no such GPU on this machine")
        logger.info("[device] no GPU found, using the CPU, threads: %d", _cores())
    else:
        logger.info("[device] using GPU %d: %s", number, device.device_kind)
    return device


def _gpu_number(devices: Sequence[str]) -> int:
    if len(devices) != 1 or not devices[0].isdecimal():
        raise DeviceError(
            f"--devices takes the number of one GPU, got '{' '.join(devices)}'; "
            "several devices are not supported yet"
        )
    return int(devices[0])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
