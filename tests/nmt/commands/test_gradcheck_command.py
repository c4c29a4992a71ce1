"""The command ``mgraph gradcheck``: operators, a user's own ones, a whole model."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mgraph import check_operators
from mgraph.gradcheck import LossReport, ParameterCheck
from nmt.cli import main
from nmt.files import create_model, save_model
from nmt.settings.model_options import ModelOptions
from nmt.text.vocabs.loading import load_vocab
from tests.helpers import places
from tests.helpers.places import SHIPPED

DATA = places.DATA / "numbers"
VOCAB = str(SHIPPED / "vocab.spm")
TEXTS = [str(DATA / name) for name in ("input.en", "input.de")]
FILES = ["-m", str(SHIPPED / "model.npz"), "-v", VOCAB, VOCAB, "-t"]
COMMAND = ["gradcheck", "--quiet", *FILES]


@pytest.mark.thorough
def test_the_command_prints_the_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, *TEXTS, "--lines", "2"]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].startswith("86 parameters, 2 sentences, ")
    assert "  ... and 76 more\n" in table and table.endswith("all gradients agree\n")
    assert main([*COMMAND, *TEXTS, "--json", "--float64", "--marian-exact"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False and report["sentences"] == 8 and len(report["parameters"]) == 86
    assert sum(not row["ok"] for row in report["parameters"]) == 77, "the README says so"
    differences = [row["float64"] for row in report["parameters"]]
    assert differences == sorted(differences, reverse=True)
    assert report["worst"] == {
        "float64": {"parameter": report["parameters"][0]["name"], "difference": differences[0]}
    }
    assert report["parameters"][0]["verdict"] == "WRONG"


@pytest.mark.slow
def test_the_operators_of_a_model_as_text_json_and_a_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "layers.html"
    assert main([*COMMAND, *TEXTS, "--lines", "2", "--float64", "--layers", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert "2 sentences" in text.splitlines()[0] and "agrees with JAX" in text.splitlines()[1]
    assert "  decoder_l2_ffn " in text and text.endswith("all gradients agree\n")
    assert "http-equiv" in page.read_text() and "layer_normalization" in page.read_text()
    assert main([*COMMAND, *TEXTS, "--lines", "2", "--float64", "--marian-exact"]) == 1
    text = capsys.readouterr().out
    assert "operators depart from JAX\nlayer_normalization (" in text, "wrong gradients are traced at once"
    assert "in decoder_l2_ffn: WRONG" in text and "by way of" in text
    assert main([*COMMAND, *TEXTS, "--lines", "2", "--float64", "--marian-exact", "--layers", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert {found["operator"] for found in report["departures"]} == {"layer_normalization"}
    assert report["sentences"] == 2 and report["paths"] and len(report["parameters"]) == 86


def test_what_differs_only_together_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No operator departs by itself, but the compiled whole does: the fault is in compiling it as a whole."""
    checks = (ParameterCheck("W", (1,), {"float64": 1e-3}),)
    monkeypatch.setattr(
        "nmt.training.gradients.check_model_gradients", lambda *_, **__: LossReport("1 parameter", checks)
    )
    right = SimpleNamespace(ok=True)
    monkeypatch.setattr("nmt.training.gradients.check_model_layers", lambda *_, **__: right)
    assert main([*COMMAND, *TEXTS, "--lines", "1"]) == 1
    assert "each operator alone agrees with JAX" in capsys.readouterr().out


class Operators:
    """A report on operators as ``mgraph.gradcheck.check_operators`` gives it."""

    rows = ()

    def __init__(self, names: Sequence[str], module: str | None, ok: bool) -> None:
        self.names, self.module, self.ok = tuple(names), module, ok

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "names": list(self.names)}

    def __str__(self) -> str:
        return f"{self.names} of {self.module}"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], "() of None\n"),
        (["sin", "--quiet", "relu"], "('sin', 'relu') of None\n"),
        (["sigmoid", "leakyrelu"], "('sigmoid', 'PReLUNodeOp', 'PlusNodeOp', 'ScalarAddNodeOp') of None\n"),
        (["--module", "mine.py", "leakyrelu"], "('leakyrelu',) of mine.py\n"),
    ],
)
@pytest.mark.parametrize("ok", [True, False])
def test_the_command_without_a_model_checks_operators(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: list[str],
    printed: str,
    ok: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").touch()

    def check_operators(names: Sequence[str], module: str | None, *, quick: bool, on_row: Any) -> Operators:
        return Operators(names, module, ok)

    monkeypatch.setattr("mgraph.gradcheck.check_operators", check_operators)
    monkeypatch.setattr("mgraph.gradcheck.with_failures", lambda report: report)
    assert main(["gradcheck", *words]) == (0 if ok else 1)
    assert capsys.readouterr().out == printed
    assert main(["gradcheck", "--json", "sin"]) == (0 if ok else 1)
    assert json.loads(capsys.readouterr().out) == {"ok": ok, "names": ["sin"]}


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["sin", "-m", "a.npz"], 2, "sin cannot go with --model"),
        (["--module", "mine.py", "-m", "a.npz"], 2, "--module cannot go with --model"),
        (["--lines", "3", "--all"], 2, "--lines --all needs --model"),
        (["--layers"], 2, "--layers needs --model"),
        (["-m", "a.npz"], 2, "--vocabs: the vocabularies of the sources and the target are needed, got none"),
        (
            ["-m", "a.npz", "-v", "a", "b"],
            2,
            "--train-sets: the sources and the target are needed, got none",
        ),
        (
            ["-m", "a.npz", "-v", "a", "b", "-t", "-", "-"],
            2,
            "--train-sets: standard input can be read only once",
        ),
        ([*FILES, TEXTS[0]], 2, "--train-sets: this model needs 2 texts, got 1"),
        (["-m", "a.npz", "-v", "a", "b", "-t", "c", "d"], 1, "a.npz: No such file or directory"),
        ([*FILES, TEXTS[0], "no-such-file"], 1, "no-such-file: No such file or directory"),
        (["--html", "a.html", "--compiled"], 2, "--html cannot go with --compiled"),
        (["--html", "-"], 2, "--html: a file is needed, got -, where the report is printed"),
        (["--html", "no/a.html"], 1, "no/a.html: No such file or directory; there is no folder no (--html)"),
        (["--lnes", "3"], 2, "unknown option --lnes; did you mean --lines?"),
        (["--lines", "0"], 2, "--lines must be at least 1, got 0"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, reason: str
) -> None:
    assert main(["gradcheck", *words, "--quiet"]) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"mgraph gradcheck: error: {reason}")


def test_texts_of_unequal_length(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "en").write_text("six\nseven\n")
    (tmp_path / "de").write_text("sechs\n")
    assert main([*COMMAND, str(tmp_path / "en"), str(tmp_path / "de")]) == 1
    error = "mgraph gradcheck: error: the target ends after 1 lines, the other goes on\n"
    assert capsys.readouterr() == ("", error)


def test_a_language_model_needs_the_target_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "lm.npz")
    size = len(load_vocab(VOCAB))
    save_model(create_model(ModelOptions(type="lm", dim_vocabs=(size,), dim_emb=3, dim_rnn=4)), path)
    words = ["gradcheck", "--quiet", "-m", path, "-v", VOCAB, "--lines", "2", "--float64", "-t"]
    assert main([*words, TEXTS[1]]) == 0
    assert capsys.readouterr().out.startswith("17 parameters, 2 sentences, ")
    assert main([*words, *TEXTS]) == 2
    assert "this model needs 1 texts, got 2" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [False, True])
def test_a_users_own_operators(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    rule = "adj * jnp.cos(x)" if not wrong else "adj * jnp.sin(x)"
    (tmp_path / "wave_ops.py").write_text(OWN_OPERATOR.replace("RULE", rule))
    assert main(["gradcheck", "--quiet", "--module", "wave_ops.py", "wave"]) == int(wrong)
    out = capsys.readouterr().out
    assert "WaveNodeOp" in out and ("1 wrong" if wrong else "0 wrong") in out
    assert ("def test_gradient_of_wave_node_op():" in out) == wrong
    assert main(["gradcheck", "--quiet", "--module", "wave_ops.py", "other"]) == 1
    assert "there is no operator 'other'; there are WaveNodeOp" in capsys.readouterr().err


def test_a_file_that_exits_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaving_ops.py").write_text("import sys\nsys.exit(3)\n")
    assert main(["gradcheck", "--quiet", "--module", "leaving_ops.py"]) == 1
    expected = r"error: cannot import leaving_ops.py: SystemExit: 3 \(.*leaving_ops.py:2\)\n"
    assert re.search(expected, capsys.readouterr().err)


def test_a_wrong_operator_on_the_page_and_in_the_data(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page_ops.py").write_text(OWN_OPERATOR.replace("RULE", "-adj * jnp.cos(x)"))
    words = ["gradcheck", "--quiet", "--module", "page_ops.py", "--json", "--html", "report.html"]
    assert main(words) == 1
    (found,) = json.loads(capsys.readouterr().out)["operators"]
    failure = found["failure"]
    assert (failure["expected"], failure["got"], failure["shapes"]) == (1, -1, [[]])
    assert f'run_path("{tmp_path}/page_ops.py")' in failure["test"]
    assert "def test_gradient_of_wave_node_op" in (tmp_path / "report.html").read_text()
    assert main([*words, "--no-shrink"]) == 1
    assert "failure" not in json.loads(capsys.readouterr().out)["operators"][0]


def test_the_page_does_not_replace_what_is_checked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "own_ops.py"
    file.write_text(OWN_OPERATOR.replace("RULE", "adj * jnp.cos(x)"))
    assert main(["gradcheck", "--quiet", "--module", str(file), "--html", str(file)]) == 2
    assert f"--html: {file} is also read by --module" in capsys.readouterr().err
    assert "WaveNodeOp" in file.read_text()


def test_a_corrected_file_is_read_anew(tmp_path: Path) -> None:
    file, kept = tmp_path / "edited_ops.py", []
    for rule, ok in (("adj * jnp.sin(x)", False), ("adj * jnp.cos(x)", True)):
        file.write_text(OWN_OPERATOR.replace("RULE", rule) + f"# {ok}\n")
        report = check_operators(module=str(file))
        assert [row.ok for row in report.rows] == [ok]
        kept.append(sys.modules["edited_ops"].WaveNodeOp)


def test_a_file_that_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "failing_ops.py"
    file.write_text("zero = 0\n1 / zero\n")
    assert main(["gradcheck", "--quiet", "--module", str(file)]) == 1
    reason = f"cannot import {file}: ZeroDivisionError: division by zero ({file}:2)"
    assert capsys.readouterr() == ("", f"mgraph gradcheck: error: {reason}\n")


def test_a_file_with_a_wrong_case(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "wrong_case_ops.py"
    file.write_text('from mgraph.cases import Case\n\ncases = (Case((5, 3), "index:5"),)\n')
    assert main(["gradcheck", "--quiet", "--module", str(file)]) == 1
    _, err = capsys.readouterr()
    assert err.startswith(f"mgraph gradcheck: error: cannot import {file}: Case: expected a shape such as")
    assert err.endswith(f"domain='index:5' says where values come from ({file}:3)\n")


@pytest.mark.parametrize(
    ("line", "words", "said"),
    [
        ("cases = (Case((2,), through=lambda x: {}[3]),)", "", "KeyError: 3"),
        ("cases = (Case((2,), through=lambda x: {}[3]),)", "--compiled --quick", "KeyError: 3"),
        ("surrogate_ops = lambda self, x: {}[3]", "--quick", "KeyError: 3"),
        ("conventions = (Convention([1.0], gradients=(['a'],)),)", "", "convention: ValueError: could not"),
        ("forward_ops = lambda self, x: ()", "", "must return an array or a tuple of them, got ()"),
    ],
    ids=["case", "compiled case", "surrogate", "convention", "no output"],
)
def test_what_one_operator_raises_leaves_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, words: str, said: str
) -> None:
    raising = OWN_OPERATOR[OWN_OPERATOR.index("class") :].replace("Wave", "Raising")
    both = OWN_OPERATOR.replace("cases import Case", "cases import Case, Convention") + raising
    file = tmp_path / "raising_ops.py"
    file.write_text(both.replace("RULE", "adj * jnp.cos(x)") + f"\n    {line}\n")
    assert main(["gradcheck", "--quiet", "--module", str(file), *words.split()]) == 1
    out, err = capsys.readouterr()
    assert said in out and not err
    assert "2 operators" in out and "1 wrong" in out


def test_values_that_are_not_finite_are_compiled_without_warnings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    file = tmp_path / "endless_ops.py"
    file.write_text(OWN_OPERATOR.replace("jnp.sin(x)", "x / 0.0").replace("RULE", "adj / 0.0"))
    assert main(["gradcheck", "--quiet", "--module", str(file), "--compiled", "--quick"]) == 0
    assert capsys.readouterr().err == "" and not recwarn.list


OWN_OPERATOR = """
import jax.numpy as jnp
from mgraph import UnaryNodeOp
from mgraph.cases import Case


class WaveNodeOp(UnaryNodeOp):
    type = "wave"
    cases = (Case((2, 3)),)

    def forward_ops(self, x):
        return jnp.sin(x)

    def backward_ops(self, adj, val, x):
        return (RULE,)
"""


def test_the_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradcheck", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: mgraph gradcheck [OPERATOR ...] [options]\n")
    assert "mgraph gradcheck --module user_ops.py\n" in text and "not supported" not in text
