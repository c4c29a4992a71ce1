"""Patterns: small graphs with holes, to be found in an expression graph.

A pattern is built like an expression, of node classes over other patterns::

    x = Label("x")
    loss = -Op(LogNodeOp, Op(GatherNodeOp, Op(SoftmaxNodeOp, x), Label("labels")))
    for match in loss.find(graph):
        print(match.root, match.x, match.labels)

``Any``, ``AnyOf``, ``Label``, ``Skip`` and ``Repeat`` are the pattern operators of nGraph; matching
backtracks where there is a choice. Source: nGraph, ``pattern/matcher.hpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any as Anything
from typing import TypeVar

import numpy as np

from ..arrays import whole
from ..errors import ArgumentError
from ..leaves import ConstantNode
from ..node import Node
from ..ops.arithmetic import DivNodeOp, MinusNodeOp, MultNodeOp, NegNodeOp, PlusNodeOp

Classes = type[Node] | tuple[type[Node], ...]
Predicate = Callable[[Node], Anything]
T = TypeVar("T")

COMMUTATIVE: tuple[type[Node], ...] = (PlusNodeOp, MultNodeOp)
"""Operations whose two children match in either order."""


class Match:
    """A place where a pattern fits. The value of a label is an attribute and an item: ``match.x``."""

    def __init__(self, root: Node, bindings: Mapping[str, Anything], matched: tuple[Node, ...]) -> None:
        self.root = root
        """The node that the top of the pattern stands for."""
        self.inner = tuple(dict.fromkeys(n for n in matched if n is not root))
        """The operators below the root that the pattern names by their class."""
        self.bindings = bindings

    def __getitem__(self, name: str) -> Anything:
        return self.bindings[name]

    def __getattr__(self, name: str) -> Anything:
        try:
            return self.__dict__["bindings"][name]
        except KeyError:
            raise AttributeError(f"this match has no label {name!r}") from None

    def __repr__(self) -> str:
        return f"Match({self.root!r}, {dict(self.bindings)})"


@dataclass(frozen=True)
class Found:
    """The state of matching: labels and operators so far."""

    bindings: Mapping[str, Anything]
    matched: tuple[Node, ...] = ()

    def bind(self, name: str | None, value: Anything) -> Found | None:
        """With ``name`` bound to ``value``; ``None`` if it is bound to something else already."""
        if name is None:
            return self
        if name in self.bindings:
            return self if self.bindings[name] == value else None
        return Found({**self.bindings, name: value}, self.matched)

    def add(self, node: Node) -> Found:
        """With ``node`` as an operator that the pattern names."""
        return Found(self.bindings, (*self.matched, node))


class Pattern:
    """Base of all patterns. ``+``, ``-``, ``*``, ``/`` and unary minus build patterns of those operators.

    ``ArgumentError`` if a pattern is made of anything but patterns, or with a ``where`` that is no function.
    """

    labels: frozenset[str] | None = None
    """The names that a match may bind; ``None`` if unknown."""

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        """All ways in which ``node`` fits, given what is found already."""
        raise NotImplementedError

    def heads(self) -> frozenset[type[Node]] | None:
        """Classes of the nodes that can fit; ``None`` if unknown."""
        return None

    def match(self, node: Node) -> Match | None:
        """The first way in which ``node`` fits; ``None`` if it does not fit."""
        return next(self.matches(node), None)

    def matches(self, node: Node) -> Iterator[Match]:
        """All ways in which ``node`` fits."""
        for found in self.search(node, Found({})):
            yield Match(node, found.bindings, found.matched)

    def find(self, graph: Anything) -> list[Match]:
        """For each node of an ``ExpressionGraph``, in the order of recording, its first match if any."""
        nodes: list[Node] = graph.tape.nodes
        return [match for node in nodes if (match := self.match(node)) is not None]

    def __add__(self, other: Pattern) -> Pattern:
        return Op(PlusNodeOp, self, other)

    def __sub__(self, other: Pattern) -> Pattern:
        return Op(MinusNodeOp, self, other)

    def __mul__(self, other: Pattern) -> Pattern:
        return Op(MultNodeOp, self, other)

    def __truediv__(self, other: Pattern) -> Pattern:
        return Op(DivNodeOp, self, other)

    def __neg__(self) -> Pattern:
        return Op(NegNodeOp, self)


class Any(Pattern):
    """Any node for which ``where`` holds."""

    labels = frozenset()

    def __init__(self, where: Predicate | None = None) -> None:
        self._where = _checked_where(where)

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        if self._where is None or self._where(node):
            yield found


class Label(Pattern):
    """A named node: any node, or one that fits ``pattern``; a name stands for the same node throughout."""

    def __init__(self, name: str, pattern: Pattern | None = None, where: Predicate | None = None) -> None:
        self.name = _checked_name(name)
        self._pattern, self._where = pattern, _checked_where(where)
        below = () if pattern is None else _checked_patterns(pattern)
        self.labels = _union([frozenset({name}), *(p.labels for p in below)])

    def heads(self) -> frozenset[type[Node]] | None:
        return self._pattern.heads() if self._pattern is not None else None

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        named = found.bind(self.name, node)
        if named is None or (self._where is not None and not self._where(node)):
            return
        if self._pattern is None:
            yield named
        else:
            yield from self._pattern.search(node, named)


class Field:
    """In ``Op(cls, x, c=Field("c"))``: a field's value under a name, if ``where`` holds for it."""

    def __init__(self, name: str, where: Callable[[Anything], Anything] | None = None) -> None:
        self.name, self.where = _checked_name(name), _checked_where(where)


class Op(Pattern):
    """A node of exactly one of ``classes``, over children that fit the patterns given for them.

    ``fields`` constrain or capture the operator's fields: by a value, by a function of the value, or by a
    ``Field``. The children of ``+`` and ``*`` match in either order, unless ``ordered``. Without patterns any
    children fit; ``...`` as the last pattern stands for any further children.
    """

    def __init__(
        self,
        classes: Classes,
        *children: Pattern | EllipsisType,
        where: Predicate | None = None,
        ordered: bool = False,
        **fields: Anything,
    ) -> None:
        self._classes = frozenset(classes if isinstance(classes, tuple) else (classes,))
        self._open = not children or children[-1] is ...
        self._children = tuple(c for c in children if isinstance(c, Pattern))
        if len(self._children) + (bool(children) and self._open) != len(children):
            raise ArgumentError(f"expected patterns, and ... as the last one only, got {children!r}")
        for cls in self._classes:
            if not (isinstance(cls, type) and issubclass(cls, Node)):
                raise ArgumentError(f"expected classes of nodes, got {cls!r}")
            unknown = fields.keys() - set(cls.fields)
            if unknown:
                raise ArgumentError(
                    f"{cls.__name__} has the fields {list(cls.fields)}, not {sorted(unknown)}"
                )
        self._where, self._ordered, self._fields = _checked_where(where), ordered, fields
        captured = frozenset(f.name for f in fields.values() if isinstance(f, Field))
        self.labels = _union([captured, *(c.labels for c in self._children)])

    def heads(self) -> frozenset[type[Node]] | None:
        return self._classes

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        if type(node) not in self._classes:
            return
        count, wanted = len(node.children), len(self._children)
        if count < wanted or (count > wanted and not self._open):
            return
        if self._where is not None and not self._where(node):
            return
        known = self._with_fields(node, found)
        if known is None:
            return
        known = known.add(node)
        yield from _each(self._children, node.children, known)
        swaps = not self._ordered and wanted == count == 2 and type(node) in COMMUTATIVE
        if swaps and node.children[0] is not node.children[1]:
            yield from _each(self._children, node.children[::-1], known)

    def _with_fields(self, node: Node, found: Found) -> Found | None:
        known: Found | None = found
        for name, wanted in self._fields.items():
            value = getattr(node.operator, name)
            if isinstance(wanted, Field):
                fits = wanted.where is None or wanted.where(value)
                known = known.bind(wanted.name, value) if fits and known is not None else None
            elif not (wanted(value) if callable(wanted) else wanted == value):
                return None
        return known


def _each(patterns: tuple[Pattern, ...], nodes: tuple[Node, ...], found: Found) -> Iterator[Found]:
    """All ways in which each node fits the pattern at its place."""
    if not patterns:
        yield found
        return
    for first in patterns[0].search(nodes[0], found):
        yield from _each(patterns[1:], nodes[1:], first)


class Or(Pattern):
    """A node that fits one of ``patterns``, tried in order. Source: nGraph, ``pattern::op::Or``."""

    def __init__(self, *patterns: Pattern) -> None:
        self._patterns = _checked_patterns(*patterns)
        self.labels = _union(p.labels for p in patterns)

    def heads(self) -> frozenset[type[Node]] | None:
        return _union(pattern.heads() for pattern in self._patterns)

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        for pattern in self._patterns:
            yield from pattern.search(node, found)


class AnyOf(Pattern):
    """An operator of ``classes`` with a child that fits ``pattern``, such as a part of a ``concat``.

    Source: nGraph, ``pattern::op::AnyOf``.
    """

    def __init__(self, classes: Classes, pattern: Pattern, where: Predicate | None = None) -> None:
        self._operator = Op(classes, where=where)
        (self._pattern,) = _checked_patterns(pattern)
        self.labels = pattern.labels

    def heads(self) -> frozenset[type[Node]] | None:
        return self._operator.heads()

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        for known in self._operator.search(node, found):
            for child in dict.fromkeys(node.children):
                yield from self._pattern.search(child, known)


class Skip(Pattern):
    """A node that fits ``pattern``, or an operator of ``classes`` whose first child fits it.

    A ``name`` is bound to the operator that was skipped, or to ``None``. Source: nGraph,
    ``pattern::op::Skip``.
    """

    def __init__(
        self, classes: Classes, pattern: Pattern, where: Predicate | None = None, name: str | None = None
    ) -> None:
        (self._pattern,) = _checked_patterns(pattern)
        self._over = Op(classes, pattern, ..., where=where)
        self._name = None if name is None else _checked_name(name)
        self.labels = _union([pattern.labels, _names(name)])

    def heads(self) -> frozenset[type[Node]] | None:
        return Or(self._over, self._pattern).heads()

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        for pattern, skipped in ((self._over, node), (self._pattern, None)):
            known = found.bind(self._name, skipped)
            if known is not None:
                yield from pattern.search(node, known)


class Repeat(Pattern):
    """``step``, then ``step`` again from the node of its label ``along``, and so on down to ``last``.

    It takes as many steps as possible, from ``least`` to ``most``. The labels of the step are bound to
    tuples, with one node (or field) per step from the top down; a label in ``same`` is the same node in all
    steps. ``last`` must fit the node that the last step leads to. ``ArgumentError`` if the step lacks one of
    these labels. Source: nGraph, ``pattern::RecurrentMatcher``.
    """

    def __init__(
        self,
        step: Pattern,
        along: str,
        last: Pattern | None = None,
        *,
        least: int = 1,
        most: int = 8,
        same: tuple[str, ...] = (),
    ) -> None:
        self._least, self._most = whole("Repeat", "least", least), whole("Repeat", "most", most)
        if not 0 <= least <= most:
            raise ArgumentError(f"expected from 0 to {most} steps at least, got {least}")
        self._step, self._last = _checked_patterns(step, Any() if last is None else last)
        self._along, self._same = _checked_name(along), check_labels(same, step)
        if step.labels is not None and along not in step.labels:
            raise self._no_way()
        self.labels = _union([step.labels, self._last.labels])

    def heads(self) -> frozenset[type[Node]] | None:
        return self._step.heads() if self._least else None

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        yield from self._from(node, found, {}, 0)

    def _from(
        self, node: Node, found: Found, steps: Mapping[str, tuple[Anything, ...]], count: int
    ) -> Iterator[Found]:
        """All ways to continue from ``node``; of the step's labels, ``found`` has only those in ``same``."""
        if count < self._most:
            for known in self._step.search(node, found):
                own = {k: v for k, v in known.bindings.items() if k not in found.bindings}
                if self._along not in own:
                    raise self._no_way()
                same = {k: own.pop(k) for k in self._same if k in own}
                longer = {k: (*steps.get(k, ()), v) for k, v in own.items()}
                further = Found({**found.bindings, **same}, known.matched)
                yield from self._from(own[self._along], further, longer, count + 1)
        if count >= self._least:
            yield from self._last.search(node, Found({**found.bindings, **steps}, found.matched))

    def _no_way(self) -> ArgumentError:
        return ArgumentError(f"the step of this Repeat has no label {self._along!r} of its own")


class Constant(Pattern):
    """A constant whose value is known: from ``graph.constant``, neither random nor an input.

    ``value`` is a number that all its elements equal, ``where`` a predicate on the numpy array.
    """

    def __init__(
        self,
        name: str | None = None,
        value: float | None = None,
        where: Callable[[np.ndarray], Anything] | None = None,
    ) -> None:
        self._name = None if name is None else _checked_name(name)
        self._value, self._where = value, _checked_where(where)
        self.labels = _names(name)

    def heads(self) -> frozenset[type[Node]] | None:
        return frozenset({ConstantNode})

    def search(self, node: Node, found: Found) -> Iterator[Found]:
        array = known_value(node)
        if array is None or (self._value is not None and not np.all(array == self._value)):
            return
        if self._where is not None and not self._where(array):
            return
        known = found.bind(self._name, node)
        if known is not None:
            yield known


def known_value(node: Node) -> np.ndarray | None:
    """The value of a constant that cannot change; ``None`` for any other node.

    A named constant may be the input of a function, a constant whose value was set may be set again, and of a
    constant that was made trainable the gradient is wanted.
    """
    if type(node) is not ConstantNode or node.array is None or node.name != "none" or node.trainable:
        return None
    return None if node.array.flags.writeable else node.array


_RESERVED = frozenset({"root", "inner", "bindings"})


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED:
        raise ArgumentError(f"expected an identifier other than {sorted(_RESERVED)} as a label, got {name!r}")
    return name


def _checked_patterns(*patterns: Pattern) -> tuple[Pattern, ...]:
    if not patterns:
        raise ArgumentError("expected at least one pattern")
    for pattern in patterns:
        if not isinstance(pattern, Pattern):
            raise ArgumentError(f"expected patterns, got {pattern!r}")
    return patterns


def _checked_where(where: T) -> T:
    if where is not None and not callable(where):
        raise ArgumentError(f"expected a function as where, got {where!r}")
    return where


def check_labels(names: tuple[str, ...], pattern: Pattern) -> tuple[str, ...]:
    """The ``names``; ``ArgumentError`` unless they are a tuple, list or set of labels of ``pattern``."""
    if not isinstance(names, tuple | list | set | frozenset):
        raise ArgumentError(f"expected a tuple of labels, got {names!r}")
    known = None if pattern.labels is None else sorted(pattern.labels)
    for name in names:
        if known is not None and name not in known:
            raise ArgumentError(f"expected labels among {known}, got {name!r}")
    return tuple(names)


def _names(name: str | None) -> frozenset[str]:
    return frozenset() if name is None else frozenset({name})


def _union(sets: Iterable[frozenset[T] | None]) -> frozenset[T] | None:
    """``None`` if one of the sets is unknown."""
    found: set[T] = set()
    for each in sets:
        if each is None:
            return None
        found |= each
    return frozenset(found)
