"""Error budgets: exact results are exact, unstable rules are found and named, better ones are praised."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import mgraph.gradcheck.budgets.check as budgets
from mgraph import ArgumentError, UnaryNodeOp, check_budgets
from mgraph.cases import Case
from mgraph.gradcheck.budgets.inputs import KINDS, stress_inputs
from mgraph.gradcheck.budgets.report import VERDICTS, Budget, BudgetReport, Extreme, StressResult
from mgraph.gradcheck.budgets.units import Units
from mgraph.gradcheck.references import exact_numbers as exact
from mgraph.gradcheck.references.exact_witness import ExactProgram
from mgraph.gradcheck.subjects import Subject
from mgraph.gradcheck.survey import chosen_operators
from nmt.cli import main
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT


class Softplus(UnaryNodeOp):
    """Has the same rule as JAX."""

    type = "softplus"
    cases = (Case((2, 3)),)

    def forward_ops(self, x):
        return jax.nn.softplus(x)

    def backward_ops(self, adj, val, x):
        return (adj * jax.nn.sigmoid(x),)


class FromTheValue(Softplus):
    """Right, but 1 - exp(-y) cancels where y is small."""

    def backward_ops(self, adj, val, x):
        return (adj * (1 - jnp.exp(-val)),)


class Overflowing(Softplus):
    """Right, but exp(x) overflows where the gradient is 1."""

    def backward_ops(self, adj, val, x):
        return (adj * jnp.exp(x) / (1 + jnp.exp(x)),)


class OnePercentOff(Softplus):
    def backward_ops(self, adj, val, x):
        return (1.01 * adj * jax.nn.sigmoid(x),)


class NaiveSoftplus(Softplus):
    """A forward that overflows, and loses small numbers; the rule does neither."""

    def forward_ops(self, x):
        return jnp.log(1 + jnp.exp(x))


class NaiveShares(UnaryNodeOp):
    """A softmax whose gradient does not subtract the maximum."""

    type = "shares"
    cases = (Case((2, 5)),)

    def forward_ops(self, x):
        return jax.nn.softmax(x)

    def backward_ops(self, adj, val, x):
        p = jnp.exp(x) / jnp.sum(jnp.exp(x), -1, keepdims=True)
        return (p * (adj - jnp.sum(p * adj, -1, keepdims=True)),)


def examine(monkeypatch: pytest.MonkeyPatch, planted: Any, *element_types: str) -> BudgetReport:
    monkeypatch.setattr(budgets, "chosen_operators", lambda names, module: [planted])
    return check_budgets(element_types=element_types or ["float32"])


def gradient(report: BudgetReport) -> Budget:
    (row,) = (row for row in report.rows if row.quantity == "gradient by child 0")
    return row


def test_a_stable_rule_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examine(monkeypatch, Softplus, "float32", "bfloat16")
    assert report.ok and [row.verdict for row in report.rows] == ["ok"] * 4
    assert all(0.3 < row.worst.ours.roundings < 4 for row in report.rows)
    assert "Softplus" in str(report) and str(report).endswith(" results; all ok")


@pytest.mark.parametrize(
    ("planted", "verdict", "kinds"),
    [
        (FromTheValue, "worse than JAX", {"tenfold"}),
        (Overflowing, "not finite", {"large", "huge", "wide"}),
        (NaiveShares, "not finite", {"large", "huge", "wide"}),
        (OnePercentOff, "another gradient", {"usual"}),
    ],
)
def test_an_unstable_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, planted: Any, verdict: str, kinds: set[str]
) -> None:
    report = examine(monkeypatch, planted)
    row = gradient(report)
    assert not report.ok and not row.ok and row.verdict == verdict
    assert kinds <= {c.kind for c in row.results if c.verdict == verdict}
    assert all(other.ok for other in report.rows if other is not row)
    example = next(line for line in str(report).splitlines() if line.startswith(f"  {planted.__name__} 2x"))
    assert "float32, gradient by child 0" in example and "; JAX: " in example
    if verdict == "not finite":
        found = row.findings[verdict]
        assert found.jax and found.jax.roundings < 4 and not math.isfinite(found.ours.got)
        assert " nan for " in example
    if verdict == "another gradient":  # the example is where the two differ, for both
        found = row.findings[verdict]
        assert found.jax and found.ours.element == found.jax.element
        assert abs(found.ours.exact / found.jax.exact - 1.01) < 1e-6


def test_a_better_rule_is_praised(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examine(monkeypatch, NaiveSoftplus)
    value, row = report.rows
    assert report.ok and row.verdict == "finite, unlike JAX's" and row.worst.ours.roundings < 4
    assert "large" in {c.kind for c in row.results if c.verdict == "ok" and c.overflows}
    assert {c.kind for c in row.results if c.verdict == "finite, unlike JAX's"} == {"huge"}
    # log(1 + exp(x)) overflows for large numbers; for very negative ones it is 0, in float64 as well.
    assert value.verdict == "value not finite"


@pytest.mark.parametrize(
    ("dtype", "exact", "found", "ulps"),
    [
        (np.float32, 1.0, 1 + 3 * 2.0**-23, 3),
        (np.float32, 1.0, 1 - 2.0**-24, 0.5),
        (np.float32, -1000.0, -1000 + 2.0**-14, 1),
        (np.float32, 1000 / 3, float(np.float32(1000 / 3)), (float(np.float32(1000 / 3)) - 1000 / 3) * 2**15),
        (ml_dtypes.bfloat16, 1.0, 1.0625, 8),
        (np.float16, 2.0**-24, 0.0, 1),
        (np.float32, 2.0**-149, 0.0, 2.0**-23),
        (ml_dtypes.bfloat16, 2.0**-127, 0.0, 0.5),
        (np.float32, 8e37, math.inf, math.inf),
        (np.float32, 3e38, math.inf, 0),
        (np.float32, 1e39, math.inf, 0),
        (np.float16, 16376.0, math.nan, math.inf),
        (np.float32, math.nan, 1.0, 0),
    ],
)
def test_units_in_the_last_place(dtype: Any, exact: float, found: float, ulps: float) -> None:
    off = Units(np.dtype(dtype), np.zeros(2)).worst(np.array([0, found]).astype(dtype), np.array([0, exact]))
    assert off.ulps == off.roundings == pytest.approx(abs(ulps), rel=1e-6)
    assert off.element == ((1,) if ulps else (0,))


def test_where_terms_cancel_the_unit_is_what_a_rounding_moves() -> None:
    units = Units(np.dtype(np.float32), np.array([2.0**-20]))
    off = units.worst(np.array([2.0**-19], np.float32), np.array([0.0]))
    assert off.roundings == 2 and off.ulps > 1e30


class FastSine(UnaryNodeOp):
    type = "fast sine"
    cases = (Case((9,), domain="unit"),)

    def forward_ops(self, x):
        return jnp.sin(100 * x)

    def backward_ops(self, adj, val, x):
        return (100 * adj * jnp.cos(100 * x),)


def test_nobody_is_blamed_for_what_a_rounding_of_the_inputs_does(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examine(monkeypatch, FastSine)
    assert report.ok
    for row in report.rows:
        assert row.worst.ours.roundings < 2 and max(c.ours.ulps for c in row.results) > 20


@pytest.mark.parametrize("element_type", ["float32", "bfloat16", "float16"])
def test_stress_inputs_stay_in_their_domains(element_type: str) -> None:
    kinds, tiny = set(), jnp.finfo(element_type).tiny
    for domain in ("real", "positive", "unit", "distinct", "mask", "int8", "index:5", "offsets:9"):
        case = Case((3, 4), (12,), domain=(domain, "real"))
        for stress in stress_inputs(case, element_type):
            kinds.add(stress.kind.partition(" child")[0])
            array, other = stress.arrays
            draws = [case.values(seed)[0] for seed in (0, 1)]
            assert array.shape == (3, 4) and other.dtype == jnp.dtype(element_type)
            if draws[0].dtype.kind != "f":
                assert any(np.array_equal(array, draw) for draw in draws)
                continue
            assert array.dtype == jnp.dtype(element_type)
            numbers = array.astype(np.float64)
            smallest = float(jnp.finfo(array.dtype).smallest_subnormal if element_type == "float16" else tiny)
            assert ((np.abs(numbers) >= smallest) | (numbers == 0)).all() and (numbers < np.inf).all()
            if domain in ("positive", "unit"):
                assert (numbers > 0).all() and (domain == "positive" or (numbers < 1).all())
            if domain == "mask":
                assert set(numbers.ravel()) == {0, 1}
            if domain == "distinct":
                assert np.isfinite(numbers).all()
    assert kinds == set(KINDS)


def test_kinds_are_what_they_are_called() -> None:
    found = {s.kind: s.arrays[0].astype(np.float64) for s in stress_inputs(Case((50,)), "float32")}
    assert len(set(found["equal"])) == 1 and 0 < np.ptp(found["close"]) < 3e-6
    assert set(np.sign(found["cancelling"])) == {-1, 1} and np.ptp(np.abs(found["cancelling"])) < 3e-6
    assert np.abs(found["tiny"]).max() < 1e-36 and np.abs(found["huge"]).max() == pytest.approx(2**126)
    assert np.ptp(np.log10(np.abs(found["wide"]))) > 20 and 5 < sum(found["zeros"] == 0) < 45
    assert 5 < sum(np.isneginf(found["masked"])) < 30 and sum(found["masked low"] < -1e38) > 5


@pytest.mark.parametrize(
    ("function", "by_float64"),
    [(exact.sin, math.sin), (exact.cos, math.cos), (exact.tan, math.tan), (exact.tanh, math.tanh)]
    + [(exact.erf, math.erf), (exact.erfc, math.erfc), (exact.expm1, math.expm1)],
)
def test_functions_of_decimals(function: Any, by_float64: Any) -> None:
    with localcontext(exact.CONTEXT):
        for x in (0.0, 1e-38, 0.3, -2.5, 5.9, 6.1, -7.0, 25.0, -700.0):
            assert float(function(Decimal(x))) == pytest.approx(by_float64(x), rel=4e-15)


def test_decimals_where_float64_ends() -> None:
    with localcontext(exact.CONTEXT):
        # Source of the digits: the double 1e22 is famous for its sine.
        assert float(exact.sin(Decimal(10) ** 22)) == -0.8522008497671888
        assert str(exact.pi(50)).startswith("3.14159265358979323846264338327950288419716939937510")
        assert exact.logistic(Decimal(-1000)) > 0 and exact.log1p(exact.expm1(Decimal("1e-30"))) > 0
        assert exact.erfc(Decimal(6)) == pytest.approx(
            exact.erfc(Decimal("5.9999999999")), rel=Decimal("1e-8")
        )


def test_a_program_without_roundings() -> None:
    def program(x: Any) -> Any:
        naive = jnp.log(1 + jnp.exp(x))
        return naive, jnp.sum(x * x) - jnp.sum(jnp.square(x)), jax.lax.cumlogsumexp(x), jnp.max(x)

    with jax.enable_x64(True):
        x = np.array([-80.0, 3.0, -60.0])
        naive, zero, running, largest = ExactProgram(program, x)(x)
    np.testing.assert_allclose(naive, np.logaddexp(x, 0), rtol=1e-15)
    assert zero == 0 and largest == 3 and running[0] == -80


def test_exact_results_are_those_of_float64_up_to_its_rounding() -> None:
    names = [
        "layer_normalization",
        "layer_convolution",
        "scan",
        "logcumsumexp",
        "csr_dot",
        "cached_attention",
    ]
    with jax.enable_x64(True):
        for cls in chosen_operators(names):
            function = Subject(cls.__name__, cls, cls.cases[0]).function("float64", "jax")
            arrays = cls.cases[0].values()
            np.testing.assert_allclose(
                jax.tree.leaves(ExactProgram(function, *arrays)(*arrays))[0],
                jax.tree.leaves(jax.jit(function)(*arrays))[0],
                rtol=1e-12,
                atol=1e-14,
            )


class LargestOfPairs(UnaryNodeOp):
    """Its derivative in JAX has a primitive that is not computed in decimals."""

    type = "largest of pairs"
    cases = (Case((6,), domain="distinct"),)

    def forward_ops(self, x):
        return jax.lax.reduce_window(x, np.array(-np.inf, x.dtype), jax.lax.max, (2,), (2,), "VALID")

    def backward_ops(self, adj, val, x):
        return (jnp.where(x == jnp.repeat(val, 2), jnp.repeat(adj, 2), 0),)


def test_without_exact_arithmetic_float64_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examine(monkeypatch, LargestOfPairs)
    assert report.ok and {row.note for row in report.rows} == {"against float64, for select_and_scatter_add"}
    assert "\nagainst float64, for select_and_scatter_add: LargestOfPairs\n" in str(report)
    assert gradient(report).worst.ours.ulps == 0


def test_what_has_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(Softplus):
        cases = ()

    class Broken(Softplus):
        def backward_ops(self, adj, val, x):
            return (adj @ x,)

    for planted, problem in (
        (Bare, "declares no cases"),
        (Broken, "Broken.backward_ops failed: TypeError: "),
    ):
        report = examine(monkeypatch, planted)
        assert (
            not report.ok and problem in str(report) and problem in report.as_json()["budgets"][0]["verdict"]
        )
    with pytest.raises(ArgumentError, match="among float32, bfloat16, float16, got 'float64'"):
        check_budgets(["sin"], element_types=["float64"])


def test_a_declared_verdict_does_not_fail_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {"worse than JAX": "as an example", "not finite": "it is not"}
    monkeypatch.setattr(FromTheValue, "accepted_budgets", reasons)
    report = examine(monkeypatch, FromTheValue)
    assert report.ok and "worse than JAX, declared" in str(report)
    assert "declared: FromTheValue, worse than JAX: as an example" in str(report)
    assert "declared, and not seen here: FromTheValue, not finite: it is not" in str(report)
    assert report.as_json()["budgets"][0]["declared"] == reasons
    monkeypatch.setattr(Overflowing, "accepted_budgets", {"worse than JAX": "another verdict"})
    assert not examine(monkeypatch, Overflowing).ok


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    report = examine(monkeypatch, Overflowing, "float16")
    found = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert found["ok"] is False and found["limits"] == {"few": 8.0, "worse": 4.0}
    value, gradient = found["budgets"]
    assert value["ok"] and value["jax"] is None and 0 < value["ours"]["roundings"] < 2
    assert gradient["verdict"] == "not finite" and gradient["ours"] == {"ulps": None, "roundings": None}
    assert gradient["jax"]["roundings"] < 4 and gradient["type"] == "float16"
    worst = gradient["findings"][0]
    assert worst["verdict"] == "not finite" and worst["ours"]["got"] is None
    assert worst["case"] == "2x3" and worst["inputs"]["kind"] in KINDS and len(worst["ours"]["element"]) == 2


def result(ours: float, jaxs: float | None, kind: str = "large", **others: Any) -> StressResult:
    def extreme(roundings: float) -> Extreme:
        return Extreme(roundings, roundings, (0,), 3.0 if roundings > 5000 else 1.5, 1.0)

    by_jax = None if jaxs is None else extreme(jaxs)
    return StressResult(
        "2", kind, others.pop("quantity", "gradient by child 0"), ("1",), extreme(ours), by_jax, **others
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (result(8, 0), "ok"),
        (result(9, 0), "worse than JAX"),
        (result(1000, 251), "ok"),
        (result(1000, 249), "worse than JAX"),
        (result(10_000, 6000), "lost, as JAX's"),
        (result(6000, 10_000), "lost, as JAX's"),
        (result(6000, math.inf), "lost, as JAX's"),
        (result(6000, None, quantity="value"), "value lost"),
        (result(1, 9), "better than JAX"),
        (result(math.inf, 5), "not finite"),
        (result(math.inf, math.inf), "not finite, nor JAX's"),
        (result(math.inf, None), "not finite"),
        (result(math.inf, 5, overflows=True), "not finite, as the value"),
        (result(5, math.inf), "finite, unlike JAX's"),
        (result(math.inf, None, quantity="value"), "value not finite"),
        (result(0, 0, "usual", differ=True), "another gradient"),
        (result(0, 0, "equal", differ=True), "ok"),
    ],
)
def test_verdicts(found: StressResult, verdict: str) -> None:
    assert found.verdict == verdict
    ok = verdict not in ("worse than JAX", "not finite", "another gradient")
    assert Budget("Some", "float32", found.quantity, (result(0, 0), found)).ok is ok


def test_what_cannot_be_run_loses_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Softplus):
        cases = (Case((2,)), Case((3,)))

    class Trial(budgets._Trial):
        def results(self, element_type: str) -> Any:
            if self.case.shapes == ((2,),):
                raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: by the compiler\nor so")
            return super().results(element_type)

    monkeypatch.setattr(budgets, "_Trial", Trial)
    report = examine(monkeypatch, Refused)
    assert [row.quantity for row in report.rows] == ["", "value", "gradient by child 0"]
    assert not report.ok and {c.case for c in gradient(report).results} == {"3"}
    assert " float32, 2: JaxRuntimeError: UNIMPLEMENTED: by the compiler\n" in str(report)


def test_the_page() -> None:
    page = (ROOT / "docs" / "gradients-budgets.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert check_blocks(blocks, "gradients-budgets.md") == ["ok", "True True"]
    assert all(f"`{name}`" in page for name in (*KINDS, *VERDICTS) if name != "ok")


def test_each_operator_is_told_before_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(Softplus):
        cases = ()

    monkeypatch.setattr(budgets, "chosen_operators", lambda names, module: [Softplus, Bare])
    told: list[str] = []
    check_budgets(
        element_types=["float32"],
        on_operator=lambda cls: told.append(f"{cls.__name__} begins"),
        on_budget=lambda row: told.append(row.operator),
    )
    assert told == ["Softplus begins", "Softplus", "Softplus", "Bare begins", "Bare"]


@pytest.mark.parametrize("ok", [True, False])
def test_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, ok: bool
) -> None:
    def check(names: Sequence[str], module: str | None, *, on_operator: Any, on_budget: Any) -> BudgetReport:
        assert (tuple(names), module) == (("sin",), None)
        on_operator(Softplus)
        row = Budget("Some", "float32", "gradient by child 0", (result(1 if ok else 99, 1),))
        on_budget(row)
        return BudgetReport((row,))

    monkeypatch.setattr("mgraph.gradcheck.check_budgets", check)
    log = tmp_path / "log"
    assert main(["gradcheck", "--quiet", "--log", str(log), "--budgets", "sin"]) == (0 if ok else 1)
    assert capsys.readouterr().out.count("worse than JAX") == (0 if ok else 3)
    assert re.search(r"Softplus: 1 case\n.*Some float32 gradient by child 0: ", log.read_text())
    assert main(["gradcheck", "--budgets", "--compiled"]) == 2
    assert "--compiled --budgets: expected one of them" in capsys.readouterr().err
