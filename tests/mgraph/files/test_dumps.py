"""Dumps of named nodes, and the differences between two dumps."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import ArgumentError, ExpressionGraph, GraphError, TupleViewNodeOp, cast, inits, scan, sum, topk
from mgraph.files.dumps import diff, dump, values
from mgraph.files.items import read_npz
from mgraph.files.parameter_files import read_items
from tests.helpers.places import DATA


def network(change: float = 0.0) -> ExpressionGraph:
    """``-sum(x w + b)`` with every step named but one; an element of ``b`` is off by ``change``."""
    graph = ExpressionGraph(seed=3)
    x = graph.input("x", (2, 3))
    x.set_value(np.float32([[1, 2, 3], [4, 5, 6]]))
    w = graph.param("w", (3, 2), inits.normal(0, 0.1))
    b = graph.param("b", (1, 2), inits.from_vector([0.5, 0.25 + change]))
    product = (x @ w).set_name("product")
    hidden = (product + b).set_name("hidden")
    sum(-hidden, axis=-1).set_name("total")
    graph.forward()
    return graph


# ---------------------------------------------------------------- values


def test_values_are_those_of_named_nodes_in_the_order_of_recording() -> None:
    graph = network()
    found = values(graph)
    assert list(found) == ["x", "w", "b", "product", "hidden", "total"]
    nodes = {node.name: node for node in graph.tape.nodes}
    for name, array in found.items():
        assert array.shape == nodes[name].shape and array.dtype == nodes[name].value_type.dtype
        np.testing.assert_array_equal(array, nodes[name].val())
    np.testing.assert_allclose(found["hidden"], found["x"] @ found["w"] + found["b"], rtol=1e-5)


def test_values_are_those_of_the_forward_pass() -> None:
    graph = network()
    before = values(graph)
    graph.params()["w"].set_value(np.zeros((3, 2), np.float32))
    assert diff(before, values(graph)).first is None


def test_values_before_forward_are_an_error() -> None:
    graph = network()
    (graph.tape.nodes[-1] + graph.tape.nodes[-1]).set_name("new")
    with pytest.raises(GraphError, match=r"not computed yet; call graph.forward\(\) first"):
        values(graph)
    graph.forward()
    assert list(values(graph))[-1] == "new"


def test_names_that_come_again_and_nodes_with_several_outputs(graph: ExpressionGraph) -> None:
    x = graph.input("x", (4,))
    x.set_value(np.float32([3, 1, 4, 2]))
    for _ in range(2):
        x = (x + x).set_name("layer")
    best = topk(x, 2, axis=-1)
    best[0].children[0].set_name("best")
    TupleViewNodeOp(best[0].children[0], index=1).set_name("best.1")
    graph.forward()
    found = values(graph)
    assert list(found) == ["x", "layer", "layer#2", "best.0", "best.1", "best.1#2"]
    np.testing.assert_array_equal(found["best.0"], [16, 12])
    assert found["best.1"].dtype == np.uint32


def test_nodes_in_a_loops_body_are_left_out(graph: ExpressionGraph) -> None:
    w = graph.param("w", (2,), inits.ones())
    xs = graph.input("xs", (3, 2))
    xs.set_value(np.ones((3, 2), np.float32))
    last, _ = scan(lambda s, x: ((s + x).set_name("inner"), s), w, xs)
    last.set_name("last")
    graph.forward()
    assert list(values(graph)) == ["w", "xs", "last"]


@pytest.mark.parametrize("suffix", ["npz", "bin"])
def test_a_dump_keeps_values_and_order(tmp_path: Path, suffix: str) -> None:
    graph = network()
    path = tmp_path / f"d.{suffix}"
    dump(graph, path)
    found = read_items(path)
    assert list(found) == list(values(graph))
    for name, array in values(graph).items():
        assert array.dtype == found[name].dtype and array.tobytes() == found[name].tobytes()
    assert diff(values(graph), found, rtol=0, atol=0).first is None


def test_types_that_files_do_not_know_are_widened(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.constant((2,), inits.from_vector([1.5, -2]))
    cast(x, "bfloat16").set_name("brain")
    cast(x, "bool").set_name("truth")
    graph.forward()
    assert values(graph)["brain"].dtype == jnp.bfloat16
    dump(graph, tmp_path / "d.npz")
    found = read_npz(tmp_path / "d.npz")
    assert found["brain"].dtype == np.float32 and list(found["brain"]) == [1.5, -2]
    assert found["truth"].dtype == np.uint8 and list(found["truth"]) == [1, 1]


# ---------------------------------------------------------------- differences


def test_the_first_node_that_differs_is_named() -> None:
    found = diff(values(network()), values(network(0.125)))
    first = found.first
    assert first is not None and first.name == "b" and first.shape == (1, 2) and first.beyond == 1
    assert first.problem == "by 0.125 at [0, 1]: 0.25 and 0.375 (1 of 2 elements are beyond the tolerance)"
    assert first.largest == 0.125 and first.relative == 0.25
    assert [node.name for node in found.nodes if node.problem] == ["b", "hidden", "total"]
    assert [node.beyond for node in found.nodes] == [0, 0, 1, 0, 2, 2]
    lines = str(found).splitlines()
    assert lines[0].startswith("the first node that differs is 'b': by 0.125 at [0, 1]")
    assert lines[1] == "6 nodes, 3 of them differ beyond rtol 1e-05, atol 1e-06"
    assert [line.split()[:2] for line in lines[5:7]] == [["*", "b"], ["product", "float32"]]


def test_equal_dumps() -> None:
    found = diff(values(network()), values(network()))
    assert found.first is None and len(found.nodes) == 6
    assert str(found).startswith("6 nodes, 0 of them differ beyond rtol 1e-05, atol 1e-06\n")
    assert diff({}, {}).first is None


@pytest.mark.parametrize(("rtol", "atol", "beyond"), [(0, 0.5, 1), (0, 1, 0), (0.1, 0, 0), (0.0999, 0, 1)])
def test_the_tolerance_is_numpys(rtol: float, atol: float, beyond: int) -> None:
    a, b = np.float64([11, 3]), np.float64([10, 3])
    (node,) = diff({"a": a}, {"a": b}, rtol, atol).nodes
    assert node.beyond == beyond == int(not np.allclose(a, b, rtol, atol)) and node.largest == 1


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), "shape (2, 3) and (3, 2)"),
        (np.zeros(2, np.float32), np.zeros(2, np.float16), "element type float32 and float16"),
        (np.float32(1.5), np.float32(1), "by 0.5: 1.5 and 1.0 (1 of 1 elements are beyond the tolerance)"),
        (np.uint32([300000]), np.uint32([300001]), "by 1 at [0]: 300000 and 300001 "),
        (np.array([True]), np.array([False]), "by 1 at [0]: True and False "),
        (np.float32([np.nan, 0]), np.float32([1, 9]), "by inf at [0]: nan and 1.0 (2 of 2 "),
        (np.float32([np.inf]), np.float32([-np.inf]), "by inf at [0]: inf and -inf "),
        (np.float32([7]), np.float32([np.inf]), "by inf at [0]: 7.0 and inf "),
        (jnp.bfloat16([1, 2]), jnp.bfloat16([1, 3]), "by 1 at [1]: 2.0 and 3.0 "),
    ],
)
def test_how_two_values_differ(a: np.ndarray, b: np.ndarray, problem: str) -> None:
    first = diff({"same": a, "a": a}, {"same": a, "a": b}).first
    assert first is not None and first.name == "a" and first.problem.startswith(problem)


@pytest.mark.parametrize(
    "array", [np.float32([np.nan, np.inf, -np.inf, 0]), np.zeros((0, 3)), np.int64([2**62]), np.bool_(True)]
)
def test_values_equal_to_themselves(array: np.ndarray) -> None:
    assert diff({"a": array}, {"a": np.array(array)}, rtol=0, atol=0).first is None


def test_large_integers_are_compared_exactly() -> None:
    first = diff({"a": np.uint64([2**63])}, {"a": np.uint64([2**63 + 1])}).first
    assert first is not None and first.beyond == 1


def test_missing_nodes_come_where_they_belong() -> None:
    one = np.ones(1)
    found = diff({"x": one, "only": one, "y": one}, {"first": one, "x": one, "extra": one, "y": 2 * one})
    assert [(node.name, node.problem.partition(" at")[0]) for node in found.nodes] == [
        ("first", "only in the second"),
        ("x", ""),
        ("extra", "only in the second"),
        ("only", "only in the first"),
        ("y", "by 1"),
    ]


@pytest.mark.parametrize("tolerances", [{"rtol": -1}, {"atol": -1e-9}, {"atol": np.nan}])
def test_tolerances_that_cannot_be(tolerances: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match="expected tolerances of at least 0"):
        diff({}, {}, **tolerances)


def test_tolerances_that_are_no_numbers() -> None:
    with pytest.raises(ArgumentError, match="diff: rtol must be a number, got 'x' of type str"):
        diff({}, {}, rtol="x")


def test_files_are_compared(tmp_path: Path) -> None:
    dump(network(), tmp_path / "a.npz")
    dump(network(1e-3), tmp_path / "b.bin")
    a, b = read_items(tmp_path / "a.npz"), read_items(tmp_path / "b.bin")
    assert str(diff(a, b)).startswith("the first node that differs is 'b': by 0.001 at [0, 1]")
    assert str(diff(a, b, atol=0.1)).startswith("6 nodes, 0 of them differ beyond rtol 1e-05, atol 0.1")


def test_files_may_be_named(tmp_path: Path) -> None:
    dump(network(), tmp_path / "a.npz")
    found = diff(tmp_path / "a.npz", str(tmp_path / "a.npz"))
    assert found.nodes and found.first is None
    assert diff(tmp_path / "a.npz", values(network())).first is None
    with pytest.raises(ArgumentError, match="expected values by name or a file, got 3"):
        diff(tmp_path / "a.npz", 3)


def test_models_are_compared_too() -> None:
    folder = DATA / "items"
    npz, packed = read_items(folder / "quantized.npz"), read_items(folder / "quantized.intgemm8.bin")
    assert diff(npz, read_items(folder / "quantized.float32.bin"), rtol=0, atol=0).first is None
    assert "the first node that differs is 'tall_W': by 0.0" in str(diff(npz, packed))
    assert diff(npz, packed, atol=0.01).first is None


def test_the_table_of_differences_is_aligned() -> None:
    lines = str(diff({"a": np.zeros(2), "longer": np.zeros(())}, {"a": np.ones(2)})).splitlines()[2:]
    assert lines == [
        "     node    type     shape   max |a-b|  relative  beyond",
        "  *  a       float64  2         1.0e+00   1.0e+00       2",
        "  *  longer  float64  scalar          -         -       -",
    ]
