"""Parameters and constants: names, first values, what they can hold, files."""

from __future__ import annotations

import numpy as np
import pytest

import mgraph
from mgraph import (
    ArgumentError,
    ElementTypeError,
    ExpressionGraph,
    GraphError,
    ParameterError,
    ShapeError,
    inits,
)


def test_constants_never_merge(graph: ExpressionGraph) -> None:
    assert graph.ones((2,)) is not graph.ones((2,))
    assert graph.dropout_mask(0.5, (2,)) is not graph.dropout_mask(0.5, (2,))


def test_parameters_are_shared_by_name_and_checked(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2, 3))
    assert graph.param("w", (2, 3)) is w and graph.get("w") is w and graph.get("v") is None
    with pytest.raises(ParameterError, match=r"asked for again with float16\n.*test_leaves.py"):
        graph.param("w", (2, 3), type="float16")
    with pytest.raises(GraphError, match="nothing is computed from the only node, a parameter:\n.*'w'"):
        graph.backprop()
    with pytest.raises(ShapeError, match=r"\(2, 3\), asked for again with \(3, 2\)\n.*test_leaves.py"):
        graph.param("w", (3, 2))
    graph.switch_params("F0")
    other = graph.param("w", (4,), inits.zeros())
    assert other is not w and other.name == "F0::w"
    assert list(graph.params()) == ["w", "F0::w"]


def test_a_new_name_on_a_reloaded_graph_is_an_error(graph: ExpressionGraph, tmp_path) -> None:
    graph.param("w", (2, 3)).val()
    graph.save(tmp_path / "model.npz", meta="type: none\n")
    loaded = ExpressionGraph()
    loaded.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.param("w", (2, 3)).val(), graph.param("w", (2, 3)).val())
    assert loaded.model_yml == "type: none\n"
    with pytest.raises(ParameterError, match=r"'v'.*not in the model that was loaded"):
        loaded.param("v", (2,))


def test_namespaces_are_stripped_on_save_and_added_on_load(graph: ExpressionGraph, tmp_path) -> None:
    graph.switch_params("F1")
    graph.param("w", (2,), inits.from_vector([1.0, 2.0]))
    graph.save(tmp_path / "m.npz")
    assert list(mgraph.files.items.read_npz(tmp_path / "m.npz")) == ["w"]
    other = ExpressionGraph()
    other.switch_params("F0")
    other.load(tmp_path / "m.npz")
    assert list(other.params()) == ["F0::w"]


def test_initial_values_depend_on_seed_and_name_not_on_order() -> None:
    one, two = ExpressionGraph(seed=5), ExpressionGraph(seed=5)
    a = one.param("a", (3, 3)).val()
    two.param("b", (3, 3)).val()
    np.testing.assert_array_equal(a, two.param("a", (3, 3)).val())
    assert not np.array_equal(a, ExpressionGraph(seed=6).param("a", (3, 3)).val())


def test_integers_of_an_initialiser_are_kept_or_refused(graph: ExpressionGraph) -> None:
    assert graph.constant((2,), inits.from_vector([3.0, 0.0]), "uint8").val().tolist() == [3, 0]
    for values in ([300, -1], [1.5, 0.0], [np.nan, 0.0]):
        with pytest.raises(mgraph.ElementTypeError, match="from_vector: uint8 cannot hold"):
            graph.constant((2,), inits.from_vector(values), "uint8")


def test_what_is_no_initialiser_is_refused_where_it_is_given(graph: ExpressionGraph) -> None:
    with pytest.raises(
        ArgumentError, match=r"got an array of shape \(2,\).*; inits.from_tensor(.|\n)*test_leaves.py"
    ):
        graph.param("w", (2,), np.ones(2))
    with pytest.raises(ArgumentError, match=r"inits.from_tensor\(array\) makes one"):
        graph.constant((2,), np.ones(2))
    for wrong in (0, 0.5, [1.0, 2.0]):
        with pytest.raises(ArgumentError, match="expected an initializer"):
            graph.param(f"w{wrong}", (2,), wrong)
        with pytest.raises(ArgumentError, match="expected an initializer"):
            graph.constant((2,), wrong)
    assert not graph.params() and not graph.tape.nodes


@pytest.mark.parametrize(("value", "kind"), [(None, "object"), ("text", "<U4")])
def test_what_is_no_array_is_not_called_one_of_another_shape(
    graph: ExpressionGraph, value: object, kind: str
) -> None:
    for leaf in (graph.input("x", (2,)), graph.param("w", (2,), inits.ones())):
        with pytest.raises(ElementTypeError, match=f"'{leaf.name}' holds float32, got a value of {kind}"):
            leaf.set_value(value)


def test_fractions_do_not_become_integers_silently(graph: ExpressionGraph) -> None:
    ids, x = graph.param("ids", (2,), inits.zeros(), "int32"), graph.input("x", (2,), "uint32")
    for leaf in (ids, x):
        with pytest.raises(ElementTypeError, match="got a value of float64"):
            leaf.set_value([1.5, 2.0])
        leaf.set_value([3, 4])
        np.testing.assert_array_equal(leaf.val(), [3, 4])


def test_a_model_that_does_not_fit_changes_nothing(tmp_path) -> None:
    saved = ExpressionGraph()
    saved.param("a", (2,), inits.ones())
    saved.param("b", (3,), inits.ones())
    saved.save(tmp_path / "m.npz", meta="x: 1\n")
    graph = ExpressionGraph()
    a, _ = graph.param("a", (2,), inits.zeros()), graph.param("b", (2,), inits.zeros())
    with pytest.raises(ShapeError, match=r"'b' has shape \(2,\), got a value of \(3,\)"):
        graph.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(a.val(), [0.0, 0.0])
    assert graph.model_yml is None and not graph.reloaded


def test_a_model_that_could_not_be_read_is_not_written(graph: ExpressionGraph, tmp_path) -> None:
    graph.param("flag", (2,), inits.ones(), "bool")
    with pytest.raises(mgraph.ModelFileError, match="'flag' is bool"):
        graph.save(tmp_path / "m.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value", [[300, 1], [-1, 1], [1j, 1], ["a", "b"], [None, 1], [[1], [1, 2]], [0.5, 1]]
)
def test_a_leaf_refuses_what_it_cannot_hold(graph: ExpressionGraph, value: object) -> None:
    for leaf in (graph.input("x", (2,), "uint8"), graph.param("w", (2,), inits.ones(), "uint8")):
        leaf.set_value([255, True])
        with pytest.raises((ElementTypeError, ShapeError), match=f"'{leaf.name}'"):
            leaf.set_value(value)
        np.testing.assert_array_equal(leaf.val(), [255, 1])
