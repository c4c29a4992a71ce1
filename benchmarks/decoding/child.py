"""The process in which ours translates: ``python -m benchmarks.decoding.child``.

Its argument is a JSON object: ``options`` of ``Translator`` for all that is asked, and ``lines`` to
translate.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measuring import answering
from mgraph import compile_stats
from nmt import Translator


class Translating:
    """The same lines, translated again and again."""

    def __init__(self, options: Mapping[str, Any], lines: Sequence[str]) -> None:
        self._options, self._lines = options, lines
        self._translators: dict[tuple[int, int], Translator] = {}

    def decode(self, batch: int, beam: int, normalize: float) -> dict[str, Any]:
        """Seconds of translating all lines in batches of sentences of like length, and the translations."""
        translator = self._translator(batch, beam, normalize)
        before, start = compile_stats(), time.perf_counter()
        lines = translator.translate(self._lines)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "lines": lines, "programs": (compile_stats() - before).misses}

    def latency(self, beam: int, normalize: float, sentences: int) -> dict[str, Any]:
        """The median of the seconds of a sentence, translated by itself."""
        translator = self._translator(1, beam, normalize)
        for line in self._lines[:sentences]:
            translator.translate([line])
        taken = []
        for line in self._lines[:sentences]:
            start = time.perf_counter()
            translator.translate([line])
            taken.append(time.perf_counter() - start)
        return {"seconds": statistics.median(taken)}

    def _translator(self, batch: int, beam: int, normalize: float) -> Translator:
        key = batch, beam
        if key not in self._translators:
            self._translators[key] = Translator(
                **self._options,
                mini_batch=batch,
                maxi_batch=-(-len(self._lines) // batch),
                maxi_batch_sort="src",
                beam_size=beam,
                normalize=normalize,
            )
        return self._translators[key]


def main() -> None:
    logging.getLogger("nmt.runtime.devices").setLevel(
        logging.ERROR
    )  # each translator would limit the threads anew
    translating = Translating(**json.loads(sys.argv[1]))
    answering({name: getattr(translating, name) for name in ("decode", "latency")})


if __name__ == "__main__":
    main()
