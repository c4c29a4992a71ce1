"""Run a command, and write its peak memory, in bytes, to a file: ``launcher.py FILE COMMAND``."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

UNIT = 1 if sys.platform == "darwin" else 1024
"""The unit of ``ru_maxrss``, in bytes."""

if __name__ == "__main__":
    child = subprocess.Popen(sys.argv[2:])
    signal.signal(signal.SIGTERM, lambda number, frame: child.kill())
    code = child.wait()
    Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * UNIT))
    sys.exit(code)
