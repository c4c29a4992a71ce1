"""A lane of beam search on the device, as the host sees it; ``lane_loop`` says what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import Plan, compiled
from mgraph.device import platform_of
from nmt.models import Model, PackedSource, Source
from nmt.search.encoding import EncodePlan, params_of
from nmt.search.lane_loop import LaneLoop
from nmt.search.lane_state import Arrivals, LaneReport, LaneShape, spec
from nmt.search.trellis import Arrays, Ranking, Sentences


@dataclass(frozen=True)
class LanePlan(Plan, by_key=["models"], code=["layers", "nmt"]):
    """``LaneLoop.advance`` for models of these shapes.

    ranked: whether searches may end early.
    """

    models: tuple[Model, ...]
    shape: LaneShape
    ranked: bool

    @property
    def donated(self) -> tuple[int, ...]:
        return (1,)

    def __str__(self) -> str:
        return f"beam search: {self.shape}"

    def inputs(self) -> tuple[Any, ...]:
        loop, number = LaneLoop(self.models, self.shape), spec(kind=np.float32)
        ranking = Ranking(number, number) if self.ranked else None
        weights = spec(len(self.models), kind=np.float32)
        return params_of(self.models), loop.empty(), loop.arrivals(), weights, ranking, spec(), spec()

    def __call__(self, *arguments: Any) -> Any:
        return LaneLoop(self.models, self.shape).advance(*arguments)


def blank(specs: Any, device: jax.Device) -> Any:
    """Zeros on a device: made by NumPy for a CPU, which takes no program; made on any other device itself, so
    that gigabytes are not copied.

    Either way they are committed to the device, like the results of stored programs; otherwise JAX would
    compile for both kinds of arrays.
    """
    if platform_of(device) == "cpu":
        return jax.tree.map(lambda spec: jax.device_put(np.zeros(spec.shape, spec.dtype), device), specs)
    place = jax.sharding.SingleDeviceSharding(device)
    return jax.tree.map(lambda spec: jnp.zeros(spec.shape, spec.dtype, device=place), specs)


class Lane:
    """The rows of a lane on a device, and which of its desks are taken.

    device: None for the one that holds the models' parameters. Parameters passed to methods must be on it.
    """

    def __init__(
        self,
        models: tuple[Model, ...],
        shape: LaneShape,
        *,
        ranked: bool,
        device: jax.Device | None = None,
    ) -> None:
        self.shape, self._models, self._device = shape, models, device
        self._advance = compiled(LanePlan(models, shape, ranked), device=device)
        if device is None:
            device, *_ = next(iter(models[0].params.values())).devices()
        self._state = blank(self._advance.inputs()[1], device)
        self._waiting: Arrivals | None = None
        self.taken = np.zeros(shape.desks, bool)
        self._candidates = np.zeros((shape.desks, shape.candidates), np.int32)

    @property
    def bytes(self) -> int:
        """How much memory the rows take, mostly keys and values."""
        return sum(array.nbytes for array in jax.tree.leaves(self._state))

    def wait(
        self,
        params: Sequence[Arrays],
        sources: Sequence[Source] | Sequence[PackedSource],
        sentences: Sentences,
        count: int,
    ) -> np.ndarray:
        """Encode sentences and let them wait at free desks; returns these desks. The arrays have ``waiting``
        rows, of which the first ``count`` hold sentences."""
        shape, size = self.shape, sources[0].ids.shape
        sizes = shape.waiting, shape.entering, len(sources), shape.length
        plan = EncodePlan(self._models, *sizes, shape.bins, size)
        encoded = compiled(plan, device=self._device)(params, sources)
        free = np.flatnonzero(~self.taken)[:count]
        desks = np.resize(free, self.shape.waiting).astype(np.int32)
        self._waiting = Arrivals(np.int32(count), desks, sentences, encoded)
        self.taken[free] = True
        if shape.candidates:
            self._candidates[free] = sentences.candidates[:count]
            listed, columns = self._listed()
            self._waiting = replace(self._waiting, listed=listed, columns=columns)
        return free

    def _listed(self) -> tuple[np.ndarray, np.ndarray]:
        """The words in the shortlist of any sentence that waits or is in a row, and the place of each
        candidate among these words."""
        size = self.shape.rules.words
        if self.shape.listed == size:
            return np.arange(size, dtype=np.int32), self._candidates.copy()
        places = np.zeros(size, np.int32)
        places[self._candidates[self.taken]] = 1
        words = np.flatnonzero(places).astype(np.int32)
        places[words] = np.arange(len(words))
        return np.resize(words, self.shape.listed), places[self._candidates]

    def advance(
        self, params: Sequence[Arrays], weights: np.ndarray, ranking: Ranking | None, enough: int, most: int
    ) -> tuple[np.ndarray, LaneReport]:
        """Search until no sentence waits, and at most ``enough`` sentences are unfinished or ``most`` steps
        are done.

        Returns the desks of finished sentences, which are free again, and the report on all, in NumPy arrays.
        """
        assert self._waiting is not None
        given = self._state, self._waiting, weights, ranking, np.int32(enough), np.int32(most)
        self._waiting = replace(self._waiting, count=np.int32(0))
        self._state, report = self._advance(params, *given)
        report = jax.device_get(report)
        done = np.flatnonzero(report.outcomes)
        self.taken[done] = False
        return done, report
