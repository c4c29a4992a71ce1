"""Small changes to a function's syntax tree, each of which a programmer could have made by mistake."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .alternatives import alternatives

_Place = tuple[Any, str, int | None]
"""A node's parent, the parent's field, and the position in it if it is a list."""

_LEFT_ALONE = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)
"""The parts of a rule that compute nothing: errors, and the signatures of inner functions."""

_SHOWN = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.Call, ast.Subscript, ast.Tuple, ast.List),
)
"""Expressions that can be read on their own."""


@dataclass(frozen=True)
class Scope:
    """What names mean in a function: the annotated types of its class's fields, and the globals it sees."""

    fields: Mapping[str, str]
    seen: Mapping[str, Any]


@dataclass(frozen=True)
class Edit:
    """One change to a tree, made in place and only for a while."""

    kind: str
    """What mistake it is: ``sign``, ``factor``, ``axis``, ..."""
    lines: range
    """The lines of the statement that it changes."""
    line: int
    before: str
    after: str
    place: _Place
    new: ast.expr

    @contextmanager
    def made(self) -> Iterator[None]:
        """Inside the ``with``, the tree is changed."""
        with _replaced(self.place, self.new):
            yield

    @contextmanager
    def marked(self, marker: str) -> Iterator[None]:
        """Inside the ``with``, the expression that would be changed, or the branch that would be lost, is
        wrapped in a call of the global function ``marker``."""
        place, old = self.place, _at(self.place)
        if isinstance(old, ast.IfExp) and self.new in (old.body, old.orelse):
            place = old, "orelse" if self.new is old.body else "body", None
            old = _at(place)
        call = ast.Call(ast.Name(marker, ast.Load()), [old], [])
        with _replaced(place, ast.fix_missing_locations(ast.copy_location(call, old))):
            yield


@contextmanager
def _replaced(place: _Place, new: Any) -> Iterator[None]:
    parent, field, i = place
    old = _at(place)
    try:
        _put(parent, field, i, new)
        yield
    finally:
        _put(parent, field, i, old)


def _at(place: _Place) -> Any:
    parent, field, i = place
    return getattr(parent, field) if i is None else getattr(parent, field)[i]


def _put(parent: Any, field: str, i: int | None, node: Any) -> None:
    if i is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[i] = node


def edits_of(tree: ast.FunctionDef, scope: Scope) -> Iterator[Edit]:
    """All changes to the body of a function, each with a different resulting text."""
    seen = {ast.unparse(tree)}
    variables = _variables(tree)
    for place, above in _places(tree):
        node = _at(place)
        names = [name for name, line in variables.items() if line < node.lineno]
        for kind, new in alternatives(node, above, scope, names):
            ast.fix_missing_locations(ast.copy_location(new, node))
            shown = next((a for a in (node, *reversed(above)) if isinstance(a, _SHOWN)), node)
            before = ast.unparse(shown)
            with _replaced(place, new):
                text = ast.unparse(tree)
                after = ast.unparse(new if shown is node else shown)
            if text not in seen:
                seen.add(text)
                yield Edit(kind, _lines(node, above), node.lineno, before, after, place, new)


def _places(tree: ast.FunctionDef) -> Iterator[tuple[_Place, tuple[ast.AST, ...]]]:
    """The expressions of a body, each with the nodes that enclose it."""

    def below(parent: ast.AST, above: tuple[ast.AST, ...]) -> Iterator[tuple[_Place, tuple[ast.AST, ...]]]:
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            for i, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if not isinstance(node, ast.AST) or isinstance(node, _LEFT_ALONE) or _is_docstring(node):
                    continue
                if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
                    yield (parent, field, i), (*above, parent)
                yield from below(node, (*above, parent))

    yield from below(tree, ())


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _lines(node: ast.expr, above: Sequence[ast.AST]) -> range:
    """The lines of the statement around a node; in a compound statement, of the part with the node."""
    inner: ast.AST = node
    for outer in reversed(above):
        if isinstance(inner, ast.stmt) or hasattr(outer, "body"):
            break
        inner = outer
    first: int = getattr(inner, "lineno", node.lineno)
    return range(first, (getattr(inner, "end_lineno", None) or first) + 1)


def _variables(tree: ast.FunctionDef) -> dict[str, int]:
    """The names of arrays: parameters and assigned variables, each with the line after which it exists."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if argument.arg != "self":
                    found.setdefault(argument.arg, node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id != "_":
            found.setdefault(node.id, node.lineno)
    return dict(sorted(found.items(), key=lambda item: item[1]))
