"""Choose the devices of a process, and limit its threads, before JAX starts.

JAX starts its backends at the first computation and cannot change them later. Importing nmt, layers and
mgraph starts nothing.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import jax

from mgraph import DeviceError
from mgraph.device import check_process, started
from nmt.runtime.cores import cores
from nmt.runtime.launchers import Launch, detection, is_port

logger = logging.getLogger(__name__)

# XLA reads the size of its thread pool for kernels from these (older versions only from the second) when it
# makes its CPU client. CPU affinity would also limit threads, but pin all such processes to the same cores.
THREADS_VARIABLES = ("PJRT_NPROC", "NPROC")
VISIBLE_GPUS = ("jax_cuda_visible_devices", "jax_rocm_visible_devices")
GIVEN_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# Constants of glibc's malloc.h.
_MMAP_MAX, _TRIM_THRESHOLD = -4, -1
_NEVER = -1
LAST_WORDS = 1.0
"""Seconds in which processes that end together can report their errors."""
JOIN_SECONDS = 300.0
"""How long a process waits for the others of its training."""
_LOOK_SECONDS = 0.1
_LONGER = 1_000_000
"""JAX's timeout in seconds, too long to expire: JAX would abort the process."""


def start(
    cpu_threads: int = 0, devices: Sequence[str] = ("0",), local_index: int | None = None
) -> jax.Device:
    """Start JAX on the device of Marian's options, and log it.

    cpu_threads: N > 0 selects the CPU with at most N compute threads; 0 a GPU if present, else the CPU with
        all cores (Marian's ``--cpu-threads``). XLA compiles with threads beyond that limit.
    devices: the number of the GPU (Marian's ``--devices``). local_index: as for ``start_all``.
    Raises DeviceError if the device does not exist, or if JAX already runs on another.
    """
    if not cpu_threads and (len(devices) != 1 or not devices[0].isdecimal()):
        raise DeviceError(
            f"--devices takes the number of one GPU, got '{' '.join(devices)}'; "
            "several devices are for training"
        )
    return start_all(cpu_threads, devices, local_index=local_index)[0]


def start_all(
    cpu_threads: int = 0,
    devices: Sequence[str] = ("0",),
    cpu_devices: int = 0,
    local_index: int | None = None,
) -> tuple[jax.Device, ...]:
    """Start JAX on all devices for training, and log them.

    cpu_threads: as for ``start``. devices: numbers of GPUs, or ``all`` (Marian's ``--devices``).
    cpu_devices: N > 0 divides the CPU into N devices that share its threads, at least one each
        (``--cpu-devices``).
    local_index: the number of this process among several on this host (``Launch.local_index``): it takes the
        GPU with this number instead of the first, unless the launcher gave it only one.
    Returns the devices of all processes. Raises DeviceError if the devices do not exist, or if JAX already
    runs on others or in the parent of this forked process.

    If JAX does not run yet, programs on the CPU will run in the thread that calls them, in the whole process
    (``jax_cpu_enable_async_dispatch``); see ``keep_freed_memory``.
    """
    check_process()
    if not started():
        keep_freed_memory()
        # Also, two programs that run at the same time could exchange data in different orders in different
        # processes.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    if cpu_threads or cpu_devices:
        return _start_cpu(cpu_threads, cpu_devices)
    return _start_any(_gpu_numbers(devices), 0 if _has_own_gpu() else local_index or 0)


def join_processes(
    launch: Launch, coordinator: str = "", stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Let this process train together with others; call it before JAX starts.

    launch: the number of processes, and of this one. coordinator: ``HOST:PORT`` where the first process
    listens (``--coordinator``); if empty, JAX finds it through the launcher. Does nothing for one process
    without a coordinator. stopped: ends the waiting once it returns True.

    Waits for all processes, up to ``JOIN_SECONDS``; returns whether all have joined. If one dies later, the
    others end. Raises DeviceError for invalid values, if JAX already runs, or if the others cannot be found
    or do not join in time.
    """
    if launch.count == 1 and not coordinator:
        return True
    port = _port(coordinator) if coordinator else None
    if coordinator and launch.count is None:
        raise DeviceError(
            f"--coordinator: {launch.launcher} does not tell how many processes there are; "
            "add --num-processes N"
        )
    if jax.distributed.is_initialized():
        return True
    how = f"--coordinator {coordinator}" if coordinator else f"launched by {launch.launcher}"
    joining = _Joining(launch, coordinator)
    if started():
        raise DeviceError(f"{how}: JAX has already started, for one process")
    if port and not launch.index:
        _require_free(port, coordinator)
    logger.info("[device] process %d of %s, %s", launch.index, launch.count or "?", how)
    joining.start()
    last = time.monotonic() + JOIN_SECONDS
    while joining.is_alive() and not stopped():
        joining.join(_LOOK_SECONDS)
        if joining.is_alive() and time.monotonic() > last:
            raise DeviceError(
                f"{how}: other processes of this training did not join within {JOIN_SECONDS:g} seconds; "
                "each that failed says why"
            )
    if joining.failure:
        raise DeviceError(f"{how}: {joining.failure}")
    return not joining.is_alive()


class _Joining(threading.Thread):
    """Joins the other processes. Python answers no signal while JAX waits for them, so JAX waits in this
    thread; only the end of the process ends it."""

    def __init__(self, launch: Launch, coordinator: str) -> None:
        super().__init__(name="mgraph-join", daemon=True)
        self.failure: Exception | None = None
        self._launch, self._coordinator = launch, coordinator
        self._method = "deactivate" if coordinator else detection(launch, os.environ)

    def run(self) -> None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from us
        try:
            jax.distributed.initialize(
                *(self._coordinator or None, self._launch.count, self._launch.index),
                cluster_detection_method=self._method,
                initialization_timeout=_LONGER,
            )
        except Exception as error:  # the packages of launchers raise their own
            self.failure = error


def _port(coordinator: str) -> int:
    """The port of ``HOST:PORT``."""
    host, _, port = coordinator.rpartition(":")
    if not (host and is_port(port)):
        raise DeviceError(f"--coordinator: expected HOST:PORT, a port below 65536, got '{coordinator}'")
    return int(port)


def _require_free(port: int, coordinator: str) -> None:
    """DeviceError unless this process can listen at the port, as JAX will: JAX may crash if it cannot."""
    both = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            listener.bind(("", port))
        except OSError as error:
            raise DeviceError(
                f"--coordinator {coordinator}: the first process cannot listen at this port: {error.strerror}"
            ) from None


def leave_processes(code: int, together: bool = False) -> None:
    """End this process with ``code`` if it has joined others, which may have ended, or has begun to join.

    JAX would wait for them, up to five minutes. When the first process ends, JAX aborts the others, so the
    first one stays until they have had time to report their errors. Call this when all output is written.

    together: the others end, too, so JAX may wait for them if all have joined.
    """
    if jax.distributed.is_initialized() and not (together and started()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        if started() and jax.process_index() == 0:
            time.sleep(LAST_WORDS)
        os._exit(code)


def keep_freed_memory() -> bool:
    """Keep freed memory in the process for reuse; returns whether the platform supports it.

    On the CPU XLA allocates a program's memory at every call. glibc maps and unmaps such large blocks each
    time, and the kernel zeroes every new page: a fifth of the time of a training step.

    So nothing is mapped, and free memory at the end of an arena is kept. Only the main thread's arena can
    grow without mapping, so ``start_all`` lets the CPU run programs in the thread that calls them, which in
    training is the main one, and not in XLA's threads. Threads that compile keep their own arenas: in a
    common one they wait for each other, and programs took 1.4 times as long to trace and compile. The process
    then holds all memory that it has used until ``release_freed_memory``, and may need more, because small
    blocks settle where large ones were.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
    return all(mallopt(name, value) == 1 for name, value in settings)


def release_freed_memory() -> None:
    """Give freed memory back to the system, where the platform can; using it again costs the kernel's time.

    After a compilation much memory is free in pieces, each of which may be too small for the program itself.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def _start_cpu(threads: int, count: int) -> tuple[jax.Device, ...]:
    if started():
        return _running_cpu(threads, count)
    jax.config.update("jax_platforms", "cpu")
    if count:
        jax.config.update("jax_num_cpu_devices", count)
    devices = _started(threads)
    name = f"the CPU as {count} devices" if count else "the CPU"
    logger.info("[device] using %s, threads: %s", name, f"at most {threads}" if threads else cores())
    if threads and sys.platform != "linux":
        logger.warning("[device] that XLA keeps this limit was measured on Linux only")
    return tuple(devices)


def _started(threads: int = 0) -> list[jax.Device]:
    """JAX's devices. If JAX does not run yet, it starts with ``threads`` threads, or, for 0, with one for
    each core that we may use: XLA would count cores for which a container gives us too little time. For 0,
    variables that the user has set take precedence."""
    given = any(name in os.environ for name in THREADS_VARIABLES)
    limit = {} if given and not threads else dict.fromkeys(THREADS_VARIABLES, str(threads or cores()))
    with _environment(limit):
        return jax.devices()


def _running_cpu(threads: int, count: int) -> tuple[jax.Device, ...]:
    """The CPU devices when JAX already runs."""
    option = f"--cpu-devices {count}" if count else f"--cpu-threads {threads}"
    devices = jax.devices()
    if devices[0].platform != "cpu":
        raise DeviceError(f"{option}: JAX has already started on {devices[0].device_kind}")
    if count > jax.local_device_count():
        raise DeviceError(f"{option}: JAX has already started, with {jax.local_device_count()} of them")
    if threads:
        logger.warning("[device] JAX has already started: its threads cannot be limited to %d", threads)
    return tuple(devices) if jax.process_count() > 1 else tuple(devices[: count or 1])


def _start_any(numbers: tuple[int, ...] | None, first: int = 0) -> tuple[jax.Device, ...]:
    """GPUs by number, all for ``None``; the CPU if there are none and only the first was requested.

    first: the number of the GPU that this process takes as its first if no other is requested.
    """
    said = "--devices " + ("all" if numbers is None else " ".join(map(str, numbers)))
    taken = (first,) if numbers == (0,) else numbers
    if not started():
        for option in VISIBLE_GPUS:
            jax.config.update(option, "all" if taken is None else ",".join(map(str, taken)))
    elif numbers not in ((0,), None):
        raise DeviceError(f"{said}: JAX has already started, with the devices it has")
    devices, own = _started(), jax.local_devices()
    if devices[0].platform == "cpu":
        if numbers != (0,):
            raise DeviceError(f"{said}: JAX finds no such GPU on this machine")
        logger.info("[device] no GPU found, using the CPU, threads: %d", cores())
    elif numbers and len(own) < len(numbers):
        raise DeviceError(f"{said}: JAX finds {len(own)} of these GPUs on this machine")
    else:
        for number, device in zip(taken or range(len(own)), own, strict=False):
            logger.info("[device] using GPU %d: %s", number, device.device_kind)
    alone = numbers == (0,) and jax.process_count() == 1  # JAX may already run with more
    return tuple(devices[:1]) if alone else tuple(devices)


def _gpu_numbers(devices: Sequence[str]) -> tuple[int, ...] | None:
    """The numbers of GPUs; ``None`` for all."""
    if "all" in devices:
        return None
    if not all(device.isdecimal() for device in devices) or len(set(devices)) < len(devices):
        raise DeviceError(f"--devices takes different numbers of GPUs, or 'all', got '{' '.join(devices)}'")
    return tuple(map(int, devices)) or (0,)


def _has_own_gpu() -> bool:
    """Whether the launcher gave this process one GPU, which then has the number 0."""
    given = (os.environ.get(name, "") for name in GIVEN_GPUS)
    return any(numbers and "," not in numbers for numbers in given)


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
