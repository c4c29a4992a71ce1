"""``mgraph options``: what mgraph does with each of Marian's options, and what it refuses."""

from __future__ import annotations

import pytest

from layers import UnsupportedOptionError
from nmt import cli
from nmt.commands import options
from nmt.models.types import check_options
from nmt.settings import OptionError, Support
from nmt.settings.config import parse
from nmt.settings.model_options import ModelOptions
from tests.helpers.places import DATA, ROOT

NAMES = DATA / "options" / "names"
COMMANDS = {command.name: command for command in options.COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_all_of_marians_options_are_listed_and_no_others(name: str) -> None:
    marians = (NAMES / f"{name}.txt").read_text().split()
    listed = {found.name for found in options.marians(COMMANDS[name])}
    assert listed == set(marians) and len(marians) == len(listed)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_refused_is_refused_with_its_reason(name: str) -> None:
    command = COMMANDS[name]
    for found in options.marians(command):
        if found.support in (Support.REFUSED, Support.IGNORED):
            assert len(found.reason.split()) > 2, found.name
        if found.support is Support.REFUSED:
            given = {bool: [], float: ["2"]}.get(found.kind, ["1", "0"] if found.many else ["1"])
            with pytest.raises(OptionError) as error:
                parse(command, [f"--{found.name}", *given])
            assert str(error.value) == f"--{found.name} is Marian's, and refused: {found.reason}"
        for value, reason in found.absent.items():
            assert reason in _refusal(name, found.name, value)


def _refusal(command: str, option: str, value: str) -> str:
    if option == "type":  # a model's options are checked when the model is made
        with pytest.raises(UnsupportedOptionError) as unsupported:
            check_options(ModelOptions(type=value))
        return str(unsupported.value)
    with pytest.raises(OptionError) as error:
        parse(COMMANDS[command], [f"--{option}", value])
    return str(error.value)


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["options", "--refused"]) == 0
    page = (ROOT / "docs" / "marian-not-there.md").read_text()
    assert capsys.readouterr().out == page, "mgraph options --refused > docs/marian-not-there.md"
    for command in options.COMMANDS:
        for found in options.marians(command):
            if found.support in (Support.REFUSED, Support.IGNORED):
                assert f"`--{found.name}`" in page and found.reason in page


def test_the_list_has_a_line_for_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["options"]) == 0
    train = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert train[0] == "mgraph train"
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in train[1:] if line.startswith("  --")}
    assert said["--dim-emb"] == "taken" and said["--sqlite"] == "ignored: shuffling needs no database"
    assert said["--type"].startswith("taken, except char-s2s, bert,")
    assert said["--mini-batch-track-lr"].startswith("refused: Marian stops with an error")
