"""What updates exchange according to their compiled programs, for devices that are parts of a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from benchmarks.scaling.collectives import Collective, collectives
from benchmarks.scaling.exchange import Work
from mgraph import Adam
from mgraph.running.memory import MemoryUse
from nmt.files import create_model
from nmt.text.packing import WIDTH
from nmt.training.learning.fit import full_batch
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import LossOptions, Objective
from nmt.training.learning.placement import placement_on
from nmt.training.learning.step import UpdateStep


def learner(work: Work, used: Sequence[jax.Device]) -> Learner:
    """The learner of a new model on the first of these devices."""
    placement = placement_on(used[: work.devices], shard_state=work.shard_state, tensor_parallel=work.parts)
    objective = Objective(create_model(work.options, seed=1), LossOptions(0.1))
    return Learner(objective, UpdateStep(Adam(1e-4)), seed=1, placement=placement)


class Compiled(NamedTuple):
    """The two programs of an update."""

    gradient: list[Collective]
    update: list[Collective]
    memory: int
    """The bytes that the larger one needs on each device."""


def compiled(trainer: Learner, work: Work) -> Compiled:
    """The programs of an update with sentences of ``WIDTH`` words and as many positions as the work has; the
    first is that of the update's last batch."""
    batch = full_batch(work.groups * work.target // WIDTH, WIDTH, 2)
    programs = trainer.analysed(batch, last_of_several=work.batches > 1)
    exchanged = (list(collectives(program.as_text())) for program in programs)
    return Compiled(*exchanged, max(MemoryUse.of(program, None).needed for program in programs))
