"""The page "Marian to mgraph": nothing of Marian's header is missing, and code and page say the same."""

from __future__ import annotations

import importlib
import json
import pkgutil

import pytest

import mgraph
import nmt.pymarian
from mgraph import NaryNodeOp, ops
from mgraph.expression import METHODS
from nmt.cli import main
from nmt.commands import NAMES, catalogue, correspondence
from nmt.commands.catalogue import OVERLOADS, CatalogueEntry, entries, parts_of
from tests.helpers.places import DATA, ROOT

SNAPSHOT = DATA / "marian-header" / "names.txt"
THE_NODE_ITSELF = {"checkpoint", "debug", "remove_as_root"}


def entry(name: str) -> CatalogueEntry:
    return next(e for e in entries() if e.name == name)


def nodes(name: str) -> list[str]:
    return [node.__name__ for node in entry(name).nodes]


# ---------------------------------------------------------------- Marian's header


def test_the_names_are_those_of_marians_header() -> None:
    lines = (line.split() for line in SNAPSHOT.read_text().splitlines())
    assert {name: int(count) for name, count in lines} == OVERLOADS


def test_every_name_is_there_or_missing_for_a_reason() -> None:
    absent = catalogue.absent()
    unexplained = [name for name, reason in absent.items() if not reason]
    assert not unexplained, "neither an operator of mgraph nor in catalogue.ABSENT"
    assert set(absent) == set(catalogue.ABSENT), "a name in ABSENT is there after all"
    assert len(catalogue.present()) + len(absent) == len(OVERLOADS)


def test_names_are_translated_by_rule() -> None:
    pairs = {
        "layerNorm": "layer_norm",
        "topkIndices": "topk_indices",
        "atleast_1d": "atleast_1d",
        "sin": "sin",
    }
    assert {name: catalogue.in_python(name) for name in pairs} == pairs
    assert set(catalogue.RENAMED) <= set(OVERLOADS)


def test_an_operator_names_its_own_twin() -> None:
    wrong = [
        (e.name, e.marian)
        for e in entries()
        if e.module != catalogue.PYTHON
        and set(e.marian) & set(OVERLOADS)
        and e.name not in {catalogue.in_python(name) for name in e.marian}
    ]
    assert not wrong


# ---------------------------------------------------------------- what docstrings say


def test_every_operator_says_shape_gradient_and_source() -> None:
    assert {e.name: e.lacks for e in entries() if e.lacks} == {}


def test_marks_begin_parts() -> None:
    text = """One line. Shape: (n,) to
        (1,). Gradient: ``adj``; shape: no mark.

        Not a part.

        Differs: once.
        Source: Gauss 1809; Marian, ``sum`` and ``add``.
        """
    assert parts_of(text) == {
        "Shape": "(n,) to (1,).",
        "Gradient": "``adj``; shape: no mark.",
        "Differs": "once.",
        "Source": "Gauss 1809; Marian, ``sum`` and ``add``.",
    }
    made = CatalogueEntry("total", "total(x)", "reduce", (), (), parts_of(text))
    assert made.marian == ("sum", "add") and made.paper == "Gauss 1809" and made.lacks == ()
    parts = {"Source": "no counterpart in Marian, which has ``sum``."}
    other = CatalogueEntry("total", "total(x)", "reduce", (), (), parts)
    assert other.marian == () and other.paper == "" and other.lacks == ("Shape", "Gradient")


# ---------------------------------------------------------------- what code says


def test_node_classes_are_found_in_the_code() -> None:
    assert nodes("sin") == ["SinNodeOp"]
    assert nodes("lt") == ["LtNodeOp"], "through a private helper"
    assert nodes("lambda_node") == ["LambdaNodeOp", "DifferentiableLambdaNodeOp"]
    assert nodes("constant_like") == ["ConstantNode"], "by what it returns"
    assert entry("leakyrelu").nodes == () and entry("leakyrelu").uses == ("prelu",)
    assert {"exp", "log"} <= set(entry("pow").uses)
    assert nodes("a / b")[0] == "DivNodeOp"
    assert entry("cast").call == "cast(x, to=Type.float32)"


def test_a_function_stands_for_its_node_classes() -> None:
    assert catalogue.operations("leakyrelu")[0] == "PReLUNodeOp"
    assert set(catalogue.operations("logsumexp")) == {"logsumexp"}, "a type but for its case"
    assert {"GatherNodeOp", "ReshapeNodeOp"} <= set(catalogue.operations("index_select"))
    assert catalogue.operations("max") == ("max",), "a friendly type, of two classes"
    assert catalogue.operations("nothing") == ("nothing",)


def test_every_operator_makes_or_uses_something() -> None:
    assert {e.name for e in entries() if not e.nodes and not e.uses} == THE_NODE_ITSELF


def test_every_node_class_is_some_operators() -> None:
    classes = {
        value
        for module in pkgutil.iter_modules(ops.__path__)
        for value in vars(importlib.import_module(f"mgraph.ops.{module.name}")).values()
        if isinstance(value, type) and issubclass(value, NaryNodeOp) and hasattr(value, "forward_ops")
    }
    assert len(classes) > 60
    made = {node for e in entries() for node in e.nodes}
    bases = {base for node in made for base in node.__mro__[1:]}
    assert {c.__name__ for c in classes - made - bases} == set()


def test_python_operators_are_entries() -> None:
    reflected = {name for name in METHODS if f"__{name[3:]}" in METHODS and name.startswith("__r")}
    other = {"__iter__", "__array__", "__array_ufunc__", "__jax_array__", "__bool__", "__float__", "__int__"}
    assert set(catalogue.SYNTAX) == set(METHODS) - reflected - other
    assert {e.name for e in entries() if e.module == catalogue.PYTHON} == set(catalogue.SYNTAX.values())


def test_entries_are_what_mgraph_exports() -> None:
    names = [e.name for e in entries()]
    assert len(names) == len(set(names))
    assert all(callable(getattr(mgraph, e.name)) for e in entries() if e.module != catalogue.PYTHON)


# ---------------------------------------------------------------- the page


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "marian-to-mgraph.md").read_text()
    assert page == catalogue.markdown() + correspondence.markdown(), (
        "mgraph operators > docs/marian-to-mgraph.md"
    )


def test_commands_of_the_page() -> None:
    page = correspondence.markdown()
    assert all(f"| `mgraph {name}` |" in page for name in NAMES)
    assert {*correspondence.MARIAN, *correspondence.PYTHON} <= {*NAMES}
    for own, pymarians in correspondence.PYTHON.values():
        assert hasattr(nmt, own) and (not pymarians or hasattr(nmt.pymarian, pymarians))


def test_rows_of_the_page() -> None:
    page = catalogue.markdown()
    rows = [line for line in page.splitlines() if line.startswith("| `") or line.startswith("| none")]
    assert len(rows) == len(entries()) + len(catalogue.absent())
    bars = {line.replace(r"\|", "").count("|") for line in page.splitlines() if line.startswith("|")}
    assert bars == {3, 7} if catalogue.absent() else {7}
    assert "``" not in page
    total = sum(OVERLOADS.values())
    assert f"declares {len(OVERLOADS)} names ({total} overloads)" in page


def test_the_command_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators"]) == 0
    assert capsys.readouterr().out == catalogue.markdown() + correspondence.markdown()
    assert main(["operators", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["marian"]["names"] == dict(OVERLOADS)
    assert [row["name"] for row in page["operators"]] == [e.name for e in entries()]
    sin = next(row for row in page["operators"] if row["name"] == "sin")
    assert sin["nodes"] == [{"class": "SinNodeOp", "type": "sin"}] and sin["marian"] == ["sin"]
    assert main(["operators", "sin"]) == 2
    assert "unexpected argument 'sin'" in capsys.readouterr().err
