"""The device is chosen before JAX starts; most cases need a process of their own."""

from __future__ import annotations

import os
from contextlib import suppress
from socket import socket

import jax
import pytest

from mgraph import DeviceError
from nmt.runtime import devices
from nmt.runtime.cores import cores
from tests.helpers.fresh import python

ONE = "--devices takes the number of one GPU, got '{}'; several devices are for training"
NO_PORT = "--coordinator: expected HOST:PORT, a port below 65536"


def run(code: str) -> str:
    """What a fresh Python prints, including its log, which also goes to stdout."""
    setup = "import logging, sys\nlogging.basicConfig(level=20, stream=sys.stdout, format='%(message)s')\n"
    return python(setup + code, JAX_PLATFORMS="cpu")


def test_importing_starts_nothing_and_start_starts_the_cpu() -> None:
    assert run(
        "import nmt, mgraph\n"
        "from nmt.runtime import devices\n"
        "print(devices.started())\n"
        "print(devices.start(cpu_threads=2).platform, devices.started())\n"
    ).splitlines() == ["False", "[device] using the CPU, threads: at most 2", "cpu True"]


def test_without_a_gpu_the_cpu_is_taken_and_named() -> None:
    assert run("from nmt.runtime import devices\ndevices.start()\n") == (
        f"[device] no GPU found, using the CPU, threads: {cores()}\n"
    )


@pytest.mark.parametrize(
    ("local_index", "given", "wanted", "visible"),
    [
        (2, "", "0", "2"),
        (2, "5", "0", "0"),
        (2, "4,5,6", "0", "2"),
        (2, "", "all", "all"),
        (None, "", "0", "0"),
    ],
)
def test_a_launched_process_takes_the_gpu_of_its_number(
    local_index: int | None, given: str, wanted: str, visible: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, str] = {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    monkeypatch.setattr(devices, "started", lambda: False)
    monkeypatch.setattr(devices, "keep_freed_memory", lambda: True)
    monkeypatch.setattr(jax.config, "update", said.__setitem__)
    with suppress(DeviceError):  # there is none
        devices.start_all(0, [wanted], 0, local_index)
    assert said["jax_cuda_visible_devices"] == said["jax_rocm_visible_devices"] == visible


def refusals(first: str, calls: list[str]) -> list[str]:
    """The errors of calls of nmt.runtime.devices, all in one process."""
    code = "from mgraph import DeviceError\nfrom nmt.runtime import devices\n"
    code += f"from nmt.runtime.launchers import Launch\n{first}\n"
    for call in calls:
        code += f"try:\n    devices.{call}\nexcept DeviceError as error:\n    print(error)\n"
    return run(code).splitlines()


@pytest.mark.parametrize(
    ("call", "devices"),
    [
        ("start(devices=['3'])", "3"),
        ("start_all(devices=['0', '1'])", "0 1"),
        ("start_all(0, ['all'])", "all"),
    ],
)
def test_a_gpu_that_is_not_there(call: str, devices: str) -> None:
    assert refusals("", [call]) == [f"--devices {devices}: JAX finds no such GPU on this machine"]


def test_what_makes_no_sense_is_refused_before_jax_starts() -> None:
    calls = {
        "start(devices=['0', '1'])": ONE.format("0 1"),
        "start(devices=['all'])": ONE.format("all"),
        "start_all(0, ['1', 'x'])": "--devices takes different numbers of GPUs, or 'all', got '1 x'",
        "start_all(0, ['1', '1'])": "--devices takes different numbers of GPUs, or 'all', got '1 1'",
        "join_processes(Launch('', 0, 2))": "--num-processes 2 needs --coordinator HOST:PORT",
        "join_processes(Launch('', 1, 2), 'here')": f"{NO_PORT}, got 'here'",
        "join_processes(Launch('', 1, 2), 'here:0')": f"{NO_PORT}, got 'here:0'",
        "join_processes(Launch('', 1, 2), 'here:99999')": f"{NO_PORT}, got 'here:99999'",
        "join_processes(Launch('Kubernetes', 1), 'a:1')": (
            "--coordinator: Kubernetes does not tell how many processes there are; add --num-processes N"
        ),
    }
    said = refusals("", [*calls, "join_processes(Launch('', 0, 1)) and print(devices.started())"])
    assert said == [*calls.values(), "False"]


def test_what_comes_too_late_is_refused() -> None:
    alone = "JAX has already started, for one process"
    calls = {
        "start(devices=['1'])": "--devices 1: JAX has already started, with the devices it has",
        "start_all(cpu_devices=3)": "--cpu-devices 3: JAX has already started, with 1 of them",
        "join_processes(Launch('', 0, 2), 'a:1')": f"--coordinator a:1: {alone}",
        "join_processes(Launch('SLURM', 0, 2))": f"launched by SLURM: {alone}",
    }
    assert refusals("devices.start()", list(calls))[1:] == [*calls.values()]


@pytest.mark.parametrize("index", [0, 1])
def test_a_process_says_that_the_others_have_not_come(index: int) -> None:
    with socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    said = run(
        "from nmt.runtime import devices\n"
        "from nmt.runtime.launchers import Launch\n"
        "devices.JOIN_SECONDS = 1\n"
        "try:\n"
        f"    devices.join_processes(Launch('', {index}, 2), 'localhost:{port}')\n"
        "except devices.DeviceError as error:\n"
        "    print(error)\n"
        "devices.leave_processes(0)\n"
    )
    assert said.splitlines()[-1] == (
        f"--coordinator localhost:{port}: other processes of this training did not join within 1 seconds; "
        "each that failed says why"
    )


def test_the_first_process_says_that_its_port_is_taken() -> None:
    """Without this check, JAX would wait, or crash."""
    with socket() as other:
        other.bind(("", 0))
        other.listen()
        where = f"localhost:{other.getsockname()[1]}"
        said = refusals("", [f"join_processes(Launch('', 0, 2), '{where}')"])
    assert said == [
        f"--coordinator {where}: the first process cannot listen at this port: Address already in use"
    ]


def test_the_cpu_is_divided_into_devices() -> None:
    assert run(
        "from nmt.runtime import devices\n"
        "print(len(devices.start_all(cpu_threads=1, cpu_devices=3)))\n"
        "print(len(devices.start_all(cpu_devices=2)), len(devices.start_all()))\n"
        "import jax, numpy as np\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "rows = NamedSharding(Mesh(np.array(jax.devices()), ('d',)), P('d'))\n"
        "total = jax.jit(lambda x: x.sum(), in_shardings=rows)\n"
        "print(sum(float(total(np.arange(6.0))) for _ in range(50)))\n"
    ).splitlines() == [
        "[device] using the CPU as 3 devices, threads: at most 1",
        "3",
        f"[device] no GPU found, using the CPU, threads: {cores()}",
        "2 1",
        "750.0",
    ]


def test_threads_cannot_be_limited_once_jax_runs() -> None:
    said = run("import jax\njax.devices()\nfrom nmt.runtime import devices\ndevices.start(cpu_threads=1)")
    assert said == "[device] JAX has already started: its threads cannot be limited to 1\n"


# The average number of threads that want to run while a product is computed, from the time that each spends
# running or waiting for a core: other work on the machine does not change it.
MEASURE = """
import os, time

from nmt.runtime import devices

{start}
import jax
import jax.numpy as jnp

def wanted():
    stats = [open(f"/proc/self/task/{{task}}/schedstat").read() for task in os.listdir("/proc/self/task")]
    return sum(sum(map(int, stat.split()[:2])) for stat in stats) / 1e9

product = jax.jit(lambda x: jnp.tanh(x @ x) @ x)
x = jnp.ones((1500, 1500))
product(x).block_until_ready()
before, began = wanted(), time.perf_counter()
for _ in range(6):
    product(x).block_until_ready()
print((wanted() - before) / (time.perf_counter() - began))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs Linux' scheduler statistics")
@pytest.mark.parametrize(
    ("start", "least", "most"),
    [
        ("devices.start(cpu_threads=1)", 0.5, 1.2),
        ("devices.start(cpu_threads=3)", 1.8, 3.3),
        ("devices.cores = lambda: 1; devices.start()", 0.5, 1.2),
        ("devices.cores = lambda: 3; os.environ['NPROC'] = '1'; devices.start()", 0.5, 1.2),
    ],
)
@pytest.mark.sampled(every=2)
def test_no_more_threads_compute_than_asked_for(start: str, least: float, most: float) -> None:
    assert least < float(run(MEASURE.format(start=start)).splitlines()[-1]) < most
