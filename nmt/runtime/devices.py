"""The devices of a process: chosen, and limited in threads, before JAX starts.

JAX starts its backends at the first computation and cannot change them afterwards. Importing nmt,
layers and mgraph starts nothing.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import jax

from mgraph import DeviceError
from mgraph.device import check_process, started

logger = logging.getLogger(__name__)

# XLA reads these (older versions only the second) when it makes its CPU client: the size of the
# pool that all kernels run in. Affinity would limit the threads as well, but would pin every such
# process to the same cores.
THREADS_VARIABLES = ("PJRT_NPROC", "NPROC")
VISIBLE_GPUS = ("jax_cuda_visible_devices", "jax_rocm_visible_devices")
# Of glibc's malloc.h.
_ARENA_MAX, _MMAP_MAX, _TRIM_THRESHOLD = -8, -4, -1
_MOST = 2**31 - 1


def start(cpu_threads: int = 0, devices: Sequence[str] = ("0",)) -> jax.Device:
    """Start JAX on the device that Marian's options name, and log which it is.

    cpu_threads: N > 0 takes the CPU with at most N compute threads; 0 takes a GPU if there is
        one, else the CPU with all its cores (Marian's ``--cpu-threads``). The limit is for
        computing: while a program is compiled, XLA uses threads of its own besides.
    devices: the number of that GPU (Marian's ``--devices``); one device is used.
    Raises DeviceError if there is no such device, or if JAX runs already on another.
    """
    if not cpu_threads and (len(devices) != 1 or not devices[0].isdecimal()):
        raise DeviceError(
            f"--devices takes the number of one GPU, got '{' '.join(devices)}'; "
            "several devices are for training"
        )
    return start_all(cpu_threads, devices)[0]


def start_all(
    cpu_threads: int = 0, devices: Sequence[str] = ("0",), cpu_devices: int = 0
) -> tuple[jax.Device, ...]:
    """Start JAX on all devices that training shall use, and log which they are.

    cpu_threads: as for ``start``. devices: numbers of GPUs, or ``all`` (Marian's ``--devices``).
    cpu_devices: N > 0 takes the CPU, divided into N devices that share its threads, of which there are
        at least as many as devices (``--cpu-devices``).
    Returns the devices of all processes. Raises DeviceError if there are no such devices, or if JAX
    runs already on others, or in the process that this one was forked from.
    """
    check_process()
    if not started():
        keep_freed_memory()
    if cpu_threads or cpu_devices:
        return _start_cpu(cpu_threads, cpu_devices)
    return _start_any(_gpu_numbers(devices))


def join_processes(coordinator: str, num_processes: int, process_id: int) -> None:
    """Let this process train together with others; to be called before JAX is started.

    coordinator: ``HOST:PORT`` where the first process listens, by a name that all of them know
    (``--coordinator``). num_processes: how many there are (``--num-processes``). process_id: which of
    them this is, from 0 (``--process-id``). With one process and no coordinator nothing happens.

    Waits until all are there, for at most five minutes; if one of them dies, the others end. Raises
    DeviceError for values that make no sense, if JAX runs already, or if the others cannot be reached.
    """
    if process_id >= num_processes:
        raise DeviceError(
            f"--process-id: expected a number below --num-processes {num_processes}, got {process_id}"
        )
    if not coordinator:
        if num_processes > 1:
            raise DeviceError(f"--num-processes {num_processes} needs --coordinator HOST:PORT")
        return
    if not re.fullmatch(r".+:[0-9]+", coordinator):
        raise DeviceError(f"--coordinator: expected HOST:PORT, got '{coordinator}'")
    if jax.distributed.is_initialized():
        return
    if started():
        raise DeviceError("--coordinator: JAX runs already, for one process")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from us
    logger.info("[device] process %d of %d, coordinator %s", process_id, num_processes, coordinator)
    try:
        jax.distributed.initialize(
            coordinator, num_processes, process_id, cluster_detection_method="deactivate"
        )
    except RuntimeError as error:
        raise DeviceError(f"--coordinator {coordinator}: {error}") from None


def keep_freed_memory() -> bool:
    """Let freed memory stay with the process, to be used again; whether the platform has a way to.

    On the CPU XLA allocates what a program needs anew at every call. The C library of Linux maps such large
    pieces into memory and back each time, and the kernel fills every page with zeros at its first use: a
    fifth of the time of a training step.

    One arena for all threads, since only the first can grow without mapping; nothing mapped; nothing given
    back, up to 2 GiB at its end. To be called before threads that allocate are started. The process then may
    hold more memory than it uses at a moment.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _MOST))
    return all(mallopt(name, value) == 1 for name, value in settings)


def _start_cpu(threads: int, count: int) -> tuple[jax.Device, ...]:
    if started():
        return _running_cpu(threads, count)
    jax.config.update("jax_platforms", "cpu")
    if count:
        jax.config.update("jax_num_cpu_devices", count)
    with _environment(dict.fromkeys(THREADS_VARIABLES, str(threads)) if threads else {}):
        devices = jax.devices()
    name = f"the CPU as {count} devices" if count else "the CPU"
    logger.info("[device] using %s, threads: %s", name, f"at most {threads}" if threads else cores())
    if threads and sys.platform != "linux":
        logger.warning("[device] that XLA keeps this limit was measured on Linux only")
    return tuple(devices)


def _running_cpu(threads: int, count: int) -> tuple[jax.Device, ...]:
    """Devices of the CPU when JAX runs already."""
    option = f"--cpu-devices {count}" if count else f"--cpu-threads {threads}"
    devices = jax.devices()
    if devices[0].platform != "cpu":
        raise DeviceError(f"{option}: JAX runs already on {devices[0].device_kind}")
    if count > jax.local_device_count():
        raise DeviceError(f"{option}: JAX runs already, with {jax.local_device_count()} of them")
    if threads:
        logger.warning("[device] JAX runs already: its threads cannot be limited to %d", threads)
    return tuple(devices) if jax.process_count() > 1 else tuple(devices[: count or 1])


def _start_any(numbers: tuple[int, ...] | None) -> tuple[jax.Device, ...]:
    """GPUs by number, all of them for ``None``, or the CPU if there is none and the first was meant."""
    said = "--devices " + ("all" if numbers is None else " ".join(map(str, numbers)))
    if not started():
        for option in VISIBLE_GPUS:
            jax.config.update(option, "all" if numbers is None else ",".join(map(str, numbers)))
    elif numbers not in ((0,), None):
        raise DeviceError(f"{said}: JAX runs already, with the devices it has")
    devices, own = jax.devices(), jax.local_devices()
    if devices[0].platform == "cpu":
        if numbers != (0,):
            raise DeviceError(f"{said}: JAX finds no such GPU on this machine")
        logger.info("[device] no GPU found, using the CPU, threads: %d", cores())
    elif numbers and len(own) < len(numbers):
        raise DeviceError(f"{said}: JAX finds {len(own)} of these GPUs on this machine")
    else:
        for number, device in zip(numbers or range(len(own)), own, strict=False):
            logger.info("[device] using GPU %d: %s", number, device.device_kind)
    alone = numbers == (0,) and jax.process_count() == 1  # JAX may run already, with more
    return tuple(devices[:1]) if alone else tuple(devices)


def _gpu_numbers(devices: Sequence[str]) -> tuple[int, ...] | None:
    """The numbers of GPUs; ``None`` for all."""
    if "all" in devices:
        return None
    if not all(device.isdecimal() for device in devices) or len(set(devices)) < len(devices):
        raise DeviceError(f"--devices takes different numbers of GPUs, or 'all', got '{' '.join(devices)}'")
    return tuple(map(int, devices)) or (0,)


def cores() -> int:
    """The processor cores that this process may use."""
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
