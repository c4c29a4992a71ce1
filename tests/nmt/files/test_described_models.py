"""Model files without a configuration; the options of a command describe them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mgraph import MGraphError
from mgraph.files.items import MODEL_YML, read_npz, write_npz
from nmt import Scorer, Translator
from nmt.cli import main
from tests.helpers.places import DATA

MODEL = DATA / "search" / "left-right.npz"
VOCABS = [str(DATA / "options" / f"{side}.yml") for side in ("source", "target")]
LINES = ["the cat sees the red house", "a cat sleeps"]
TRANSLATIONS = ["die Katze sieht das rote Haus", "eine Katze schläft"]


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A model of type s2s without ``special:model.yml``."""
    items = read_npz(MODEL)
    del items[MODEL_YML]
    write_npz(tmp_path / "bare.npz", items)
    return str(tmp_path / "bare.npz")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sizes",
    [[], pytest.param(["--dim-emb", "8", "--dim-rnn", "8", "--dim-vocabs", "16", "21"], id="given")],
)
def test_the_commands_take_the_options_of_the_command_line(
    bare: str, tmp_path: Path, sizes: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "en").write_text("\n".join(LINES) + "\n")
    (tmp_path / "de").write_text("\n".join(TRANSLATIONS) + "\n")
    texts = [str(tmp_path / "en"), str(tmp_path / "de")]

    def printed(*words: str) -> bytes:
        assert main([*words, "-v", *VOCABS, "--quiet"]) == 0
        return capfdbinary.readouterr().out

    for command, rest in ("decode", ["-i", texts[0], "-b", "2"]), ("score", ["-t", *texts]):
        own = printed(command, "-m", str(MODEL), *rest)
        assert printed(command, "-m", bare, *rest, "--type", "s2s", *sizes) == own
    report = json.loads(printed("gradcheck", "-m", bare, "-t", *texts, "--type", "s2s", *sizes, "--json"))
    assert report["ok"]


@pytest.mark.thorough
def test_python_takes_them_too(bare: str) -> None:
    own = Translator(str(MODEL), VOCABS, beam_size=2).translate(LINES)
    assert Translator(bare, VOCABS, beam_size=2, type="s2s").translate(LINES) == own
    assert Translator(str(MODEL), VOCABS, beam_size=2, type="transformer").translate(LINES) == own
    score = Scorer(bare, VOCABS, type="s2s", dim_emb=8).score(LINES, own)
    assert score == Scorer(str(MODEL), VOCABS).score(LINES, own)


def test_the_file_is_overridden_only_if_asked(bare: str) -> None:
    with pytest.raises(MGraphError, match=r"bare\.npz: no item special:model\.yml; expected .* \(--type"):
        Translator(bare, VOCABS)
    with pytest.raises(MGraphError, match=r"left-right\.npz: .*transformer"):
        Translator(str(MODEL), VOCABS, type="transformer", ignore_model_config=True)
    with pytest.raises(MGraphError, match="type: 's2' is unknown; .* did you mean 's2s'"):
        Translator(bare, VOCABS, type="s2")
