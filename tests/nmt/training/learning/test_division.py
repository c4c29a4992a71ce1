"""The table of how ``--tensor-parallel`` divides parameters."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace

import jax
import pytest

from nmt import numbers
from nmt.cli import main
from nmt.models.parameters import parameters
from nmt.settings.model_options import ModelOptions
from nmt.settings.option import OptionError
from nmt.training.learning.division import (
    COLUMNS,
    ROWS,
    TABLE,
    divided_axes,
    rule_for,
    warn_of_whole_vocabularies,
)
from nmt.training.learning.placement import SharedPlacement

BASE = ModelOptions(type="transformer", dim_vocabs=(32000, 32000), enc_depth=1, dec_depth=1)
VARIANTS = (
    {},
    {"tied_embeddings_all": True},
    {"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru"},
    {"transformer_decoder_autoreg": "rnn", "dec_cell": "gru"},
    {"transformer_decoder_autoreg": "average-attention"},
    {"transformer_ffn_depth": 3, "transformer_postprocess": "dhn"},
    {"type": "multi-transformer", "dim_vocabs": (32000, 32000, 32000)},
    {"type": "s2s"},
)


def variant(number: int) -> ModelOptions:
    return replace(BASE, **VARIANTS[number])


def test_a_transformer_is_divided_as_megatron_does() -> None:
    found = divided_axes(BASE, 4)
    for block in ("encoder_l1_self", "decoder_l1_self", "decoder_l1_context"):
        assert [found.pop(f"{block}_{part}") for part in ("Wq", "Wk", "Wv", "bq", "bk", "bv")] == [
            COLUMNS
        ] * 6
        assert found.pop(f"{block}_Wo") == ROWS
    for block in ("encoder_l1_ffn", "decoder_l1_ffn"):
        assert [found.pop(f"{block}_{part}") for part in ("W1", "b1", "W2")] == [COLUMNS, COLUMNS, ROWS]
    assert found == {
        "encoder_Wemb": ROWS,
        "decoder_Wemb": ROWS,
        "decoder_ff_logit_out_Wt": ROWS,
        "decoder_ff_logit_out_b": COLUMNS,
    }


@pytest.mark.parametrize("number", [2, 3])
def test_recurrent_cells_are_whole(number: int) -> None:
    assert not {name for name in divided_axes(variant(number), 2) if "_rnn_" in name}


def test_the_layers_of_a_deep_block_alternate() -> None:
    found = divided_axes(variant(5), 2)
    assert [found.get(f"encoder_l1_ffn_W{i}") for i in (1, 2, 3)] == [COLUMNS, ROWS, COLUMNS]
    assert [found.get(f"encoder_l1_ffn_b{i}") for i in (1, 2, 3)] == [COLUMNS, None, COLUMNS]
    assert "encoder_l1_ffn_ffn_Wh" not in found


@pytest.mark.parametrize("number", range(len(VARIANTS)))
def test_most_of_every_model_is_divided_and_evenly(number: int) -> None:
    options = variant(number)
    declared, axes = parameters(options), divided_axes(options, 8)
    sizes = {name: p.shape[0] * p.shape[1] for name, p in declared.items()}
    share = sum(sizes[name] for name in axes) / sum(sizes.values())
    assert share > (0.5 if options.type == "s2s" else 0.87)
    assert all(declared[name].shape[axis] % 8 == 0 for name, axis in axes.items())
    assert divided_axes(options, 1) == {}


def test_each_rule_is_used() -> None:
    old = ("decoder_ff_logit_out_W",)  # from files of old Marian versions
    used = {rule_for(p) for i in range(len(VARIANTS)) for p in parameters(variant(i)).values()}
    assert used - {None} == set(TABLE)
    assert divided_axes(BASE, 2, old)["decoder_ff_logit_out_W"] == COLUMNS


@pytest.mark.parametrize(
    ("parts", "options", "message"),
    [
        (3, BASE, "--tensor-parallel 3: expected a number that divides --transformer-heads, which is 8"),
        (
            4,
            replace(BASE, transformer_dim_ffn=30),
            "--tensor-parallel 4: expected a number that divides --transformer-dim-ffn, which is 30",
        ),
        (16, BASE, "--tensor-parallel 16: expected a number that divides --transformer-heads, which is 8"),
    ],
)
def test_what_cannot_be_divided_is_named(parts: int, options: ModelOptions, message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message) + "$"):
        divided_axes(options, parts)


def test_groups_of_unequal_size_are_refused() -> None:
    devices = 3 * jax.devices()[:1]
    with pytest.raises(OptionError, match="divides the number of devices, which is 3$"):
        SharedPlacement(devices, tensor_parallel=2)


def test_an_odd_vocabulary_is_whole_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    options = replace(BASE, dim_vocabs=(58101, 32000))
    found = divided_axes(options, 2)
    assert "encoder_Wemb" not in found and found["decoder_Wemb"] == ROWS
    with caplog.at_level(logging.WARNING):
        warn_of_whole_vocabularies(options, 2)
    assert caplog.messages == [
        "--tensor-parallel 2: every device has the whole vocabulary of 58101 words; it would be divided if"
        " it had 58102"
    ]


def test_mgraph_parameters_shows_the_division(capsys: pytest.CaptureFixture[str]) -> None:
    model = ["parameters", "-m", str(numbers.model_dir() / "model.npz"), "--tensor-parallel", "2"]
    assert main(model) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "parameter" and "each device has" in lines[0]
    (query,) = (line.split() for line in lines if line.startswith("encoder_l1_self_Wq "))
    rows, columns = map(int, query[1].split("x"))
    assert query[3:5] == [f"{rows}x{columns // 2}", "columns"]
    assert lines[-1].endswith("on each device")
    assert main([*model, "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["encoder_l1_self_Wo"]["divided"] == "rows"
    assert found["encoder_l1_self_bo"]["part"] == found["encoder_l1_self_bo"]["shape"]
