"""What the environment tells of the launcher of a process."""

from __future__ import annotations

import pytest

from mgraph import DeviceError
from nmt.runtime.launchers import Launch, found

OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "5"}


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        (OPEN_MPI, Launch("Open MPI", 3, 4, 1)),
        (SLURM, Launch("SLURM", 2, 4, 0)),
        (KUBERNETES, Launch("Kubernetes", 5)),
        (SLURM | OPEN_MPI, Launch("Open MPI", 3, 4, 1)),
        (KUBERNETES | SLURM, Launch("SLURM", 2, 4, 0)),
    ],
)
def test_a_launch_is_found(environment: dict[str, str], launch: Launch) -> None:
    assert found(environment) == launch


@pytest.mark.parametrize("launcher", [OPEN_MPI, SLURM, KUBERNETES])
def test_a_part_of_the_variables_is_no_launch(launcher: dict[str, str]) -> None:
    for missing in launcher:
        assert found({name: value for name, value in launcher.items() if name != missing}) is None


def test_a_single_process_is_no_launch() -> None:
    assert found({}) is None
    assert found(SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is None
    assert found(OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}) is None


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (SLURM | {"SLURM_PROCID": "x"}, "SLURM_PROCID: expected a number from 0, got 'x'"),
        (SLURM | {"SLURM_LOCALID": "-1"}, "SLURM_LOCALID: expected a number from 0, got '-1'"),
        (SLURM | {"SLURM_PROCID": "4"}, "SLURM_PROCID: expected a number below SLURM_NTASKS 4, got 4"),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": ""},
            "OMPI_COMM_WORLD_SIZE: expected a number from 0, got ''",
        ),
        (
            KUBERNETES | {"JOB_COMPLETION_INDEX": "1.5"},
            "JOB_COMPLETION_INDEX: expected a number from 0, got '1.5'",
        ),
    ],
)
def test_bad_numbers_are_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(DeviceError) as error:
        found(environment)
    assert str(error.value) == said
