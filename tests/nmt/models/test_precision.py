"""Models whose matrices are int8, or that compute in 16 bits."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import pytest

from layers import Columns, Embedding, Output
from layers.products import MULTIPLIER, SCALE
from mgraph import ArgumentError, ExpressionGraph, ModelFileError, ParameterError, Type, inits
from mgraph.files.intgemm import IntegerMatrix, is_quantized
from mgraph.files.items import read_npz, write_npz
from mgraph.files.parameter_files import read_items_and_integers
from mgraph.types import as_type
from nmt.files.loading import create_model, load_model
from nmt.files.saving import convert_model, save_model
from nmt.models.model import Model
from nmt.models.parameters import parameters
from nmt.models.parts import Dropouts, Source
from nmt.models.precision import in_floats, in_int8
from nmt.settings.model_options import ModelOptions
from tests.helpers.leaves import drawn
from tests.helpers.small_models import S2S, TRANSFORMER

pytestmark = pytest.mark.optimized

STUDENT = ModelOptions(
    type="transformer",
    dim_vocabs=(16, 16),
    dim_emb=16,
    enc_depth=1,
    dec_depth=1,
    transformer_heads=2,
    transformer_dim_ffn=32,
    transformer_decoder_autoreg="rnn",
    dec_cell="ssru",
    tied_embeddings_all=True,
)
MODELS = {"transformer": TRANSFORMER, "s2s": S2S, "student": STUDENT}


def saved(options: ModelOptions, path: Path) -> str:
    name = str(path / "model.npz")
    save_model(create_model(options), name)
    return name


def scores(model: Model, rows: slice = slice(None)) -> np.ndarray:
    """Log-probabilities of made-up words for four sentences, or for the ``rows`` of them."""
    random = np.random.default_rng(1)
    ids = random.integers(2, 11, (4, 6)).astype(np.int32)[rows]
    targets = random.integers(2, 11, (4, 5)).astype(np.int32)[rows]
    score = model.scorer(len(ids), (6,), 5)
    source = Source(ids, np.ones(ids.shape, np.float32))
    target = Source(targets, np.ones(targets.shape, np.float32))
    return np.asarray(jax.jit(lambda params: score(params, [source], target))(model.params))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_models_are_pickled_and_copied(precision: str, tmp_path: Path) -> None:
    loaded = load_model(saved(TRANSFORMER, tmp_path), precision=precision, marian_exact=True)
    assert loaded.marian_exact
    model = Model(loaded.options, loaded.params, Dropouts(trg=0.2), marian_exact=True)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert other.key == model.key and other.options == model.options and other.marian_exact
        assert other.dropouts == model.dropouts
        chex.assert_trees_all_equal(other.params, model.params, strict=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sampled("transformer")
def test_int8_is_near_float32(name: str, tmp_path: Path) -> None:
    path = saved(MODELS[name], tmp_path)
    model = load_model(path, precision="int8")
    exact, found = scores(load_model(path)), scores(model)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, atol=0.1)
    assert (found != exact).any()
    # States of s2s are multiplied in float32, whose sums depend on the number of rows.
    tolerance = 1e-6 if name == "s2s" else 0
    for row in range(4):
        np.testing.assert_allclose(found[row], scores(model, slice(row, row + 1))[0], rtol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_matrices_of_inputs_tables_and_outputs_are_int8_and_nothing_else(name: str, tmp_path: Path) -> None:
    model = load_model(saved(MODELS[name], tmp_path), precision="int8")
    kept = {n for n, p in model.params.items() if p.dtype == np.int8}
    declared = parameters(MODELS[name])
    assert kept == {n for n, p in declared.items() if p.contracted is not None}
    assert {n for n in model.params if n.endswith(SCALE)} == {n + SCALE for n in kept}
    floats = declared.keys() - kept
    if name == "s2s":
        assert {"decoder_cell1_U", "decoder_cell2_Ux", "encoder_bi_U"} <= floats
        assert {"decoder_cell1_W", "encoder_bi_Wx", "encoder_Wemb", "decoder_ff_logit_l2_Wt"} <= kept
    else:
        assert not [n for n in floats if is_quantized(n)]


def test_a_matrix_is_rounded_by_columns_and_a_table_by_rows() -> None:
    declared = {p.name: p for layer in (Output("o", 3, 5), Embedding("E", 4, 3)) for p in layer.parameters()}
    params = {"o_Wt": drawn(5, 3), "E": drawn(4, 3, seed=1), "o_b": drawn(1, 5)}
    params["E"][2] = 0
    found = in_int8(params, declared, {})
    for name in ("o_Wt", "E"):
        values, scales = found[name], found[name + SCALE]
        assert (values.dtype, scales.shape) == (np.int8, (len(values), 1))
        assert set(np.abs(values).max(1)) <= {127, 0}
        np.testing.assert_allclose(values * scales, params[name], atol=float(scales.max()) / 2 * 1.0001)
    assert found["o_b"] is params["o_b"]
    params["E"][0, 0] = np.nan
    with pytest.raises(ParameterError, match="E: a matrix that is not finite"):
        in_int8(params, declared, {})


def test_the_integers_of_a_file_are_the_weights(tmp_path: Path) -> None:
    options = STUDENT
    path, packed = saved(options, tmp_path), str(tmp_path / "model.bin")
    convert_model(path, packed, gemm_type="intgemm8ssse3")
    items = read_items_and_integers(packed)
    model = load_model(packed, precision="int8")
    matrices = {n: m for n, m in items.items() if isinstance(m, IntegerMatrix)}
    assert matrices
    for name, matrix in matrices.items():
        np.testing.assert_array_equal(model.params[name], matrix.values)
        np.testing.assert_array_equal(model.params[name + SCALE], 1 / matrix.multiplier)
    floats = load_model(packed)
    for name, value in in_floats(items).items():
        if name in floats.params:
            np.testing.assert_array_equal(floats.params[name], value)
    np.testing.assert_allclose(scores(model), scores(floats), atol=0.1)


def test_multipliers_of_activations_are_read_and_used(tmp_path: Path) -> None:
    path = saved(STUDENT, tmp_path)
    without = load_model(path, precision="int8")
    items = read_npz(path)
    items |= {"decoder_l1_ffn_W1_QuantMultA": np.float32([[20.0]]), "none_QuantMultA": np.float32([[3.0]])}
    write_npz(path, items)
    model = load_model(path, precision="int8")
    found = {n: float(v[0]) for n, v in model.params.items() if n.endswith(MULTIPLIER)}
    assert found == {"decoder_l1_ffn_W1" + MULTIPLIER: 20.0, "Wemb" + MULTIPLIER: 3.0}
    coarse, fine = scores(model), scores(without)
    assert (coarse != fine).any()
    np.testing.assert_allclose(coarse, fine, atol=1.0)
    np.testing.assert_array_equal(scores(load_model(path)), scores(create_model(STUDENT)))


@pytest.mark.parametrize(("tied", "multiplier"), [(True, None), (False, None), (True, 3.0)])
def test_a_shortlist_selects_from_int8(tied: bool, multiplier: float | None) -> None:
    """The selected columns equal those of the whole vocabulary, however activations are quantized."""
    table = Embedding("E", 9, 6).table
    layer = Output("o", 6, 9, tied=table if tied else None, transposed=tied)
    params: dict[str, Any] = {n: drawn(*map(int, p.shape)) for n, p in _named(layer).items()}
    packed = in_int8(params, _named(layer), {})
    if multiplier is not None:
        packed[layer.weight.name + MULTIPLIER] = np.float32([multiplier])
    graph = ExpressionGraph(inference=True)
    for name, value in packed.items():
        graph.param(name, value.shape, type=value.dtype).set_value(value)
    x = graph.input("x", (4, 6), Type.float32)
    ids = graph.input("ids", (2, 3), Type.int32)
    function = graph.function([layer(x), layer(x, ids)], [x, ids])
    values, chosen = drawn(4, 6, seed=2), np.int32([[0, 3, 8], [2, 2, 5]])
    whole, short = (np.asarray(y) for y in function(values, chosen))
    for row in range(4):
        np.testing.assert_allclose(short[row], whole[row, chosen[row // 2]], rtol=1e-6)
    listed = np.int32([0, 2, 3, 5, 8])
    words = graph.input("listed", (5,), Type.int32)
    rows = layer.of_listed(words)
    found = dict(zip(rows, graph.function(list(rows.values()), [words])(listed), strict=True))
    function = graph.function([layer(x, Columns(ids, 5))], [x, ids])
    for name, value in found.items():
        assert graph.get(name).value_type is as_type(value.dtype)
        graph.get(name).set_value(value)
    [in_columns] = function(values, np.searchsorted(listed, chosen).astype(np.int32))
    np.testing.assert_allclose(in_columns, short, rtol=1e-6)


def test_a_loss_of_many_logits_in_int8_is_that_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, graph = Output("o", 6, 9), ExpressionGraph(inference=True)
    params: dict[str, Any] = {n: drawn(*map(int, p.shape)) for n, p in _named(layer).items()}
    for name, value in in_int8(params, _named(layer), {}).items():
        graph.param(name, value.shape, type=value.dtype).set_value(value)
    x = graph.constant((4, 6), inits.from_tensor(drawn(4, 6, seed=2)))
    labels = graph.constant((4,), inits.from_vector([0, 3, 8, 2]), Type.int32)
    few = layer.cross_entropy(x, labels)
    monkeypatch.setattr("layers.output.MANY_LOGITS", 1)
    many = layer.cross_entropy(x, labels)
    graph.forward()
    np.testing.assert_array_equal(many.val(), few.val())


def _named(layer: Any) -> dict[str, Any]:
    return {p.name: p for p in layer.parameters()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("precision", "tolerance"), [("float16", 0.02), ("bfloat16", 0.1)])
@pytest.mark.sampled("bfloat16-0.1-transformer")
def test_16_bits_are_near_float32(name: str, precision: str, tolerance: float, tmp_path: Path) -> None:
    path = saved(MODELS[name], tmp_path)
    model = load_model(path, precision=precision)
    assert {str(value.dtype) for value in model.params.values()} == {precision}
    assert model.new_graph().default_element_type == precision
    exact, found = scores(load_model(path)), scores(model)
    assert found.dtype == np.float32
    assert (found != exact).any()
    np.testing.assert_allclose(found, exact, atol=tolerance)


def test_a_model_of_int8_is_not_saved(tmp_path: Path) -> None:
    model = load_model(saved(TRANSFORMER, tmp_path), precision="int8")
    with pytest.raises(ModelFileError, match="loaded with precision int8; load it in float32"):
        save_model(model, tmp_path / "other.npz")


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="expected a precision of float32, .*, int8, got 'int4'"):
        load_model(saved(TRANSFORMER, tmp_path), precision="int4")


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_long_sentences_in_16_bits_show_no_later_words(kind: str) -> None:
    """Above 256, bfloat16 can only represent every second place, so places up to 260 might be confused."""
    options = replace(TRANSFORMER, type="lm-transformer", dim_vocabs=(11,), dec_depth=1)
    model = create_model(options, seed=3)
    graph = ExpressionGraph(inference=True)
    graph.set_default_element_type(kind)
    ids = np.full((2, 264), 3, np.int32)
    ids[1, 260:] = 5
    for name, value in model.params.items():
        graph.param(name, value.shape, inits.from_tensor(np.asarray(value)))
    logits = model.logits({}, graph.constant(ids.shape, inits.from_tensor(ids), Type.int32))
    graph.forward()
    one, other = np.asarray(logits.val(), np.float32)
    np.testing.assert_array_equal(one[:261], other[:261])
    assert not np.array_equal(one[261:], other[261:])
