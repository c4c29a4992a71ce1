"""The error for a misspelt value of an option suggests the one that was meant."""

from __future__ import annotations

import pytest

import nmt
from nmt.cli import main
from nmt.commands import NAMES
from nmt.settings import DECODE, TRAIN
from nmt.settings.other_names import MARIANS
from tests.helpers.places import SHIPPED

MODEL, VOCAB = str(SHIPPED / "model.npz"), str(SHIPPED / "vocab.spm")


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("decde", "did you mean decode?"),
        ("marian-vocab", "did you mean vocab?"),
        ("help", "did you mean --help?"),
        ("version", "did you mean --version?"),
        ("decode --beam-sise 3", "did you mean --beam-size?"),
        ("decode --beam_sise 3", "did you mean --beam-size?"),
        ("decode --batch-size 3", "did you mean --mini-batch?"),
        ("decode --num_beams 3", "did you mean --beam-size?"),
        ("train --lr 0.1", "did you mean --learn-rate?"),
        ("decode --log-level debgu", "did you mean debug?"),
        ("decode --n-best flase", "did you mean false?"),
        ("decode --precision int9", "did you mean int8?"),
        (f"decode -m {MODEL} -v {VOCAB} {VOCAB} --alignment sfot", "did you mean soft?"),
        (f"decode -m {MODEL} -v {VOCAB} {VOCAB} --output-sampling topkk", "did you mean topk?"),
        (f"convert -f {MODEL} -t model.bin --gemm-type intgem8", "did you mean intgemm8?"),
        ("train -t a b --optimizer adma", "did you mean adam?"),
        ("train -t a b --task transformer-bsae", "did you mean transformer-base?"),
        ("gradcheck sofmax", "did you mean 'softmax'?"),
    ],
)
def test_the_nearest_value_is_named(
    words: str, suggestion: str, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) != 0
    out, said = capsys.readouterr()
    assert suggestion in said.splitlines()[-1] and not out


@pytest.mark.parametrize("words", ["decode -- -b", "train --"])
def test_nothing_is_like_an_empty_name(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err == f"mgraph {words.split()[0]}: error: unknown option --\n"


def test_names_of_other_toolkits() -> None:
    with pytest.raises(TypeError, match="^unknown option batch_size; did you mean mini_batch[?]$"):
        nmt.Translator(MODEL, [VOCAB, VOCAB], batch_size=8)  # type: ignore[call-arg]
    marians = {*TRAIN.options, *DECODE.options}
    assert marians.issuperset(MARIANS.values()) and not marians.intersection(MARIANS)


def test_the_program_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: mgraph COMMAND") and all(f"\n  {name} " in said for name in NAMES)
