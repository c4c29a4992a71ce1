"""What people see of a graph: debug output and Graphviz."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mgraph
from mgraph import ExpressionGraph, inits
from tests.helpers.leaves import tutorial


def test_graphviz_has_marians_look(tmp_path) -> None:
    graph, _, z = tutorial()
    assert z.mark_checkpoint().set_name("z <top>") is z
    text = graph.graphviz(tmp_path / "g.dot")
    assert (tmp_path / "g.dot").read_text() == text
    assert text.startswith("digraph ExpressionGraph {\nrankdir=TB\n")
    assert '"0" [shape="hexagon", label=<param<br/>"x" (0/1)>, penwidth=1, ' in text
    assert '"1" [shape="diamond", label=<const (1/0)>' in text and 'fillcolor="#ffffff"' in text
    assert '"3" [shape="box", label=<sin (3/1)>' in text and 'fillcolor="#fff09a"' in text
    assert '"4" [shape="box", label=<+<br/>"z &lt;top&gt;" (4/1)>' in text
    assert '"2" -> "4";' in text and "penwidth=3" in text
    assert text.index('"0" [') < text.index('"4" [')


def test_debug_prints_value_and_gradient_in_marians_layout(capfd) -> None:
    graph, x, _ = tutorial()
    x.debug("Parameter x")
    graph.backprop()
    text = capfd.readouterr().err
    assert "Debug: Parameter x op=param\nshape=1x1 size=1 type=float32 device=cpu0 ptr=" in text
    assert "min: 2.00000000 max: 2.00000000 l2-norm: 2.00000000\n[[   2.00000000 ]]\n" in text
    assert "Debug Grad: Parameter x op=param\n" in text
    assert "[[   2.58385324 ]]" in text


def test_nodes_of_several_outputs_can_be_debugged(graph: ExpressionGraph, capfd) -> None:
    values, _ = mgraph.topk(graph.param("w", (4,), inits.range(0, 4)), 2, -1)
    values.children[0].debug("both")
    mgraph.sum(values * 3.0)
    graph.backprop()
    text = capfd.readouterr().err
    assert (text.count("Debug: both op=topk"), text.count("Debug Grad: both op=topk")) == (2, 1)
    gradient, none = values.children[0].grad()
    np.testing.assert_allclose(gradient, [3.0, 3.0])
    assert none is None


def test_large_integers_are_debugged_with_all_their_digits(graph: ExpressionGraph, capfd) -> None:
    numbers = [2**53 + 1, -(2**62) - 7]
    graph.constant((2,), inits.from_tensor(np.array(numbers)), "int64").debug()
    graph.constant((0,), inits.zeros(), "int64").debug()
    graph.constant((2,), inits.ones(), "bool").debug()
    graph.forward()
    text = capfd.readouterr().err
    assert f"min: {numbers[1]} max: {numbers[0]} l2-norm: " in text
    assert f"[ {numbers[0]:12d} {numbers[1]:12d} ]" in text
    assert "min: nan max: nan" in text and "[            1            1 ]" in text


def test_a_counter_of_a_loop_has_no_gradient_to_print(graph: ExpressionGraph, capfd) -> None:
    x, zero = graph.param("x", (3, 2), inits.ones()), graph.constant((), inits.zeros(), "int32")
    (count, total), _ = mgraph.scan(lambda s, x: ((s[0] + 1, s[1] * x), ()), (zero, graph.ones((2,))), x)
    count.debug("count")
    mgraph.sum(total)
    graph.backprop()
    printed = capfd.readouterr().err
    assert "Debug: count" in printed and "Debug Grad" not in printed


def test_names_are_escaped_in_pictures(graph: ExpressionGraph) -> None:
    graph.param("a<b>&c", (2,))
    assert 'label=<param<br/>"a&lt;b&gt;&amp;c" (0/1)>' in graph.graphviz()


def test_names_with_characters_that_files_reject_are_drawn(graph: ExpressionGraph, tmp_path: Path) -> None:
    graph.param("a\udcff\0b", (2,))
    assert '"a\ufffd\ufffdb" (0/1)' in graph.graphviz(tmp_path / "g.dot")


def test_a_prompt_shows_reports_as_they_print(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.param("x", (2,), inits.ones())
    top = mgraph.sum(x * x)
    graph.forward()
    graph.dump(tmp_path / "values.npz")
    dumps = [tmp_path / "values.npz"] * 2
    reports = mgraph.check_gradients(top), graph.memory(), graph.fusion_report(), mgraph.diff(*dumps)
    for report in reports:
        assert repr(report) == str(report) != "" and type(report).__name__ not in repr(report)
