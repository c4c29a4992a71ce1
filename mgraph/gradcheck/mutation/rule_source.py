"""``RuleSource``: the functions that a rule is made of, to be rebuilt with a change in one of them."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...errors import ArgumentError
from ...node import NaryNodeOp
from ..trial import Rule
from .edits import Edit, Scope, edits_of

_MARKER = "__mgraph_marker__"


@dataclass(frozen=True)
class RuleFunction:
    """A function of a rule: the rule itself, or a method or a function of its module that it calls."""

    name: str
    is_method: bool
    function: types.FunctionType
    tree: ast.FunctionDef

    @property
    def title(self) -> str:
        return self.function.__qualname__

    @property
    def file(self) -> str:
        return self.function.__code__.co_filename

    @property
    def closure(self) -> Mapping[str, Any]:
        """The variables of enclosing functions that the function sees."""
        cells = zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True)
        return {name: cell.cell_contents for name, cell in cells}

    def code(self) -> types.CodeType:
        """Code of an outer function that takes the closure and defines this function."""
        body: list[ast.stmt] = [self.tree, ast.Return(ast.Name(self.tree.name, ast.Load()))]
        names = [ast.arg(name) for name in self.closure]
        outer = ast.parse("def outer(): pass").body[0]
        assert isinstance(outer, ast.FunctionDef)
        outer.args.args, outer.body = names, body
        module = ast.Module([outer], [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a mutant may be odd code
            return compile(ast.fix_missing_locations(module), self.file, "exec")

    def defined(self, code: types.CodeType, seen: dict[str, Any]) -> Any:
        """The function that ``code`` defines, with ``seen`` as its globals."""
        found: dict[str, Any] = {}
        exec(code, seen, found)
        return found["outer"](*self.closure.values())


class RuleSource:
    """The rule of a class: ``backward_ops``, and the methods and functions of its own module that it calls.

    ``forward_ops`` is not part of it, nor are functions of other modules. A function that the forward calls,
    too, changes only for the rule. ``ArgumentError`` if the source of the rule cannot be read.
    """

    def __init__(self, cls: type[NaryNodeOp]) -> None:
        self._cls = cls
        rule = _method(cls, "backward_ops")
        if rule is None:
            raise ArgumentError(f"{cls.__name__}.backward_ops is not a function written in Python")
        self.parts = [_part(rule, is_method=True)]
        for part in self.parts:
            for name, is_method, function in self._called(part):
                known = ((p.name, p.is_method, p.function.__globals__) for p in self.parts)
                if (name, is_method, function.__globals__) not in known:
                    self.parts.append(_part(function, is_method))

    def _called(self, part: RuleFunction) -> Iterator[tuple[str, bool, types.FunctionType]]:
        seen, own = part.function.__globals__, part.function.__code__.co_varnames
        for node in ast.walk(ast.Module(part.tree.body, [])):
            if isinstance(node, ast.Name) and node.id in seen and node.id not in own:
                function = inspect.unwrap(seen[node.id]) if callable(seen[node.id]) else None
                if isinstance(function, types.FunctionType) and function.__globals__ is seen:
                    yield node.id, False, function
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                method = _method(self._cls, node.attr) if node.value.id == "self" else None
                if method is not None and node.attr not in ("forward_ops", "backward_ops"):
                    yield node.attr, True, method

    def edits(self) -> Iterator[tuple[RuleFunction, Edit]]:
        """Every change to every function."""
        fields: dict[str, str] = {}
        for cls in reversed(self._cls.__mro__):
            fields |= {name: str(kind) for name, kind in inspect.get_annotations(cls).items()}
        for part in self.parts:
            scope = Scope({name: fields[name] for name in self._cls.fields}, part.function.__globals__)
            for edit in edits_of(part.tree, scope):
                yield part, edit

    @cached_property
    def _codes(self) -> list[types.CodeType]:
        return [part.code() for part in self.parts]

    def rule(self) -> Rule:
        """The rule, rebuilt."""
        return self._made(self._codes, {})

    def mutant(self, changed: RuleFunction, edit: Edit) -> Rule:
        """The rule with one edit made in one of its functions."""
        with edit.made():
            return self._made(self._with(changed), {})

    def marked(self, changed: RuleFunction, edit: Edit, note: Callable[[], None]) -> Rule:
        """The unchanged rule, which calls ``note`` when it reaches what the edit would change."""

        def noted(value: Any) -> Any:
            note()
            return value

        with edit.marked(_MARKER):
            return self._made(self._with(changed), {_MARKER: noted})

    def _with(self, changed: RuleFunction) -> list[types.CodeType]:
        """The code of all functions, that of ``changed`` compiled from its present tree."""
        new = changed.code()
        return [new if part is changed else c for part, c in zip(self.parts, self._codes, strict=True)]

    def _made(self, codes: Sequence[types.CodeType], known: Mapping[str, Any]) -> Rule:
        worlds: dict[int, dict[str, Any]] = {}
        methods: dict[str, Any] = {}
        for part, code in zip(self.parts, codes, strict=True):
            seen = worlds.setdefault(id(part.function.__globals__), {**part.function.__globals__, **known})
            function = part.defined(code, seen)
            if part.is_method:
                methods[part.name] = function
            else:
                seen[part.name] = function
        backward = methods.pop("backward_ops")
        if not methods:
            return backward
        return lambda operator, *args: backward(_Changed(operator, methods), *args)

    def reached(self, run: Callable[[], Any]) -> set[tuple[str, int]]:
        """The lines of the rule, each with its file, that ``run`` executes."""
        files = {part.file for part in self.parts}
        found: set[tuple[str, int]] = set()

        def watch(frame: types.FrameType, event: str, _: Any) -> Any:
            file = frame.f_code.co_filename
            if file not in files:
                return None
            found.add((file, frame.f_lineno))
            return watch

        before = sys.gettrace()
        sys.settrace(watch)
        try:
            run()
        finally:
            sys.settrace(before)
        return found


class _Changed:
    """An operator as a changed rule sees it: some of its methods are replaced."""

    def __init__(self, operator: Any, methods: Mapping[str, Any]) -> None:
        self._operator, self._methods = operator, methods

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            return types.MethodType(self._methods[name], self)
        return getattr(self._operator, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._operator)


def _method(cls: type[NaryNodeOp], name: str) -> types.FunctionType | None:
    """The method of this name if a class below ``NaryNodeOp`` defines it."""
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    if owner is None or owner in NaryNodeOp.__mro__ or not isinstance(vars(owner)[name], types.FunctionType):
        return None
    function = inspect.unwrap(vars(owner)[name])
    return function if isinstance(function, types.FunctionType) else None


def _part(function: types.FunctionType, is_method: bool) -> RuleFunction:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError) as e:
        raise ArgumentError(f"the source of {function.__qualname__} cannot be read: {e}") from None
    if not isinstance(tree, ast.FunctionDef):
        raise ArgumentError(f"{function.__qualname__} is not defined by a def statement")
    ast.increment_lineno(tree, first - 1)
    return RuleFunction(function.__name__, is_method, function, tree)
