"""What a rule that writes an operator in ONNX is, and what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedOperatorError
from .writer import Name, Writer


@dataclass(frozen=True)
class Operation:
    """An operator with the shapes and types of its children and its value."""

    operator: Any
    specs: tuple[Any, ...]
    out: Any
    where: str

    def refuse(self, reason: str) -> UnsupportedOperatorError:
        return UnsupportedOperatorError(
            f"the operator {self.operator.type!r}, made at {self.where}, cannot be written to ONNX: {reason}"
        )


Rule = Callable[..., Any]
"""``rule(writer, operation, *names)``: with the names of the children's values it writes the operation and
returns the name of the value, or a tuple of names for an operator with several outputs."""


def rule_for(table: dict[type, Rule], *classes: type) -> Callable[[Rule], Rule]:
    """Decorator: the function writes operators of these classes, and joins ``table``."""

    def register(function: Rule) -> Rule:
        table.update(dict.fromkeys(classes, function))
        return function

    return register


def one(kind: str, **attributes: Any) -> Rule:
    """The rule of an operator that is one of ONNX's."""
    return lambda w, o, *xs: w.op(kind, *xs, **attributes)


def same(w: Writer, o: Operation, x: Name) -> Name:
    """The rule of an operator that changes nothing when it runs forward."""
    return x
