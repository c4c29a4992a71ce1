"""The process in which updates of ours or plain JAX are timed: ``python -m benchmarks.training.child``.

Its argument is a JSON object: ``trainer`` (``mgraph`` or ``plain JAX``), ``options`` of ``mgraph train``,
``skipped``, how many batches of the epoch come before the timed ones, and ``updates``, how many are timed.
``Corpus`` makes the batches of both trainers while they train, in the shapes that it chooses: packed for
ours, padded for plain JAX.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import jax

from benchmarks.measuring import answering
from benchmarks.measuring.kernels import profiled
from benchmarks.measuring.launcher import UNIT
from benchmarks.peers.plain_jax import adam
from benchmarks.training.work import work_of
from mgraph.running.memory import MemoryUse
from nmt.runtime import compilation_cache, devices
from nmt.settings import TRAIN
from nmt.text.batches import Batch
from nmt.text.corpus import Corpus
from nmt.training.session import Session
from nmt.training.vocabularies import load_or_create_vocabs

LATE = 1_000
"""The number of an epoch so late that all shapes are worth a program."""


class Candidate(Protocol):
    """A trainer."""

    def update(self, batch: Batch) -> None:
        """Begin an update by a batch."""

    def wait(self) -> None:
        """Wait until all updates are done."""

    def prepare(self, batch: Batch) -> None:
        """Compile what an update by such a batch needs."""

    def needs(self, batch: Batch) -> tuple[int, int]:
        """Bytes of the state, and of all that an update by such a batch needs besides, by XLA's analysis."""


class Ours:
    """The learner of ``mgraph train``."""

    def __init__(self, session: Session) -> None:
        self._learner, self._rate, self._number = session.learner, session.options.learn_rate, 0
        self._last: Any = None

    def update(self, batch: Batch) -> None:
        self._number += 1
        self._last = self._learner.update([batch], learn_rate=self._rate, number=self._number)

    def wait(self) -> None:
        jax.block_until_ready(self._last)

    def prepare(self, batch: Batch) -> None:
        self._learner.prepare([batch])

    def needs(self, batch: Batch) -> tuple[int, int]:
        held = self._learner.held
        return held, self._learner.memory(batch) - held


class PlainJax:
    """The step written by hand for this type of model."""

    def __init__(self, session: Session) -> None:
        values, options = session.options, session.model_options
        loss = import_module(f"benchmarks.peers.plain_jax.{options.type}").loss
        self._state = adam.start(session.learner.params(smoothed=False))
        self._step = adam.step_of(partial(loss, options, values.label_smoothing), values.learn_rate)
        self._last: Any = None

    def update(self, batch: Batch) -> None:
        self._state, self._last = self._step(self._state, self._arrays(batch))

    def wait(self) -> None:
        jax.block_until_ready(self._last)

    def prepare(self, batch: Batch) -> None:
        self._compiled(batch)

    def needs(self, batch: Batch) -> tuple[int, int]:
        held = sum(leaf.nbytes for leaf in jax.tree.leaves(self._state))
        return held, MemoryUse.of(self._compiled(batch), None).needed - held

    def _compiled(self, batch: Batch) -> Any:
        return self._step.lower(self._state, self._arrays(batch)).compile()

    def _arrays(self, batch: Batch) -> tuple[Any, ...]:
        return batch.ids[0], batch.masks[0], batch.ids[1], batch.masks[1]


CANDIDATES: dict[str, Callable[[Session], Candidate]] = {"mgraph": Ours, "plain JAX": PlainJax}


class Timing:
    """The same updates, timed again and again."""

    def __init__(self, trainer: str, options: Mapping[str, Any], skipped: int, updates: int) -> None:
        values = TRAIN.from_python(dict(options))
        compilation_cache.use(values.compilation_cache)
        devices.start_all(values.cpu_threads, values.devices, values.cpu_devices)
        session = Session(values, lambda: False)
        self._skipped, self._updates = skipped, updates
        self._model_options = session.model_options
        self._corpus, self._candidate = session.corpus, CANDIDATES[trainer](session)
        if not isinstance(self._candidate, Ours):
            vocabs, *_ = load_or_create_vocabs(session.options)
            price = session.learner.program
            self._corpus = Corpus(session.options, vocabs, seed=session.seed, program=price)

    def prepare(self) -> dict[str, Any]:
        """Compile what the updates need, by an update in each of their shapes."""
        start = time.perf_counter()
        shapes = {(batch.shape, batch.packed): batch for batch in self._batches()}
        for batch in shapes.values():
            self._candidate.update(batch)
            self._candidate.wait()
        return {
            "shapes": len(shapes),
            "seconds": time.perf_counter() - start,
        }

    def run(self) -> dict[str, Any]:
        """Seconds for the updates, and the target words in them."""
        batches = self._batches()
        following = next(batches, None)  # so that nothing is read from files while the clock runs
        words = 0
        start = time.perf_counter()
        while following is not None:
            self._candidate.update(following)
            words += following.words
            following = next(batches, None)
        self._candidate.wait()
        return {"seconds": time.perf_counter() - start, "words": words}

    def rest(self) -> dict[str, Any]:
        """Give free memory back: in their turns, the other rows may need all that the machine has."""
        devices.release_freed_memory()
        return {}

    def profile(self, dumped: str) -> dict[str, Any]:
        """The kernels of the updates, by the operators that they come from: see ``profiled``."""
        return profiled(lambda: self.run()["seconds"], Path(dumped))

    def epoch(self) -> dict[str, Any]:
        """The target words of an epoch."""
        self._corpus.restore("", "", 0)
        return {"words": sum(batch.words for batch in self._corpus)}

    def work(self) -> dict[str, Any]:
        """The floating point operations that the updates need per target word."""
        batches = list(self._batches())
        operations = sum(work_of(self._model_options, batch) for batch in batches)
        return {"per_word": operations / sum(batch.words for batch in batches)}

    def memory(self) -> dict[str, Any]:
        """Bytes: of the state; of what the largest of the updates needs besides, by XLA's analysis; of this
        process at its peak; and of a GPU's memory at its peak, 0 on a CPU."""
        largest = max(self._batches(), key=lambda batch: sum(ids.size for ids in batch.ids))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT
        held, more = self._candidate.needs(largest)
        device = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
        return {"held": held, "more": more, "peak": peak, "device": device, "shape": largest.shape}

    def fill(self) -> dict[str, Any]:
        """Compile what the whole epoch needs, so that another process finds it in the compilation cache."""
        self._corpus.restore("", "", 0, epoch=LATE)
        for batch in self._corpus:
            self._candidate.prepare(batch)
        return {}

    def _batches(self) -> Iterator[Batch]:
        """The batches that are timed."""
        corpus = self._corpus
        corpus.restore("", "", self._skipped, epoch=LATE)
        yield from islice(corpus, self._updates)
        corpus.close()


def main() -> None:
    timing = Timing(**json.loads(sys.argv[1]))
    questions = "prepare", "run", "rest", "profile", "epoch", "work", "memory", "fill"
    answering({name: getattr(timing, name) for name in questions})


if __name__ == "__main__":
    main()
