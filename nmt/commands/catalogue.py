"""The catalogue of expression operators, read off the code: the page "Marian to mgraph".

Descriptions come from the docstrings of the functions, in which the marks ``Shape:``, ``Gradient:``,
``Differs:`` and ``Source:`` begin parts that end at the next mark or a blank line. The node classes come from
the code that the functions run.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import mgraph
from mgraph import NaryNodeOp, Node
from mgraph.expression import METHODS

PARTS = ("Shape", "Gradient", "Differs", "Source")
REQUIRED = ("Shape", "Gradient", "Source")

SYNTAX: Mapping[str, str] = {
    "__add__": "a + b",
    "__sub__": "a - b",
    "__mul__": "a * b",
    "__truediv__": "a / b",
    "__pow__": "a ** b",
    "__matmul__": "a @ b",
    "__neg__": "-x",
    "__abs__": "abs(x)",
    "__lt__": "a < b",
    "__le__": "a <= b",
    "__gt__": "a > b",
    "__ge__": "a >= b",
    "__getitem__": "x[index]",
}
"""Python's syntax for the methods of ``expression.METHODS``."""

_MARK = re.compile(rf"(?<!\S)({'|'.join(PARTS)}):\s+")
_CODE = re.compile(r"``([^`]+)``")
PYTHON = "python"
"""The module name for entries that are Python's operators."""


@dataclass(frozen=True)
class CatalogueEntry:
    """One operator of the catalogue.

    name: in ``mgraph``, or in Python's syntax. call: the name with its parameters. module: of its function.
    nodes: the node classes that it creates. uses: the operators of which it is composed.
    parts: the text of the docstring after each mark.
    """

    name: str
    call: str
    module: str
    nodes: tuple[type[Node], ...]
    uses: tuple[str, ...]
    parts: Mapping[str, str] = field(repr=False)

    @property
    def marian(self) -> tuple[str, ...]:
        """Marian's names for it, from ``Source``; empty if Marian does not have it."""
        return tuple(_CODE.findall(self._source()[1]))

    @property
    def paper(self) -> str:
        """The paper, from the part of ``Source`` before Marian's name; may be empty."""
        return self._source()[0]

    @property
    def lacks(self) -> tuple[str, ...]:
        """The required parts that the docstring does not have."""
        return tuple(part for part in REQUIRED if not self.parts.get(part))

    def _source(self) -> tuple[str, str]:
        """The text of ``Source`` before and after ``Marian, ``."""
        match = re.match(r"(?:(.*); )?Marian, (.*)", self.parts.get("Source", ""))
        return (match[1] or "", match[2]) if match else ("", "")


def parts_of(text: str) -> dict[str, str]:
    """The marked parts of a docstring, each as one line."""
    found = {}
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        pieces = _MARK.split(paragraph)
        for mark, part in zip(pieces[1::2], pieces[2::2], strict=True):
            found[mark] = " ".join(part.split())
    return found


# ---------------------------------------------------------------- what the code says


@cache
def entries() -> tuple[CatalogueEntry, ...]:
    """All operators: Python's on nodes, then the functions that ``mgraph`` exports, by module."""
    exported = {
        name: value
        for name, value in vars(mgraph).items()
        if isinstance(value, FunctionType) and value.__module__.startswith("mgraph.ops.")
    }
    python = {
        syntax: inspect.unwrap(METHODS[method]) for method, syntax in SYNTAX.items() if method in METHODS
    }
    known = {function: name for name, function in (python | exported).items()}
    functions = sorted(exported.items(), key=lambda item: (item[1].__module__, item[0]))
    return (
        *(_entry(syntax, syntax, PYTHON, function, known) for syntax, function in python.items()),
        *(_entry(n, f"{n}{_signature(f)}", f.__module__.rpartition(".")[2], f, known) for n, f in functions),
    )


def _entry(
    name: str, call: str, module: str, function: FunctionType, known: Mapping[FunctionType, str]
) -> CatalogueEntry:
    nodes: dict[type[Node], None] = {}
    uses: dict[str, None] = {}
    seen, pending = {function}, [function]
    while pending:
        for value in _values_in(pending.pop(0)):
            if isinstance(value, FunctionType) and value not in seen:
                seen.add(value)
                if value in known:
                    uses[known[value]] = None
                elif value.__module__.startswith(("mgraph.ops.", "mgraph.expression")):
                    pending.append(value)
            elif isinstance(value, type) and issubclass(value, NaryNodeOp):
                nodes[value] = None
    made = function.__globals__.get(str(function.__annotations__.get("return")))
    if isinstance(made, type) and issubclass(made, Node) and made is not Node:
        nodes[made] = None
    return CatalogueEntry(name, call, module, tuple(nodes), tuple(uses), parts_of(function.__doc__ or ""))


def _values_in(function: FunctionType) -> Iterator[Any]:
    """The values that a function's code loads from its module and its closure, in order."""
    for name in _globals_in(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]
    for cell in function.__closure__ or ():
        yield cell.cell_contents


def _globals_in(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_in(constant)


def _signature(function: FunctionType) -> str:
    empty = inspect.Parameter.empty
    signature = inspect.signature(function)
    parameters = [
        p.replace(annotation=empty, default=p.default if p.default is empty else _Default(p.default))
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=empty))


@dataclass(frozen=True)
class _Default:
    """The default of a parameter, which prints as it is written in code."""

    value: Any

    def __repr__(self) -> str:
        value = self.value
        return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def operations(name: str) -> tuple[str, ...]:
    """The node classes behind the function ``name``, including those of the operators it is composed of.

    A name that is not a function's, or that is also a node class's or a friendly type, is returned alone.
    """
    nodes = (node for entry in entries() for node in entry.nodes)
    by_name = {entry.name: entry for entry in entries()}
    if name not in by_name or name.lower() in {n.lower() for c in nodes for n in (c.__name__, c.type)}:
        return (name,)
    found: dict[str, None] = {}
    seen, pending = {name}, [name]
    while pending:
        entry = by_name[pending.pop(0)]
        found.update((node.__name__, None) for node in entry.nodes if issubclass(node, NaryNodeOp))
        pending += [other for other in entry.uses if other not in seen]
        seen.update(pending)
    return tuple(found) or (name,)


# ---------------------------------------------------------------- comparison with Marian's header

MARIAN_VERSION = "1.12"

OVERLOADS: Mapping[str, int] = {
    name: int(count or 1)
    for name, _, count in (
        word.partition(":")
        for word in """
        abs affine affineWithReluDropout argmax argmin atleast_1d atleast_2d atleast_3d atleast_4d
        atleast_nd avg_pooling bdot bdot_legacy callback cast checkpoint choose clip clipGradient cols:2
        concatenate constant_like:3 convert2cudnnFormat convertFromcudnnFormat cos cross_entropy csr_dot
        cumsum debug dot dot_csr dropout:4 dropoutReluInplace:4 eq:3 exp flatten flatten_2d gather ge:3
        gelu:2 get gt:3 highway:2 index_select:2 lambda:2 layerNorm le:3 leakyrelu:2 log logaddexp
        logcumsumexp logsoftmax logsumexp lt:3 max max_pooling maximum:3 mean min minimum:3 narrow ne:3
        operator*:3 operator+:3 operator-:4 operator/:3 plus pooling_with_masking pow:3 prelu:2 prod
        relu:2 removeAsRoot repeat reshape rmsNorm rows:2 scalar_product scatter shift sigmoid:2 sin
        slice:2 softmax:2 sort sparsemax sqrt square std stopGradient sum swapAxes swish:2 tan tanh:2
        topk topkIndices topkValues transpose:2 unlikelihood var weighted_average
        """.split()
    )
}
"""Every name in Marian's header, with the number of its overloads."""

RENAMED: Mapping[str, str] = {
    "lambda": "lambda_node",
    "operator+": "a + b",
    "operator-": "a - b",
    "operator*": "a * b",
    "operator/": "a / b",
    "convertFromcudnnFormat": "convert_from_cudnn_format",
}
"""mgraph's names for Marian's names that Python does not allow or that would be split wrongly."""

ABSENT: Mapping[str, str] = {}
"""Names that mgraph lacks, each with the reason."""


def in_python(name: str) -> str:
    """mgraph's name for one of Marian's: ``layer_norm`` for ``layerNorm``."""
    return RENAMED.get(name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def present() -> tuple[str, ...]:
    """The names of Marian's header that mgraph has."""
    names = {entry.name for entry in entries()}
    return tuple(name for name in OVERLOADS if in_python(name) in names)


def absent() -> dict[str, str]:
    """The names of Marian's header that mgraph lacks, each with its reason, empty if unknown."""
    found = present()
    return {n: ABSENT.get(n, "") for n in OVERLOADS if n not in found}


def besides() -> tuple[CatalogueEntry, ...]:
    """Operators that are not in Marian's header: from its other headers, or mgraph's own."""
    return tuple(e for e in entries() if not set(e.marian) & OVERLOADS.keys())


# ---------------------------------------------------------------- the page


def markdown() -> str:
    """The page as Markdown."""
    sections = {e.module: _title(e.module) for e in entries()}
    modules = sorted(sections, key=lambda m: (m != PYTHON, sections[m].strip("`").lower()))
    return "\n".join([*_introduction(), *(line for module in modules for line in _section(module))])


def _introduction() -> Iterator[str]:
    yield "# Marian to mgraph"
    yield ""
    yield "Printed from the code by `mgraph operators`; a test keeps this file up to date."
    yield ""
    count = "all" if not absent() else len(present())
    yield (
        f"Marian {MARIAN_VERSION} declares {len(OVERLOADS)} names "
        f"({sum(OVERLOADS.values())} overloads) in `graph/expression_operators.h`; mgraph has "
        f"{count} of them. mgraph's own operators, not declared there: "
        f"{_listed(entry.name for entry in besides())}."
    )
    if missing := absent():
        yield ""
        yield from _table(("missing", "why"), ((f"`{name}`", why) for name, why in missing.items()))
    yield ""
    yield (
        "Names are Marian's in snake case, `layer_norm` for `layerNorm`; the exceptions are "
        f"{', '.join(f'`{new}` for `{old}`' for old, new in RENAMED.items())}. In "
        "gradients `adj` is the adjoint of the result and `y` its value; the gradient for a child that was "
        "broadcast is summed to the child's shape."
    )
    yield ""


def _section(module: str) -> Iterator[str]:
    yield f"## {_title(module)}"
    yield ""
    heads = ("Marian", "mgraph", "node class, type", "shape", "gradient", "differs")
    yield from _table(heads, (_cells(entry) for entry in entries() if entry.module == module))
    yield ""


def _title(module: str) -> str:
    """The title of a module's section: the beginning of the module's docstring."""
    home = "mgraph.expression" if module == PYTHON else f"mgraph.ops.{module}"
    return _markdown(re.split(r"[.,:;]\s", f"{sys.modules[home].__doc__} ")[0])


def _cells(entry: CatalogueEntry) -> Iterator[str]:
    names = _listed(entry.marian) or "none"
    yield f"{names} ({entry.paper})" if entry.paper else names
    yield f"`{entry.call}`"
    made = [f"`{node.__name__}`, `{node.type}`" for node in entry.nodes]
    if entry.uses:
        made.append(f"{'with' if made else 'made of'} {_listed(entry.uses)}")
    yield "<br>".join(made) or "the node itself"
    for part in ("Shape", "Gradient", "Differs"):
        yield _markdown(entry.parts.get(part, "")).removesuffix(".")


def _markdown(text: str) -> str:
    """A docstring's text as Markdown: code between double backticks gets single ones."""
    return _CODE.sub(r"`\1`", text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    yield _row(heads)
    yield _row(["---"] * len(heads))
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def as_json() -> dict[str, Any]:
    """The page as data for JSON."""
    return {
        "marian": {
            "version": MARIAN_VERSION,
            "names": dict(OVERLOADS),
            "present": list(present()),
            "absent": absent(),
        },
        "operators": [
            {
                "name": entry.name,
                "call": entry.call,
                "module": entry.module,
                "nodes": [{"class": node.__name__, "type": node.type} for node in entry.nodes],
                "uses": list(entry.uses),
                "marian": list(entry.marian),
                **{part.lower(): entry.parts.get(part, "") for part in PARTS},
            }
            for entry in entries()
        ],
    }
