"""How this process was launched: alone, or by SLURM, Open MPI or Kubernetes as one of several.

Only the environment is read; JAX is not started. ``jax.distributed.initialize`` looks at the same variables,
in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mgraph import DeviceError

OPEN_MPI, SLURM, KUBERNETES = "Open MPI", "SLURM", "Kubernetes"


@dataclass(frozen=True, slots=True)
class Launch:
    """One of several processes that a launcher started.

    launcher: its name. index: the number of this process, from 0. count: how many there are; None if the
    environment does not tell (Kubernetes). local_index: the number of this process among those on its host,
    from 0; None if unknown.
    """

    launcher: str
    index: int
    count: int | None = None
    local_index: int | None = None


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of a launcher; a process that lacks one of them was not started by it.

    index, count, local_index: the variables of the fields of ``Launch``. others: must be there, too.
    """

    name: str
    index: str
    count: str = ""
    local_index: str = ""
    others: tuple[str, ...] = ()

    def launch(self, environment: Mapping[str, str]) -> Launch | None:
        own = tuple(filter(None, (self.index, self.count, self.local_index)))
        if not all(name in environment for name in (*own, *self.others)):
            return None
        numbers = {name: _number(name, environment[name]) for name in own}
        index, count = numbers[self.index], numbers.get(self.count)
        if count is not None and index >= count:
            raise DeviceError(f"{self.index}: expected a number below {self.count} {count}, got {index}")
        return Launch(self.name, index, count, numbers.get(self.local_index))


_LAUNCHERS = (
    _Launcher(
        OPEN_MPI,
        index="OMPI_COMM_WORLD_RANK",
        count="OMPI_COMM_WORLD_SIZE",
        local_index="OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    # A batch script or a shell on a node has only some of these: the tasks of srun have all.
    _Launcher(
        SLURM,
        index="SLURM_PROCID",
        count="SLURM_NTASKS",
        local_index="SLURM_LOCALID",
        others=("SLURM_JOB_ID", "SLURM_STEP_NODELIST"),
    ),
    _Launcher(KUBERNETES, index="JOB_COMPLETION_INDEX", others=("KUBERNETES_SERVICE_HOST",)),
)


def found(environment: Mapping[str, str]) -> Launch | None:
    """The launch that the environment tells of; None for a process on its own, or the only one launched.

    DeviceError, naming the variable, for one that is not a number or does not fit the others.
    """
    for launcher in _LAUNCHERS:
        launch = launcher.launch(environment)
        if launch is not None:
            return None if launch.count == 1 else launch
    return None


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise DeviceError(f"{name}: expected a number from 0, got '{text}'")
    return int(text)
