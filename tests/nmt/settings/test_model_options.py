"""The options that a model carries: Marian's names, types and defaults, whatever the file says."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mgraph.errors import ModelFileError
from mgraph.files.items import MODEL_YML, model_yml, read_npz, with_model_yml
from nmt.settings.model_options import ModelOptions, model_options, parse_model_options
from nmt.settings.yaml_text import MAX_CHARACTERS
from tests.helpers.places import DATA

MARIAN = DATA / "items" / "model.npz"


def parse(text: str) -> ModelOptions:
    return parse_model_options(text, "model.npz")


def check_file(path: Path) -> ModelOptions:
    """The options of a file that Marian wrote, after asserting that a YAML reader gives the same values."""
    items = read_npz(path)
    options = model_options(items, str(path))
    assert options.text == model_yml(items)
    expected = yaml.safe_load(options.text)
    assert set(expected) == set(options)
    for name, value in expected.items():
        assert options[name] == (tuple(value) if isinstance(value, list) else value), name
    assert not options.extra
    return options


def test_marians_own_file() -> None:
    options = check_file(MARIAN)
    assert (options.type, options.dim_emb, options.dim_vocabs) == ("s2s", 2, (4, 4))
    defaults = dataclasses.replace(options, type="amun", dim_emb=512, dim_rnn=1024, dim_vocabs=(0, 0))
    assert dataclasses.replace(defaults, version="", text="") == ModelOptions()


def test_europarl_models(fixtures: Path) -> None:
    transformer = check_file(fixtures / "marian" / "transformer-joint" / "model.npz")
    assert (transformer.type, transformer.transformer_heads, transformer.tied_embeddings_all) == (
        "transformer",
        4,
        True,
    )
    assert check_file(fixtures / "marian" / "s2s-gru" / "model.npz").dim_rnn == 128


def test_defaults_are_those_of_the_command_line() -> None:
    options = parse("type: transformer\n")
    assert options.type == "transformer"
    assert dataclasses.replace(options, type="amun", text="") == ModelOptions()
    assert options["transformer-postprocess"] == "dan" and options["enc-depth"] == 1


def test_values_are_read_as_their_options_want_them() -> None:
    options = parse("transformer-preprocess: no\ntype: 1\nskip: Yes\nright-left: 'off'\ndim-emb: '64'\n")
    assert (options.transformer_preprocess, options.type, options.skip) == ("no", "1", True)
    assert (options.right_left, options.dim_emb) == (False, 64)
    assert parse("dim-vocabs: [3, 4]\ninput-types:\n  - sequence\n  - class\n").input_types == (
        "sequence",
        "class",
    )


@pytest.mark.parametrize("nothing", ["", "~", "null"])
def test_an_option_without_a_value_has_its_default(nothing: str) -> None:
    options = parse(f"dim-emb: {nothing}\ntransformer-postprocess: {nothing}\nskip: {nothing}\n")
    assert (options.dim_emb, options.transformer_postprocess, options.skip) == (512, "dan", False)


def test_options_of_other_models_are_kept() -> None:
    options = parse("comet-mix: true\ncomet-pooler-ffn: [2048, 1024]\nx: 1.5\ny: no\nz: '1'\nw: ~\nv: -3\n")
    assert dict(options.extra) == {
        "comet-mix": True,
        "comet-pooler-ffn": (2048, 1024),
        "x": 1.5,
        "y": "no",
        "z": "1",
        "w": None,
        "v": -3,
    }
    assert options["comet-mix"] is True and "comet-mix" in options and "comet" not in options
    with pytest.raises(KeyError, match="comet is not an option"):
        options["comet"]


def test_options_do_not_change() -> None:
    options = parse("x: 1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.dim_emb = 1
    with pytest.raises(TypeError):
        options.extra["x"] = 2
    assert dataclasses.replace(options, dim_emb=1).dim_emb == 1


@pytest.mark.parametrize("copied", [lambda options: pickle.loads(pickle.dumps(options)), copy.deepcopy])
def test_options_are_pickled_and_copied(copied: Callable[[ModelOptions], ModelOptions]) -> None:
    options = parse("type: s2s\nx: [1, 2]")
    other = copied(options)
    assert other == options and other is not options
    assert (other.text, other.given, other["x"]) == (options.text, options.given, (1, 2))
    with pytest.raises(TypeError):
        other.extra["x"] = 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dim-emb: x", "option dim-emb: expected an integer, got 'x'"),
        ("dim-emb: 1.5", "option dim-emb: expected an integer, got '1.5'"),
        ("dim-emb: []", "option dim-emb: expected an integer, got a list of 0"),
        ("skip: 1", "option skip: expected true or false, got '1'"),
        ("type: [s2s]", "option type: expected a word, got a list of 1"),
        ("dim-vocabs: 3", "option dim-vocabs: expected a list of integers, got '3'"),
        ("dim-vocabs: [3, x]", "option dim-vocabs: expected an integer, got 'x'"),
        ("dim-vocabs: [[3]]", "option dim-vocabs: expected an integer, got a list of 1"),
        ("a: 1\na: 2", "option a appears twice"),
        ("a: {b: 1}", "option a: expected a value or a list of values, got a map"),
        ("? [a]\n: 1", "expected the name of an option, got a list of 1"),
        ("", "expected a map of options"),
        ("words", "expected a map of options"),
        ("- a", "expected a map of options"),
        ("a: b: c", "mapping values are not allowed here"),
        ("a: 'b", "found unexpected end of stream"),
        ("a: \x01", "special characters are not allowed"),
        ("a: \udcff", "special characters are not allowed"),
        ('a: "\\UFFFFFFFF"', ""),
        ("a: !!python/object/apply:os.system [ls]", "anchors, aliases and tags are not read"),
        ("a: &x [1]\nb: [*x, *x]", "anchors, aliases and tags are not read"),
        ("a: *x", "anchors, aliases and tags are not read"),
        ("a: " + "[" * 5000, "more than 8 nested lists"),
        ("a: " + "x" * MAX_CHARACTERS, "65539 characters"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelFileError, match=rf"^model\.npz: special:model\.yml: .*{message}"):
        parse(text)


@given(st.text(max_size=80) | st.text("ab:-[]{}&*!|>'\"#%,? \n~1", max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert parse(text).text == text
    except ModelFileError as error:
        assert str(error).startswith("model.npz: special:model.yml: ")


def test_a_model_without_options() -> None:
    items = read_npz(MARIAN)
    items[MODEL_YML] = items[MODEL_YML].reshape(2, -1)
    with pytest.raises(ModelFileError, match=r"^m\.npz: special:model\.yml should be a row of int8"):
        model_options(items, "m.npz")
    del items[MODEL_YML]
    with pytest.raises(ModelFileError, match=r"^m\.npz: no item special:model\.yml"):
        model_options(items, "m.npz")


def test_the_text_is_kept_for_saving() -> None:
    text = "# mine\ntype:   s2s\n"
    assert model_yml({MODEL_YML: with_model_yml(parse(text).text)}) == text
