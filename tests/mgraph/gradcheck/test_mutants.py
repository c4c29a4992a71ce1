"""Mutants of rules: what is changed, which witness sees it, and that nothing wrong is called equivalent."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from mgraph import NaryNodeOp, UnaryNodeOp, check_gradients, check_mutants
from mgraph.cases import Case, Convention
from mgraph.gradcheck import smallest_failure
from mgraph.gradcheck.mutation.edits import Scope, edits_of
from mgraph.gradcheck.survey import check_operator, own_operators
from nmt.cli import main
from tests.helpers.places import ROOT

TRIAL = "tests.mgraph.gradcheck.test_mutants"


def _bend(x, slope):
    return jnp.where(x > 0, x, slope * x)


class BentOp(UnaryNodeOp):
    """A rule with a kink, a helper, a field and a method."""

    type = "bent"
    slope: float
    cases = (Case((2, 3), domain="distinct", slope=0.5),)
    conventions = (Convention([0.0, 2.0], gradients=([0.5, 1],), slope=0.5),)

    def forward_ops(self, x):
        return _bend(x, self.slope)

    def backward_ops(self, adj, val, x):
        return (self._steep(adj, x),)

    def _steep(self, adj, x):
        return _bend_back(adj, x, self.slope)


def _bend_back(adj, x, slope):
    return jnp.where(x > 0, adj, slope * adj)


class FlatKinkOp(BentOp):
    """The same operator, with nothing said about the kink."""

    type = "flat kink"
    conventions = ()


class SquareMatrixOp(NaryNodeOp):
    """Its only case is square and positive: it cannot tell one axis or sign from the other."""

    type = "square matrix"
    cases = (Case((3, 3), domain="positive"),)

    def forward_ops(self, x):
        return jnp.sum(jnp.abs(x), 0, keepdims=True) * x.shape[0]

    def backward_ops(self, adj, val, x):
        return (jnp.broadcast_to(adj, x.shape) * x.shape[0],)


class CubeByLoopOp(UnaryNodeOp):
    """A rule with a counting loop; a mutant of it may never end."""

    type = "cube by loop"
    cases = (Case((2,), domain="distinct"),)

    def forward_ops(self, x):
        return x * x * x

    def backward_ops(self, adj, val, x):
        return (jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * x), (0, 3 * adj))[1],)


class WrongRuleOp(UnaryNodeOp):
    type = "wrong rule"
    cases = (Case((2,)),)

    def forward_ops(self, x):
        return x * x

    def backward_ops(self, adj, val, x):
        return (adj * x,)


class BrokenPromiseOp(UnaryNodeOp):
    type = "broken promise"
    cases = (Case((2,)),)
    conventions = (Convention([0.0], gradients=([1],)),)

    def forward_ops(self, x):
        return x * x

    def backward_ops(self, adj, val, x):
        return (2 * adj * x,)


class DeclaredOp(BentOp):
    """Gives one reason for a mutant that survives, and one for no mutant."""

    type = "declared"
    conventions = ()
    equivalent_mutants: ClassVar[dict[str, str]] = {
        "x > 0 -> x >= 0": "at 0 both slopes are right",
        "x > 0 -> x >= 1": "invented",
    }


def changes(text: str, *, fields=None) -> set[str]:
    tree = ast.parse(textwrap.dedent(text)).body[0]
    before = ast.unparse(tree)
    scope = Scope(fields or {}, {"jnp": jnp})
    found = {f"{e.line} {e.kind}: {e.before} -> {e.after}" for e in edits_of(tree, scope)}
    assert ast.unparse(tree) == before, "every edit must be taken back"
    return found


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("adj - x", ["sign: adj - x -> adj + x", "term: adj - x -> adj", "operands: adj - x -> x - adj"]),
        ("adj / x", ["factor: adj / x -> adj", "factor: adj / x -> adj * x"]),
        ("-adj", ["sign: -adj -> adj"]),
        ("x < 0", ["boundary: x < 0 -> x <= 0", "comparison: x < 0 -> x > 0"]),
        ("adj @ x.T", ["transpose: adj @ x.T -> adj @ x", "operands: adj @ x.T -> x.T @ adj"]),
        ("jnp.where(x, adj, 0)", ["mask: jnp.where(x, adj, 0) -> adj", "mask: jnp.where(x, adj, 0) -> 0"]),
        ("jnp.sum(adj, axis=1)", ["axis: jnp.sum(adj, axis=1) -> jnp.sum(adj, axis=2)",
                                  "function: jnp.sum(adj, axis=1) -> jnp.mean(adj, axis=1)"]),
        ("adj.astype(x.dtype)", ["cast: adj.astype(x.dtype) -> adj"]),
        ("adj.sum(self.axis)", ["axis: adj.sum(self.axis) -> adj.sum(self.axis - 1)"]),
        ("adj if self.flag else x", ["branch: adj if self.flag else x -> x",
                                     "flag: adj if self.flag else x -> adj if not self.flag else x"]),
        ("x.at[0].add(adj)", ["call: x.at[0].add(adj) -> x",
                              "function: x.at[0].add(adj) -> x.at[0].set(adj)"]),
        ("[adj * m for m in x]", ["operand: adj * m -> x * m"]),
    ],
)  # fmt: skip
def test_the_mistakes_that_can_be_made(statement: str, expected: list[str]) -> None:
    text = f"def backward_ops(self, adj, x):\n    return {statement}"
    found = changes(text, fields={"axis": "int", "flag": "bool"})
    assert {f"2 {change}" for change in expected} <= found, found


def test_what_is_said_is_left_alone() -> None:
    text = """
    def backward_ops(self, adj, x: Array = 3) -> Gradients:
        "a page"
        if x.ndim > 1:
            raise ShapeError(f"expected {1 + 1} axes" * 2)
        return adj
    """
    assert {change.split(" ", 1)[1] for change in changes(text)} == {
        "boundary: x.ndim > 1 -> x.ndim >= 1",
        "comparison: x.ndim > 1 -> x.ndim < 1",
        "branch: x.ndim > 1 -> not x.ndim > 1",
        "number: x.ndim > 1 -> x.ndim > 2",
        "number: x.ndim > 1 -> x.ndim > 0",
        "operand: adj -> x",
    }


def test_every_mutant_is_seen_where_cases_and_conventions_suffice() -> None:
    report = check_mutants(["bent"], TRIAL)
    (row,) = report.rows
    assert report.ok and report.score == 1 and row.verdict == "ok", report
    functions = {v.mutant.function for v in row.verdicts}
    assert functions == {"BentOp.backward_ops", "BentOp._steep", "_bend_back"}
    first = {f"{v.mutant.change}": v.first for v in row.verdicts if v.killed}
    assert first["x > 0 -> x >= 0"] == "convention"
    assert first["gradient of child 0 -> None"] == "jax"
    assert first["gradient of child 0 -> gradient of child 0, through float32"] == "jax"
    assert first["_bend_back(adj, x, self.slope) -> _bend_back(adj, self.slope, x)"] == "jax"
    (sign,) = (v for v in row.verdicts if v.mutant.change == "gradient of child 0 -> -gradient of child 0")
    assert sign.killers == ("jax", "differences")


def test_a_weak_case_leaves_survivors() -> None:
    report = check_mutants(["flat kink", "square matrix"], TRIAL)
    kink, square = report.rows
    assert not report.ok and report.score is not None and 0 < report.score < 1
    assert {v.mutant.change: v.survives for v in kink.survivors} == {
        "x > 0 -> x >= 0": "differs at ties, zeros"
    }
    assert {v.mutant.change: v.survives for v in square.survivors} == {
        "x.shape[0] -> x.shape[1]": "differs at an axis more",
        "x.shape[0] -> x.shape[-1]": "differs at an axis more",
    }


def test_a_mutant_whose_loop_never_ends_is_seen() -> None:
    (row,) = check_mutants(["cube by loop"], TRIAL).rows
    killed = {v.mutant.change: v.killers for v in row.verdicts}
    assert killed["c[0] + 1 -> c[0]"] == ("raises",)
    assert killed["c[0] < 2 -> c[0] < 3"] == ("jax", "differences")
    assert row.ok, row


def test_a_rule_that_is_wrong_is_not_mutated() -> None:
    wrong, broken = check_mutants(["wrong rule", "broken promise"], TRIAL).rows
    assert wrong.verdict == "2: the rule itself is wrong: jax, differences"
    assert broken.verdict == "the rule itself breaks its convention 1"
    assert not wrong.ok and not broken.ok


def test_a_right_rule_at_a_kink_is_not_called_wrong(tmp_path) -> None:
    text = "import jax.numpy as jnp\nfrom mgraph import UnaryNodeOp\nfrom mgraph.cases import Case\n"
    for name, slope in (("Right", 0), ("Wrong", 1.5)):
        text += f"class {name}Op(UnaryNodeOp):\n    type = '{name}'\n"
        text += "    cases = (Case((8,), domain='mask'),)\n"
        text += "    def forward_ops(self, x): return jnp.maximum(x, 0)\n"
        text += f"    def backward_ops(self, adj, val, x): return (adj * jnp.where(x > 0, 1, {slope}),)\n"
    (tmp_path / "kink_ops.py").write_text(text)
    right, wrong = check_mutants(module=str(tmp_path / "kink_ops.py")).rows
    assert right.verdict == "8: at a kink, which no derivative judges; a Convention does"
    assert wrong.verdict == "8: the rule itself is wrong: jax, differences"


def test_a_rule_of_one_number_or_that_gives_no_gradients_is_examined(tmp_path) -> None:
    text = "import numpy as np\nfrom mgraph import UnaryNodeOp\nfrom mgraph.cases import Case\n"
    for name, takes, gives in (
        ("One", "adj, val, x", "(2 * adj * x,)"),
        ("Numbers", "adj, val, x", "(adj * np.multiply(2, x),)"),
        ("None", "adj, val, x", "None"),
        ("Two", "adj, x", "(2 * adj * x,)"),
    ):
        text += (
            f"class {name}Op(UnaryNodeOp):\n    type = '{name}'\n    cases = (Case((), domain='distinct'),)\n"
        )
        text += "    def forward_ops(self, x): return x * x\n"
        text += f"    def backward_ops(self, {takes}): return {gives}\n"
    (tmp_path / "odd_ops.py").write_text(text)
    none, numbers, one, two = check_mutants(module=str(tmp_path / "odd_ops.py")).rows
    assert one.verdicts and not one.problem
    assert none.problem.endswith("expected a tuple of gradients, one per child, got None of type NoneType")
    assert not numbers.verdicts and "NumbersOp.backward_ops asks for numbers" in numbers.problem
    assert two.problem.endswith("expected backward_ops(self, adj, val, x), got backward_ops(self, adj, x)")


class UndefinedOp(UnaryNodeOp):
    """A right rule on a case where no value is defined."""

    type = "undefined"
    cases = (Case((2, 3), domain="unit"),)

    def forward_ops(self, x):
        return jnp.log(x - 2)

    def backward_ops(self, adj, val, x):
        return (adj / (x - 2),)


def test_a_rule_is_not_blamed_for_a_value_that_is_not_finite() -> None:
    (row,) = check_mutants(["undefined"], TRIAL).rows
    assert row.verdict == "2x3: NaN or infinity in the value at the inputs of this case" and not row.ok


class CountingOp(BentOp):
    """A rule whose mutants cannot be told apart, because it differs at each call."""

    type = "counting"
    calls: ClassVar[list[None]] = []

    def backward_ops(self, adj, val, x):
        self.calls.append(None)
        return (adj * jnp.where(x > 0, 1, self.slope) * (1 + 1e-13 * len(self.calls)),)


def test_where_nothing_is_tried_there_is_no_score() -> None:
    report = check_mutants(["counting"], TRIAL)
    assert report.rows[0].verdict == (
        "2x3 slope=0.5: backward_ops gives other gradients when it is called again: it keeps something "
        "between calls"
    )
    assert not report.ok and report.score is None and report.as_json()["score"] is None
    assert str(report).endswith("0 mutants: 0 killed, 0 equivalent, 0 survive; no score")


def test_declared_reasons_are_printed_and_must_have_a_mutant() -> None:
    report = check_mutants(["declared"], TRIAL)
    (row,) = report.rows
    assert row.stale == ("x > 0 -> x >= 1",) and not report.ok
    (lives,) = (v for v in row.equivalent if v.declared)
    assert lives.reason == "at 0 both slopes are right"
    assert "equivalent, at 0 both slopes are right: 1" in str(report)


def test_the_command_says_what_lives(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
    import jax.numpy as jnp
    from mgraph import UnaryNodeOp
    from mgraph.cases import Case

    class DoubledOp(UnaryNodeOp):
        type = "doubled"
        times: int = 1
        cases = (Case((2, 3)),)

        def forward_ops(self, x):
            return x * 2 ** self.times

        def backward_ops(self, adj, val, x):
            return (adj * 2 if self.times == 1 else adj * 4,)
    """
    (tmp_path / "doubled_ops.py").write_text(textwrap.dedent(source))
    words = ["gradcheck", "--quiet", "--mutants", "--module", "doubled_ops.py"]
    assert main([*words, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    parts = sum(report["killed"].values()), len(report["equivalent"]), len(report["survivors"])
    assert sum(parts) == report["mutants"] and min(parts[0], parts[2]) > 0
    lives = {m["after"]: m for m in report["survivors"]}["adj / 4"]
    assert (lives["before"], lives["line"], lives["kind"]) == ("adj * 4", 15, "factor")
    assert lives["differs"] == "no case comes here"
    assert [row["operator"] for row in report["operators"]] == ["DoubledOp"]
    assert main(words) == 1
    assert "line 15: adj * 4 -> adj / 4: no case comes here" in capsys.readouterr().out


@pytest.mark.slow
def test_the_example_of_the_page_on_gradients(tmp_path) -> None:
    page = (ROOT / "docs" / "gradients.md").read_text().partition("## Your own operators")[2]
    example, mended, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    imports = "import jax.numpy as jnp\nfrom mgraph import check_gradients\n"
    for name, source, living in ("lacking", example, 8), ("complete", example + mended, 0):
        path = tmp_path / f"{name}.py"
        path.write_text(imports + re.sub(r"^print.*", "", source, flags=re.MULTILINE))
        (row,) = check_mutants(module=str(path)).rows
        assert (len(row.verdicts), len(row.survivors)) == (44, living)


def test_a_broken_promise_is_reported() -> None:
    class LyingOp(BentOp):
        conventions = (*BentOp.conventions, Convention([0.0, jnp.nan], gradients=([1, 1],), slope=0.5))

    report = check_gradients(LyingOp, thorough=True)
    kept, broken = (check for check in report.checks if "convention" in check.differences)
    assert kept.ok and broken.objections == ("convention",) and broken.finding.found == 0.5
    assert "wrong by 5.0e-01 at [0]" in broken.verdict and "promised" in str(report)
    row = check_operator(LyingOp)
    assert not row.ok and row.verdict == f"WRONG: convention ({broken.finding})"
    assert smallest_failure(report) is None


_PARTS = 24  # many, so that two workers finish at about the same time


@pytest.mark.slow
@pytest.mark.parametrize("part", range(0, _PARTS, 12))
def test_no_mutant_of_a_twelfth_of_mgraphs_operators_survives(part: int) -> None:
    """A release checks all operators."""
    report = check_mutants([cls.__name__ for cls in own_operators()[part::_PARTS]])
    assert report.ok and report.mutants, report
