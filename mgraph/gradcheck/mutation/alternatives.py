"""The expressions that may stand in another one's place by mistake."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

Alternative = tuple[str, ast.expr]
"""The kind of the mistake, and the expression."""

_OPPOSITES: Mapping[type[ast.cmpop], tuple[tuple[str, type[ast.cmpop]], ...]] = {
    ast.Lt: (("boundary", ast.LtE), ("comparison", ast.Gt)),
    ast.LtE: (("boundary", ast.Lt), ("comparison", ast.GtE)),
    ast.Gt: (("boundary", ast.GtE), ("comparison", ast.Lt)),
    ast.GtE: (("boundary", ast.Gt), ("comparison", ast.LtE)),
    ast.Eq: (("comparison", ast.NotEq),),
    ast.NotEq: (("comparison", ast.Eq),),
    ast.Is: (("comparison", ast.IsNot),),
    ast.IsNot: (("comparison", ast.Is),),
}

_TWINS = {
    "sum": "mean",
    "mean": "sum",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "maximum": "minimum",
    "minimum": "maximum",
    "sin": "cos",
    "cos": "sin",
    "sinh": "cosh",
    "cosh": "sinh",
    "exp": "expm1",
    "log": "log1p",
    "sqrt": "square",
    "rsqrt": "sqrt",
    "sign": "abs",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "zeros": "ones",
    "ones": "zeros",
    "add": "set",
    "set": "add",
}
"""Functions that are easily mistaken for one another."""

_MOVES = ("T", "mT")
_FACTS = ("shape", "dtype", "ndim", "size")


class Meanings(Protocol):
    """What names mean in a function."""

    @property
    def fields(self) -> Mapping[str, str]: ...
    @property
    def seen(self) -> Mapping[str, Any]: ...


def alternatives(
    node: ast.expr, above: Sequence[ast.AST], scope: Meanings, names: Sequence[str]
) -> Iterator[Alternative]:
    """The mistakes that can be made with ``node``; ``above`` are the nodes that enclose it, ``names`` the
    variables that exist there."""
    if isinstance(node, ast.BinOp):
        yield from _of_arithmetic(node)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield ("sign" if isinstance(node.op, ast.USub) else "negation"), node.operand
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind, op in _OPPOSITES.get(type(node.ops[0]), ()):
            yield kind, ast.Compare(node.left, [op()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "condition", ast.BoolOp(other, node.values)
    elif isinstance(node, ast.IfExp):
        yield from (("branch", node.body), ("branch", node.orelse))
    elif isinstance(node, ast.Constant):
        yield from _of_number(node, above)
    elif isinstance(node, ast.Attribute):
        yield from _of_attribute(node, above, scope)
    elif isinstance(node, ast.Name):
        yield from _of_name(node, above, names)
    elif isinstance(node, ast.Call):
        yield from _of_call(node, scope)
    if isinstance(above[-1], ast.If) and above[-1].test is node:
        yield "branch", ast.UnaryOp(ast.Not(), node)
    if isinstance(above[-1], ast.For) and above[-1].iter is node:
        yield "loop", ast.Tuple([], ast.Load())


def _of_arithmetic(node: ast.BinOp) -> Iterator[Alternative]:
    a, b = node.left, node.right
    match node.op:
        case ast.Add():
            yield from (("sign", ast.BinOp(a, ast.Sub(), b)), ("term", a), ("term", b))
        case ast.Sub():
            yield from (("sign", ast.BinOp(a, ast.Add(), b)), ("term", a))
            yield from (("term", ast.UnaryOp(ast.USub(), b)), ("operands", ast.BinOp(b, ast.Sub(), a)))
        case ast.Mult():
            yield from (("factor", a), ("factor", b), ("factor", ast.BinOp(a, ast.Div(), b)))
        case ast.Div():
            yield from (("factor", a), ("factor", ast.BinOp(a, ast.Mult(), b)))
            yield "operands", ast.BinOp(b, ast.Div(), a)
        case ast.MatMult():
            yield "operands", ast.BinOp(b, ast.MatMult(), a)
        case ast.BitAnd() | ast.BitOr():
            other = ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd()
            yield from (("condition", ast.BinOp(a, other, b)), ("condition", a), ("condition", b))


def _of_number(node: ast.Constant, above: Sequence[ast.AST]) -> Iterator[Alternative]:
    value = node.value
    if isinstance(value, bool):
        yield "flag", ast.Constant(not value)
    elif isinstance(value, int):
        kind = "axis" if isinstance(above[-1], ast.keyword) and above[-1].arg == "axis" else "number"
        yield from ((kind, ast.Constant(value + 1)), (kind, ast.Constant(value - 1)))
    elif isinstance(value, float):
        yield from (("number", ast.Constant(2 * value)), ("number", ast.Constant(value + 1)))


def _of_attribute(node: ast.Attribute, above: Sequence[ast.AST], scope: Meanings) -> Iterator[Alternative]:
    if node.attr in _MOVES:
        yield "transpose", node.value
    elif isinstance(node.value, ast.Name) and node.value.id == "self":
        kind = scope.fields.get(node.attr)
        if kind == "bool" and not isinstance(above[-1], ast.UnaryOp):
            yield "flag", ast.UnaryOp(ast.Not(), node)
        elif kind == "int":
            for op in (ast.Add(), ast.Sub()):
                yield ("axis" if "axis" in node.attr else "number"), ast.BinOp(node, op, ast.Constant(1))
        elif kind == "float":
            yield "factor", ast.BinOp(ast.Constant(2.0), ast.Mult(), node)


def _of_name(node: ast.Name, above: Sequence[ast.AST], names: Sequence[str]) -> Iterator[Alternative]:
    around = above[-1]
    called = isinstance(around, ast.Call) and around.func is node
    asked = isinstance(around, ast.Attribute) and around.attr in _FACTS
    if called or asked or node.id not in names:
        return
    place = names.index(node.id)
    for other in dict.fromkeys((names[place - 1], names[(place + 1) % len(names)])):
        if other != node.id:
            yield "operand", ast.Name(other, ast.Load())


def _of_call(node: ast.Call, scope: Meanings) -> Iterator[Alternative]:
    function, args = node.func, node.args
    plain = [a for a in args if not isinstance(a, ast.Starred | ast.Constant)]
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Attribute) and _is_array(function.value, scope):
        yield ("cast" if name == "astype" else "call"), _receiver(function.value)
    elif isinstance(function, ast.Name) and name not in scope.seen and hasattr(builtins, name):
        return
    elif name == "where" and len(args) == 3:
        yield from (("mask", args[1]), ("mask", args[2]))
        yield "mask", ast.Call(function, [args[0], args[2], args[1]], node.keywords)
    else:
        kind = "mask" if name.startswith("unless") else "call"
        yield from ((kind, a) for a in plain[:2])
    if len(plain) == len(args) > 1 and name != "where":
        for i in range(len(args) - 1):
            swapped = [*args[:i], args[i + 1], args[i], *args[i + 2 :]]
            yield "operands", ast.Call(function, swapped, node.keywords)
    if isinstance(function, ast.Attribute) and name in _TWINS and _has(function, _TWINS[name], scope):
        twin = ast.Attribute(function.value, _TWINS[name], ast.Load())
        yield "function", ast.Call(twin, args, node.keywords)
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield "keyword", ast.Call(function, args, [*node.keywords[:i], *node.keywords[i + 1 :]])


def _is_array(node: ast.expr, scope: Meanings) -> bool:
    """Whether a method is called on ``node``, rather than a function of a module, a class or ``self``."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return not (isinstance(root, ast.Name) and (root.id == "self" or root.id in scope.seen))


def _receiver(node: ast.expr) -> ast.expr:
    """``x`` of ``x.at[places]``, from which a method is called, else the node itself."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "at":
        return node.value.value
    return node


def _has(function: ast.Attribute, name: str, scope: Meanings) -> bool:
    """Whether the module of a called function also has ``name``; true if the module is not known."""
    owner = function.value
    path = []
    while isinstance(owner, ast.Attribute):
        path.append(owner.attr)
        owner = owner.value
    if not isinstance(owner, ast.Name) or owner.id not in scope.seen:
        return True
    found = scope.seen[owner.id]
    for attribute in reversed(path):
        found = getattr(found, attribute, None)
    return hasattr(found, name)
