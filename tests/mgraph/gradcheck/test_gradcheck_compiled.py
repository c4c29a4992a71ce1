"""The examination of the compiler: right programs pass, a planted compiler error is found and named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
import mgraph.gradcheck.compiler.check as compiled
from mgraph import ArgumentError, ShapeError, UnaryNodeOp
from mgraph.cases import Case
from mgraph.gradcheck import CompiledReport, CompiledRow, check_compiled
from mgraph.gradcheck.references.numpy_primitives import NoReferenceError
from mgraph.gradcheck.references.numpy_witness import computed_by_numpy
from mgraph.gradcheck.subjects import COMPOSITIONS, Subject
from nmt.cli import main


@jax.custom_batching.custom_vmap
def spoiled(x):
    return x


@spoiled.def_vmap
def _(size, batched, x):
    """Imitate a faulty compiler: with more than 100 examples, compiled code gets one element wrong."""
    wrong = size > 100 and not jax.config.jax_disable_jit
    return (x.at[100, 1].add(1e-3) if wrong else x), True


class Spoiled(UnaryNodeOp):
    type = "spoiled"
    cases = (Case((3,)),)
    wrong = "value"

    def forward_ops(self, x):
        return spoiled(2 * x) if self.wrong == "value" else 2 * x

    def backward_ops(self, adj, val, x):
        return (spoiled(2 * adj) if self.wrong == "gradient" else 2 * adj,)


class SpoiledGradient(Spoiled):
    wrong = "gradient"


def examine(monkeypatch: pytest.MonkeyPatch, *classes: Any, sizes: Sequence[int], quick: bool = False) -> Any:
    monkeypatch.setattr(compiled, "chosen_operators", lambda names, module: classes)
    return check_compiled(["planted"], sizes=sizes, quick=quick)


@pytest.mark.parametrize(
    ("planted", "quantity"), [(Spoiled, "value"), (SpoiledGradient, "gradient by child 0")]
)
def test_a_planted_error_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, planted: Any, quantity: str
) -> None:
    # NumPy interprets what JAX has traced, including the planted error: only the other witness sees it.
    report = examine(monkeypatch, planted, sizes=[100, 101])
    assert not report.ok
    found = [d for d in report.differences if d.witness == "not compiled" and d.quantity == quantity]
    assert [(d.operator, d.element_type, d.rows, d.element, d.wrong) for d in found] == [
        (planted.__name__, element_type, 101, (100, 1), 1) for element_type in ("float32", "float64")
    ]
    for d in found:
        assert d.compiled - d.expected == pytest.approx(1e-3, rel=1e-2)
    line = next(line for line in str(report).splitlines() if quantity in line and "not compiled" in line)
    assert line.split()[0] == planted.__name__ and " 101 " in line and " 100,1 " in line
    assert json.loads(json.dumps(report.as_json()))["ok"] is False


@pytest.mark.parametrize("sizes", [[], [0], [-3], [2.5], 8, "8"])
def test_numbers_of_examples_are_positive(sizes: Any) -> None:
    with pytest.raises(ArgumentError, match="check_compiled: .*sizes .*whole number"):
        check_compiled(["sin"], sizes=sizes)


def test_numpy_sees_what_a_program_and_its_parts_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_wrongly(function: Any, *args: Any) -> Any:
        values, found = function(*args)
        gradient = "gradient by child 0"
        return values, {**found, gradient: np.asarray(found[gradient]) * (1 + 1e-10)}

    monkeypatch.setattr(compiled, "_compiled", compile_wrongly)
    report = check_compiled(["sin"], sizes=[40], quick=True)
    assert {(d.quantity, d.element_type, d.witness) for d in report.differences} == {
        ("gradient by child 0", "float64", "NumPy")
    }


class NearKinks(Subject):
    """The first six examples are as near to a kink as float32 allows."""

    def arrays(self, rows: int, seed: int = 0) -> list[np.ndarray]:
        x, w = super().arrays(rows, seed)
        x[:6, :, 0] -= (x[:6] @ w[:, :1])[:, :, 0] / w[0, 0]
        return [x.astype(np.float32).astype(np.float64), w]


def test_a_rounding_across_a_kink_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = NearKinks("near", lambda x, w: mgraph.relu(mgraph.dot(x, w)), Case((1, 8), (8, 4)), (1,))
    monkeypatch.setattr(compiled, "COMPOSITIONS", (subject,))
    monkeypatch.setattr(compiled, "chosen_operators", lambda names, module: ())
    random = np.random.default_rng(1)

    def moved(a: np.ndarray) -> np.ndarray:
        by_a_rounding = 1 + np.finfo(np.float32).eps * random.choice([-1, 1], a.shape)
        return (a * by_a_rounding).astype(a.dtype) if a.dtype == np.float32 else a

    def rounded(function: Any, *args: Any) -> Any:
        return jax.tree.map(np.asarray, jax.jit(function)(*jax.tree.map(moved, args)))

    monkeypatch.setattr(compiled, "_compiled", rounded)
    found = []
    for roundings in (0, compiled._MOVED):
        monkeypatch.setattr(compiled, "_MOVED", roundings)
        found.append(check_compiled(sizes=[50], quick=True).ok)
    assert found == [False, True]


class Narrow(UnaryNodeOp):
    """A value of float32, whatever its child's element type is."""

    cases = (Case((4, 3), domain="index:5"), Case((4, 3)))

    def forward_ops(self, x):
        return x.astype(jnp.float32) * 3

    def backward_ops(self, adj, val, x):
        return (3 * adj.astype(x.dtype),)


def test_a_value_of_float32_is_not_held_to_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine(monkeypatch, Narrow, sizes=[16_385], quick=True).ok


def test_right_operators_pass() -> None:
    report = check_compiled(["layer_normalization", "topk", "rows"], sizes=[7, 33], quick=True)
    assert report.ok and report.differences == () and 0 < max(row.largest for row in report.rows) < 0.5
    assert [row.note for row in report.rows] == [""] * len(report.rows)
    assert str(report).startswith("3 operators, ")


@pytest.mark.parametrize("subject", [s for s in COMPOSITIONS if "32000" not in s.name], ids=lambda s: s.name)
def test_numpy_computes_the_compositions(subject: Any) -> None:
    with jax.enable_x64(True):
        arrays = subject.arrays(5)
        mapped = subject.mapped("float64")
        by_jax = jax.jit(mapped)(*arrays)
        np.testing.assert_allclose(computed_by_numpy(mapped, *arrays), by_jax, rtol=1e-12, atol=1e-12)


def test_the_program_of_issue_39103() -> None:
    subject = COMPOSITIONS[0]
    x, m = subject.arrays(9)
    expected = np.sum((x @ m.T) ** 2, 1)
    np.testing.assert_allclose(computed_by_numpy(subject.mapped("float64"), x, m), expected, rtol=1e-6)
    with jax.enable_x64(True):
        np.testing.assert_allclose(computed_by_numpy(subject.mapped("float64"), x, m), expected, rtol=1e-14)
    assert {32_769: "float32", 16_385: "float64"}.items() == {
        (n, element_type) for element_type, sizes in compiled.SHORT_SIZES.items() for n in sizes
    }


@pytest.mark.parametrize("element_type", [np.float32, np.float64])
def test_numpy_rounds_halves_away_from_zero_and_nothing_else_up(element_type: Any) -> None:
    below_half = np.nextafter(element_type(0.5), element_type(0))
    odd = element_type(2.0) ** np.finfo(element_type).nmant + 1  # a half more lies between two numbers
    x = np.array([below_half, 0.5, 1.5, 2.5, odd, np.inf, np.nan], element_type)
    with jax.enable_x64(True):
        found = computed_by_numpy(jax.lax.round, np.concatenate([x, -x]))
    expected = np.array([0.0, 1.0, 2.0, 3.0, odd, np.inf, np.nan], element_type)
    np.testing.assert_array_equal(found, np.concatenate([expected, -expected]))


def test_numpy_follows_loops_branches_and_indices() -> None:
    def program(x: Any) -> Any:
        doubled = jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, 2 * s[1]), (0, x))[1]
        chosen = jax.lax.cond(doubled[0] > 0, jnp.sin, jnp.cos, doubled)
        sums = jax.lax.scan(lambda s, v: (s + v, s * v), 0.0, chosen, reverse=True)
        padded = jnp.pad(chosen, (1, 2)).at[jnp.array([1, 9])].add(5.0, mode="drop")
        return sums, padded, jnp.sort(chosen)[::-1], jax.scipy.special.erf(x)

    with jax.enable_x64(True):
        x = np.array([0.3, -1.2, 2.0])
        chex.assert_trees_all_close(computed_by_numpy(program, x), jax.jit(program)(x), rtol=1e-7)
    with pytest.raises(NoReferenceError, match="fft"):
        computed_by_numpy(jnp.fft.fft, x)


def test_many_examples_of_a_case() -> None:
    case = Case((2, 3), (4,), (5,), domain=("distinct", "index:4", "offsets:7"))
    grid, index, offsets = case.values(3, rows=50)
    assert grid.shape == (50, 2, 3) and index.shape == (50, 4) and offsets.shape == (50, 5)
    assert all(len(set(row.ravel().round(6))) == 6 for row in grid) and np.abs(grid).min() > 0.09
    assert not np.array_equal(np.argsort(grid[0], None), np.argsort(grid[1], None))
    assert (np.diff(offsets.astype(int)) >= 0).all() and (offsets[:, -1] == 7).all()


@pytest.mark.parametrize("domain", ["real", "distinct"])
def test_values_that_do_not_fit_into_memory(domain: str) -> None:
    with pytest.raises(ShapeError, match="drawn values: float64 of shape .* GiB, more than is available"):
        Case((1 << 50,), domain=domain).values()


def test_an_operator_without_cases_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(Spoiled):
        cases = ()

    rows: list[CompiledRow] = []
    monkeypatch.setattr(compiled, "chosen_operators", lambda names, module: [Bare])
    report = check_compiled(["planted"], sizes=[5], on_row=rows.append)
    assert not report.ok and "Bare: declares no cases" in str(report)
    assert rows == [*report.rows]


def test_operators_and_compositions_are_counted_apart() -> None:
    names = [COMPOSITIONS[0].name, COMPOSITIONS[1].name, "SinNodeOp"]
    report = CompiledReport(tuple(CompiledRow(name, "", {"float32": [9]}, programs=1) for name in names), 1.0)
    assert str(report).startswith("1 operator and 2 compositions, 3 cases of 9 to 9 rows ")


@pytest.mark.parametrize("ok", [True, False])
def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ok: bool) -> None:
    def check(names: Sequence[str], module: str | None, *, quick: bool, on_row: Any) -> Any:
        assert (tuple(names), module, quick) == (("sin",), None, True)
        report = check_compiled(["sin"], sizes=[9], quick=True)
        object.__setattr__(report.rows[0], "problem", "" if ok else "planted")
        return report

    monkeypatch.setattr("mgraph.gradcheck.check_compiled", check)
    assert main(["gradcheck", "--quiet", "--compiled", "--quick", "sin"]) == (0 if ok else 1)
    printed = capsys.readouterr().out
    assert printed.count("planted") == (0 if ok else 1)
    assert "1 operator, 1 case of 9 to 9 rows" in printed
