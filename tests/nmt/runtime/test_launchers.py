"""What the environment says about a process's launcher."""

from __future__ import annotations

import pytest

from mgraph import DeviceError
from nmt.runtime import launchers
from nmt.runtime.launchers import Launch, detection, found, launched

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


@pytest.mark.parametrize(
    ("num_processes", "process_id", "environment", "launch"),
    [
        (0, -1, {}, Launch("", 0, 1)),
        (2, 1, {}, Launch("", 1, 2)),
        (0, -1, SLURM, Launch("SLURM", 2, 4, 0)),
        (8, 7, SLURM, Launch("SLURM", 7, 8, 0)),
        (1, -1, SLURM, Launch("", 0, 1)),
        (6, -1, KUBERNETES, Launch("Kubernetes", 5, 6)),
        (0, -1, KUBERNETES, Launch("Kubernetes", 5)),
    ],
)
def test_options_override_the_environment(
    num_processes: int, process_id: int, environment: dict[str, str], launch: Launch
) -> None:
    assert launched(num_processes, process_id, environment) == launch


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(DeviceError, match="--process-id: expected one below --num-processes 1, got 1"):
        launched(0, 1, {})
    with pytest.raises(DeviceError, match="Kubernetes gave: expected one below --num-processes 5, got 5"):
        launched(5, -1, KUBERNETES)


def test_how_jax_finds_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, open_mpi, kubernetes = found(SLURM), found(OPEN_MPI), found(KUBERNETES)
    assert slurm and open_mpi and kubernetes
    assert detection(slurm, SLURM) == "slurm"
    port = {"JAX_COORDINATOR_PORT": "4711"}
    assert detection(slurm, SLURM | port | {"SLURM_JOB_ID": "abc"}) == "slurm"
    with pytest.raises(DeviceError, match="SLURM_JOB_ID: expected a number from 0, got 'abc'"):
        detection(slurm, SLURM | {"SLURM_JOB_ID": "abc"})
    with pytest.raises(DeviceError, match="JAX_COORDINATOR_PORT: expected a port below 65536, got '65536'"):
        detection(slurm, SLURM | {"JAX_COORDINATOR_PORT": "65536"})
    assert detection(open_mpi, OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:1"}) == "ompi"
    for installed in (None, object()):
        monkeypatch.setattr(launchers, "find_spec", lambda name, found=installed: found)
        for launch, environment, package, method in (
            (open_mpi, OPEN_MPI, "mpi4py", "mpi4py"),
            (open_mpi, OPEN_MPI | {"OMPI_VERSION": "5.0.3"}, "mpi4py", "mpi4py"),
            (kubernetes, KUBERNETES, "kubernetes", None),
        ):
            if installed:
                assert detection(launch, environment) == method
                continue
            with pytest.raises(DeviceError, match=f"pip install {package}, or give --coordinator HOST:PORT"):
                detection(launch, environment)
