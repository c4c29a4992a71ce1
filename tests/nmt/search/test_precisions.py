"""``--precision`` of ``decode`` and ``score``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nmt import Scorer, Translator
from nmt.settings import DECODE, SCORE, OptionError, products_in
from tests.helpers.places import DATA, SHIPPED

NUMBERS = DATA / "numbers"
VOCABS = [str(SHIPPED / "vocab.spm")] * 2
LINES = (NUMBERS / "input.en").read_text().splitlines()


def translator(**options: object) -> Translator:
    return Translator(str(SHIPPED / "model.npz"), VOCABS, cpu_threads=1, **options)


@pytest.mark.parametrize("precision", ["int8", "float16", "bfloat16"])
@pytest.mark.sampled("int8")
def test_translations_are_those_of_float32(precision: str) -> None:
    exact, found = (
        translator(precision=kind, beam_size=4, mini_batch=16, alignment="soft").translate(LINES)
        for kind in ("float32", precision)
    )
    assert exact != found, "attention differs a little"
    exact, found = ([line.partition(" |||")[0] for line in lines] for lines in (exact, found))
    assert sum(a == b for a, b in zip(found, exact, strict=True)) >= 0.9 * len(LINES)


def test_a_line_does_not_depend_on_its_batch() -> None:
    options = {"precision": "int8", "beam_size": 2, "word_scores": True}
    whole = translator(mini_batch=16, maxi_batch=10, **options).translate(LINES[:9])
    assert translator(**options).translate(LINES[:3]) == whole[:3]


def test_scores_are_near_those_of_float32() -> None:
    targets = (NUMBERS / "input.de").read_text().splitlines()
    texts = LINES[:20], targets[:20]
    exact, near = (
        Scorer(str(SHIPPED / "model.npz"), VOCABS, precision=kind, normalize=True).score(*texts)
        for kind in ("float32", "int8")
    )
    assert near != exact
    np.testing.assert_allclose(near, exact, atol=0.1)


@pytest.mark.parametrize("command", [DECODE, SCORE])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "float32"),
        ({"precision": ("float32",)}, "float32"),
        ({"precision": "int8"}, "int8"),
        ({"precision": ["float16", "float32"]}, "float16"),
        ({"precision": "bfloat16"}, "bfloat16"),
        ({"fp16": True}, "float16"),
        ({"gemm_type": "intgemm8"}, "int8"),
        ({"gemm_type": "intgemm8avx512vnni", "precision": "float32"}, "int8"),
    ],
)
def test_options_ask_for_a_precision(command: object, given: dict[str, object], expected: str) -> None:
    assert products_in(command.from_python(given)) == expected


@pytest.mark.parametrize(
    "given", [{"precision": "int4"}, {"gemm_type": "intgemm16"}, {"gemm_type": "packed8"}]
)
def test_other_types_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="must be one of"):
        DECODE.from_python(given)


def test_16_bits_and_integers_exclude_each_other() -> None:
    options = DECODE.from_python({"precision": "float16", "gemm_type": "intgemm8"})
    with pytest.raises(OptionError, match="--gemm-type intgemm8 cannot go with --precision float16"):
        products_in(options)


@pytest.mark.parametrize("file", ["model.npz", "model.intgemm8.bin"])
def test_word_scores_of_a_model_of_europarl(file: str, fixtures: Path) -> None:
    """int8 moves the log-probability of a word by a few hundredths on average."""
    folder, data = fixtures / "marian" / "transformer-joint", fixtures / "data"
    texts = [(data / f"test.{side}").read_text().splitlines()[:40] for side in ("de", "en")]
    vocabs = [str(data / "v.joint.yml")] * 2
    exact, near = (
        Scorer(str(folder / file), vocabs, precision=kind, word_scores=True).scores(*texts)
        for kind in ("float32", "int8")
    )
    moved = np.concatenate(
        [np.subtract(b.word_scores, a.word_scores) for a, b in zip(exact, near, strict=True)]
    )
    assert 0 < np.abs(moved).mean() < 0.1
    assert abs(moved.mean()) < 0.02
