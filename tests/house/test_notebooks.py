"""The notebooks run from top to bottom, and the last value of each cell can be displayed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.places import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def run(code: str, namespace: dict[str, Any]) -> Any:
    """Execute a cell; return the value of its last expression, which a notebook displays."""
    body = ast.parse(code).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace) if last else None


def test_notebooks_are_stored_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text())
        assert notebook["nbformat"] == 4
        assert "".join(notebook["cells"][0]["source"]).startswith("# ")
        for cell in notebook["cells"]:
            assert cell["cell_type"] == "markdown" or (
                not cell["outputs"] and cell["execution_count"] is None
            )


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    shown = [
        run("".join(cell["source"]), namespace)
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    pictures = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert pictures and all(text.startswith("<iframe") and "srcdoc" in text for text in pictures)
    if path.stem == "3_translation":
        image, bar = pyplot.gcf().axes
        assert image.get_title() and bar.get_ylabel()
    pyplot.close("all")
