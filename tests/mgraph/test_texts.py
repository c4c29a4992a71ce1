"""What objects and messages say: names, shapes, and suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import layers
import mgraph
import nmt
from layers.choices import UnsupportedOptionError, choose
from mgraph import ArgumentError, ElementTypeError, ExpressionGraph, inits
from mgraph.names import meant
from tests.helpers.fresh import python


def test_objects_say_what_they_are() -> None:
    graph = ExpressionGraph()
    w, y = graph.param("w", (2, 3)), graph.input("y", (2, 3))
    product = w * y
    top = mgraph.sum(product).set_name("cost")
    function = graph.function([top, product], [y])
    said = {
        "ParamNode('w', id=0, float32[2, 3])": w,
        "MultNodeOp(id=2, float32[2, 3])": product,
        "SumNodeOp('cost', id=3, float32[1, 3])": top,
        "Function((y: float32[2, 3]) -> float32[1, 3], float32[2, 3]; 1 parameters)": function,
        "ExpressionGraph(4 nodes, 1 parameters)": graph,
        "Parameters(1 parameters, 6 numbers)": graph.params(),
        "Sgd(learn_rate=0.1, clip_norm=0.0)": mgraph.Sgd(0.1),
        "Dense(hidden_W [3, 4], hidden_b [1, 4])": layers.Dense("hidden", 3, 4),
    }
    assert list(said) == [repr(value) for value in said.values()]


def test_a_layer_names_a_few_of_many_parameters() -> None:
    class Many(layers.Layer):
        def __init__(self) -> None:
            self.all = [self.param(f"W{i}", 1, i + 1) for i in range(6)]

    assert repr(Many()) == "Many(W0 [1, 1], W1 [1, 2], W2 [1, 3], W3 [1, 4] and 2 more)"


@pytest.mark.parametrize(
    ("wrong", "error", "suggestion"),
    [
        (lambda graph: graph.constant((1,), type="flaot32"), ElementTypeError, "did you mean float32?"),
        (lambda graph: ExpressionGraph(derivatives="rule"), ArgumentError, "did you mean 'rules'?"),
        (lambda graph: choose("enc-cell", "gur", {"gru": 1}), UnsupportedOptionError, "did you mean 'gru'?"),
    ],
)
def test_values_are_suggested(
    wrong: Callable[[ExpressionGraph], Any], error: type[Exception], suggestion: str
) -> None:
    with pytest.raises(error) as raised:
        wrong(ExpressionGraph())
    assert str(raised.value).partition("\n  at ")[0].endswith(suggestion)


def test_python_can_suggest_attributes() -> None:
    """Python's traceback adds ``Did you mean`` if an error names the object and the attribute."""
    x = ExpressionGraph().param("x", (1, 1), inits.ones())
    for owner, name in ((mgraph, "sinn"), (nmt, "Translater"), (x, "vall")):
        with pytest.raises(AttributeError) as raised:
            getattr(owner, name)
        assert (raised.value.name, raised.value.obj) == (name, owner)


def test_nothing_is_suggested_for_what_is_not_similar() -> None:
    assert meant("sofmax", ["softmax", "sum"]) == "; did you mean softmax?"
    assert meant("zebra", ["softmax", "sum"]) == ""


def test_compiling_is_said_once() -> None:
    """At level info, one line before the first program; at level debug, each program is named."""
    code = (
        "import logging, sys, mgraph\n"
        "logging.basicConfig(level='DEBUG', stream=sys.stdout, format='%(levelname)s %(message)s')\n"
        "for size in (2, 3):\n"
        "    graph = mgraph.ExpressionGraph()\n"
        "    y = mgraph.sin(graph.ones((size,)))\n"
        "    graph.forward()\n"
        "    y.val()\n"
    )
    lines = python(code).splitlines()
    (said,) = [line for line in lines if "[programs]" in line]
    assert said == "INFO [programs] Compiling the first program; each is named at level debug"
    named = [line for line in lines if "traced in" in line]
    assert len(named) == 2 and all(line.startswith("DEBUG ") for line in named)
