"""Commands drawn at random for a comparison with Marian: what is drawn, and that a difference is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import draws
from tests.commands.models import known
from tests.commands.outputs import Output, differences, ours

LINE = "0 ||| das Buch ||| 0-0 1-1 ||| WordScores= -0.12 -1.56057 ||| F0= -1.68057 ||| -0.573543"


def test_commands_come_from_their_seed():
    drawn = draws.draw(40, 3)
    assert drawn == draws.draw(40, 3) and drawn[:9] == draws.draw(9, 3) != draws.draw(9, 4)
    named = {command.name for command in draws.draw(200, 1)}
    assert named == {model.name for model in known()}


def test_marian_gets_a_command_sentence_by_sentence():
    words = tuple("decode --mini-batch 3 -b 2 --maxi-batch 9".split())
    command = draws.Command("x", words, {}, "", False)
    assert command.one_by_one == ["decode", "-b", "2", "--mini-batch", "1", "--maxi-batch", "1"]


def test_our_output_is_that_of_the_command_line(tmp_path: Path):
    numbers = next(model for model in known() if model.name == "numbers")
    words = ("decode", "-m", numbers.model, "-v", *numbers.vocabs, *"-i text -b 2 --mini-batch 4".split())
    command = draws.Command("numbers", words, {}, "", False)
    (tmp_path / "text").write_text("six\n\nforty-two\n")
    assert ours(command, tmp_path) == Output("sechs\n\nzweiundvierzig\n", "", 0)
    failed = ours(command._replace(arguments=(*words, "--beam-size", "0")), tmp_path)
    assert failed.status == 2 and "beam-size" in failed.messages


@pytest.mark.parametrize(
    "changed",
    [
        LINE.replace("Buch", "Haus"),
        LINE.replace("1-1", "1-0"),
        LINE.replace("-1.56057", "-1.56157"),
        LINE.replace("-0.573543", "0.573543"),
        LINE.replace("-0.12 ", ""),
        f"{LINE}\n{LINE}",
        "",
    ],
    ids=["word", "link", "number", "sign", "missing", "more", "nothing"],
)
def test_a_difference_is_found(changed: str):
    theirs = Output(f"{LINE}\n", "", 0)
    assert not differences(theirs, Output(f"{LINE.replace('-0.573543', '-0.573544')}\n", "", 0))
    assert differences(theirs, Output(f"{changed}\n", "", 0))
