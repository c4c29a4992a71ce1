"""A failing example as the source of a test to paste."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from ...types import Type
from ..example import Adjoint, Example
from ..report import TOLERANCES
from .evaluation import Gradients
from .ways import Way

_FEW = 16


class Names:
    """Expressions for classes, functions and fields in a new file, and the imports they need."""

    def __init__(self) -> None:
        self.imports: dict[str, None] = {"import numpy as np": None, "import mgraph": None}
        self.definitions: dict[str, None] = {}

    def of(self, thing: Any) -> str:
        """An expression for a class or function: where it can be imported from, or its definition."""
        module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
        home = inspect.getmodule(thing)
        if "<" in name or not name or home is None:
            return self._defined(thing, name)
        first, _, rest = name.partition(".")
        path = getattr(home, "__file__", None)
        if getattr(importlib.import_module("mgraph"), name, None) is thing:
            return f"mgraph.{name}"
        if _can_be_imported(module, path):
            self.imports[f"from {module} import {first}"] = None
        elif path:
            file = json.dumps(str(Path(path).resolve()))
            self.imports["import runpy"] = None
            self.definitions[f'{first} = runpy.run_path({file})["{first}"]'] = None
        else:
            return self._defined(thing, name)
        return f"{first}.{rest}" if rest else first

    def _defined(self, thing: Any, name: str) -> str:
        """The name of something that cannot be imported, with its source where there is one."""
        own = name.rpartition(".")[2]
        try:
            source = inspect.cleandoc(f"\n{inspect.getsource(thing)}")
        except (OSError, TypeError):
            source = ""
        if own.isidentifier() and source.startswith(("class ", "def ", "@")):
            self.imports["import jax"] = self.imports["import jax.numpy as jnp"] = None
            self.definitions[f"# The definition; it may need more imports.\n{source}"] = None
            return own
        self.definitions["# operator = ...  (it has no name: define it here)"] = None
        return "operator"

    def import_blocks(self) -> list[str]:
        """The imports: from the standard library, then all others."""
        standard = [line for line in self.imports if line.split()[1] in sys.stdlib_module_names]
        others = sorted(self.imports.keys() - standard, key=lambda line: (line.startswith("from"), line))
        return ["\n".join(block) for block in (standard, others) if block]

    def literal(self, value: Any) -> str:
        """An expression for the value of a field."""
        if isinstance(value, tuple):
            entries = ", ".join(map(self.literal, value))
            return f"({entries},)" if len(value) == 1 else f"({entries})"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, Type):
            return json.dumps(value.value)
        if callable(value):
            return self.of(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init)
            return f"{self.of(type(value))}({', '.join(f'{n}={self.literal(v)}' for n, v in parts)})"
        return repr(value)


def _can_be_imported(module: str, path: str | None) -> bool:
    """Whether an import finds the module that was loaded from this file, wherever the test is pasted."""
    if module == "__main__" or path is None:
        return False
    beside = [Path.cwd(), Path(sys.path[0])]
    if "." not in module and Path(path).resolve().parent in [folder.resolve() for folder in beside]:
        return False
    folders: Sequence[str] | None = None
    name, spec = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, folders)
        if spec is None:
            return False
        folders = list(spec.submodule_search_locations or ())
    return spec is not None and spec.origin is not None and Path(spec.origin).samefile(path)


def array(value: np.ndarray) -> str:
    """An expression for an array, on one line, with all its digits."""
    text = _digits(value)
    numbers = re.sub(r"\b(nan|inf)\b", r"np.\1", text)
    kind = "" if value.dtype == np.float64 else f", np.{value.dtype.name}"
    return f"np.zeros({value.shape}{kind})" if not value.size else f"np.array({numbers}{kind})"


def pasted_test(
    example: Example, way: Way, adjoint: Adjoint, gradients: Gradients | None, confirmed: bool
) -> str:
    """The source of a test that fails as the example does: imports, seed, shapes, values, fields, the
    expected gradient and the one found. It passes when the rule is right."""
    names = Names()
    target = _target(names, example)
    children = enumerate(example.values)
    body = ["values = [", *(f"    {array(v)},  # child {i}: {v.shape}" for i, v in children), "]"]
    if example.case.fields:
        fields = ", ".join(f"{name}={names.literal(v)}" for name, v in example.case.fields.items())
        body.append(f"fields = dict({fields})")
    keywords = [*(["fields=fields"] if example.case.fields else []), f"seed={example.seed}"]
    if gradients is not None:
        body += _numbers(names, target, example, way, adjoint, gradients, ["values", "adjoint", *keywords])
    else:
        body += _claims(way)
    if confirmed or gradients is None:
        settings = [f'rule_set="{example.rule_set}"'] if example.rule_set != "rules" else []
        settings += ["thorough=True"] if way.question != "first_order" else []
        call = ", ".join([target, "values=values", *keywords, *settings])
        body.append(f"mgraph.check_gradients({call}).raise_if_wrong()")
    says = f": {_one_line(way.problem)}" if way.problem else f" is wrong: {', '.join(way.differences)}"
    title = f'"""The gradient of {example.name} by child {way.child}{says}."""'.replace("\\", "/")
    function = f"def test_gradient_of_{_snake(example.name)}():"
    parts = [title, *names.import_blocks(), *names.definitions]
    return "\n\n".join(parts) + "\n\n\n" + "\n".join([function, *(f"    {line}" for line in body)]) + "\n"


def _target(names: Names, example: Example) -> str:
    """The class or function; one without a name is named by its place in the operator's cases."""
    through = example.case.through
    if through is not None and "<" in getattr(through, "__qualname__", "<"):
        for i, case in enumerate(getattr(example.operator, "cases", ())):
            if case.through is through:
                return f"{names.of(example.operator)}.cases[{i}].through"
    return names.of(example.target)


def _numbers(
    names: Names,
    target: str,
    example: Example,
    way: Way,
    adjoint: Adjoint,
    found: Gradients,
    given: list[str],
) -> list[str]:
    """Lines that compare the gradient by the rule with what it should be."""
    names.imports["from mgraph.gradcheck import gradients_at"] = None
    expected = found.expected(way.differences)
    by_differences = found.by_differences
    kind, tolerance = ("jax.grad", "jax") if expected is found.by_jax else ("differences", "differences")
    arrays = [array(a) for a in adjoint]
    lines = [f"adjoint = {arrays[0]}" if len(arrays) == 1 else f"adjoint = [{', '.join(arrays)}]"]
    lines.append(f"expected = {array(expected)}  # {kind}")
    if by_differences is not None and kind == "jax.grad":
        lines.append(f"# by differences: {_short(np.round(by_differences, 9))}")
    if kind == "differences":
        lines.append(f"# jax.grad: {_short(found.by_jax)}")
    derivatives = [f'derivatives="{example.rule_set}"'] if example.rule_set != "rules" else []
    lines.append(f"# got: {_short(found.by_rule)}")
    lines.append(f"got = gradients_at({', '.join([target, *given, *derivatives])})[{way.child}]")
    limit = TOLERANCES[tolerance] * found.scale
    lines.append(f"np.testing.assert_allclose(got, expected, rtol=0, atol={limit:.1e})")
    return lines


def _claims(way: Way) -> list[str]:
    """What check_gradients says about a failure that has no numbers to show."""
    if way.problem:
        return ["# expected: a gradient for each child", f"# got: {_one_line(way.problem)}"]
    return [
        line
        for w, d in way.differences.items()
        for line in (
            f"# {_WITNESSES.get(w, w)}, relative to the largest element",
            f"# expected: at most {TOLERANCES[w]:g}, got: {d:.1e}",
        )
    ]


_WITNESSES: Mapping[str, str] = {
    "second": "second derivatives, by the rule and by JAX",
    "jit": "the rule, compiled and not",
    "vmap": "the rule, under vmap and not",
    "scan": "the rule, in a scan and not",
    "remat": "the rule, recomputed and not",
    "frozen": "the rule, with another child frozen and not",
}


def _short(value: np.ndarray) -> str:
    """All digits of few numbers; an excerpt of many."""
    if value.size <= _FEW:
        return _digits(value)
    return _one_line(np.array2string(value, precision=6, separator=", ", threshold=_FEW))


def _digits(value: np.ndarray) -> str:
    """All digits; zeros without a sign."""
    return repr((value + np.zeros((), value.dtype)).tolist())


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace('"', "'")


def _snake(name: str) -> str:
    found = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return re.sub(r"\W+", "_", found).strip("_") or "an_operator"
