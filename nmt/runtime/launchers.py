"""How this process was launched: alone, or by SLURM, Open MPI or Kubernetes as one of several.

Only the environment is read; JAX is not started. ``jax.distributed.initialize`` looks at the same variables,
in the same order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

from mgraph import DeviceError

OPEN_MPI, SLURM, KUBERNETES = "Open MPI", "SLURM", "Kubernetes"
_PORT, _SLURM_JOB = "JAX_COORDINATOR_PORT", "SLURM_JOB_ID"


@dataclass(frozen=True, slots=True)
class Launch:
    """One of several processes that a launcher started.

    launcher: its name; empty if there is none. index: the number of this process, from 0. count: how many
    processes there are; None if the environment does not say (Kubernetes). local_index: the number of this
    process among those on its host, from 0; None if unknown.
    """

    launcher: str
    index: int
    count: int | None = None
    local_index: int | None = None


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of a launcher; a process that lacks one of them was not started by it.

    index, count, local_index: the variables for the fields of ``Launch``. others: must be set, too.
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
    # A batch script or a shell on a node has only some of these; the tasks of srun have all.
    _Launcher(
        SLURM,
        index="SLURM_PROCID",
        count="SLURM_NTASKS",
        local_index="SLURM_LOCALID",
        others=(_SLURM_JOB, "SLURM_STEP_NODELIST"),
    ),
    _Launcher(KUBERNETES, index="JOB_COMPLETION_INDEX", others=("KUBERNETES_SERVICE_HOST",)),
)


def found(environment: Mapping[str, str]) -> Launch | None:
    """The launch that the environment describes; None for a process on its own, or the only one launched.

    DeviceError, naming the variable, for a value that is not a number or does not fit the others.
    """
    for launcher in _LAUNCHERS:
        launch = launcher.launch(environment)
        if launch is not None:
            return None if launch.count == 1 else launch
    return None


def launched(
    num_processes: int = 0, process_id: int = -1, environment: Mapping[str, str] | None = None
) -> Launch:
    """The launch of this process, from the options, which override the environment.

    num_processes: how many there are (``--num-processes``); 0 for as many as the launcher started, else one.
    process_id: the number of this one (``--process-id``); -1 for the launcher's, else 0.
    environment: None for that of this process.

    DeviceError for a process number that is not below the number of processes, and as for ``found``.
    """
    if num_processes == 1 and process_id <= 0:
        return Launch("", 0, 1)
    launch = found(os.environ if environment is None else environment) or Launch("", 0, 1)
    launch = replace(launch, count=num_processes or launch.count)
    if process_id >= 0:
        launch = replace(launch, index=process_id)
    if launch.count is not None and launch.index >= launch.count:
        whose = "--process-id" if process_id >= 0 else f"the number that {launch.launcher} gave"
        raise DeviceError(f"{whose}: expected one below --num-processes {launch.count}, got {launch.index}")
    return launch


def detection(launch: Launch, environment: Mapping[str, str]) -> str | None:
    """How JAX is to find the first process: a ``cluster_detection_method``; None for JAX's own choice.

    DeviceError if there is no launcher, if JAX needs a package for it that is missing, or, naming the
    variable, if the port is invalid.
    """
    port = environment.get(_PORT)
    if port and not is_port(port):
        raise DeviceError(f"{_PORT}: expected a port below 65536, got '{port}'")
    if launch.launcher == SLURM:
        if not port and _SLURM_JOB in environment:  # then JAX derives one from the job's number
            _number(_SLURM_JOB, environment[_SLURM_JOB])
        return "slurm"
    if launch.launcher == OPEN_MPI and not _is_open_mpi_5(environment):
        return "ompi"
    if launch.launcher == OPEN_MPI:
        _require("mpi4py", "Open MPI 5", "--coordinator HOST:PORT")
        return "mpi4py"
    if launch.launcher == KUBERNETES:
        _require("kubernetes", KUBERNETES, "--coordinator HOST:PORT --num-processes N")
        return None
    raise DeviceError(f"--num-processes {launch.count} needs --coordinator HOST:PORT")


def is_port(text: str) -> bool:
    """Whether the text is the number of a port."""
    return bool(re.fullmatch("[0-9]{1,5}", text)) and 0 < int(text) < 1 << 16


def _is_open_mpi_5(environment: Mapping[str, str]) -> bool:
    """Whether the launcher is Open MPI 5 or newer, which does not say where the first process runs."""
    major = environment.get("OMPI_VERSION", "").partition(".")[0]
    return int(major) >= 5 if major.isdecimal() else "OMPI_MCA_orte_hnp_uri" not in environment


def _require(package: str, launcher: str, options: str) -> None:
    if find_spec(package) is None:
        raise DeviceError(
            f"JAX finds the first of the processes that {launcher} started with the package {package}, which "
            f"is not installed: pip install {package}, or give {options}; --num-processes 1 trains alone"
        )


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise DeviceError(f"{name}: expected a number from 0, got '{text}'")
    return int(text)
