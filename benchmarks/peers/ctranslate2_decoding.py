"""Translation by CTranslate2, a peer: processes of a Python that has CTranslate2."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import Child, finished
from benchmarks.peers import ctranslate2_script

SCRIPT = str(ctranslate2_script.__file__)


@dataclass(frozen=True)
class CTranslate2:
    """A Marian model as CTranslate2 decodes with it.

    python: that of an environment with the package ``ctranslate2``. model, vocabs: paths of Marian's files (a
    transformer; vocabularies in YAML). folder: where the converted model is kept. precision: ``float32`` or
    ``int8``. workers, threads: how many batches run in parallel (``inter_threads``), and how many threads
    each has (``intra_threads``).
    """

    python: str
    model: str
    vocabs: tuple[str, ...]
    folder: Path
    precision: str
    workers: int
    threads: int

    def job(self, source: Path, target: Path, *, batch: int, beam: int, normalize: float) -> list[str]:
        """The command that translates a file."""
        paths = {"input": str(source), "output": str(target)}
        return self._command("job", **paths, batch=batch, beam=beam, normalize=normalize)

    def child(self) -> Child:
        """A process that answers ``decode`` and ``latency``."""
        python, _, argument = self.serving()
        return Child(SCRIPT, argument, python=[python])

    def serving(self) -> list[str]:
        """The command of that process."""
        return self._command("serve")

    def _command(self, action: str, **given: Any) -> list[str]:
        """A command that needs the converted model, which is made if it does not exist. ProcessError if
        CTranslate2 cannot convert it."""
        folder = self.folder / f"ctranslate2-{self.precision}"
        if not folder.exists():
            self._convert(folder)
        numbers = {"workers": self.workers, "threads": self.threads}
        return self._script(
            {"action": action, "folder": str(folder), "precision": self.precision, **numbers, **given}
        )

    def _convert(self, folder: Path) -> None:
        task = {"action": "convert", "model": self.model, "vocabs": self.vocabs, "folder": str(folder)}
        finished(self._script({**task, "precision": self.precision}))

    def _script(self, task: dict[str, Any]) -> list[str]:
        return [self.python, SCRIPT, json.dumps(task)]


def settings(threads: int) -> Sequence[tuple[int, int]]:
    """Workers and threads of each, for this many threads in all; for most models one of these is best."""
    return [(1, 1)] if threads == 1 else [(threads, 1), (1, threads)]
