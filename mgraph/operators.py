"""Operators: what an operation is apart from its children; one object per class and field values.

The fields of an operation are the annotated attributes of its class. They are its identity: equal fields over
the same children are one node and one program, so fields must be hashable and must decide what is computed.
"""

from __future__ import annotations

import dataclasses
import inspect
import numbers
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .errors import ArgumentError
from .names import with_article
from .shape import NodeShape
from .types import Type


class Open:
    """Stands for a number that a compiled program takes as an argument; see ``Node.runtime_fields``."""

    def __repr__(self) -> str:
        return "any number"


OPEN = Open()


def declare(cls: Any) -> None:
    """Turn the annotated attributes of a new operation class into its fields and their defaults.

    A plain attribute with the name of an inherited field is that field's new default.
    """
    own = [
        name for name, annotation in inspect.get_annotations(cls).items() if "ClassVar" not in str(annotation)
    ]
    bases = [base for base in cls.__bases__ if hasattr(base, "fields")]
    known = {name for base in bases for name in base.fields}
    _check_declaration(cls, [name for name in own if name not in known])
    cls.fields = tuple(dict.fromkeys([name for base in bases for name in base.fields] + own))
    inherited = {name: default for base in reversed(bases) for name, default in base.defaults.items()}
    cls.defaults = {**inherited, **{name: vars(cls)[name] for name in cls.fields if name in vars(cls)}}
    for name in cls.fields:
        if name in vars(cls):
            delattr(cls, name)
    unknown = [name for name in cls.runtime_fields if name not in cls.fields]
    if unknown:
        raise ArgumentError(f"{cls.__name__}.runtime_fields names no field: {unknown}")
    if ("backward_ops" in vars(cls) or vars(cls).get("composite")) and "differentiable" not in vars(cls):
        cls.differentiable = True  # even if a base class says otherwise
    cls.has_rule = cls.composite or hasattr(cls, "backward_ops")
    cls._operators = weakref.WeakValueDictionary()
    cls._recent = weakref.WeakValueDictionary()
    cls._plain = make_operator(cls, {}) if all(name in cls.defaults for name in cls.fields) else None


def _check_declaration(cls: Any, names: list[str]) -> None:
    """``ArgumentError`` for an ``__init__`` or a field that would be ignored, and for a ``type`` that is not
    a string."""
    if "__init__" in vars(cls):
        raise ArgumentError(
            f"{cls.__name__}: __init__ is never called; declare a field by an annotation such as `axis: int`"
        )
    if not isinstance(cls.type, str):
        raise ArgumentError(f"{cls.__name__}.type: expected the operation's name, got {cls.type!r}")
    for name in names:
        if any(hasattr(base, name) for base in cls.__bases__):
            raise ArgumentError(
                f"{cls.__name__}.{name}: every node has a {name!r} of its own, so it cannot be a field; "
                "give the field another name, or set the attribute without an annotation"
            )


def find_operator(cls: Any, fields: dict[str, Any]) -> Any:
    """``make_operator``, cached by the field values as given."""
    values = tuple(fields.values())
    words = (*fields, *map(type, values), *values)
    try:
        operator = cls._recent.get(words)
    except (AttributeError, TypeError):
        return make_operator(cls, fields)
    if operator is None:
        operator = make_operator(cls, fields)
        if all(_is_itself(value) for value in values):
            cls._recent[words] = operator
    return operator


def _is_itself(value: Any) -> bool:
    """Whether equal values of its type are identical; false for 0.0, nan, and tuples, which may hold them."""
    if type(value) is float:
        return value == value and value != 0
    return type(value) in (bool, int, str, Type)


def make_operator(cls: Any, fields: dict[str, Any]) -> Any:
    """The one operator of ``cls`` with these field values; ``ArgumentError`` for invalid values."""
    if "_operators" not in vars(cls):
        raise ArgumentError(f"{cls.__name__} is a leaf: graph.constant and graph.param make it")
    unknown = fields.keys() - set(cls.fields)
    missing = [n for n in cls.fields if n not in fields and n not in cls.defaults]
    if unknown or missing:
        raise ArgumentError(
            f"{cls.__name__} has the fields {list(cls.fields)}; "
            + (f"unknown: {sorted(unknown)}" if unknown else f"missing: {missing}")
        )
    full = {name: fields[name] if name in fields else cls.defaults[name] for name in cls.fields}
    key = tuple(canonical(v, cls, k) for k, v in full.items())
    operator = cls._operators.get(key)
    if operator is None:
        operator = object.__new__(cls)
        operator.__dict__.update(full)
        generic, values = cls.opened(full)
        if values:
            family = make_operator(cls, generic)
            family.open_numbers = len(values)
            operator.generic, operator._shapes = (family, values), family._shapes
        else:
            operator._shapes = {}
        cls._operators[key] = operator
    return operator


_OWN = {"_shapes", "generic", "open_numbers"}
"""Attributes of an operator that the engine sets."""


@contextmanager
def keeping_nothing(operator: Any, rule: str) -> Iterator[None]:
    """Refuse a rule that sets attributes: its operator serves all nodes of the class with these fields, so
    the next node would read this node's values. Restores the attributes and raises ``ArgumentError``."""
    before, attributes = dict(vars(operator)), vars(operator)
    yield
    kept = [
        name
        for name, value in attributes.items()
        if not (name in before and before[name] is value)
        and not (name in _OWN or isinstance(getattr(type(operator), name, None), cached_property))
    ]
    if kept:
        for name in kept:
            del attributes[name]
        attributes.update({name: before[name] for name in kept if name in before})
        raise ArgumentError(
            f"{type(operator).__name__}.{rule} sets self.{kept[0]}, but a rule keeps no values, because "
            "one operator serves every node; backward_ops(self, adj, val, x) gets the value and the children"
        )


def takes(rule: Any, count: int) -> bool:
    """Whether ``rule`` can be called with ``count`` arguments; true if it has no signature, like some
    functions written in C."""
    try:
        inspect.signature(rule).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def signature_for(head: str, count: int) -> str:
    """How to declare a rule on ``count`` children: ``head`` and a parameter for each child."""
    return f"{', '.join([head, *('xyz'[:count] if count <= 3 else ['*children'])])})"


def signature_of(name: str, rule: Any) -> str:
    """How the rule ``name`` is declared, without annotations."""
    parameters = inspect.signature(rule).parameters.values()
    return f"{name}({', '.join(str(p.replace(annotation=p.empty)) for p in parameters)})"


def is_default(cls: Any, name: str, value: float) -> bool:
    """Whether the value is bit for bit the default of the field."""
    default = cls.defaults.get(name)
    return isinstance(default, float) and default.hex() == value.hex()


_PLAIN = (bool, int, str, bytes, Type, Open, type(None))


def canonical(value: Any, cls: type, name: str) -> Any:
    """A hashable stand-in for a field's value, equal only for values that compute the same result: it
    distinguishes 1 from 1.0 and True, 0.0 from -0.0, and classes with equal contents; nan equals nan."""
    kind = tuple if isinstance(value, NodeShape) else type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, float):
        return kind, value.hex()
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if isinstance(value, np.ndarray | jax.Array | list | dict | set):
        raise ArgumentError(
            f"{cls.__name__}.{name} must be a number, string or tuple, got {kind.__name__}. "
            "Values that change from step to step are nodes: graph.constant(shape, init)"
        )
    if hasattr(value, "_tape"):  # a recorded node; an operator has none
        raise ArgumentError(
            f"{cls.__name__}.{name} must be a number, string or tuple, got {with_article(value.type)} node; "
            "nodes are children: declare forward_ops(self, x, y), and give them before the fields"
        )
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(f"{cls.__name__}.{name} must be hashable, got {value!r}") from None
    parts = _parts(value)
    return (kind, value) if parts is None else (kind, *(canonical(part, cls, name) for part in parts))


def _parts(value: Any) -> Iterable[Any] | None:
    """The contents of a value if they decide its equality, else ``None``."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, slice | range):
        return value.start, value.stop, value.step
    if isinstance(value, frozenset):
        return sorted(value, key=repr)
    if isinstance(value, numbers.Number) and not isinstance(value, int):
        return (repr(value),)
    by_value = dataclasses.is_dataclass(value) and type(value).__eq__ is not object.__eq__
    if by_value and not getattr(value, "is_canonical", False):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None
