"""What XLA fuses into one kernel; ``map`` and ``reduce``, which take any function of numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, Node, inits
from mgraph.ops.arithmetic import PlusNodeOp
from mgraph.ops.norm import NormalizationNodeOp
from mgraph.running.fusion import RESULT, SEVERAL, FusionReport, Kernel
from mgraph.running.profile import Profile
from tests.helpers.leaves import param, value

pytestmark = pytest.mark.optimized


@pytest.mark.parametrize(
    ("build", "kernels"),
    [
        (lambda a, b, c: 1 / (1 + mgraph.exp(-a)), [["negate", "exp", "scalar_add", "/"]]),
        (
            lambda a, b, c: mgraph.map(lambda x: 1 / (1 + jnp.exp(-x)), a * 2) + b,
            [["scalar_mult", "map", "+"]],
        ),
        (lambda a, b, c: mgraph.sum(a + b, 1), [["+", "sum"]]),
        (lambda a, b, c: mgraph.dot(a + b, c), [["+"], ["dot"]]),
    ],
)
def test_chains_are_one_kernel(
    graph: ExpressionGraph, build: Callable[..., Node], kernels: list[list[str]]
) -> None:
    # Some versions of XLA add up more than 32 elements in two kernels.
    leaves = [graph.param(name, (64, 32), inits.normal()) for name in "ab"]
    top = build(*leaves, graph.param("c", (32, 128), inits.normal()))
    report = graph.fusion_report()
    nodes = graph.tape.nodes
    assert [[nodes[i].type for i in kernel.nodes] for kernel in report.kernels] == kernels
    assert top.id in report.written
    # Only the end of a chain is written to memory.
    assert len(report.written) == len(kernels)
    assert str(report).startswith(f"{len(kernels)} kernel")
    assert report.clusters.keys() == {i for kernel in report.kernels for i in kernel.nodes}


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA fuses depends on the platform")
def test_three_lines_say_what_was_fused_and_why_not(graph: ExpressionGraph) -> None:
    x = graph.constant((64, 32), inits.normal())
    hidden = mgraph.relu(mgraph.dot(x, graph.param("a", (32, 32)))).set_name("hidden")
    mgraph.exp(-mgraph.dot(hidden, graph.param("b", (32, 32)))).set_name("top")
    report = graph.fusion_report()
    kernels, fused, written = report.summary.split("\n")
    assert re.fullmatch(
        r"4 kernels, 5 nodes computed, 4 written to memory; \d+ more draw random numbers or move data",
        kernels,
    )
    assert fused == "fused: negate 6 with exp top"
    assert written == (
        "written: dot 2, dot 5 (of a library routine, which XLA fuses with nothing); "
        "ReLU hidden (read by a library routine); exp top (a result)"
    )
    assert str(report).startswith(report.summary) and "data moved" not in str(report)


@pytest.mark.thorough
def test_a_step_with_loops_and_gradients_is_reported(graph: ExpressionGraph) -> None:
    xs, w = graph.constant((5, 4, 8), inits.normal()), graph.param("w", (8, 8), inits.normal())
    last, _ = mgraph.scan(lambda s, x: (mgraph.tanh(mgraph.dot(s, w) + x), ()), graph.zeros((4, 8)), xs)
    top = mgraph.sum(mgraph.flatten(last * last))
    forward, both = graph.fusion_report(), graph.fusion_report(backward=True)
    assert len(both.kernels) > len(forward.kernels) > 2
    scan = next(n for n in graph.tape.nodes if n.type == "scan")
    assert scan.id in forward.clusters and top.id in forward.clusters
    assert "scan" in str(forward) and "library" in str(forward)
    before = mgraph.compile_stats()
    graph.backprop()
    assert (mgraph.compile_stats() - before).misses == 1


def test_map_is_elementwise_and_broadcasts(graph: ExpressionGraph) -> None:
    a, b = param(graph, [[1.0, 2.0], [3.0, 4.0]], "a"), param(graph, [10.0, 20.0], "b")
    y = mgraph.map(lambda a, b: jnp.where(a > 2, a * b, b), a, b)
    assert y.shape == (2, 2) and value(y).tolist() == [[10, 20], [30, 80]]
    # A function that tries to look at neighbours sees only one number.
    assert value(mgraph.map(lambda a: a - jnp.max(a), a)).tolist() == [[0, 0], [0, 0]]
    assert mgraph.check_gradients(mgraph.map(lambda a, b: jnp.sin(a) / b, a, b), thorough=True).ok
    assert mgraph.map(jnp.sin, a) is mgraph.map(jnp.sin, a)
    graph.clear()
    a = param(graph, [[1.0, 2.0], [3.0, 4.0]], "a")
    straight = mgraph.sum(mgraph.flatten(mgraph.map(jnp.round, a, backward=lambda adj, val, a: (adj,))))
    graph.backprop()
    assert a.grad().tolist() == [[1, 1], [1, 1]] and straight.scalar() == 10


def test_reduce_keeps_the_order_and_the_axis(graph: ExpressionGraph) -> None:
    x = param(graph, np.arange(1.0, 11.0).reshape(2, 5))
    assert value(mgraph.reduce(lambda a, b: a + b, x, 1)).tolist() == [[15], [40]]
    assert value(mgraph.reduce(lambda a, b: b, x, 1)).tolist() == [[5], [10]]
    assert value(mgraph.reduce(lambda a, b: a, x, 1)).tolist() == [[1], [6]]
    assert value(mgraph.reduce(jnp.maximum, x)).tolist() == [[6, 7, 8, 9, 10]]
    one = param(graph, [[3.0]], "one")
    assert mgraph.reduce(jnp.maximum, one, 1) is one
    with pytest.raises(ArgumentError, match="reduce expects a function"):
        mgraph.reduce(3, x)
    with pytest.raises(mgraph.ShapeError, match="axis 2 does not exist"):
        mgraph.reduce(jnp.maximum, x, 2)


def test_an_analysis_sees_the_present_values_of_a_graph_that_went_on(graph: ExpressionGraph) -> None:
    w = graph.param("w", (3,), inits.ones())
    top = mgraph.sum(mgraph.square(w))
    graph.backprop()
    graph.assign(w, mgraph.remove_as_root(w * 2))
    assert len(graph.fusion_report().kernels) == 1 and graph.memory().needed > 0
    assert top.scalar() == 3 and w.val().tolist() == [2, 2, 2]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA fuses depends on the platform")
def test_values_along_residual_connections_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, XLA fuses each layer's sum and norm, and all earlier ones, into all of their readers."""

    def additions() -> int:
        mgraph.clear_programs()
        graph = ExpressionGraph()
        h = graph.param("x", (64, 128))
        for i in range(6):
            w = graph.param(f"w{i}", (128, 128))
            scale, shift = (graph.param(f"{name}{i}", (1, 128)) for name in ("scale", "shift"))
            h = mgraph.layer_norm(h + mgraph.relu(mgraph.dot(h, w)), scale, shift)
        mgraph.sum(mgraph.flatten(h * h))
        graph.backprop()
        run = graph._run
        return len(re.findall(r" add\(", run._analysed(run._planner.joint(run._spans, False)).as_text()))

    barred = additions()
    for cls in (PlusNodeOp, NormalizationNodeOp):
        monkeypatch.setattr(cls, "computed_once", False)
    assert 2 * barred < additions()


KERNELS = (
    Kernel("one", "loop", (1, 2), (2,)),
    Kernel("two", "library", (2,), (2,)),
    Kernel("three", "copy", (), ()),
    Kernel("four", "loop", (1, 2), (2,)),
    Kernel("unseen", "loop", (3, 4, 5, 6), (3, 4, 5, 6)),
)
LABELS = {1: "dot 1", 2: "exp 2", 3: "a", 4: "b", 5: "c", 6: "d"}


def test_a_profile_adds_up_the_kernels_of_a_node() -> None:
    report = FusionReport(KERNELS, LABELS, {})
    profile = Profile(report, {"one": 1e-6, "two": 3e-6, "three": 5e-6, "four": 1e-6}, 2e-5, 3)
    assert profile.nodes == {1: 2e-6, 2: pytest.approx(5e-6), **dict.fromkeys((3, 4, 5, 6), 0.0)}
    assert profile.clusters == {1: "one", 2: "two", **dict.fromkeys((3, 4, 5, 6), "unseen")}
    head, _, *rows = str(profile).splitlines()
    assert head == "20.0 microseconds a run, 10.0 in kernels; mean of 3 runs"
    assert [row.split(maxsplit=4) for row in rows] == [
        ["5.0", "50", "%", "1", "data moved"],
        ["3.0", "30", "%", "1", "exp 2"],
        ["2.0", "20", "%", "2", "dot 1, exp 2"],
    ]


def test_a_summary_names_the_first_nodes_of_each_kind() -> None:
    reasons = {2: RESULT, **dict.fromkeys((3, 4, 5, 6), SEVERAL)}
    assert FusionReport(KERNELS, LABELS, reasons).summary.splitlines() == [
        "4 kernels, 6 nodes computed, 5 written to memory; 1 more draw random numbers or move data",
        "fused: dot 1 with exp 2; a with b with c and 1 more",
        "written: exp 2 (a result); a, b, c and 1 more (read by several kernels)",
    ]
    chains = tuple(Kernel(str(i), "loop", (i, i + 1), ()) for i in range(5))
    _, fused, written = FusionReport(chains, {}, {}).summary.splitlines()
    assert fused == "fused: 0 with 1; 1 with 2; 2 with 3; 2 more" and written == "written: nothing"
    alone = FusionReport((Kernel("one", "loop", (2,), ()),), LABELS, {})
    assert str(alone).splitlines() == [
        "1 kernel, 1 node computed, 0 written to memory",
        "fused: nothing",
        "written: nothing",
        "kernel   1 loop         exp 2",
    ]


def test_a_profile_has_the_seconds_of_every_kernel_and_node(graph: ExpressionGraph, tmp_path: Path) -> None:
    a, b = graph.param("a", (128, 128), inits.normal()), graph.param("b", (128, 128), inits.normal())
    product = mgraph.dot(a, b)
    top = mgraph.sum(mgraph.flatten(mgraph.tanh(product)))
    with pytest.raises(ArgumentError, match="at least 1, got 0"):
        graph.profile(runs=0)
    start = time.perf_counter()
    forward, both = graph.profile(runs=2), graph.profile(backward=True, runs=2)
    assert forward.wall > 0 < both.wall and forward.wall + both.wall < time.perf_counter() - start
    for profile in (forward, both):
        assert profile.seconds.keys() <= {kernel.name for kernel in profile.report.kernels}
        assert {product.id, top.id} <= {node for node, seconds in profile.nodes.items() if seconds > 0}
        times = [profile.seconds.get(kernel.name, 0.0) for kernel in profile.kernels]
        assert times == sorted(times, reverse=True) and times[0] > 0
        assert profile.clusters.keys() == profile.nodes.keys()
        head, columns, *rows = str(profile).splitlines()
        assert head.endswith("mean of 2 runs") and columns.split() == [
            "microseconds",
            "share",
            "kernels",
            "nodes",
        ]
        assert any(f"dot {product.id}" in row for row in rows)
    assert len(both.report.kernels) > len(forward.report.kernels)
    with jax.profiler.trace(str(tmp_path)), pytest.raises(mgraph.GraphError, match="profile"):
        graph.profile()
