"""Timed runs of several candidates, taken in turn, so that a slow moment of the machine affects them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from .processes import ProcessError


@dataclass(frozen=True)
class Samples:
    """One figure per round, in the order of the rounds; lower is better where it is a time."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        if len(self.values) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return (high - low) / 2 / self.median if self.median else 0.0

    def over(self, other: Samples) -> Samples:
        """The ratio of this figure to another's, round by round."""
        return Samples(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def minus(self, other: Samples) -> Samples:
        """The difference, round by round."""
        return Samples(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def times(self, factor: float) -> Samples:
        """The same in another unit."""
        return Samples(tuple(factor * value for value in self.values))

    def rates(self, amount: float) -> Samples:
        """The amounts per second, where these are the seconds that ``amount`` took."""
        return Samples(tuple(amount / seconds for seconds in self.values))


def alternate(
    candidates: Mapping[str, Callable[[], Any]],
    rounds: int = 5,
    warm_up: int = 1,
    *,
    left_out: Callable[[str, ProcessError], None] | None = None,
) -> dict[str, Samples]:
    """Seconds that each candidate takes, run in turn for this many rounds.

    Before that, each candidate is run ``warm_up`` times. Its results are waited for
    (``jax.block_until_ready``). A candidate that times itself (another process, which first loads its model)
    returns a ``float``: its own seconds. One that fails with a ``ProcessError`` is reported to ``left_out``
    and is not in the result; without ``left_out`` the error is raised.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}

    def attempt(name: str) -> None:
        start = time.perf_counter()
        try:
            result = jax.block_until_ready(candidates[name]())
        except ProcessError as error:
            if left_out is None:
                raise
            del seconds[name]
            left_out(name, error)
            return
        elapsed = time.perf_counter() - start
        seconds[name].append(result if isinstance(result, float) else elapsed)

    for name in candidates:
        for _ in range(warm_up):
            if name in seconds:
                attempt(name)
    for values in seconds.values():
        values.clear()
    for _ in range(rounds):
        for name in list(seconds):
            attempt(name)
    return {name: Samples(tuple(values)) for name, values in seconds.items()}
