"""The process in which ours translates: ``python -m benchmarks.decoding.child``.

Its argument is a JSON object: the options of ``Translator`` for all questions.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measuring import answering
from benchmarks.measuring.kernels import profiled
from mgraph import compile_stats
from nmt import Translator


class Translating:
    """A model, translating again and again."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._translators: dict[tuple[int, int, int], Translator] = {}

    def decode(self, lines: Sequence[str], batch: int, beam: int, normalize: float) -> dict[str, Any]:
        """Seconds of translating all lines, the translations, and how many programs were compiled.

        One call gets all lines, whatever the batch. Batches of 1 are an exception: each line is then a
        separate call, and as many calls run in parallel as there are threads.
        """
        translator = self._translator(batch, beam, normalize, -(-len(lines) // batch))
        before, start = compile_stats(), time.perf_counter()
        found = self._one_by_one(translator, lines) if batch == 1 else translator.translate(lines)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "lines": found, "programs": (compile_stats() - before).misses}

    def calls(self, lines: Sequence[str], batch: int, beam: int, normalize: float) -> dict[str, Any]:
        """The translations, in calls of ``batch`` lines."""
        translator = self._translator(batch, beam, normalize, 1)
        each = (lines[start : start + batch] for start in range(0, len(lines), batch))
        return {"lines": [found for call in each for found in translator.translate(call)]}

    def latency(self, lines: Sequence[str], batch: int, beam: int, normalize: float) -> dict[str, Any]:
        """Seconds of each line, translated by itself; and how many programs were compiled."""
        translator = self._translator(batch, beam, normalize, 1)
        before, taken = compile_stats(), []
        for line in lines:
            start = time.perf_counter()
            translator.translate([line])
            taken.append(time.perf_counter() - start)
        return {"seconds": taken, "programs": (compile_stats() - before).misses}

    def profile(
        self, lines: Sequence[str], batch: int, beam: int, normalize: float, dumped: str
    ) -> dict[str, Any]:
        """The kernels of ``latency``, or of ``decode`` for batches of several lines: see ``profiled``."""

        def run() -> float:
            if batch == 1:
                return sum(self.latency(lines, batch, beam, normalize)["seconds"])
            return self.decode(lines, batch, beam, normalize)["seconds"]

        return profiled(run, Path(dumped))

    def _one_by_one(self, translator: Translator, lines: Sequence[str]) -> list[str]:
        with ThreadPoolExecutor(self._options.get("cpu_threads") or 1) as callers:
            return list(callers.map(lambda line: translator.translate([line])[0], lines))

    def _translator(self, batch: int, beam: int, normalize: float, batches: int) -> Translator:
        key = batch, beam, batches
        if key not in self._translators:
            self._translators[key] = Translator(
                **self._options,
                mini_batch=batch,
                maxi_batch=batches,
                maxi_batch_sort="src",
                beam_size=beam,
                normalize=normalize,
            )
        return self._translators[key]


def main() -> None:
    # Each translator would limit the threads again, and log it.
    logging.getLogger("nmt.runtime.devices").setLevel(logging.ERROR)
    translating = Translating(json.loads(sys.argv[1]))
    answering({name: getattr(translating, name) for name in ("decode", "calls", "latency", "profile")})


if __name__ == "__main__":
    main()
