"""Processes that are measured from outside: when each line came, how long they took, how much memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nmt.text.lines import read_lines

LAUNCHER = Path(__file__).with_name("launcher.py")
MOST_LINES = 8
"""Lines to show of what a failed process wrote."""


class ProcessError(Exception):
    """A process that was to be measured failed.

    ``lines`` are what it wrote about the failure; ``reason`` is the first of them, or else the message.
    """

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__("\n  ".join([message, *lines]))
        self.reason = lines[0] if lines else message


@dataclass(frozen=True)
class Finished:
    """What was seen of a process: seconds are counted from its start."""

    seconds: float
    peak: int
    """Its peak memory, in bytes, including what it shares with other processes."""
    lines: tuple[tuple[float, str], ...]
    """What it wrote to standard error, and to standard output unless that went to a file."""

    def until(self, text: str) -> float:
        """Seconds until the first line that has this text in it. ProcessError if there is none."""
        for seconds, line in self.lines:
            if text in line:
                return seconds
        raise ProcessError(f"no line with '{text}' came")


def finished(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: Path | None = None,
    stdout: Path | None = None,
) -> Finished:
    """Run a command to its end.

    environment: variables besides those of this process. stdin, stdout: files for it to read and write.
    ProcessError, with lines that it wrote, if it fails: from the first that mentions an error, or the last.

    A small process in between starts it: what Linux reports as the peak memory of a process includes what its
    parent had when it was started.
    """
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        start = time.perf_counter()
        with (
            open(stdin or os.devnull, "rb") as source,
            open(stdout or os.devnull, "wb") as target,
            subprocess.Popen(
                [sys.executable, "-S", str(LAUNCHER), str(peak), *command],
                stdin=source,
                stdout=target if stdout else subprocess.PIPE,
                stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                text=True,
                errors="replace",
            ) as process,
        ):
            try:
                lines = _timed(process.stderr or process.stdout, start)
                code = process.wait()
            except BaseException:
                process.terminate()
                raise
        seconds = time.perf_counter() - start
        if code:
            raise ProcessError(
                f"{' '.join(command)} ended with {code}", _telling([line for _, line in lines])
            )
        return Finished(seconds, int(peak.read_text()), tuple(lines))


def lines_of(path: str | Path) -> list[str]:
    """The lines of a text that programs read or have written: U+2028 and the like end none."""
    with open(path, "rb") as stream:
        return [line.decode("utf-8", "surrogateescape") for line in read_lines(stream)]


def _telling(lines: list[str]) -> list[str]:
    """The lines that say why a process failed: Marian's are followed by a long trace."""
    errors = (place for place, line in enumerate(lines) if "error:" in line.lower())
    first = next(errors, max(0, len(lines) - MOST_LINES))
    return lines[first : first + MOST_LINES]


def _timed(stream: IO[str] | None, start: float) -> list[tuple[float, str]]:
    assert stream is not None
    return [(time.perf_counter() - start, line.rstrip("\n")) for line in stream]
