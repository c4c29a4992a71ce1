"""Type checkers understand a user's script, and see what is misspelt in it."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mgraph import expression
from tests.helpers import keywords
from tests.helpers.places import DATA, ROOT

SCRIPT = DATA / "types" / "user.py"
README = (ROOT / "README.md").read_text()


def marked(checker: str) -> list[int]:
    """The lines of the script that a checker has to report."""
    lines = SCRIPT.read_text().splitlines()
    return [n for n, line in enumerate(lines, 1) if re.search(rf"# wrong( for {checker})?$", line)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, ``user.py``, and with the README's own operator, ``readme.py``."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "user.py").write_text(SCRIPT.read_text())
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.S) if "class SinNodeOp" in b]
    (folder / "readme.py").write_text(block)
    return folder


def checked(command: list[str], folder: Path) -> str:
    """What a checker prints about the scripts in a folder; it finds the project as if it were installed."""
    pytest.importorskip(command[0])
    words = [sys.executable, "-m", *command]
    variables = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr + done.stdout
    return done.stdout


@pytest.mark.slow
def test_pyright_sees_what_is_wrong(folder: Path) -> None:
    """In its default mode."""
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    said = json.loads(checked(["pyright", "--outputjson", "--pythonpath", sys.executable], folder))
    assert said["summary"]["filesAnalyzed"] == 2
    errors = [one for one in said["generalDiagnostics"] if one["severity"] == "error"]
    assert {Path(one["file"]).name for one in errors} == {"user.py"}
    assert sorted({one["range"]["start"]["line"] + 1 for one in errors}) == marked("pyright"), errors


@pytest.mark.slow
def test_mypy_sees_what_is_wrong(folder: Path) -> None:
    """Without settings."""
    said = checked(["mypy", "--config-file=", "--no-pretty", "user.py", "readme.py"], folder)
    assert "readme.py" not in said and "checked 2 source files" in said
    found = {int(line) for line in re.findall(r"^user\.py:(\d+): error: ", said, re.M)}
    assert sorted(found) == marked("mypy"), said


def test_the_right_lines_run() -> None:
    spec = importlib.util.spec_from_file_location("user", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.right() != 0


def test_operators_of_nodes_are_declared() -> None:
    """``Node`` declares for checkers what ``mgraph.expression`` attaches, except methods that only refuse: by
    their mere names, numpy would take a node for an array, and checkers for a number."""
    tree = ast.parse((ROOT / "mgraph" / "node.py").read_text())
    (node,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Node"]
    (block,) = [n for n in node.body if isinstance(n, ast.If)]
    methods = {n.name for n in block.body if isinstance(n, ast.FunctionDef)}
    values = {ast.unparse(n.target) for n in block.body if isinstance(n, ast.AnnAssign)}
    declared = methods | {name for name in values if name.startswith("__")}
    refusing = {"__array__", "__array_ufunc__", "__jax_array__", "__float__", "__int__"}
    assert declared == expression.METHODS.keys() - refusing


def test_the_keywords_are_the_options() -> None:
    assert (ROOT / "nmt" / "settings" / "keywords.py").read_text() == keywords.page()
