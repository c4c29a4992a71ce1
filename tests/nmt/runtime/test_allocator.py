"""Memory that a program needs repeatedly is not mapped again each time, until it is given back."""

from __future__ import annotations

import platform

import pytest

from tests.helpers.fresh import python

SCRIPT = """
import ctypes
import resource
from nmt.runtime.devices import keep_freed_memory, release_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(3 * 2**30)  # more than a threshold of glibc can say
    libc.memset(block, 1, 2**27)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed_memory(), faults(), faults())
release_freed_memory()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_freed_memory_is_used_again() -> None:
    kept, first, second, released = python(SCRIPT).split()
    assert kept == "True"
    assert int(second) < int(first) / 10
    assert int(released) > int(first) / 2


def test_the_cpu_computes_in_the_thread_that_asks() -> None:
    # Only memory of the main thread can be kept.
    assert python(
        """
import jax
import jax.numpy as jnp
from nmt.runtime import devices

devices.start(cpu_threads=1)
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda _, x: x @ x / 600, x))
x = jnp.ones((600, 600))
slow.lower(x).compile()
print(slow(x).is_ready())
""",
        JAX_PLATFORMS="cpu",
    ).split() == ["True"]
