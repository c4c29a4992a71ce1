"""Single operations of other programs' ONNX files, read and compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, GraphError, ShapeError, inits
from mgraph.bridges import BridgeError, UnsupportedOperatorError, export_onnx, from_jax, import_onnx
from mgraph.bridges.onnx import reader
from tests.helpers.onnx_runs import run

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

node = onnx.helper.make_node
FLOAT = onnx.TensorProto.FLOAT
X = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
WIDE = 16_777_217  # float32 has 16,777,216 and 16,777,218


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def number(value: Any, kind: Any = np.float32) -> np.ndarray:
    return np.array(value, kind)


def write(path: Path, nodes: list[Any], inputs: dict[str, np.ndarray], constants: dict[str, Any]) -> None:
    """Write a model of these nodes; its outputs are the results that no node reads."""
    helper = onnx.helper
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in inputs.items()
    ]
    read = {name for n in nodes for name in n.input}
    outputs = [helper.make_empty_tensor_value_info(o) for n in nodes for o in n.output if o not in read]
    held = [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()]
    body = helper.make_graph(nodes, "g", infos, outputs, held)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)


def theirs(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(run(path, **inputs).values())


def ours(graph: ExpressionGraph, path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    nodes = {k: graph.constant(v.shape, inits.from_tensor(v), v.dtype) for k, v in inputs.items()}
    tops = import_onnx(graph, path, **nodes)
    graph.forward()
    return [np.asarray(top.val()) for top in tops.values()]


def scan(**attributes: Any) -> Any:
    """Sums along the rows of ``X``, and their products with the rows."""

    def info(name: str) -> Any:
        return onnx.helper.make_tensor_value_info(name, FLOAT, [4])

    steps = [node("Add", ["s", "x"], ["t"]), node("Mul", ["t", "x"], ["o"])]
    body = onnx.helper.make_graph(steps, "body", [info("s"), info("x")], [info("t"), info("o")])
    return node("Scan", ["s0", "x"], ["last", "all"], body=body, num_scan_inputs=1, **attributes)


INFINITE = {"x": number([np.inf, -np.inf, 1, np.nan])}
SUMS = {"s0": np.ones(4, np.float32), "x": X}
WHOLE = {"x": number([WIDE, -5], np.int32)}

READ: dict[str, tuple[list[Any], dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "places below zero": (
        [node("ArgMax", ["x"], ["a"], axis=1, keepdims=0), node("Sub", ["a", "c"], ["y"])],
        {"x": X},
        {"c": ints(3)},
    ),
    "a negative place": ([node("ArgMin", ["x"], ["a"]), node("Neg", ["a"], ["y"])], {"x": X}, {}),
    "half of a place": (
        [node("TopK", ["x", "k"], ["v", "a"]), node("Div", ["a", "c"], ["y"])],
        {"x": X},
        {"k": ints(2), "c": ints(-2)},
    ),
    "scan forward": ([scan()], SUMS, {}),
    "scan backward": ([scan(scan_input_directions=[1], scan_output_directions=[1])], SUMS, {}),
    **{
        f"infinity {signs}": (
            [node("IsInf", ["x"], ["y"], detect_negative=signs[0], detect_positive=signs[1])],
            INFINITE,
            {},
        )
        for signs in ((0, 0), (0, 1), (1, 0), (1, 1))
    },
    "clip of integers": ([node("Clip", ["x", "l"], ["y"])], WHOLE, {"l": number(0, np.int32)}),
    "symmetric clip of integers": (
        [node("Clip", ["x", "l", "h"], ["y"])],
        WHOLE,
        {"l": number(-3, np.int32), "h": number(3, np.int32)},
    ),
    "clip from above": ([node("Clip", ["x", "", "h"], ["y"])], {"x": X}, {"h": number(0.3)}),
    "clip and gather": (
        [node("Clip", ["i", "l", "h"], ["c"]), node("Gather", ["x", "c"], ["y"])],
        {"i": ints(7, -5), "x": X},
        {"l": number(0, np.int64), "h": number(2, np.int64)},
    ),
    "dropout and its mask": ([node("Dropout", ["x"], ["y", "m"])], {"x": X}, {}),
    "dropout outside training": (
        [node("Dropout", ["x", "p", "t"], ["y"])],
        {"x": X},
        {"p": number(0.5), "t": number(False, np.bool_)},
    ),
    "cropping pad": ([node("Pad", ["x", "p"], ["y"])], {"x": X}, {"p": ints(0, -1, 2, -1)}),
    "pad of integers": (
        [node("Pad", ["x", "p", "v"], ["y"])],
        WHOLE,
        {"p": ints(1, 1), "v": number(WIDE, np.int32)},
    ),
    "backward slice from before the start": (
        [node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
        {"x": X},
        {"s": ints(-10), "e": ints(-100), "a": ints(1), "t": ints(-1)},
    ),
    "few places of each row": (
        [node("GatherElements", ["x", "i"], ["y"], axis=1)],
        {"x": X, "i": np.array([[2], [1]], np.int64)},
        {},
    ),
    **{
        f"writing to {len(places)} of 3 rows": (
            [node("ScatterElements", ["x", "i", "u"], ["y"], axis=-1)],
            {"x": X, "i": np.array(places, np.int64), "u": X[: len(places), :1] + 5},
            {},
        )
        for places in ([[2]], [[2], [-1]], [[2], [-1], [0]])
    },
    "power of integers": ([node("Pow", ["x", "e"], ["y"])], WHOLE, {"e": number(2, np.int32)}),
    "roots of integers": (
        [node("Pow", ["x", "e"], ["y"])],
        {"x": number([4, 10], np.int32)},
        {"e": number(0.5)},
    ),
    "power of a higher rank": (
        [node("Constant", [], ["e"], value_floats=[2.0]), node("Pow", ["x", "e"], ["y"])],
        {"x": number(3)},
        {},
    ),
    "sum that begins with numbers": ([node("Sum", ["a", "a", "x"], ["y"])], {"x": X}, {"a": number(2)}),
}


@pytest.mark.parametrize("name", READ)
def test_an_operation_is_as_in_onnxruntime(graph: ExpressionGraph, name: str, tmp_path: Path) -> None:
    nodes, inputs, constants = READ[name]
    write(tmp_path / "y.onnx", nodes, inputs, constants)
    found, expected = ours(graph, tmp_path / "y.onnx", inputs), theirs(tmp_path / "y.onnx", inputs)
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype.kind == other.dtype.kind and mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-6, strict=other.dtype != np.int64)


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "message"),
    [
        ([scan(scan_input_directions=[1])], SUMS, {}, "Scan .*in one direction"),
        (
            [node("Dropout", ["x", "p", "t"], ["y"])],
            {"x": X},
            {"p": number(0.5), "t": number(True, np.bool_)},
            "Dropout .*only outside training",
        ),
        (
            [node("Pad", ["x", "p"], ["y"])],
            {"x": X},
            {"p": ints(0, -3, 0, -3)},
            r"Pad .*remove more than the shape \(3, 4\)",
        ),
        (
            [node("RandomNormal", [], ["r"], shape=[3, 4]), node("Add", ["x", "r"], ["y"])],
            {"x": X},
            {},
            "'RandomNormal' .*has no counterpart",
        ),
        ([node("ReduceMean", ["x"], ["y"])], WHOLE, {}, "ReduceMean .*must be of a floating point type"),
    ],
)
def test_other_operations_are_refused_by_name(
    graph: ExpressionGraph, nodes: Any, inputs: Any, constants: Any, message: str, tmp_path: Path
) -> None:
    write(tmp_path / "y.onnx", nodes, inputs, constants)
    with pytest.raises(UnsupportedOperatorError, match=message):
        ours(graph, tmp_path / "y.onnx", inputs)


@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
@pytest.mark.parametrize("rows", [3, 1999])
def test_clamped_places_are_clamped_in_the_file(
    graph: ExpressionGraph, shape: tuple[int, ...], rows: int, tmp_path: Path
) -> None:
    x, i = graph.input("x", (rows, 2)), graph.input("i", shape, "int32")
    top = from_jax(graph, lambda x, i: jnp.take(x, i, 0, mode="clip"), x, i)
    export_onnx(graph, {"y": top}, [x, i], tmp_path / "y.onnx", axes={"n": 1999} if rows == 1999 else None)
    given = {"x": np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)}
    given["i"] = np.resize([-1, rows + 5, 1], shape).astype(np.int32)
    np.testing.assert_array_equal(
        theirs(tmp_path / "y.onnx", given)[0], graph.function(top, [x, i])(*given.values())
    )


def test_logaddexp_of_equal_infinities(graph: ExpressionGraph, tmp_path: Path) -> None:
    a, b = graph.input("a", (5,)), graph.input("b", (5,))
    export_onnx(graph, {"y": mgraph.logaddexp(a, b)}, [a, b], tmp_path / "y.onnx")
    given = {"a": number([-np.inf, np.inf, -np.inf, 2, 3]), "b": number([-np.inf, np.inf, 1, 2, 5])}
    found = theirs(tmp_path / "y.onnx", given)[0]
    np.testing.assert_allclose(found, np.logaddexp(given["a"], given["b"]), rtol=1e-6)


def test_a_file_that_cannot_be_read_leaves_the_graph_as_it_was(tmp_path: Path) -> None:
    path, graph = tmp_path / "y.onnx", ExpressionGraph()
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["b"]), node("Hardmax", ["b"], ["y"])]
    write(path, nodes, {"x": X}, {"w": X})
    w = graph.param("v", (3, 4), inits.ones())
    with pytest.raises(UnsupportedOperatorError, match="Hardmax"):
        import_onnx(graph, path, w)
    with pytest.raises(BridgeError, match="input 'x' is float32"):
        import_onnx(graph, path, graph.zeros((5, 5)))
    assert list(graph.params()) == ["v"]
    top = mgraph.sum(mgraph.tanh(w), (0, 1))
    graph.backprop()
    np.testing.assert_allclose(w.grad(), 1 - np.tanh(1) ** 2 * np.ones((3, 4)), rtol=1e-5)
    assert top.shape == (1, 1)


def test_only_computed_constants_are_bounded(
    graph: ExpressionGraph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reader, "MAX_FOLDED", 8)
    stored = node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(X))
    write(tmp_path / "y.onnx", [stored, node("Add", ["x", "c"], ["y"])], {"x": X}, {})
    np.testing.assert_array_equal(ours(graph, tmp_path / "y.onnx", {"x": X})[0], 2 * X)
    made = [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])]
    write(tmp_path / "y.onnx", made, {"x": X}, {"s": ints(3, 4)})
    with pytest.raises(BridgeError, match=r"a constant of shape \(3, 4\); at most 8 elements"):
        ours(graph, tmp_path / "y.onnx", {"x": X})


def test_what_is_no_tensor_of_a_graph_is_told(graph: ExpressionGraph, tmp_path: Path) -> None:
    helper, kinds, path = onnx.helper, onnx.TensorProto, tmp_path / "y.onnx"
    out, x = helper.make_empty_tensor_value_info("y"), helper.make_tensor_value_info("x", FLOAT, [2])
    words = helper.make_tensor("c", kinds.STRING, [2], [b"a", b"b"])
    one, at = helper.make_tensor("c", FLOAT, [1], [3]), helper.make_tensor("at", kinds.INT64, [1], [0])
    sparse = {"sparse_initializer": [helper.make_sparse_tensor(one, at, [2])]}
    for kind, name, info, held, message in (
        (
            "Identity",
            "x",
            helper.make_tensor_value_info("x", kinds.STRING, [2]),
            {},
            "input 'x' is no tensor",
        ),
        (
            "SequenceLength",
            "x",
            helper.make_tensor_sequence_value_info("x", FLOAT, [2]),
            {},
            "'x' is no tensor",
        ),
        ("Identity", "c", x, {"initializer": [words]}, "'c' is of object, which is not an element type"),
        ("Identity", "c", x, sparse, r"y\.onnx has sparse constants"),
    ):
        body = helper.make_graph([node(kind, [name], ["y"])], "g", [info], [out], **held)
        model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        model = onnx.shape_inference.infer_shapes(model)
        if not model.graph.output[0].type.WhichOneof("value"):
            model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [2]))
        onnx.save(model, path)
        with pytest.raises(BridgeError, match=message):
            import_onnx(graph, path, graph.zeros((2,)))


def test_refused_calls_leave_no_tops(graph: ExpressionGraph) -> None:
    w = graph.param("w", (3, 2), inits.ones())
    with pytest.raises(ShapeError):
        w[0, 5]
    with pytest.raises(BridgeError, match=r"'qr' of the function's line .*test_onnx_operations\.py:\d+"):
        from_jax(graph, lambda a: jnp.linalg.qr(jnp.sin(a))[0], w)
    mgraph.sum(from_jax(graph, jnp.sin, w)[0])  # reuses nodes of the refused calls: only now are they tops
    graph.backprop()
    np.testing.assert_allclose(w.grad(), [[np.cos(1)] * 2, [0, 0], [0, 0]], rtol=1e-6)


def test_loops_over_constants_alone(graph: ExpressionGraph) -> None:
    def tripled(x: Any) -> Any:
        return x + jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, 1.0))[1]

    x = graph.param("x", (3,), inits.ones())
    np.testing.assert_array_equal(graph.function(from_jax(graph, tripled, x))(), [9, 9, 9])
    none = from_jax(graph, lambda x: jnp.tile(x, (0, 1)), x)
    assert none.shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda g, x, f: export_onnx(g, [], [x], f), ArgumentError, r"the outputs are nodes, got \[\]"),
        (lambda g, x, f: export_onnx(g, x, [x], f, axes={"b": 0}), BridgeError, "with the size 0"),
        (lambda g, x, f: import_onnx(None, f, x), ArgumentError, "expected a graph, got None"),
        (lambda g, x, f: import_onnx(g, 3), ArgumentError, "expected the path of a file, got an int"),
        (lambda g, x, f: import_onnx(g, f, [[1.0, 2], [3]]), ShapeError, "input 'x' takes an array"),
        (
            lambda g, x, f: jax.jit(lambda v: import_onnx(g, f, v)["y"].shape)(X),
            GraphError,
            "input 'x' takes an array, got a value that JAX is tracing",
        ),
        (
            lambda g, x, f: jax.jit(lambda v: from_jax(g, lambda a: a * v, x).shape)(X),
            GraphError,
            "closes over a value takes an array, got a value that JAX is tracing",
        ),
    ],
)
def test_mistakes_are_told(
    graph: ExpressionGraph, call: Any, error: Any, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "y.onnx"
    write(path, [node("Tanh", ["x"], ["y"])], {"x": X}, {})
    with pytest.raises(error, match=message):
        call(graph, graph.input("z", (3, 4)), path)


def test_one_node_as_the_inputs(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", (3, 4))
    export_onnx(graph, mgraph.tanh(x), x, tmp_path / "y.onnx")
    np.testing.assert_allclose(theirs(tmp_path / "y.onnx", {"x": X})[0], np.tanh(X), rtol=1e-6)


def test_what_no_output_needs_is_no_top(graph: ExpressionGraph, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    steps = [node("Split", ["x"], ["y", "other"], num_outputs=2, axis=0), node("Tanh", ["x"], ["unused"])]
    write(path, steps, {"x": X[:2]}, {})
    model = onnx.load(path)
    del model.graph.output[1:]
    onnx.save(model, path)
    x = graph.param("x", (2, 4), inits.from_tensor(X[:2]))
    mgraph.sum(import_onnx(graph, path, x)["y"])
    graph.backprop()
    np.testing.assert_array_equal(x.grad(), [[1, 1, 1, 1], [0, 0, 0, 0]])
