"""ONNX: every operator written, run by onnxruntime, read back; loops, open axes, what is refused."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, Node, inits
from mgraph.bridges import BridgeError, UnsupportedOperatorError, export_onnx, from_jax, import_onnx
from mgraph.bridges.onnx import exporting
from mgraph.bridges.onnx.axes import OpenAxes
from mgraph.gradcheck.survey import own_operators
from nmt import Translator, numbers
from nmt.files import create_model, load_model
from nmt.files.export import OnnxModel, export_model
from nmt.models import Model, Source
from nmt.settings.model_options import ModelOptions
from nmt.text.lines import read_lines
from nmt.text.sentences import LineEncoder
from nmt.text.vocabs.loading import load_vocabs
from tests.helpers.onnx_runs import run
from tests.helpers.places import DATA

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

REFUSED = {"AffineInt8NodeOp", "CSRDotNodeOp", "UnlikelihoodNodeOp"}
"""Operators of mgraph that cannot be written."""
OPERATORS = {cls.__name__: cls for cls in own_operators() if cls.cases}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def children(graph: ExpressionGraph, arrays: list[np.ndarray], type_: str) -> list[Node]:
    """Parameters of ``type_`` for real arrays, constants for the others."""
    return [
        graph.param(f"child {i}", a.shape, inits.from_tensor(a), type_)
        if a.dtype == np.float64
        else graph.constant(a.shape, inits.from_tensor(a), a.dtype, name=f"child {i}")
        for i, a in enumerate(arrays)
    ]


def value_and_slopes(graph: ExpressionGraph, top: Node) -> tuple[Any, dict[str, Any]]:
    """The value, and the gradients of a weighted sum of its elements with respect to all parameters."""
    f = graph.function(top)
    trained = {name: node.val() for name, node in graph.params().trainable().items()}

    def total(p: dict[str, Any]) -> Any:
        value = f.pure(p)
        weights = jnp.sin(jnp.arange(value.size) + 1.0).reshape(value.shape)
        return jnp.sum(weights * value), value

    with jax.enable_x64(True):
        slopes, value = jax.jit(jax.grad(total, has_aux=True))(trained)
    return value, slopes


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - REFUSED))
@pytest.mark.sampled(every=6)
def test_an_operator_there_and_back(name: str, tmp_path: Path) -> None:
    """On each case of its gradient checks: the value in onnxruntime in float32, and the value and gradients
    after import in float64."""
    cls = OPERATORS[name]
    for number, case in enumerate(cls.cases):
        path = tmp_path / f"{number}.onnx"
        for type_ in ("float32", "float64"):
            graph = ExpressionGraph()
            top = (case.through or cls)(*children(graph, case.values(number), type_), **dict(case.fields))
            if isinstance(top.spec, tuple):
                top = mgraph.get(top, 0)
            export_onnx(graph, {"y": top}, [], path)
            if type_ == "float32":
                found = run(path)["y"]
                assert found.dtype == top.value_type.dtype
        back = ExpressionGraph()
        again = import_onnx(back, path)["y"]
        assert again.spec == top.spec
        value, slopes = value_and_slopes(graph, top)
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
        value_again, slopes_again = value_and_slopes(back, again)
        np.testing.assert_allclose(value_again, value, rtol=1e-6, atol=1e-7)
        if top.trainable and cls.gradient_is_derivative and cls.surrogate_ops is None:
            for key, slope in slopes.items():
                np.testing.assert_allclose(slopes_again[key], slope, rtol=1e-6, atol=1e-7)


# ---------------------------------------------------------------- translation models

SHIPPED = numbers.model_dir()
MODELS = {
    "shipped": (SHIPPED / "model.npz", SHIPPED / "vocab.spm", "numbers"),
    "s2s": (DATA / "s2s-numbers" / "model.npz", SHIPPED / "vocab.spm", "s2s-numbers"),
}


@pytest.mark.parametrize("name", MODELS)
def test_greedy_search_by_onnxruntime_is_marians(name: str, tmp_path: Path) -> None:
    """Decodes the files in batches of several sizes, and gets what Marian prints for beam 1, as our own
    search does."""
    path, vocab, folder = MODELS[name]
    translator = Translator(str(path), [str(vocab), str(vocab)], beam_size=1)
    export_model(translator.models[0], tmp_path)
    exported = OnnxModel(tmp_path)
    lines = list(read_lines((DATA / folder / "input.en").read_bytes().splitlines(keepends=True)))
    search = translator.search
    sources = [translator.encoder.sentence(0, [line]).sequences[0] for line in lines]
    found: list[str] = []
    for batch in (sources[:1], sources[1:8], sources[8:]):
        words = exported.greedy(batch, search.rules.eos, suppressed=search.rules.suppressed)
        found += [translator.target_vocab.decode(ids) for ids in words]
    assert found == (DATA / folder / "beam1.txt").read_text().split("\n")[:-1]


@pytest.mark.parametrize("name", ["transformer-joint", "s2s-gru"])
def test_models_of_europarl_give_marians_translations(name: str, fixtures: Path, tmp_path: Path) -> None:
    folder = fixtures / "marian" / name
    model = load_model(folder / "model.npz")
    vocabs = json.loads((folder / "meta.json").read_text())["vocabs"]
    source, target = load_vocabs([str(fixtures / "data" / v) for v in vocabs], model.dim_vocabs)
    export_model(model, tmp_path)
    encoder = LineEncoder([source], 1000, False)
    lines = read_lines((fixtures / "data" / "test.de").read_bytes().splitlines(keepends=True))
    sources = [encoder.sentence(0, [line]).sequences[0] for line in lines]
    hidden = {target.unk_id, *target.control_ids} & set(range(model.dim_vocabs[1]))
    words = OnnxModel(tmp_path).greedy(sources, target.eos_id, suppressed=hidden)
    assert [target.decode(ids) for ids in words] == (folder / "beam1.txt").read_text().split("\n")[:-1]


@pytest.mark.parametrize(
    "name", ["alternating", "bi-unidirectional", "deep", "highway", "prenorm", "tied-layers"]
)
@pytest.mark.sampled("deep", "alternating")
def test_models_with_other_options(name: str, tmp_path: Path) -> None:
    hold_steps(load_model(DATA / "options" / f"{name}.npz"), tmp_path)


@pytest.mark.parametrize("kind", ["lm", "lm-transformer", "multi-s2s", "shared-multi-transformer"])
@pytest.mark.sampled("multi-s2s", "lm")
def test_models_of_no_source_and_of_two(kind: str, tmp_path: Path) -> None:
    streams = 1 if kind.startswith("lm") else 3
    options = ModelOptions(type=kind, dim_vocabs=(11,) * streams, dim_emb=8, dim_rnn=6, transformer_heads=2)
    exported = hold_steps(create_model(options), tmp_path)
    with pytest.raises(ArgumentError, match=f"the exported model has {streams - 1} sources, got 1"):
        exported.encode([Source(np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32))], 4)


def hold_steps(model: Model, folder: Path) -> OnnxModel:
    """Export a model, and compare the logits of some steps, with two hypotheses per sentence and with states
    passed from step to step."""
    export_model(model, folder, beam=2, opset=19)
    for path in folder.iterdir():
        assert onnx.load(path, load_external_data=False).opset_import[0].version == 19
    exported = OnnxModel(folder)
    random = np.random.default_rng(0)
    lengths = (5, 7)[: model.sources]
    sources = [
        Source(
            random.integers(0, model.dim_vocabs[0], (3, n)).astype(np.int32),
            (np.arange(n) < [[n], [3], [4]]).astype(np.float32),
        )
        for n in lengths
    ]
    stepper = model.stepper(3, 2, lengths, (8,))
    encoded = jax.jit(model.encoder(3, lengths))(model.params, sources)
    state, theirs = stepper.start(model.params, encoded), exported.encode(sources, 8, batch=3)
    step = jax.jit(stepper.step)
    for position in range(3):
        words = random.integers(0, model.dim_vocabs[-1], 6).astype(np.int32)
        logits, state, *_ = step(model.params, encoded, state, words, np.int32(position))
        after = exported.step(theirs, words, position)
        np.testing.assert_allclose(after.pop("logits"), logits, rtol=1e-4, atol=2e-5)
        theirs.update(after)
    return exported


def test_a_model_comes_back(tmp_path: Path) -> None:
    """Read back for chosen sizes, the encoder has the same values and the same gradients."""
    model = load_model(DATA / "s2s-numbers" / "model.npz")
    export_model(model, tmp_path)
    ids = np.array([[5, 9, 4, 2], [7, 2, 0, 0]], np.int32)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.float32)
    results = []
    for read in (False, True):
        graph = ExpressionGraph() if read else model.new_graph(inference=False)
        x = graph.constant(ids.shape, inits.from_tensor(ids), "int32")
        m = graph.constant(mask.shape, inits.from_tensor(mask))
        if read:
            top = import_onnx(graph, tmp_path / "encoder.onnx", x, m)["encoder.mapped_context"]
        else:
            top = model.encode([Source(x, m)])["mapped_context"]
        f = graph.function(top)
        gradients = jax.jit(jax.grad(lambda p, f=f: jnp.sum(f.pure(p) ** 2)))(graph.params().vals())
        graph.forward()
        results.append((top.val(), {k: gradients[k] for k in f.parameters}))
    chex.assert_trees_all_close(*results, rtol=2e-4, atol=2e-5)


def test_a_parameter_with_the_name_of_an_input_comes_back(graph: ExpressionGraph, tmp_path: Path) -> None:
    x, p = graph.input("x", (2,)), graph.param("x", (2,), inits.from_vector([1, 2]))
    w = graph.param("w", (2,), inits.from_vector([3, 4]))
    export_onnx(graph, {"y": x * p, "w": w + p}, {"x": x}, tmp_path / "y.onnx")
    again = ExpressionGraph()
    import_onnx(again, tmp_path / "y.onnx", again.ones((2,)))
    chex.assert_trees_all_close(again.params().vals(), graph.params().vals())


# ---------------------------------------------------------------- JAX functions


def test_a_jax_function_as_a_file(tmp_path: Path) -> None:
    def f(x: Any, table: Any, ids: Any) -> Any:
        y = jnp.where(x > 0, jnp.log1p(jnp.abs(x)), jnp.expm1(x)) + table[ids].sum(1)
        y = jax.nn.softmax(jnp.clip(y, -1, 1), -1) + jax.lax.rsqrt(1 + x**2) + jax.scipy.special.erf(x)
        return jnp.flip(y, 1), jnp.argmax(y, 1), jnp.sort(y, 0), jnp.pad(y, ((1, 0), (0, 2))), y.max(0)

    arguments = drawn(3, 4).astype("f4"), drawn(6, 4).astype("f4"), np.array([[1, 5], [0, 2], [3, 3]], "i4")
    graph = ExpressionGraph()
    inputs = [graph.input(n, a.shape, a.dtype) for n, a in zip(("x", "table", "ids"), arguments, strict=True)]
    export_onnx(graph, from_jax(graph, f, *inputs), inputs, tmp_path / "f.onnx")
    found = run(tmp_path / "f.onnx", **dict(zip(("x", "table", "ids"), arguments, strict=True)))
    chex.assert_trees_all_close(tuple(found.values()), f(*map(jnp.asarray, arguments)), rtol=1e-5, atol=1e-6)


def test_primitives_that_onnx_composes(graph: ExpressionGraph, tmp_path: Path) -> None:
    def f(x: Any, i: Any) -> Any:
        sliced = [jax.lax.dynamic_slice(x, (i[0], i[1]), (2, 3)), jax.lax.dynamic_slice(x, (i[2], 0), (1, 4))]
        order = jnp.argsort(jnp.round(x), axis=0)  # with ties
        return jnp.exp2(x), jnp.log2(jnp.abs(x)), jnp.cbrt(x), *sliced, order

    x, i = drawn(5, 4).astype(np.float32), np.array([1, 9, -1], np.int32)
    inputs = [graph.input("x", x.shape), graph.input("i", i.shape, "int32")]
    export_onnx(graph, from_jax(graph, f, *inputs), inputs, tmp_path / "f.onnx")
    found = run(tmp_path / "f.onnx", x=x, i=i)
    chex.assert_trees_all_close(tuple(found.values()), f(jnp.asarray(x), jnp.asarray(i)), rtol=1e-6)


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_small_numbers_keep_their_digits(graph: ExpressionGraph, tmp_path: Path, name: str) -> None:
    sizes = np.concatenate([np.logspace(-30, 0, 61), [0.0, 1.1, 3.0, 60.0, 120.0, np.inf]])
    x = np.concatenate([sizes, -sizes, [np.nan]]).astype(np.float32)
    node = graph.input("x", x.shape)
    export_onnx(graph, from_jax(graph, getattr(jnp, name), node), [node], tmp_path / "f.onnx")
    (found,) = run(tmp_path / "f.onnx", x=x).values()
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=5e-7, atol=0)


class ScaledSquare(mgraph.UnaryNodeOp):
    """A user's operator that no rule knows."""

    type = "scaled_square"
    c: float

    def forward_ops(self, x: Any) -> Any:
        return self.c * jnp.square(x) / (1 + jnp.exp(-x))


@jax.custom_vjp
def steep(x: Any) -> Any:
    return jnp.tanh(x)


steep.defvjp(lambda x: (jnp.tanh(x), None), lambda _, adj: (9 * adj,))


def test_a_function_with_a_rule_of_its_own(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", (2, 3))
    export_onnx(graph, {"y": from_jax(graph, steep, x)}, [x], tmp_path / "y.onnx")
    value = drawn(2, 3).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "y.onnx", x=value)["y"], np.tanh(value), rtol=1e-5)


def test_a_users_operator_is_written_by_its_forward(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", (211, 3))
    export_onnx(graph, {"y": ScaledSquare(x, c=2.0)}, [x], tmp_path / "y.onnx", axes={"batch": 211})
    value = drawn(4, 3).astype(np.float32)
    np.testing.assert_allclose(
        run(tmp_path / "y.onnx", x=value)["y"], 2 * value**2 / (1 + np.exp(-value)), rtol=1e-5
    )


# ---------------------------------------------------------------- open axes


def test_open_axes(tmp_path: Path) -> None:
    """Products of sizes, constants that are cut, a size that no input has."""
    batch, time, room = 211, 223, 227
    graph = ExpressionGraph()
    x = graph.input("x", (batch, time, 3))
    flat = mgraph.reshape(x, (batch * time, 3)) * graph.param("scale", (1, 3), inits.from_vector([1, 2, 3]))
    places = graph.constant((time, 1), inits.range(0, time))
    y = mgraph.reshape(flat, (batch, time, 3)) + places
    wide = y + mgraph.sum(graph.ones((room, 1, 1, 1)), 0)
    axes = {"batch": batch, "time": time, "room": room}
    export_onnx(graph, {"y": wide, "flat": flat}, [x], tmp_path / "y.onnx", axes=axes)
    for shape in ((2, 5, 3), (1, 223, 3), (4, 1, 3)):
        value = drawn(*shape).astype(np.float32)
        found = run(tmp_path / "y.onnx", x=value, room=np.array(7))
        scaled = value * np.float32([1, 2, 3])
        np.testing.assert_allclose(found["flat"], scaled.reshape(-1, 3), rtol=1e-6)
        expected = scaled + np.arange(shape[1])[:, None] + 7
        np.testing.assert_allclose(found["y"][0], expected, rtol=1e-6, atol=1e-6)


def test_scalars_stay_scalars(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", ())
    tops = {"transposed": mgraph.transpose(x) * 2, "root": from_jax(graph, jax.lax.rsqrt, x)}
    export_onnx(graph, tops, [x], tmp_path / "y.onnx")
    assert run(tmp_path / "y.onnx", x=np.array(4, np.float32)) == {"transposed": 8, "root": 0.5}
    back = import_onnx(graph, tmp_path / "y.onnx", x)
    assert {name: node.shape for name, node in back.items()} == {"transposed": (), "root": ()}


@pytest.mark.parametrize("norm", [mgraph.layer_norm, mgraph.rms_norm])
def test_norms_of_half_precision_are_computed_in_float32(
    norm: Any, graph: ExpressionGraph, tmp_path: Path
) -> None:
    """The default eps and squares of 300 are outside the range of float16."""
    x = graph.input("x", (2, 3), "float16")
    top = norm(x, graph.ones((3,), "float16"))
    export_onnx(graph, {"y": top}, [x], tmp_path / "y.onnx")
    value = np.array([[0, 0, 0], [300, 301, 302]], np.float16)
    np.testing.assert_array_equal(run(tmp_path / "y.onnx", x=value)["y"], graph.function(top, [x])(value))


def test_sizes_that_cannot_be_open(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", (211, 3))
    path = tmp_path / "y.onnx"
    with pytest.raises(BridgeError, match="recorded with the size 211.*cannot be distinguished from"):
        export_onnx(graph, x * graph.param("w", (211, 1)), [x], path, axes={"batch": 211})
    with pytest.raises(BridgeError, match="a size of 210 seems to be -1 from axis 'batch'"):
        export_onnx(graph, mgraph.narrow(x, 0, 1, 210) * 2, [x], path, axes={"batch": 211})
    assert not path.exists()


FOLLOWING = {
    "var": lambda x: mgraph.var(x, 0),
    "std": lambda x: mgraph.std(x, 0),
    "share": lambda x: mgraph.sum(x, 0) / x.shape[0] - 2 * x.shape[0] * x,
    "negative": lambda x: x / -x.shape[0] - x.shape[0],
    "jax": lambda x: from_jax(x.graph, lambda x: jnp.var(x, 0) + x[-1] - jnp.mean(x), x),
    "last": lambda x: x[-1],
    "last but one": lambda x: x[-3:-1],
    "every second": lambda x: mgraph.reshape(x, (2 * x.shape[0], 2))[::2],
    "first": lambda x: x[:2] * 0.5 + 1e-3,
    "classes": lambda x: mgraph.one_hot(mgraph.argmax(x, 1)[1], x.shape[0]),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_numbers_and_slices_follow_an_open_axis(name: str, tmp_path: Path) -> None:
    value, graphs = drawn(5, 4).astype(np.float32), [ExpressionGraph(inference=True) for _ in range(2)]
    x, small = (graph.input("x", (n, 4)) for graph, n in zip(graphs, (1999, 5), strict=True))
    export_onnx(graphs[0], {"y": FOLLOWING[name](x)}, [x], tmp_path / "y.onnx", axes={"batch": 1999})
    expected = graphs[1].function(FOLLOWING[name](small), [small])(value)
    np.testing.assert_allclose(run(tmp_path / "y.onnx", x=value)["y"], expected, rtol=1e-5, atol=1e-6)


def test_parts_of_a_cache_begin_where_the_one_before_ends(tmp_path: Path) -> None:
    graph = ExpressionGraph(inference=True)
    axes = {"past": 1999, "now": 2039}
    query, used = graph.input("query", (1, 4)), graph.input("used", (), "int32")
    parts = [graph.input(name, (size, 4)) for name, size in axes.items()]
    masks = [graph.constant((1, size), inits.zeros()) for size in axes.values()]
    top = mgraph.cached_attention(query, used, parts, parts, masks)
    export_onnx(graph, {"y": top}, [query, used, *parts], tmp_path / "y.onnx", axes=axes)
    query, past, now = (drawn(n, 4).astype(np.float32) for n in (1, 3, 2))
    for last, seen in ((2, past), (3, np.concatenate([past, now]))):
        found = run(tmp_path / "y.onnx", query=query, past=past, now=now, used=np.array(last, np.int32))["y"]
        np.testing.assert_allclose(found, jax.nn.softmax(query @ seen.T / 2) @ seen, rtol=1e-5)


@pytest.mark.parametrize(
    ("top", "size", "message"),
    [
        (
            lambda x: x * (1 / 1999**0.5),
            1999,
            "0.0223663, used at .*from the root of the size of axis 'b'",
        ),
        (lambda x: x / np.log(1999), 1999, "0.131572, used at .*test_bridges_onnx.py.* from the logarithm"),
        (lambda x: mgraph.sum(x, 0) / 1998, 1999, "come from one less than .*'b', recorded with 1999"),
        (lambda x: x * 0.01, 100, "0.01, used at .* to come from the size of axis 'b'.*a large prime"),
        (lambda x: x[:-40] * 2, 1999, "'sliceView'.* takes 0 to 1959 .*, at most 999, can be taken"),
        (lambda x: x[::2], 1999, "'sliceView', made at .*test_bridges_onnx.py.* takes 0 to 1999"),
        (
            lambda x: mgraph.relocate(x, *[x.graph.constant(x.shape[:1], inits.zeros(), "int32")] * 2),
            1999,
            "'relocate'.* positions are not known with open axes",
        ),
    ],
)
def test_numbers_and_slices_that_cannot_follow(top: Any, size: int, message: str, tmp_path: Path) -> None:
    graph = ExpressionGraph(inference=True)
    x = graph.input("x", (size, 4))
    with pytest.raises(BridgeError, match=message):
        export_onnx(graph, top(x), [x], tmp_path / "y.onnx", axes={"b": size})
    export_onnx(graph, top(x), [x], tmp_path / "y.onnx")


def test_ordinary_numbers_are_no_sizes() -> None:
    axes = OpenAxes({"few": 4, "batch": 81, "length": 1999}, [1998])
    for number in (0.5, 2, 4, 10, 0.1, 1e-3, 1e-6, -1e9, 3.4028234663852886e38, 1998, math.inf, math.nan, 0):
        assert axes.number(number, "") is None
    assert axes.number(float(np.float32(-1 / 3998)), "") == 3998


# ---------------------------------------------------------------- what is refused


def test_what_cannot_be_written(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", (2, 3))
    with pytest.raises(UnsupportedOperatorError, match="random node made at .*test_bridges_onnx.py"):
        export_onnx(graph, mgraph.dropout(x, 0.5), [x], tmp_path / "y.onnx")
    top = from_jax(graph, lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 3, lambda c: c + 1, x), x)
    with pytest.raises(UnsupportedOperatorError, match="operator 'while', made at .*test_bridges_onnx.py"):
        export_onnx(graph, top, [x], tmp_path / "y.onnx")
    with pytest.raises(BridgeError, match=r"ONNX does not allow.*ReduceSum.*tensor\(bool\)"):
        export_onnx(graph, mgraph.sum(mgraph.cast(x, "bool")), [x], tmp_path / "y.onnx")
    with pytest.raises(ArgumentError, match="operator set from 18"):
        export_onnx(graph, x * 2, [x], tmp_path / "y.onnx", opset=9)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: export_onnx(x, x, [], "f"), "export_onnx: expected a graph, got ConstantNode"),
        (lambda g, x: export_onnx(g, [5], [], "f"), r"export_onnx: the outputs are nodes, got \[5\]"),
        (lambda g, x: export_onnx(g, 5, [], "f"), "export_onnx: the outputs are nodes, got 5"),
        (lambda g, x: export_onnx(g, {1: x}, [], "f"), "the name of an output must be a string, got 1"),
        (lambda g, x: export_onnx(g, x, 5, "f"), "the inputs of a function are nodes, got 5"),
        (lambda g, x: export_onnx(g, x, [], 5), "expected the path of a file, got an int"),
        (lambda g, x: export_onnx(g, x, [], "f", opset="a"), "opset must be a whole number, got 'a'"),
        (lambda g, x: export_onnx(g, x, [], "f", axes=["a"]), r"expected sizes of axes by name, got \["),
        (lambda g, x: export_onnx(g, x, [], "f", axes={"a": "b"}), "the size of axis 'a' must be a whole"),
        (lambda g, x: export_onnx(g, x, [], "f", axes={1: 7}), "the name of an axis must be a string, got 1"),
    ],
)
def test_arguments_of_another_kind_are_refused(graph: ExpressionGraph, call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(graph, graph.ones((2,)))


def test_what_cannot_be_read(graph: ExpressionGraph, tmp_path: Path) -> None:
    x = graph.input("x", (2, 3))
    path = tmp_path / "y.onnx"
    export_onnx(graph, {"y": x * graph.param("w", (1, 3))}, [x], path)
    with pytest.raises(BridgeError, match=r"expected the inputs \['x'\]"):
        import_onnx(graph, path)
    with pytest.raises(BridgeError, match=r"input 'x' is float32\[2, 3\], got float32\[3, 3\]"):
        import_onnx(graph, path, graph.input("z", (3, 3)))
    for wrong in ({"x": x}, "x", 1.5, np.zeros((3, 3)), np.zeros((2, 3), complex)):
        with pytest.raises(BridgeError, match=r"input 'x' is float32\[2, 3\], got"):
            import_onnx(graph, path, wrong)
    other = ExpressionGraph()
    other.param("w", (1, 3), inits.ones())
    with pytest.raises(BridgeError, match="parameter 'w' is in the graph already, with another"):
        import_onnx(other, path, other.input("x", (2, 3)))
    model = onnx.load(path)
    for listed in "[" * 100_000, "[", "[[]]", "1":
        onnx.helper.set_model_props(model, {"mgraph.parameters": listed})
        onnx.save(model, path)
        with pytest.raises(BridgeError, match=r"y\.onnx: mgraph\.parameters: expected a list of names"):
            import_onnx(ExpressionGraph(), path, x)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(BridgeError, match="not a valid ONNX model"):
        import_onnx(graph, path, x)
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])
    hard = onnx.helper.make_node("Hardmax", ["x"], ["y"], name="last")
    body = onnx.helper.make_graph([hard], "g", [info], [out])
    onnx.save(onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    with pytest.raises(UnsupportedOperatorError, match="'Hardmax' .*'last'"):
        import_onnx(graph, path, x)


def test_constants_that_the_reference_of_onnx_cannot_compute_with(
    graph: ExpressionGraph, tmp_path: Path
) -> None:
    path, logits = tmp_path / "y.onnx", graph.constant((2, 5), inits.from_tensor(drawn(2, 5)))
    top = graph.param("w", (2, 1), inits.ones()) * mgraph.cross_entropy(logits, graph.indices([1, 4]))
    export_onnx(graph, {"y": top}, [], path)
    back = ExpressionGraph()
    again = import_onnx(back, path)["y"]
    np.testing.assert_allclose(back.function(again)(), graph.function(top)(), rtol=1e-6)
    model = onnx.load(path)
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)
    with pytest.raises(UnsupportedOperatorError, match="has no counterpart here"):
        import_onnx(back, path)


def test_large_models_keep_their_numbers_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "EXTERNAL", 1000)
    monkeypatch.setattr(onnx.checker, "MAXIMUM_PROTOBUF", 4000)
    graph = ExpressionGraph()
    x = graph.input("x", (2, 300))
    w = graph.param("w", (300, 5), inits.from_tensor(drawn(300, 5)))
    export_onnx(graph, {"y": mgraph.dot(x, w)}, [x], tmp_path / "y.onnx")
    assert (tmp_path / "y.onnx.data").stat().st_size >= 6000
    value = drawn(2, 300).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "y.onnx", x=value)["y"], value @ w.val(), rtol=1e-4, atol=1e-4)
    back = ExpressionGraph()
    import_onnx(back, tmp_path / "y.onnx", back.input("x", (2, 300)))
    np.testing.assert_array_equal(back.params()["w"].val(), w.val())


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    graph = ExpressionGraph()
    x = graph.input("x", (2, 3))
    with pytest.raises(BridgeError, match=r"pip install 'mgraph-jax\[onnx\]'"):
        export_onnx(graph, x * 2, [x], "y.onnx")
