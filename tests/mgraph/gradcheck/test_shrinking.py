"""Failures made small: the same failure with fewer and simpler numbers, and a test that can be pasted."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, GraphError, NaryNodeOp, Node, UnaryNodeOp, check_gradients
from mgraph.cases import Case
from mgraph.gradcheck import SmallestFailure, gradients_at, smallest_failure, with_failures
from mgraph.gradcheck.example import Example
from mgraph.gradcheck.shrinking.simpler import cost, simpler_fields, simpler_shapes, simpler_values
from mgraph.gradcheck.shrinking.smallest import shrink
from mgraph.gradcheck.survey import check_operator
from tests.helpers.pages import check_blocks
from tests.helpers.places import ROOT


class Stretched(NaryNodeOp):
    """sin(a) * b, where b is broadcast to the rows of a; takes the first row instead of their sum."""

    type = "stretched"

    def forward_ops(self, a, b):
        return jnp.sin(a) * b

    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), self.summed(adj * jnp.sin(a), b)

    def summed(self, gradient, b):
        return gradient[:1]


class Mended(Stretched):
    def summed(self, gradient, b):
        return gradient


class Powers(UnaryNodeOp):
    """x ** n, wrong only for n > 2."""

    type = "powers"
    n: int = 2
    scale: float = 1.0
    turned: bool = False

    def forward_ops(self, x):
        return self.scale * x**self.n

    def backward_ops(self, adj, val, x):
        return (self.scale * min(self.n, 2) * adj * x ** (self.n - 1),)


class Positive(UnaryNodeOp):
    """``max(x, 0)``, wrong by 2 above 0. At 0, JAX and differences give 0.5, but a rule need not."""

    type = "positive"
    cases = (Case((2, 3), domain="distinct"),)

    def forward_ops(self, x):
        return jnp.maximum(x, 0.0)

    def backward_ops(self, adj, val, x):
        return (2 * adj * (x > 0),)


class Joined(NaryNodeOp):
    """Concatenation of any number of children; the last gets a gradient of the wrong sign."""

    type = "joined"

    def forward_ops(self, *parts):
        return jnp.concatenate(parts, axis=-1)

    def backward_ops(self, adj, val, *parts):
        gradients = jnp.split(adj, np.cumsum([p.shape[-1] for p in parts])[:-1], axis=-1)
        return (*gradients[:-1], -gradients[-1])


class Picked(NaryNodeOp):
    """Rows picked by their numbers; forgets that a row may be picked twice."""

    type = "picked"
    index_children = (1,)

    def forward_ops(self, table, rows):
        return table[rows]

    def backward_ops(self, adj, val, table, rows):
        return jnp.zeros_like(table).at[rows].set(adj), None


class Rigid(Mended):
    """Right at first order; the derivative of the rule does not see the inputs."""

    def backward_ops(self, adj, val, a, b):
        return adj * jax.lax.stop_gradient(b * jnp.cos(a)), adj * jnp.sin(a)


class OfAnotherType(Mended):
    def backward_ops(self, adj, val, a, b):
        return adj * b * jnp.cos(a), adj.astype(jnp.float32)


def smallest(target: Callable[..., Node], *shapes: Any, **settings: Any) -> SmallestFailure:
    found = smallest_failure(check_gradients(target, *shapes, **settings))
    assert found is not None and found.complete and found.confirmed
    return found


def run(test: str) -> Exception | None:
    """Run the source of a test; return the error that its function raises."""
    namespace: dict[str, Any] = {}
    exec(compile(test, "pasted", "exec"), namespace)
    (function,) = [f for name, f in namespace.items() if name.startswith("test_")]
    try:
        function()
    except Exception as e:
        return e
    return None


@pytest.fixture(scope="module")
def found() -> SmallestFailure:
    return smallest(Stretched, (3, 4), (1, 4))


def test_shapes_and_values_become_small_and_the_adjoint_one_number(found: SmallestFailure) -> None:
    assert [v.shape for v in found.example.values] == [(2,), ()], "stretching needs two elements"
    assert sorted(found.example.values[0].tolist()) == [0.0, 1.0] and found.example.values[1] == 0.0
    assert sorted(found.adjoint[0].tolist()) == [0.0, 1.0]
    assert found.way.child == 1 and found.way.differences.keys() == {"jax", "differences"}
    assert found.gradients is not None and found.gradients.by_rule == 0
    assert found.gradients.by_jax == pytest.approx(np.sin(1.0))


def test_the_printed_test_fails_and_passes_when_the_rule_is_mended(found: SmallestFailure) -> None:
    test = str(found)
    for part in (
        "import mgraph",
        "seed=0",
        "# child 0: (2,)",
        "expected = np.array(0.8414709848078965)",
        "got: 0.0",
    ):
        assert part in test, test
    problem = run(test)
    assert isinstance(problem, AssertionError) and "0.841" in str(problem)
    assert run(test.replace("Stretched", "Mended")) is None


def test_fields_become_plain_and_those_of_their_defaults_are_left_out() -> None:
    found = smallest(Powers, (2, 3), fields={"n": 5, "scale": 0.37, "turned": True})
    assert dict(found.example.case.fields) == {"n": 3}
    assert found.example.values[0] == 1.0 and "fields = dict(n=3)" in found.test
    assert isinstance(run(found.test), AssertionError)


def test_a_kink_is_no_smaller_failure() -> None:
    found = smallest(Positive, values=[[0.3, 0.7, -0.2, 5.0]])
    assert found.way.smooth and found.example.values[0] == 1.0, "0 is plainer, but there the slope jumps"
    (case,) = Positive.cases
    found = shrink(Example(Positive, case, tuple(case.values())))
    assert found is not None and found.example.values[0] == 0.5, "1 is not of the domain"


def test_children_are_left_out() -> None:
    found = smallest(Joined, (2, 3), (2, 1), (2, 4))
    assert len(found.example.values) == 1 and found.way.child == 0
    assert found.gradients is not None and (found.gradients.by_jax, found.gradients.by_rule) == (1, -1)


def test_indices_stay_within_what_they_index() -> None:
    values = [np.random.default_rng(0).standard_normal((5, 3)), np.array([4, 2, 4, 0], np.uint32)]
    found = smallest(Picked, values=values)
    table, rows = found.example.values
    assert rows.dtype == np.uint32 and rows.tolist() == [0, 0] and len(table) == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (OfAnotherType, "expected element type"),
        pytest.param(Rigid, "second", marks=pytest.mark.slow),
    ],
)
def test_other_failures_stay_what_they_are(target: type[NaryNodeOp], says: str) -> None:
    found = smallest_failure(check_gradients(target, (2, 3), (2, 3), thorough=target is Rigid), seconds=5)
    assert found is not None and found.gradients is None
    assert sum(v.size for v in found.example.values) == 2
    assert says in found.test.splitlines()[0] and "expected: " in found.test
    assert isinstance(run(found.test), mgraph.GradientError)


def test_a_much_smaller_difference_is_not_the_same_failure() -> None:
    class Slightly(UnaryNodeOp):
        type = "slightly"

        def forward_ops(self, x):
            return x

        def backward_ops(self, adj, val, x):
            return (adj * (1 + 1e-3 * x**4),)

    found = smallest_failure(check_gradients(Slightly, values=[[30.0, 29.0]]))
    assert found is not None and found.example.values[0] > 9, "3 would be wrong by 0.08 in place of 810"


def test_data_for_json_has_no_numbers_that_are_not_finite() -> None:
    class Endless(UnaryNodeOp):
        type = "endless"

        def forward_ops(self, x):
            return x

        def backward_ops(self, adj, val, x):
            return (adj / (0 * x),)

    found = smallest_failure(check_gradients(Endless, (2,)))
    assert found is not None and found.way.differences["jax"] == math.inf
    data = found.as_json()
    assert data["got"] is None and data["expected"] == 0 and data["shapes"] == [[]]
    json.dumps(data, allow_nan=False)


def test_what_is_right_or_cannot_be_made_again(graph: mgraph.ExpressionGraph) -> None:
    report = check_gradients(Mended, (2, 3), (2, 3))
    assert smallest_failure(report) is None
    with pytest.raises(ArgumentError, match="expected witnesses among jax, .*, got 'difference'"):
        smallest_failure(report, witnesses="difference")
    with pytest.raises(ArgumentError, match="expected a report of check_gradients, got <class .*Mended'>"):
        smallest_failure(Mended)  # type: ignore[arg-type]
    assert report.checks[0].example is not None and shrink(report.checks[0].example) is None
    node = Stretched(graph.param("a", (3, 4)), graph.param("b", (1, 4)))
    with pytest.raises(GraphError, match="expected a report on a node class or on a function"):
        smallest_failure(check_gradients(node))

    undefined = check_gradients(mgraph.log, values=[np.array([-1.0])])
    assert not undefined.ok and smallest_failure(undefined) is None


def test_every_step_is_simpler_or_refused() -> None:
    """A candidate is never larger than the failure that it would replace; else the search might not end."""
    case = Case((2, 3), (6,), domain=("positive", "index:3"), axis=1, to=(3, 2))
    example = Example(Stretched, case, tuple(case.values(1)))
    for stage in (simpler_shapes, simpler_fields, simpler_values):
        found = list(stage(example))
        assert any(cost(simpler) < cost(example) for simpler in found)
        for simpler in found:
            assert all(v.size <= w.size for v, w in zip(simpler.values, example.values, strict=False))
            assert [v.shape for v in simpler.values] == list(simpler.case.shapes)
    assert all((v.values[0] > 0).all() and (v.values[1] < 3).all() for v in simpler_values(example))


def test_gradients_at_given_values() -> None:
    a, b = np.array([[0.5, 1.0], [1.5, 2.0]]), np.array([[1.0, 2.0]])
    by_rule = gradients_at(Mended, [a, b], 2 * np.ones((2, 2)))
    np.testing.assert_allclose(by_rule[0], 2 * b * np.cos(a))
    np.testing.assert_allclose(by_rule[1], 2 * np.sin(a).sum(0, keepdims=True))
    rows = gradients_at(Picked, [a, np.array([1, 1], np.uint32)], derivatives="jax")
    assert rows[1] is None and rows[0].tolist() == [[0, 0], [2, 2]]
    with pytest.raises(ArgumentError, match="expected an adjoint for outputs of the shapes"):
        gradients_at(Mended, [a, b], np.ones(3))
    with pytest.raises(ArgumentError, match="gradients_at: an adjoint takes numbers, got an array .*<U4"):
        gradients_at(Mended, [a, b], "ones")
    with pytest.raises(ArgumentError, match=r"expected a seed from 0 to 2\*\*64 - 1, got 'a'"):
        gradients_at(Mended, [a, b], seed="a")


class Twice(UnaryNodeOp):
    """Twice a range of a child, through a function without a name."""

    type = "twice"
    range: mgraph.Slice
    cases = (Case((4,), through=lambda x: Twice(x, range=mgraph.Slice(1, 3)) + x),)

    def forward_ops(self, x):
        return jnp.zeros_like(x).at[self.range.begin : self.range.end].set(2.0) * x

    def backward_ops(self, adj, val, x):
        return (adj,)


@pytest.mark.slow
def test_functions_without_a_name_and_fields_of_any_kind() -> None:
    test = smallest_failure(check_operator(Twice).report).test
    assert "check_gradients(Twice.cases[0].through, values=values, seed=0)" in test
    assert isinstance(run(test), AssertionError)
    test = smallest_failure(check_gradients(Twice, (4,), fields={"range": mgraph.Slice(0, 2)})).test
    assert "fields = dict(range=mgraph.Slice(begin=0, end=2, stride=1))" in test
    assert isinstance(run(test), AssertionError)

    def local(x):
        return Stretched(x, x)

    test = smallest_failure(check_gradients(local, (2,))).test
    assert "def local(x):\n    return Stretched(x, x)" in test, "it has no address"


@pytest.mark.slow
def test_a_test_of_an_operator_in_a_file_runs_by_itself(tmp_path: Path) -> None:
    """In a separate process, by the path of the file, in which the operator can then be fixed."""
    own = tmp_path / "own ops.py"
    source = (
        "import jax.numpy as jnp\nfrom mgraph import UnaryNodeOp\nfrom mgraph.cases import Case\n\n\n"
        "class Cubed(UnaryNodeOp):\n    type = 'cubed'\n    cases = (Case((2, 3)),)\n\n"
        "    def forward_ops(self, x):\n        return x**3\n\n"
        "    def backward_ops(self, adj, val, x):\n        return (2 * adj * x**2,)\n"
    )
    own.write_text(source)
    (row,) = mgraph.check_operators(module=str(own)).rows
    found = smallest_failure(row.report)
    (tmp_path / "test_pasted.py").write_text(str(found))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pasted.py"]
    wrong = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode == 1 and "DESIRED: array(3.)" in wrong.stdout, wrong.stdout
    own.write_text(source.replace("2 * adj", "3 * adj"))
    right = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert right.returncode == 0, right.stdout


@pytest.mark.slow
def test_the_page_of_documentation_shows_what_is_printed(tmp_path: Path) -> None:
    """The operator of ``docs/gradients-shrinking.md``, its smallest failure as printed, and the code."""
    text = (ROOT / "docs" / "gradients-shrinking.md").read_text()
    operator, test, code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "user_ops.py").write_text(operator)
    (row,) = with_failures(mgraph.check_operators(module=str(tmp_path / "user_ops.py"))).rows
    assert row.failure is not None and row.failure.test.replace(str(tmp_path), "/home/you") == test
    expected = check_blocks([operator + code], "gradients-shrinking.md")
    assert len(expected) >= 3
