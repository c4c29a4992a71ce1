"""``--mini-batch-fit``: fill the memory with sentences, using XLA's memory analysis of compiled updates."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from mgraph import ArgumentError
from mgraph.device import memory_of
from nmt.settings.training import TrainOptions
from nmt.text.background import Stopped
from nmt.text.batches import Batch
from nmt.text.shapes import length_bucket
from nmt.training.learning.learner import Learner
from nmt.training.schedule.state import progress

logger = logging.getLogger(__name__)

MIB = 1 << 20
EIGHT = 8
"""Rows per group of devices are a multiple of this, unless there are fewer."""
FULL, AIM = 0.9, 0.96
"""The search ends once a program takes at least the first share of the workspace; it aims at the second."""
GROWTH = 16
"""The largest growth of the number of rows from one measured program to the next."""

Memory = Callable[[int, int], int]
"""The bytes that an update needs, as a function of rows and sentence length."""


class Fit:
    """How many rows fit into a workspace; called with the lengths of all streams, whose maximum counts.

    A few programs are compiled: for each of the lengths ``step``, twice that and so on up to ``longest``,
    with varying numbers of rows until a program nearly fills the workspace, which the first usually does.
    Memory is interpolated linearly in rows and in length, and extrapolated in proportion to rows. Because
    memory is nearly convex in both, and above 0 without rows, this underestimates it little if at all: in
    measurements, programs exceeded the workspace by at most 7 % (an s2s, between lengths of 10 and 20).

    memory: bytes that a program needs in addition to the learner's state. workspace: bytes. step: the
    granularity of lengths. longest: the greatest length, rounded up to a multiple of ``step``. groups: how
    many groups of devices share the rows; the number of rows is a multiple of ``groups``. multiplier: scales
    the result, for batches that are split before they are computed.

    ArgumentError if one row per group does not fit.
    """

    def __init__(
        self,
        memory: Memory,
        workspace: int,
        *,
        step: int,
        longest: int,
        groups: int = 1,
        multiplier: float = 1.0,
    ) -> None:
        self._memory, self._workspace, self._step = memory, workspace, step
        self._groups, self._multiplier = groups, multiplier
        self._longest = -(-longest // step) * step
        self._rows: dict[int, int] = {}
        self._needs: dict[int, dict[int, int]] = {length: {} for length in self._lengths()}
        least = self._least(step)
        for needs in self._needs.values():
            needs[0] = least
        words = GROWTH * EIGHT * groups * step
        for length in self._needs:
            words = self._search(length, words // length) * length

    def __call__(self, lengths: tuple[int, ...]) -> int:
        """How many sentences of at most these lengths make a batch."""
        return math.ceil(self._fitting(max(*lengths, self._step)) * self._multiplier)

    @property
    def typical_words(self) -> int:
        """The mean number of target words in a batch, over all lengths."""
        lengths = range(self._step, self._longest + 1, self._step)
        return sum(self((length,)) * length for length in lengths) // len(lengths)

    def _lengths(self) -> list[int]:
        """The lengths to measure."""
        found = [self._step]
        while found[-1] < self._longest:
            found.append(min(2 * found[-1], self._longest))
        return found

    def _look(self, rows: int, length: int) -> int:
        """The bytes that a program needs; each is measured once."""
        needs = self._needs[length]
        if rows not in needs:
            needs[rows] = self._memory(rows, length)
        return needs[rows]

    def _least(self, length: int) -> int:
        """The bytes that one row per group needs; ArgumentError if it does not fit."""
        needed = self._look(self._groups, length)
        if needed > self._workspace:
            raise ArgumentError(
                f"--mini-batch-fit: {self._groups} sentences of {length} words, one for each group of"
                f" devices, need {needed / MIB:.0f} MB, more than --workspace {self._workspace / MIB:.0f}"
            )
        return needed

    def _fitting(self, length: int) -> int:
        """The rows for sentences of a length, which is at least the step."""
        if length > self._longest:  # memory is at worst quadratic in the length
            rows = self._fitting(self._longest) * self._longest**2 // length**2
            return self._even(max(rows, self._groups))
        if length not in self._rows:
            low, high = self._groups, max(max(needs) for needs in self._needs.values())
            while low < high:
                middle = -(-(low + high) // 2)
                low, high = (middle, high) if self._fits(middle, length) else (low, middle - 1)
            self._rows[length] = self._even(low)
        return self._rows[length]

    def _even(self, rows: int) -> int:
        """``rows`` rounded down to a number that computes efficiently."""
        unit = self._groups * (EIGHT if rows >= EIGHT * self._groups else 1)
        return rows // unit * unit

    def _fits(self, rows: int, length: int) -> bool:
        lengths = sorted(self._needs)
        needs = [self._needed(rows, known) for known in lengths]
        return float(np.interp(length, lengths, needs)) <= self._workspace

    def _needed(self, rows: int, length: int) -> float:
        """An upper bound on the bytes for rows of a measured length: interpolated, or extrapolated from 0."""
        needs = self._needs[length]
        known = sorted(needs)
        if rows > known[-1]:
            return needs[known[-1]] * rows / known[-1]
        return float(np.interp(rows, known, [needs[have] for have in known]))

    def _search(self, length: int, guess: int) -> int:
        """Measure programs of a length until one nearly fills the workspace; returns its rows."""
        needs, rows = self._needs[length], max(self._even(guess), self._groups)
        while rows not in needs:
            if FULL * self._workspace <= self._look(rows, length) <= self._workspace:
                return rows
            if self._estimate(length) < self._groups:
                self._least(length)
            rows = max(min(self._estimate(length), GROWTH * max(needs)), self._groups)
        return rows

    def _estimate(self, length: int) -> int:
        """The number of rows to measure next for a length, estimated from its measurements so far."""
        steps, aim = list(pairwise(sorted(self._needs[length].items()))), AIM * self._workspace
        (r0, m0), (r1, m1) = next((step for step in steps if step[1][1] > aim), steps[-1])
        slope = max((m1 - m0) / (r1 - r0), 1.0)
        return self._even(r0 + int((aim - m0) / slope))


def fitting(
    learner: Learner,
    options: TrainOptions,
    least: Callable[[int], int] = lambda number: number,
    stopped: Callable[[], bool] = lambda: False,
) -> Fit | None:
    """The batch sizes for ``mini-batch-fit``, ``mini-batch-fit-step`` and ``workspace``; ``None`` without
    ``mini-batch-fit``.

    The workspace is each device's memory for the values of an update and their gradients; parameters, moments
    and averages come on top. A negative workspace is the device's memory minus that many MB.
    ``optimizer-delay`` multiplies the batch, unless batches grow (``mini-batch-warmup``). ArgumentError if
    one sentence does not fit.

    least: returns the smallest of the numbers with which the processes of this training call it. stopped:
    called before each program, at the same points in all processes; Stopped is raised once it returns True.

    Source: Marian, ``GraphGroup::collectStats``, which tries sizes instead.
    """
    if not options.mini_batch_fit:
        return None
    delay, step = options.optimizer_delay, options.mini_batch_fit_step
    grows = progress(options.mini_batch_warmup, "--mini-batch-warmup").n > 0
    streams = learner.objective.model.sources + 1
    extras = [name in options.extra_fields for name in ("data-weighting", "guided-alignment")]

    def memory(rows: int, length: int) -> int:
        if stopped():
            raise Stopped
        batch = full_batch(rows, length, streams, *extras)
        needed = learner.memory(batch, last_of_several=grows or delay > 1, keep=False)
        return needed - learner.held

    workspace = options.workspace * MIB
    if workspace < 0:
        workspace += least(memory_of(None) // MIB) * MIB - learner.held
    logger.info("[batching] Collecting statistics for batch fitting with step size %d", step)
    fit = Fit(
        memory,
        workspace,
        step=step,
        longest=length_bucket(options.max_length),
        groups=learner.placement.groups,
        multiplier=1.0 if grows else delay,
    )
    logger.info("[batching] Done. Typical MB size is %s target words", f"{fit.typical_words:,}")
    return fit


def full_batch(rows: int, length: int, streams: int, weights: bool = False, alignment: bool = False) -> Batch:
    """A batch of this shape without padding, for measuring programs; every word has id 0."""
    ids = np.broadcast_to(np.int32(0), (rows, length))
    mask = np.broadcast_to(np.float32(1), (rows, length))
    return Batch(
        (ids,) * streams,
        (mask,) * streams,
        rows,
        mask if weights else None,
        np.broadcast_to(np.float32(0), (rows, length, length)) if alignment else None,
    )
