"""``write_page``: a report as one HTML file that needs no network."""

from __future__ import annotations

import datetime
import inspect
import os
import platform
from collections.abc import Callable
from html import escape
from importlib.resources import files
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
from jaxlib.version import __version__ as _JAXLIB

from ...drawing.page import as_script, filled
from ...errors import ArgumentError
from ...files.items import replacing
from ...names import counted
from ...places import here
from ..departures import DepartureReport
from ..report import COLUMNS, GradientCheck, columns_of
from ..survey import OperatorReport, OperatorRow
from .pictures import picture

_PARTS = ("page.css", "page.js")


def write_page(report: OperatorReport | DepartureReport, path: str | os.PathLike[str]) -> None:
    """Write the page of a report on operators or on a whole loss; a file at ``path`` is replaced once the
    page is complete. ``ArgumentError`` for any other report."""
    if not isinstance(report, OperatorReport | DepartureReport):
        raise ArgumentError(
            "write_page: expected a report of check_operators or check_layers, got one of type "
            f"{type(report).__name__}{here()}"
        )
    text = page(report) if isinstance(report, OperatorReport) else report.page()
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def page(report: OperatorReport) -> str:
    """The text of the page: a table of the operators that can be sorted and filtered, wrong ones first.

    An operator opens to its documentation, its gradients by each child on each case with Taylor remainders
    where there are any, its sources, and its smallest failure if one was searched for.
    """
    folder = files(__package__)
    parts = {name: (folder / name).read_text(encoding="utf-8") for name in _PARTS}
    columns = columns_of(row.differences for row in report.rows)
    title = f"Gradients of {counted(len(report.rows), 'operator')}"
    data = {
        "title": title,
        "facts": _facts(),
        "columns": columns,
        "operators": [_row_data(row, columns) for row in report.rows],
    }
    parts |= {"title": escape(title), "report": as_script(data)}
    return filled((folder / "page.html").read_text(encoding="utf-8"), parts)


def _facts() -> dict[str, str]:
    """When and where the report was made."""
    now = datetime.datetime.now().astimezone()
    return {
        "date": now.isoformat(" ", "seconds"),
        "jax": jax.__version__,
        "jaxlib": _JAXLIB,
        "Python": platform.python_version(),
        "processor": _processor(),
        "JAX's device": jax.devices()[0].device_kind,
    }


def _processor() -> str:
    """The name of the processor, as far as the system reports it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _row_data(row: OperatorRow, columns: list[str]) -> dict[str, Any]:
    checks = row.report.checks if row.report else ()
    example = next((c.example for c in checks if c.example is not None), None)
    cls = None if example is None else example.operator
    return {
        "operator": row.operator,
        "type": row.type,
        "file": "" if cls is None else _place(cls),
        "cases": row.cases,
        "ok": row.ok,
        "verdict": row.verdict,
        "cells": [_cell(row, checks, COLUMNS[title]) for title in columns],
        "documents": {} if cls is None else _documents(cls),
        "sources": {} if cls is None else _sources(cls),
        "note": row.report.note if row.report else "",
        "checks": [_check_data(check) for check in checks],
        "failure": None if row.failure is None else _lines(row.failure.test),
    }


def _cell(row: OperatorRow, checks: tuple[GradientCheck, ...], witnesses: tuple[str, ...]) -> dict[str, Any]:
    """The largest difference to some witnesses, the limit that applies to it, and whether any of them
    objects."""
    found = [(row.differences[w], w) for w in witnesses if w in row.differences]
    if not found:
        return {"difference": None}
    difference, witness = max(found)
    limits = [c.allowed[witness] for c in checks if c.differences.get(witness) == difference]
    return {
        "difference": difference,
        "witness": witness,
        "limit": max(limits, default=None),
        "wrong": any(w in row.objections for w in witnesses),
    }


def _check_data(check: GradientCheck) -> dict[str, Any]:
    taylor = check.taylor
    return {
        "name": check.name,
        "shape": list(check.shape),
        "differences": {
            w: {"difference": d, "limit": check.allowed.get(w), "wrong": w in check.objections}
            for w, d in check.differences.items()
        },
        "ok": check.ok,
        "verdict": check.verdict,
        "picture": picture(taylor),
        "slope": None if taylor is None else taylor.slope,
    }


# -- what is known about an operator


def _place(cls: Any) -> str:
    """File and line of a class; the path is relative to the current folder, or starts with the package."""
    try:
        path, (_, line) = Path(inspect.getsourcefile(cls) or ""), inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return ""
    depth = cls.__module__.count(".") + 1
    package = "/".join(path.parts[-depth:])
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else package}:{line}"


def _documents(cls: Any) -> dict[str, list[str]]:
    """The docstrings of a class and of the functions of its module that record it."""
    module = inspect.getmodule(cls)
    functions = [
        f
        for name, f in (vars(module) if module else {}).items()
        if isinstance(f, FunctionType) and f.__module__ == cls.__module__ and not name.startswith("_")
        if cls.__name__ in f.__code__.co_names
    ]
    found = {cls.__name__: cls.__doc__ if "__doc__" in vars(cls) else None}
    found |= {f"{f.__name__}{_signature(f)}": f.__doc__ for f in functions}
    return {name: _lines(inspect.cleandoc(text)) for name, text in found.items() if text}


def _signature(function: FunctionType) -> str:
    """The parameters and their defaults, without types."""
    signature = inspect.signature(function)
    empty = inspect.Parameter.empty
    bare = [parameter.replace(annotation=empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=empty))


def _sources(cls: Any) -> dict[str, list[str]]:
    """The sources of forward, rule and surrogate; for an operator that runs a body, also of ``evaluate``."""
    names = ["forward_ops", "surrogate_ops", "backward_ops"]
    if getattr(cls, "composite", False):
        names.append("evaluate")
    found = {name: getattr(cls, name, None) for name in names}
    return {name: lines for name, function in found.items() if (lines := _source(function))}


def _source(function: Callable[..., Any] | None) -> list[str]:
    try:
        return [] if function is None else _lines(inspect.cleandoc("\n" + inspect.getsource(function)))
    except (OSError, TypeError):
        return []


def _lines(text: str) -> list[str]:
    """The lines of a text, one by one because line ends are not printable."""
    return text.expandtabs(4).splitlines()
