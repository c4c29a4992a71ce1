"""Memory that a program needs again and again is not mapped anew each time, until it is given back."""

from __future__ import annotations

import platform

import pytest

from tests.helpers.fresh import python

SCRIPT = """
import resource
from nmt.runtime.devices import keep_freed_memory, release_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(2**27)
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
