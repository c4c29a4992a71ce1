"""Ctrl-C while modules are loading ends the command with status 130 and without a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENTRY = """
import signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from nmt.cli import main  # as the script mgraph has it
sys.exit(main(["decode", "-m", "model.npz", "-v", "vocab.spm", "vocab.spm", "--quiet"]))
"""


@pytest.mark.parametrize("module", ["numpy", "jax", "mgraph", "nmt.commands.decode", "nmt.search.translator"])
@pytest.mark.sampled(every=3)
def test_an_interrupt_while_a_module_is_loaded(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENTRY, module], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_entry_point_loads_nothing_large() -> None:
    code = "import sys; from nmt.cli import main; print(sorted({'jax', 'numpy', 'mgraph'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout == b"[]\n"
