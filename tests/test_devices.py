"""The device is chosen before JAX starts; each case needs a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(code: str) -> str:
    """What a fresh Python prints; its log goes to stdout, too."""
    setup = "import logging, sys\nlogging.basicConfig(level=20, stream=sys.stdout, format='%(message)s')\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + code],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=True,
    )
    return done.stdout


def test_importing_starts_nothing_and_start_starts_the_cpu() -> None:
    assert run(
        "import nmt, mgraph\n"
        "from nmt import devices\n"
        "print(devices.started())\n"
        "print(devices.start(cpu_threads=2).platform, devices.started())\n"
    ).splitlines() == ["False", "[device] using the CPU, threads: at most 2", "cpu True"]


def test_without_a_gpu_the_cpu_is_taken_and_named() -> None:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    assert run("from nmt import devices\ndevices.start()\n") == (
        f"[device] no GPU found, using the CPU, threads: {cores}\n"
    )


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("start(devices=['3'])", "--devices 3: JAX finds no such GPU on this machine"),
        ("start(devices=['0', '1'])", "--devices takes the number of one GPU, got '0 1'"),
        ("start(devices=['all'])", "--devices takes the number of one GPU, got 'all'"),
        ("start(), devices.start(devices=['1'])", "--devices 1: JAX runs already"),
    ],
)
def test_a_device_that_cannot_be_had(call: str, reason: str) -> None:
    assert reason in run(
        "from nmt import devices\nfrom mgraph import DeviceError\n"
        f"try:\n    devices.{call}\nexcept DeviceError as error:\n    print(error)\n"
    )


def test_threads_cannot_be_limited_once_jax_runs() -> None:
    said = run("import jax\njax.devices()\nfrom nmt import devices\ndevices.start(cpu_threads=1)")
    assert said == "[device] JAX runs already: its threads cannot be limited to 1\n"


# How many threads want to run, on average, while a product is computed: the time that each spends
# running or waiting for a core, so that other work on the machine does not change it.
MEASURE = """
import os, time

from nmt import devices

devices.start(cpu_threads={threads})
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
@pytest.mark.parametrize(("threads", "least", "most"), [(1, 0.5, 1.2), (3, 1.8, 3.3)])
def test_no_more_threads_compute_than_asked_for(threads: int, least: float, most: float) -> None:
    assert least < float(run(MEASURE.format(threads=threads)).splitlines()[-1]) < most
