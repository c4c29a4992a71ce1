"""What benchmarks count: the operations that a model needs, and their share of a chip's peak."""

from __future__ import annotations

import argparse
import math
import re

import jax
import numpy as np
import pytest

from benchmarks.measuring import Samples
from benchmarks.measuring.chips import add_chip, peak_here, peak_of
from benchmarks.training.models import MODELS
from benchmarks.training.work import rates_of, work_of
from nmt.files import create_model
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import Batch
from nmt.training.learning.objective import Objective

SMALL = {"dim_emb": 16, "dim_rnn": 24, "transformer_heads": 2, "transformer_dim_ffn": 40}


def batch(sources: list[int], targets: list[int], rows: int = 0) -> Batch:
    """Sentences of these lengths, in at least ``rows`` rows."""
    rows = max(rows, len(sources))
    masks = []
    for lengths in (sources, targets):
        filled = np.array(lengths + lengths[:1] * (rows - len(lengths)))
        masks.append(np.float32(np.arange(max(lengths)) < filled[:, None]))
    masks[1][len(sources) :] = 0
    return Batch(tuple(np.int32(mask) for mask in masks), tuple(masks), len(sources))


def test_the_figure_to_beat() -> None:
    """82,000 target words a second of transformer-big are a third of what an A100 can do."""
    options = ModelOptions(**MODELS["transformer-big"], dim_vocabs=(32768, 32768), tied_embeddings_all=True)
    given = batch([28] * 100, [28] * 100)
    matrices = 6 * (4 + 8) * 1024**2 + 6 * (8 + 8) * 1024**2 + 32768 * 1024
    attention = (6 + 6 + 6) * 2 * 28 * 1024
    assert work_of(options, given) == 6 * (matrices + attention) * 2800
    peak = peak_of("NVIDIA A100-SXM4-40GB", "bfloat16")
    speed, share = rates_of(work_of(options, given), Samples((2800 / 82_000,)), peak)
    assert isinstance(speed, Samples) and isinstance(share, Samples)
    assert speed.median == pytest.approx(103, rel=0.01) and share.median == pytest.approx(33, abs=0.3)


PRODUCT = re.compile(
    r"stablehlo\.dot_general.*?(?:batching_dims = \[([\d, ]*)\] x .*?)?contracting_dims = \[([\d, ]*)\] x .*?"
    r": \(tensor<([\dx]+)x\w+>, tensor<[\dx]+x\w+>\) -> tensor<([\dx]+)x\w+>"
)


def operations(text: str) -> int:
    """The operations of all products in a lowered program; the body of a loop counts once."""
    total = 0
    for _, contracted, operand, result in PRODUCT.findall(text):
        sizes = [int(size) for size in operand.split("x")]
        summed = math.prod(sizes[int(axis)] for axis in contracted.split(","))
        total += 2 * summed * math.prod(int(size) for size in result.split("x"))
    return total


def gradient(options: ModelOptions, given: Batch) -> str:
    """The lowered program of the gradient of a batch."""
    objective = Objective(create_model(options, seed=1))
    arrays = objective.arrays(given)
    specs = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in arrays.items()}
    function = objective.differentiated(specs)
    draws = np.zeros(4, np.uint32)
    return jax.jit(function).lower(objective.model.params, arrays, draws, 1.0).as_text()


@pytest.mark.parametrize("tied", [False, True])
def test_a_program_multiplies_what_the_formula_counts(tied: bool) -> None:
    """The program also recomputes the attention scores, because the rule says so; XLA then drops that."""
    options = ModelOptions(
        type="transformer", dim_vocabs=(50, 50), enc_depth=2, dec_depth=3, tied_embeddings_all=tied, **SMALL
    )
    given = batch([16] * 8, [32] * 8)  # rows of packed words without padding
    again = 2 * 8 * 16 * (2 * 16 * 16 + 3 * 32 * 32 + 3 * 16 * 32)
    assert operations(gradient(options, given)) == work_of(options, given) + again


def test_a_recurrent_model() -> None:
    """One layer on each side: all matrices, and attention to contexts of both directions."""
    options = ModelOptions(type="s2s", dim_vocabs=(50, 60), dim_emb=16, dim_rnn=24)
    encoder = 2 * 3 * (16 * 24 + 24 * 24)
    decoder = 3 * (16 * 24 + 24 * 24) + 3 * (48 * 24 + 24 * 24) + 24 * 48
    output = (16 + 24 + 48) * 16 + 16 * 60
    products = 5 * (encoder + 48 * 48) + 7 * (decoder + output) + 2 * 48 * 24
    assert work_of(options, batch([3, 2], [4, 3], rows=4)) == 3 * (2 * products + 4 * 48 * (3 * 4 + 2 * 3))


KINDS = [
    ("NVIDIA A100-SXM4-80GB", 312, 156, 19.5),
    ("NVIDIA H100 80GB HBM3", 989, 494, 67),
    ("NVIDIA H100 PCIe", 756, 378, 51),
    ("NVIDIA H200", 989, 494, 67),
    ("NVIDIA H200 NVL", 835, 417, 60),
    ("NVIDIA L4", 121, 60, 30.3),
    ("Tesla T4", None, 8.1, 8.1),
    ("Tesla V100-SXM2-16GB", None, 15.7, 15.7),
    ("TPU v4", 275, 275, 275 / 6),
    ("TPU v5 lite", 197, 197, 197 / 6),
    ("TPU v5", 459, 459, 459 / 6),
    ("TPU v5p", 459, 459, 459 / 6),
    ("TPU v6e", 918, 918, 918 / 6),
]


@pytest.mark.parametrize(("kind", "bfloat16", "rounded", "float32"), KINDS)
def test_what_a_chip_can_do(kind: str, bfloat16: float | None, rounded: float, float32: float) -> None:
    assert peak_of(kind, "bfloat16") == bfloat16
    assert peak_of(kind, "float32") == peak_of(kind, "float32", "default") == rounded
    assert peak_of(kind, "float32", "highest") == float32


def test_chips_of_other_kinds() -> None:
    assert peak_of("Tesla T4", "float16") == 65 and peak_of("TPU v4", "float16") is None
    assert peak_of("TPU v4", "float32", "high") == 275 / 3
    others = "cpu", "NVIDIA L40S", "NVIDIA GH200 480GB", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "TPU v4 lite"
    assert [peak_of(kind, "float32") for kind in others] == [None] * 5


def test_a_peak_that_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_chip(parser)
    assert peak_here(parser.parse_args([])) is None  # a CPU's is not known
    given = peak_here(parser.parse_args(["--peak", "0.25"]))
    seconds = Samples((2.0,))
    assert [cell.median for cell in rates_of(1e11, seconds, given, 2)] == pytest.approx([0.05, 10])
    assert rates_of(1e11, seconds, None)[1] == ""
    with pytest.raises(SystemExit):
        parser.parse_args(["--peak", "-1"])
    assert "expected a number above 0, got '-1'" in capsys.readouterr().err
