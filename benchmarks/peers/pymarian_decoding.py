"""Translation by real Marian, a peer: ``pymarian decode`` in a process of its own."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import ProcessError, finished
from benchmarks.training.models import command_line

SPEED = re.compile(r"Processed \d+ batches, \d+ lines, \d+ source tokens in ([\d.]+)s - Speed \(total\)")
"""What ``--stat-freq`` says at the end: seconds from the first batch on, loading not counted."""


@dataclass(frozen=True)
class PymarianDecoder:
    """A model as Marian decodes with it.

    executable: ``pymarian``. model, vocabs: paths of the model and its vocabularies.
    threads: ``--cpu-threads``; each translates batches of its own.
    """

    executable: str
    model: str
    vocabs: tuple[str, ...]
    threads: int

    def decode(
        self, lines: Sequence[str], batch: int, beam: int, normalize: float, *, max_length_factor: float = 3.0
    ) -> tuple[float, list[str]]:
        """Seconds of translating, start-up not counted, and the translations.

        Batches of sentences of like length, all lines sorted at once. ProcessError if it fails.
        """
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "source"), Path(folder, "target")
            source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            options = {
                "models": self.model,
                "vocabs": self.vocabs,
                "input": source,
                "output": target,
                "cpu_threads": self.threads,
                "mini_batch": batch,
                "maxi_batch": -(-len(lines) // batch),
                "maxi_batch_sort": "src",
                "max_length": 1000,
                "max_length_factor": max_length_factor,
                "beam_size": beam,
                "normalize": normalize,
                "stat_freq": "1000000u",
            }
            done = finished([self.executable, "decode", *command_line(options)])
            speed = SPEED.search("\n".join(line for _, line in done.lines))
            if speed is None:
                raise ProcessError(f"{self.executable} decode does not say how long it took")
            return float(speed[1]), target.read_text(encoding="utf-8").splitlines()
