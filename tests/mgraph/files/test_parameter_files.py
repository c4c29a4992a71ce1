"""Graphs and model files: the name says the format, the order is Marian's; copies between graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import chex
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, ModelFileError, Type, inits
from mgraph.files.binary_items import read_bin, write_bin
from mgraph.files.items import model_yml, read_npz, write_npz
from mgraph.files.parameter_files import read_items, write_items
from nmt.files.loading import load_model
from tests.helpers.items import same
from tests.helpers.places import DATA

ITEMS = DATA / "items"
MODELS = [ITEMS / "model.npz", DATA / "s2s-numbers" / "model.npz", *sorted((DATA / "options").glob("*.npz"))]


def test_a_graph_writes_the_bin_that_marian_converts(tmp_path: Path) -> None:
    """``convert`` writes the empty lists of ``special:model.yml`` differently, and nothing else."""
    path = tmp_path / "model.bin"
    graph = ExpressionGraph()
    graph.load(ITEMS / "model.npz")
    graph.save(path, meta=model_yml(read_bin(ITEMS / "model.bin")))
    assert path.read_bytes() == (ITEMS / "model.bin").read_bytes()


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_a_graph_keeps_marians_npz_byte_for_byte(tmp_path: Path, model: Path) -> None:
    for name, source in (("a.npz", model), ("b.bin", model), ("c.npz", tmp_path / "b.bin")):
        graph = ExpressionGraph()
        graph.load(source)
        graph.save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == model.read_bytes()
    assert (tmp_path / "c.npz").read_bytes() == model.read_bytes()
    assert same(read_bin(tmp_path / "b.bin"), read_npz(model))


@pytest.mark.parametrize("call", [ExpressionGraph.load, ExpressionGraph.save])
def test_the_name_says_the_format(tmp_path: Path, call: Callable[..., None]) -> None:
    for name in ("model.pt", "model", "npz", "model.NPZ"):
        with pytest.raises(
            ModelFileError,
            match=rf"{name}: expected a model file that ends in \.npz, \.bin or \.safetensors",
        ):
            call(ExpressionGraph(), tmp_path / name)


def test_items_by_the_name_of_the_file(tmp_path: Path) -> None:
    small = {"a": np.arange(3, dtype=np.float32), "b": np.int8([[1, 2]])}
    for name in ("a.npz", "a.bin"):
        write_items(tmp_path / name, small)
        assert same(read_items(tmp_path / name), small)
    assert (tmp_path / "a.npz").read_bytes()[:2] == b"PK"
    with pytest.raises(ModelFileError, match=r"c\.npz: gemm-type: intgemm8 is for models that end in \.bin"):
        write_items(tmp_path / "c.npz", small, gemm_type="intgemm8")
    with pytest.raises(
        ModelFileError, match=r"c\.bin: gemm-type: expected one of float32, intgemm8, .*'int4'"
    ):
        write_items(tmp_path / "c.bin", small, gemm_type="int4")


@pytest.mark.parametrize("file", ["m.npz", "m.bin", "m.safetensors"])
def test_a_parameter_that_would_not_be_read_is_not_written(
    graph: ExpressionGraph, tmp_path: Path, file: str
) -> None:
    graph.param("special:y", (2,), inits.ones())
    with pytest.raises(ModelFileError, match=rf"{file}: a model file cannot hold a parameter 'special:y'"):
        graph.save(tmp_path / file)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["m.npz", "m.bin", "m.safetensors"])
def test_a_graph_without_parameters_replaces_no_file(
    graph: ExpressionGraph, tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph.param("w", (2,), inits.ones())
    graph.save(tmp_path / file)
    kept = (tmp_path / file).read_bytes()
    graph.switch_params("F1")  # without parameters
    graph.save(tmp_path / file, meta="x: 1")
    assert (tmp_path / file).read_bytes() == kept
    assert f"{file}: there are no parameters to save" in caplog.text


def test_parameters_are_sorted_by_type_then_name(graph: ExpressionGraph, tmp_path: Path) -> None:
    for name, kind in (("b", "float32"), ("c", "uint32"), ("d", "int8"), ("a", "float16"), ("e", "int32")):
        graph.param(name, (2,), inits.zeros(), kind)
    for file in ("m.npz", "m.bin"):
        graph.save(tmp_path / file)
        found = read_items(tmp_path / file)
        assert list(found) == ["d", "e", "c", "a", "b"] and found["a"].dtype == np.float32


def test_a_graph_of_halves_loads_a_binary_model_as_halves(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_bin(path, {"w": np.float32([1, 2]), "ids": np.uint32([3])})
    graph = ExpressionGraph()
    graph.set_default_element_type("float16")
    graph.load(path)
    assert graph.params()["w"].value_type is Type.float16
    assert graph.params()["ids"].value_type is Type.uint32


def test_a_binary_model_is_the_same_model(tmp_path: Path) -> None:
    source = DATA / "s2s-numbers" / "model.npz"
    extra = {"none_QuantMultA": np.ones((1, 1), np.float32)}  # as in Bergamot's models
    write_bin(tmp_path / "model.bin", read_npz(source) | extra)
    model, npz = load_model(tmp_path / "model.bin"), load_model(source)
    assert model.key == npz.key
    chex.assert_trees_all_equal(model.params, npz.params, strict=True)


def test_copied_parameters_are_shared_until_they_are_trained(tmp_path: Path) -> None:
    write_npz(tmp_path / "m.npz", {"w": np.float32([1, 2]), "ids": np.uint32([3])})
    trained = ExpressionGraph()
    trained.load(tmp_path / "m.npz")
    trained.param("w", (2,)).set_trainable(True)
    valid = ExpressionGraph(inference=True)
    valid.copy_params(trained)
    copied, own = valid.params()["w"], trained.params()["w"]
    assert copied.val().unsafe_buffer_pointer() == own.val().unsafe_buffer_pointer()
    assert valid.params()["ids"].value_type is Type.uint32
    mgraph.sum(valid.param("w", (2,)) * valid.param("w", (2,)), axis=0)
    valid.forward()
    own.set_value(np.float32([5, 6]))
    np.testing.assert_array_equal(copied.val(), [1, 2])
    valid.copy_params(trained)
    np.testing.assert_array_equal(copied.val(), [5, 6])


def test_copies_go_into_the_present_namespace_and_stay_fixed() -> None:
    other = ExpressionGraph(seed=3)
    other.param("w", (2,), inits.normal())
    other.param("frozen", (1,), inits.ones(), fixed=True)
    graph = ExpressionGraph()
    graph.switch_params("F0")
    graph.copy_params(other)
    assert list(graph.params()) == ["F0::w", "F0::frozen"]
    assert not graph.params()["F0::frozen"].trainable and graph.params()["F0::w"].trainable
    np.testing.assert_array_equal(graph.params()["F0::w"].val(), other.params()["w"].val())


def test_a_copy_that_does_not_fit_changes_nothing() -> None:
    other, graph = ExpressionGraph(), ExpressionGraph()
    for name, shape in (("a", (1,)), ("b", (3,)), ("c", (2,))):
        other.param(name, shape, inits.ones())
    graph.param("a", (1,), inits.zeros())
    graph.param("c", (4,), inits.zeros())
    with pytest.raises(mgraph.ShapeError, match="'c' has shape"):
        graph.copy_params(other)
    assert list(graph.params()) == ["a", "c"] and graph.params()["a"].val()[0] == 0


@pytest.mark.parametrize("name", ["model.npz", "model.bin"])
def test_a_graph_loads_bytes_and_items(name: str) -> None:
    of_file, of_bytes, of_items = ExpressionGraph(), ExpressionGraph(), ExpressionGraph()
    of_file.load(ITEMS / name)
    of_bytes.load((ITEMS / name).read_bytes())
    of_items.load(read_items(ITEMS / name))
    for graph in (of_bytes, of_items):
        chex.assert_trees_all_equal(graph.params().vals(), of_file.params().vals())
        assert graph.model_yml == of_file.model_yml and graph.reloaded


def test_bytes_that_are_no_model_are_refused() -> None:
    for data in (b"", b"PK\3\4", b"not a model"):
        with pytest.raises(ModelFileError, match=f"a model of {len(data)} bytes"):
            ExpressionGraph().load(data)
