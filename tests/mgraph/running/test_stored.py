"""Traced programs that are kept in a folder."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import ArgumentError, Plan, clear_programs, compiled, register_arrays, register_tuple
from mgraph.running import stored
from tests.helpers.places import ROOT

X = np.arange(3, dtype=np.float32)
SPEC = jax.ShapeDtypeStruct(X.shape, X.dtype)
HERE = __name__.partition(".")[0]


class Sign(Enum):
    """A value of keys."""

    PLUS = 1
    MINUS = -1


@register_arrays
@dataclass(frozen=True)
class Both:
    """Arrays that a program returns."""

    scaled: Any
    missing: Any = None


@register_tuple
class Given(NamedTuple):
    """Arrays that a program takes."""

    x: Any


@dataclass(frozen=True)
class SignedPlan(Plan, code=[HERE]):
    """``sign * factor * x``; counts how often it is traced."""

    sign: Sign
    factor: Any

    def inputs(self) -> tuple[Any, ...]:
        return (Given(SPEC),)

    def __call__(self, given: Given) -> Both:
        TRACED.append(self)
        return Both(self.sign.value * self.factor * given.x)


TRACED: list[SignedPlan] = []


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of traced programs, empty at first; editing source files while tests run does no harm."""
    found = tmp_path / stored.FOLDER
    monkeypatch.setattr(stored, "folder", lambda: found)
    monkeypatch.setattr(stored, "_BEGUN", math.inf)
    TRACED.clear()
    return found


def run(plan: SignedPlan) -> int:
    """Run a plan as in a process that has not seen it; return how often it was traced."""
    clear_programs()
    before = len(TRACED)
    found = compiled(plan)(Given(X))
    assert isinstance(found, Both) and found.missing is None
    np.testing.assert_array_equal(found.scaled, plan.sign.value * plan.factor * X)
    return len(TRACED) - before


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def test_a_plan_is_traced_once_for_all_processes(folder: Path) -> None:
    assert [run(SignedPlan(Sign.MINUS, 2.0)) for _ in range(3)] == [1, 0, 0]
    assert [path.suffix for path in files(folder)] == [stored.ENDING]
    assert compiled(SignedPlan(Sign.MINUS, 2.0)).inputs() == (Given(SPEC),), "as the file says"
    assert len(TRACED) == 1


def test_what_is_computed_or_traced_otherwise_has_another_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [SignedPlan(Sign.MINUS, 2.0), SignedPlan(Sign.PLUS, 2.0), SignedPlan(Sign.PLUS, 2)]
    assert list(map(run, plans)) == [1, 1, 1]
    with jax.default_matmul_precision("highest"):
        assert run(plans[0]) == 1
    assert len(files(folder)) == 4
    assert list(map(run, plans)) == [0, 0, 0]
    monkeypatch.setattr(stored, "_device_kind", lambda: "another GPU")
    assert run(plans[0]) == 1


def test_calls_of_cudnns_attention_are_stored_and_others_are_not(folder: Path) -> None:
    def find(kernel: str) -> Any:
        return stored.find((kernel,), [HERE], jax.ffi.ffi_call(kernel, SPEC), lambda: (SPEC,))

    for kernel in ("__cudnn$fmhaSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"):
        assert kernel in find(kernel).mlir_module() == find(kernel).mlir_module()
    assert find("some_kernel") is None
    assert len(files(folder)) == 3


def test_what_cannot_be_exported_is_tried_once(folder: Path) -> None:
    traced = []

    def calling(x: Any) -> Any:
        traced.append(x)
        return jax.ffi.ffi_call("some_kernel", SPEC)(x)

    for _ in range(2):
        assert stored.find(("other kernels",), [HERE], calling, lambda: (SPEC,)) is None
    assert len(traced) == len(files(folder)) == 1


FRESH = """
import math, pathlib, sys
import jax, jax.numpy as jnp, numpy as np
from mgraph.running import stored

stored.folder, stored._BEGUN = lambda: pathlib.Path(sys.argv[1]), math.inf
matrix = np.array([[3, 1], [4, 1]], np.float32)

def run(function):
    inputs = lambda: (jax.ShapeDtypeStruct(matrix.shape, matrix.dtype),)
    return jax.jit(stored.find((function.__name__,), [], function, inputs).call)(matrix)

def product(x): return x @ x
def orthogonal(x): return jnp.linalg.qr(x)[1]

assert run(product).tolist() == [[13, 4], [16, 5]]
assert "scipy.linalg" not in sys.modules
assert abs(run(orthogonal)[0, 0]) == 5
assert "scipy.linalg" in sys.modules
"""


def test_lapack_is_initialized_only_for_programs_that_call_it(folder: Path) -> None:
    """Both in the process that traces the programs and in one that reads them."""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", FRESH, str(folder)], cwd=ROOT, check=True)
    assert len(files(folder)) == 2


def test_64_bit_types_of_the_caller_do_not_count(folder: Path) -> None:
    plan = SignedPlan(Sign.MINUS, 2.0)
    with jax.enable_x64(True):
        assert compiled(plan).inputs() == (Given(SPEC),)
    assert run(plan) == 0 and len(files(folder)) == 1


def test_changed_source_files_are_traced_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SignedPlan(Sign.PLUS, 3.0)
    assert run(plan) == 1
    monkeypatch.setattr(stored, "_code", {HERE: "edited", "mgraph": "the same"}.__getitem__)
    assert [run(plan), run(plan)] == [1, 0]


def test_the_state_of_source_files_is_their_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "edited_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    states = []
    for text in ("x = 1", "x = 12"):
        (package / "module.py").write_text(text)
        stored._code.cache_clear()
        states.append(stored._code("edited_package"))
    assert states[0] != states[1]
    with pytest.raises(TypeError, match="not known"):
        stored._code("no_such_package")
    monkeypatch.setattr(stored, "_BEGUN", time.time_ns() - 10**12)
    stored._code.cache_clear()
    with pytest.raises(TypeError, match=r"edited_package/\w+\.py has changed since this process began"):
        stored._code("edited_package")


def test_what_another_process_could_not_tell_is_not_stored(folder: Path) -> None:
    class Local:
        def __mul__(self, x: Any) -> Any:
            return 5 * x

        def __rmul__(self, x: Any) -> Any:
            return 5 * x

    assert run_factor(Local()) == [1, 1]
    assert run_factor(np.float32(5)) == [1, 0]
    assert run_factor(jnp.float32(5).dtype.type(5)) == [0, 0], "the same number"
    assert len(files(folder)) == 1


def run_factor(factor: Any) -> list[int]:
    """How often each of two processes traces a plan with this factor."""
    traced = []
    for _ in range(2):
        clear_programs()
        before = len(TRACED)
        compiled(SignedPlan(Sign.PLUS, factor))(Given(X))
        traced.append(len(TRACED) - before)
    return traced


@pytest.mark.parametrize("damage", [b"", b"no program", None])
def test_a_damaged_file_is_replaced(folder: Path, damage: bytes | None) -> None:
    plan = SignedPlan(Sign.PLUS, 7.0)
    run(plan)
    (path,) = files(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert [run(plan), run(plan)] == [1, 0]
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_obstacle(folder: Path) -> None:
    folder.write_text("a file")
    assert [run(SignedPlan(Sign.PLUS, 8.0)) for _ in range(2)] == [1, 1]


def test_without_flatbuffers_nothing_is_stored_or_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Please install 'flatbuffers'")

    plan = SignedPlan(Sign.PLUS, 11.0)
    assert run(plan) == 1
    monkeypatch.setattr(jax.export, "deserialize", missing)
    assert run(plan) == 1
    folder.joinpath(files(folder)[0]).unlink()
    monkeypatch.setattr(jax.export.Exported, "serialize", missing)
    assert run(plan) == 2, "once in vain"
    assert files(folder) == []


def test_without_a_folder_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "folder", lambda: None)
    assert [run(SignedPlan(Sign.PLUS, 9.0)) for _ in range(2)] == [1, 1]
    assert compiled(SignedPlan(Sign.PLUS, 9.0)).inputs() == (Given(SPEC),)


def test_a_plan_without_inputs_says_so() -> None:
    @dataclass(frozen=True)
    class Unknown(Plan):
        def __str__(self) -> str:
            return "the sum"

    with pytest.raises(ArgumentError, match="the sum does not know its inputs"):
        compiled(Unknown()).inputs()
