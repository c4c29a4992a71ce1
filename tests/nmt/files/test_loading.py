"""Files of models: saved and loaded, damaged, with other options, from old versions."""

from __future__ import annotations

from pathlib import Path

import chex
import numpy as np
import pytest

import mgraph
from layers import UnsupportedOptionError
from mgraph import ArgumentError, ModelFileError, ParameterError
from mgraph.files.items import with_model_yml, write_npz
from nmt.files import create_model, load_model, save_model
from nmt.models import TYPES, Model, Source
from nmt.search.scoring import score
from nmt.settings.model_options import ModelOptions
from tests.helpers.small_models import S2S


def save(path: Path, model: Model, yml: str, **changes: np.ndarray | None) -> Path:
    """A model file with some items changed, or left out where ``None`` is given."""
    items = {name: np.asarray(value) for name, value in model.params.items()}
    items |= {"special:model.yml": with_model_yml(yml), **changes}
    write_npz(path, {name: value for name, value in items.items() if value is not None})
    return path


YML = "type: s2s\ndim-vocabs: [11, 13]\ndim-emb: 5\ndim-rnn: 6\n"


def test_a_saved_model_loads_as_it_was(tmp_path: Path) -> None:
    model = create_model(S2S)
    graph = load_model(save(tmp_path / "a.npz", model, YML)).new_graph()
    graph.save(tmp_path / "b.npz")
    again = load_model(tmp_path / "b.npz")
    assert again.options.text == YML
    assert again.key == load_model(tmp_path / "a.npz").key
    chex.assert_trees_all_equal(again.params, model.params, strict=True)


@pytest.mark.parametrize("kind", TYPES)
def test_a_new_model_of_every_type_is_saved_and_loaded(tmp_path: Path, kind: str) -> None:
    cell = "gru-nematus" if kind == "nematus" else "gru"
    streams = len(TYPES[kind].encoders) + 1
    sizes = {"dim_emb": 8, "dim_rnn": 6, "transformer_heads": 2, "transformer_dim_ffn": 5}
    model = create_model(
        ModelOptions(type=kind, dim_vocabs=(11,) * streams, enc_cell=cell, dec_cell=cell, **sizes)
    )
    save_model(model, tmp_path / "model.npz")
    save_model(model, tmp_path / "model.bin")
    model.new_graph().save(tmp_path / "graph.npz")
    for name in ("model.npz", "model.bin", "graph.npz"):
        again = load_model(tmp_path / name)
        assert again.key == model.key
        chex.assert_trees_all_equal(again.params, model.params, strict=True)
    with pytest.raises(ArgumentError, match=f"type {kind} reads {streams - 1} sources, got 7"):
        model.encode([Source(None, None)] * 7)


def test_every_parameter_that_does_not_fit_is_listed(tmp_path: Path) -> None:
    model = create_model(S2S)
    changes = {
        "encoder_bi_U": None,
        "encoder_bi_Ux": None,
        "decoder_b_att": np.zeros((1, 11), np.float32),
        "decoder_cell3_U": np.zeros((6, 12), np.float32),
    }
    path = save(tmp_path / "model.npz", model, YML, **changes)
    with pytest.raises(ParameterError) as error:
        load_model(path)
    assert str(error.value).splitlines() == [
        f"{path}: the parameters are not those of a model of type s2s with these options",
        "  2 missing:",
        "    encoder_bi_U (6, 12): needed with enc-cell gru",
        "    encoder_bi_Ux (6, 6): needed with enc-cell gru",
        "  1 not used:",
        "    decoder_cell3_U (6, 12): exists with dec-cell-base-depth of at least 3",
        "  1 of another shape:",
        "    decoder_b_att (1, 11), expected (1, 12): 1 x 2 * dim-rnn",
    ]


def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    model = create_model(S2S)
    path = tmp_path / "model.npz"
    lacking = {name: value for name, value in model.params.items() if name != "encoder_bi_U"}
    for params, problem in (
        (lacking, r"1 missing:\s+encoder_bi_U \(6, 12\)"),
        ({**model.params, "odd": np.zeros(3)}, r"1 not used:\s+odd \(3,\)"),
        (
            {**model.params, "decoder_b_att": np.zeros((1, 11))},
            r"decoder_b_att \(1, 11\), expected \(1, 12\)",
        ),
    ):
        with pytest.raises(ParameterError, match=problem) as error:
            save_model(Model(S2S, params), path)
        assert str(error.value).startswith(f"{path}: ") and not path.exists()


@pytest.mark.parametrize(
    "yml, problem",
    [
        ("type: char-s2s", "type: 'char-s2s' is not supported: Marian has its character convolutions"),
        ("type: transformre", "type: 'transformre' is unknown"),
        (YML + "enc-cell: slow-lstm", "enc-cell: 'slow-lstm' is unknown"),
        (YML + "enc-type: backward", "enc-type: 'backward' is unknown"),
        (YML + "original-type: nematus", "original-type: 'nematus' is not supported: a model has one type"),
        (YML + "input-types: [class]", "input-types: expected one for each of 2 streams, got class"),
        (YML + "dec-depth: 1000000000", "dec-depth: expected a number from 1 to 256, got 1000000000"),
        (YML + "enc-depth: 0", "enc-depth: expected a number from 1 to 256, got 0"),
        ("type: s2s\ndim-vocabs: [11]", r"dim-vocabs: expected the sizes of 2 vocabularies, got \[11\]"),
        (
            YML + "tied-embeddings-src: true",
            r"one embedding table for all sides needs equal sizes, got \[11, 13\]",
        ),
        (
            YML.replace("s2s", "transformer") + "transformer-heads: 2",
            "transformer-heads: expected a divisor of dim-emb, 5, got 2",
        ),
        (
            YML.replace("s2s", "transformer") + "transformer-heads: 0",
            "transformer-heads: expected a number from 1",
        ),
    ],
)
def test_options_that_cannot_be_followed_are_refused_by_name(tmp_path: Path, yml: str, problem: str) -> None:
    path = save(tmp_path / "model.npz", create_model(S2S), yml)
    with pytest.raises((UnsupportedOptionError, mgraph.ShapeError), match=problem) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}: ")


def test_files_that_are_no_models_are_errors_that_name_them(tmp_path: Path) -> None:
    model = create_model(S2S)
    integers = save(tmp_path / "a.npz", model, YML, encoder_bi_U=np.zeros((6, 12), np.int8))
    bare = tmp_path / "b.npz"
    write_npz(bare, {"w": np.zeros(3, np.float32)})
    for path, problem in (
        (integers, "encoder_bi_U int8"),
        (bare, "special:model.yml"),
        (tmp_path / "c.pt", ".npz"),
    ):
        with pytest.raises(ModelFileError, match=problem) as error:
            load_model(path)
        assert str(path) in str(error.value)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none.npz")


def test_files_of_old_versions_may_have_the_output_matrix_untransposed(tmp_path: Path) -> None:
    model = create_model(S2S)
    name = "decoder_ff_logit_l2_Wt"
    old = {name: None, "decoder_ff_logit_l2_W": np.asarray(model.params[name]).T}
    path = save(tmp_path / "model.npz", model, YML, **old)
    pairs = [([3, 4, 0], [5, 6, 7, 0])]
    np.testing.assert_allclose(score(load_model(path), pairs)[0][1], score(model, pairs)[0][1], atol=1e-6)


def test_half_precision_files_are_read_as_float32(tmp_path: Path) -> None:
    model = create_model(S2S)
    half = {name: np.asarray(value).astype(np.float16) for name, value in model.params.items()}
    loaded = load_model(save(tmp_path / "model.npz", model, YML, **half))
    assert {value.dtype for value in loaded.params.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(loaded.params["encoder_Wemb"], half["encoder_Wemb"].astype(np.float32))
