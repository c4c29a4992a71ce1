"""The house: direction of imports, no cycles, a cheap import, one test command."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.fresh import python
from tests.helpers.places import ROOT
from tests.helpers.tiers import QUICK, beyond_samples

ROOMS = ("mgraph", "layers", "nmt")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
}


def imports(module: str) -> set[str]:
    """Modules of the house that a module imports: at its top, for types alone, and inside functions."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                inner = f"{name}.{alias.name}"
                found.add(inner if inner in MODULES else name)
    return {name for name in found if name in MODULES}


def all_imports(path: Path) -> set[str]:
    """Every absolute module name that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return found


def test_imports_point_down_only() -> None:
    for module, path in MODULES.items():
        room = ROOMS.index(module.split(".")[0])
        for name in all_imports(path):
            top = name.split(".")[0]
            assert top not in ("tests", "examples", "benchmarks"), f"{module} imports {name}"
            assert top not in ROOMS[room + 1 :], f"{module} imports {name}"
            assert not name.startswith("jax._src"), f"{module} imports {name}"


def test_there_are_no_import_cycles() -> None:
    graph = {module: imports(module) - {module} for module in MODULES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(graph[module]):
                visit(name, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_operators_do_not_import_what_runs_them() -> None:
    above = ("mgraph.graph", "mgraph.function", "mgraph.running", "mgraph.gradcheck", "mgraph.rewriting")
    for module in MODULES:
        if module.startswith("mgraph.ops"):
            assert not [name for name in imports(module) if name.startswith(above)], module


def test_no_two_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_the_engine_needs_few_packages() -> None:
    allowed = {"jax", "jaxlib", "numpy", "optax", *sys.stdlib_module_names, ""}
    for path in (ROOT / "mgraph").rglob("*.py"):
        for name in all_imports(path):
            assert name.split(".")[0] in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("package", ["mgraph", "layers", "nmt"])
def test_importing_starts_no_backend(package: str) -> None:
    """If importing had started a backend, choosing an unknown platform afterwards would not fail."""
    code = (
        f"import {package}, jax\n"
        "jax.config.update('jax_platforms', 'nowhere')\n"
        "try:\n    jax.devices()\n"
        "except RuntimeError:\n    print('untouched')\n"
    )
    assert python(code) == "untouched\n"


def test_ci_runs_the_two_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r'^run "(.*)"$', (ROOT / ".ci/run").read_text(), re.M)
    for last in ("mgraph demo", "pytest"):
        assert any(command.endswith(f"&& {last}") and command in readme for command in commands)


def test_the_quick_tests_are_there() -> None:
    assert {f"test_{name}.py" for name in QUICK} <= {
        path.name for path in (ROOT / "tests").rglob("test_*.py")
    }


def test_samples_are_of_the_parameters_that_there_are() -> None:
    def beyond(*asked: str, **mark: Any) -> list[str]:
        marks = {"f": SimpleNamespace(**{"args": (), "kwargs": {}, **mark}), "g": None}
        items: Any = [
            SimpleNamespace(
                nodeid=f"a.py::{name}",
                config=SimpleNamespace(args=asked),
                get_closest_marker=lambda _, function=name[0]: marks[function],
            )
            for name in ("f[x]", "g", "f[y-1]", "f[z]")
        ]
        return [item.nodeid for item in beyond_samples(items)]

    assert beyond(args=("y-1",)) == ["a.py::f[x]", "a.py::f[z]"]
    assert beyond(kwargs={"every": 2}) == ["a.py::f[y-1]"]
    with pytest.raises(pytest.UsageError, match=r"a.py::f has no \['w'\], has \['x', 'y-1', 'z'\]"):
        beyond("tests", args=("w", "x"))
    assert len(beyond("a.py::f[x]", args=("w", "x"))) == 2, "other parameters were not asked for"


def test_nothing_is_left_behind() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    for folder in (*ROOMS, "tests", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            assert not any(mark in text for mark in marks), path
