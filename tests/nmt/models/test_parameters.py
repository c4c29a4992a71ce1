"""The parameters of models: those of Marian's models, those that our layers declare and ask graphs for."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from layers import CELLS, FactorGroups, Layer, Output, Parameter, UnsupportedOptionError
from mgraph import ExpressionGraph, ParameterError, Type
from mgraph.files.items import write_npz
from mgraph.files.parameter_files import write_items
from mgraph.inits import Glorot
from nmt.cli import main
from nmt.files import create_model, load_model
from nmt.files.saving import model_items
from nmt.models import Model, Source
from nmt.models.checking import check_parameters, completed
from nmt.models.explanations import Explanations
from nmt.models.page import markdown
from nmt.models.parameters import initial_values, parameters
from nmt.models.types import TYPES, check_options, find_type
from nmt.settings.model_options import MODEL_TYPES, OPTIONS, ModelOptions, check_values
from tests.helpers import places
from tests.helpers.places import ROOT

DATA = places.DATA / "architecture"

Shapes = dict[str, tuple[int, ...]]


def model_options(said: dict[str, Any]) -> ModelOptions:
    """Model options from Marian's option names."""
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in said.items()}
    known = {n.replace("-", "_"): values.pop(n) for n in said if n in ModelOptions()}
    return ModelOptions(**known, extra=MappingProxyType(values))


def numbers(text: str) -> Iterator[int]:
    """The numbers in "0-3 5"."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def in_graph(options: ModelOptions, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return find_type(options.type).names.in_graph(params, options)


def read_models() -> dict[str, tuple[ModelOptions, Shapes]]:
    """The options of Marian's models, and the shapes of their parameters under the names in graphs."""
    data = json.loads((DATA / "parameters.json").read_text())
    models = {}
    for name, model in data["models"].items():
        options = model_options(model["options"])
        entries = (data["parameters"][place].rsplit(" ", 1) for place in numbers(model["parameters"]))
        items = {n: np.empty(tuple(map(int, shape.split("x"))), np.float32) for n, shape in entries}
        models[name] = options, {n: a.shape for n, a in in_graph(options, items).items()}
    return models


MODELS = read_models()
REFUSED = ("new-no-bias-rnn",)
"""Models that Marian trains and we refuse (``check_new``)."""


# ---------------------------------------------------------------- what Marian's models have


def shapes_of(table: dict[str, Parameter]) -> Shapes:
    return {name: parameter.shape for name, parameter in table.items()}


@pytest.mark.parametrize("name", MODELS)
def test_our_models_have_the_parameters_of_marians(name: str) -> None:
    options, shapes = MODELS[name]
    if name in REFUSED:
        with pytest.raises(UnsupportedOptionError):
            parameters(options)
        return
    assert shapes_of(parameters(options)) == shapes
    check_parameters(options, shapes)


def test_marians_models_have_every_type_and_every_layer_with_parameters() -> None:
    models = {name: options for name, (options, _) in MODELS.items() if name not in REFUSED}
    words = FactorGroups((3, 2), ((), (), (1,)))
    factored = dataclasses.replace(TRANSFORMER, dim_vocabs=(4, 4), factors=(words, words))
    found = {p.layer for options in (*models.values(), factored) for p in parameters(options).values()}
    classes = [Layer]
    for kind in classes:
        classes += kind.__subclasses__()
    classes = [kind for kind in classes if kind.__module__.split(".")[0] in ("layers", "nmt")]  # no test's
    declaring = {kind.__name__ for kind in classes if "self.param(" in inspect.getsource(kind)}
    cells = {kind.__name__ for kind in CELLS.values()}
    declaring |= {kind.__name__ for kind in Output.__subclasses__()}  # they inherit its declarations
    of_metrics = {"CometEncoder"}  # these score translations, and are not trained here
    assert (declaring | cells) - {"Layer", "Cell"} - of_metrics == found
    assert {options.type for options, _ in MODELS.values()} == set(TYPES)


@pytest.mark.parametrize("name", json.loads((DATA / "initial.json").read_text()))
def test_parameters_begin_as_marians_do(name: str) -> None:
    options, _ = MODELS[name]
    extremes = json.loads((DATA / "initial.json").read_text())[name]
    items = {n: np.array(extreme, np.float32).reshape(1, -1) for n, extreme in extremes.items()}
    marian = in_graph(options, items)
    for parameter_name, parameter in parameters(options).items():
        values = marian[parameter_name].ravel()
        if isinstance(parameter.init, Glorot):
            (magnitude,) = values
            bound = uniform_bound(parameter)
            assert magnitude <= bound * (1 + 1e-4), parameter_name
            # The largest of n numbers is below this bound once in 10^5 times.
            assert magnitude >= bound * 1e-5 ** (1 / math.prod(parameter.shape)), parameter_name
        else:
            expected = {"zeros": [0, 0], "ones": [1, 1], "eye": [0, 1]}[repr(parameter.init)[len("inits.") :]]
            assert list(values) == expected, parameter_name


def uniform_bound(parameter: Parameter) -> float:
    """The bound of a uniform initializer, by its definition."""
    rows, columns = parameter.shape
    init = parameter.init
    assert isinstance(init, Glorot)
    if init.fan_in == init.fan_out:
        return init.scale * math.sqrt(6 / (rows + columns))
    return init.scale * math.sqrt(3 / (rows if init.fan_in else columns))


# ---------------------------------------------------------------- what our models ask for


def recorded(options: ModelOptions, seed: int) -> ExpressionGraph:
    """A graph with all parameters that a model asks for."""
    model = Model(options, {})
    graph = ExpressionGraph(inference=True, seed=seed)
    ids = graph.input("ids", (1, 2), Type.int32)
    source = Source(ids, graph.input("mask", (1, 2)))
    model.logits(model.encode([source] * model.sources), ids)
    return graph


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sampled(every=6)
def test_our_models_ask_graphs_for_what_their_layers_declare(name: str) -> None:
    options, _ = MODELS[name]
    try:
        check_options(options)
        graph = recorded(options, seed=3)
    except UnsupportedOptionError as refused:
        pytest.skip(str(refused))
    asked = graph.params().vals()
    values = initial_values(options, seed=3)
    assert shapes_of(parameters(options)) == {n: v.shape for n, v in asked.items()}
    for parameter, value in values.items():
        np.testing.assert_array_equal(value, asked[parameter], err_msg=parameter)


def test_old_files_have_the_output_matrix_untransposed() -> None:
    options = ModelOptions(type="lm", dim_vocabs=(7,), dim_emb=3, dim_rnn=4)
    table = parameters(options, ["decoder_ff_logit_l2_W"])
    assert table["decoder_ff_logit_l2_W"].shape == (3, 7)
    assert "decoder_ff_logit_l2_Wt" not in table


def test_the_cell_of_transformer_new_is_a_plain_ssru() -> None:
    new = dataclasses.replace(TRANSFORMER, type="transformer-new", transformer_decoder_autoreg="rnn")
    plain, other = (
        parameters(dataclasses.replace(new, dec_cell=cell, layer_normalization=norm))
        for cell, norm in (("ssru", False), ("gru", True))
    )
    assert shapes_of(plain) == shapes_of(other) and "decoder_l1_rnn_Wf" in plain


# ---------------------------------------------------------------- the check, and its hints

TRANSFORMER = ModelOptions(
    type="transformer",
    dim_vocabs=(11, 13),
    dim_emb=4,
    transformer_heads=2,
    transformer_dim_ffn=6,
    enc_depth=2,
)
S2S = ModelOptions(type="s2s", dim_vocabs=(11, 13), dim_emb=5, dim_rnn=6)


@pytest.mark.parametrize(
    "options, name, hint",
    [
        (TRANSFORMER, "decoder_l1_rnn_W", "transformer-decoder-autoreg rnn"),
        (TRANSFORMER, "decoder_l1_aan_Wi", "transformer-decoder-autoreg average-attention"),
        (TRANSFORMER, "decoder_l7_self_Wq", "dec-depth of at least 7"),
        (TRANSFORMER, "encoder_l3_ffn_W3", "enc-depth of at least 3, transformer-ffn-depth of at least 3"),
        (TRANSFORMER, "encoder_l1_self_Wo_ln_scale_pre", "n in transformer-preprocess"),
        (TRANSFORMER, "decoder_top_Wh", "h in transformer-postprocess-top"),
        (TRANSFORMER, "Wemb", "tied-embeddings-src, or with tied-embeddings-all"),
        (
            TRANSFORMER,
            "decoder_l1_context_enc2_bq",
            "type multi-transformer, or with type shared-multi-transformer",
        ),
        (S2S, "encoder_bi_l3_cell2_bx", "enc-cell-depth of at least 2, enc-depth of at least 3"),
        (S2S, "encoder_l2_cell1_W", "enc-type bi-unidirectional, enc-depth of at least 2"),
        (S2S, "encoder_bi_gamma2", "layer-normalization"),
        (S2S, "encoder_bi_Ux_lns", "enc-cell gru-nematus, layer-normalization"),
        (S2S, "decoder_cell1_Um", "dec-cell mlstm, or with dec-cell mgru"),
        (S2S, "decoder_ff_state_W1", "type multi-s2s, or with type shared-multi-s2s"),
    ],
)
@pytest.mark.sampled(every=2)
def test_an_option_explains_a_parameter(options: ModelOptions, name: str, hint: str) -> None:
    assert Explanations(options).hints([name]) == {name: f"exists with {hint}"}


def test_nothing_explains_a_name_of_no_model() -> None:
    names = ["decoder_l1_self_Wz", "decoder_cell3_W", "encoder_bi_l1_cell1_U", "encoder_bi_l09_cell1_U"]
    assert Explanations(S2S).hints(names) == dict.fromkeys(names, "")


@pytest.mark.parametrize("name", ["rnn-ssru", "nematus-deep", "transformer-new-positions", "multi-s2s-deep"])
@pytest.mark.sampled("transformer-new-positions", "nematus-deep")
def test_what_a_hint_says_makes_the_parameter(name: str) -> None:
    """Every parameter of a model that the plain model of its type lacks has a hint."""
    options, shapes = MODELS[name]
    plain = ModelOptions(type=options.type, dim_vocabs=options.dim_vocabs)
    hints = Explanations(plain).hints([n for n in shapes if n not in parameters(plain)])
    assert hints and all(hints.values())


def test_everything_that_does_not_fit_is_listed() -> None:
    shapes = shapes_of(parameters(dataclasses.replace(S2S, dim_rnn=8, dec_depth=2)))
    shapes["decoder_cell1_U"] = (8,)
    del shapes["decoder_cell1_Ux"]
    with pytest.raises(ParameterError) as error:
        check_parameters(S2S, shapes)
    lines = str(error.value).splitlines()
    assert "    decoder_cell1_Ux (6, 6): needed with dec-cell gru" in lines
    assert "    decoder_l2_cell1_U (8, 16): exists with dec-depth of at least 2" in lines
    assert "    decoder_cell1_U (8,), expected (6, 12): dim-rnn x 2 * dim-rnn" in lines
    assert lines[-2:] == ["  1 told otherwise by the shapes:", "    dim-rnn 8"]


def test_sizes_that_no_option_says_are_told_by_the_parameters(tmp_path: Path) -> None:
    expected = ModelOptions(type="multi-s2s", dim_vocabs=(7, 8, 9), dim_emb=3, dim_rnn=5)
    assert completed(ModelOptions(type="multi-s2s"), shapes_of(parameters(expected))) == expected
    said = dataclasses.replace(S2S, given=frozenset({"dim-rnn", "dim-vocabs"}), dim_vocabs=(0, 13), dim_emb=1)
    assert completed(said, shapes_of(parameters(dataclasses.replace(S2S, dim_rnn=7)))) == S2S
    path = tmp_path / "old.npz"
    write_npz(path, {name: np.asarray(value) for name, value in create_model(S2S).params.items()})
    assert load_model(path, options=ModelOptions(type="s2s")).options == S2S


def test_a_table_that_is_missing_is_listed_whatever_its_size(tmp_path: Path) -> None:
    """Its size cannot be known; the error is not about an invalid ``dim-vocabs``."""
    path = tmp_path / "old.npz"
    tied = dataclasses.replace(TRANSFORMER, dim_vocabs=(11, 11), tied_embeddings_all=True)
    write_npz(path, {name: np.asarray(value) for name, value in create_model(tied).params.items()})
    with pytest.raises(ParameterError) as error:
        load_model(path, options=dataclasses.replace(tied, dim_vocabs=(0, 0), tied_embeddings_all=False))
    assert "Wemb (11, 4): exists with tied-embeddings-src, or with tied-embeddings-all" in str(error.value)
    assert "encoder_Wemb (11, 4): needed with no tied-embeddings-src" in str(error.value)


def test_positions_are_as_many_as_the_file_has() -> None:
    extra = MappingProxyType({"transformer-train-positions": True, "max-length": 7})
    options = dataclasses.replace(TRANSFORMER, extra=extra)
    check_parameters(options, shapes_of(parameters(options)) | {"Wpos": (9, 4)})
    with pytest.raises(ParameterError, match=r"Wpos \(9, 5\), expected \(9, 4\): max-length x dim-emb"):
        check_parameters(options, shapes_of(parameters(options)) | {"Wpos": (9, 5)})


# ---------------------------------------------------------------- values


def test_the_settings_know_how_many_sources_a_type_reads() -> None:
    assert {name: len(kind.encoders) for name, kind in TYPES.items()} == MODEL_TYPES


def test_every_option_has_a_meaning_and_a_default_that_it_allows() -> None:
    fields = {f.name.replace("_", "-") for f in dataclasses.fields(ModelOptions)}
    assert {*OPTIONS} == fields - {"extra", "text", "given", "factors"}
    assert all(option.help for option in OPTIONS.values())
    check_values(ModelOptions())
    check_values(ModelOptions(dec_depth=256, transformer_decoder_dim_ffn=0))


@pytest.mark.parametrize(
    "values, problem",
    [
        ({"dec_depth": 10**9}, "dec-depth: expected a number from 1 to 256, got 1000000000"),
        ({"dim_emb": "5"}, "dim-emb: expected a number from 1 to 1048576, got '5'"),
        ({"enc_cell": "slow"}, "enc-cell: 'slow' is unknown; expected 'gru', 'gru-nematus', "),
        ({"transformer_postprocess": "dax"}, "transformer-postprocess: 'dax' has the unknown operation 'x'"),
        ({"transformer_preprocess": "a"}, "transformer-preprocess: 'a' has the unknown operation 'a'"),
    ],
)
def test_values_that_an_option_cannot_have_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=problem):
        check_values(ModelOptions(**values))


@pytest.mark.parametrize(
    "options, problem",
    [
        (
            dataclasses.replace(TRANSFORMER, transformer_heads=3),
            "transformer-heads: expected a divisor of dim-emb, 4, got 3",
        ),
        (
            dataclasses.replace(S2S, enc_cell="ssru"),
            "SSRU needs an input with as many features as its state, got 5 and 6",
        ),
        (
            dataclasses.replace(S2S, dec_cell="mlstm", dec_cell_base_depth=3),
            "cell 'decoder_cell3': MLSTM needs an input",
        ),
        (
            dataclasses.replace(TRANSFORMER, transformer_tied_layers=(1, 1)),
            "a number for each of the 1 decoder layers",
        ),
        (dataclasses.replace(S2S, type="bert"), "type: 'bert' is not supported: "),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: ModelOptions, problem: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=problem):
        parameters(options)


def test_shared_parameters_have_one_shape() -> None:
    with pytest.raises(ParameterError, match=r"encoder_Wemb: shared, but \(11, 5\) and \(12, 5\)"):
        parameters(dataclasses.replace(S2S, type="shared-multi-s2s", dim_vocabs=(11, 12, 13)))


# ---------------------------------------------------------------- the page and the command


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "model-parameters.md").read_text()
    assert page == markdown(), "mgraph parameters --markdown > docs/model-parameters.md"


def test_the_page_has_every_type_and_no_broken_link() -> None:
    heads = [line[4:] for line in markdown().splitlines() if line.startswith("### ")]
    links = {text.partition(")")[0] for text in markdown().split("](#")[1:]}
    assert links <= set(heads) and set(TYPES) <= set(heads)


def test_the_command_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parameters", "--markdown"]) == 0
    assert capsys.readouterr().out == markdown()
    assert main(["parameters"]) == 2
    assert "either --model or --markdown is needed" in capsys.readouterr().err
    for words in (["-m", "model.npz"], ["--tensor-parallel", "2"], ["--json"]):
        assert main(["parameters", "--markdown", *words]) == 2
        assert "cannot go with --markdown" in capsys.readouterr().err


def test_the_command_takes_a_model_without_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_items(tmp_path / "model.npz", model_items(TRANSFORMER, {}))
    for words in ([], ["--tensor-parallel", "2"]):
        assert main(["parameters", "-m", str(tmp_path / "model.npz"), *words]) == 0
        assert capsys.readouterr().out.endswith("\n\ntransformer: 0 parameters, 0 numbers\n")


def test_the_command_lists_the_parameters_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.npz"
    model = create_model(TRANSFORMER)
    odd = {"odd": np.zeros((2, 3), np.float32)}
    write_items(path, model_items(TRANSFORMER, {**model.params, **odd}))
    assert main(["parameters", "--model", str(path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "decoder_l1_self_Wq 4x4 16 Affine transformer-decoder-autoreg self-attention" in lines
    assert "odd 2x3 6 unknown" in lines
    total = sum(value.size for value in model.params.values()) + 6
    assert lines[-1] == f"transformer: {len(model.params) + 1} parameters, {total:,} numbers"
    assert main(["parameters", "--model", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == {*model.params, "odd"}
    bias = next(row for row in rows if row["name"] == "encoder_l1_self_bq")
    assert bias == {
        "name": "encoder_l1_self_bq",
        "shape": [1, 4],
        "size": 4,
        "layer": "Affine",
        "options": [],
    }
