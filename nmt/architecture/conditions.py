"""When parameters exist: conditions on the values of options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

from .scope import Scope, Size, joined


class Condition(ABC):
    """What must hold for a part of a model to be there. ``a & b``, ``a | b``, ``~a`` are conditions too."""

    @abstractmethod
    def holds(self, scope: Scope) -> bool:
        """Whether it holds where names mean what ``scope`` says."""

    @abstractmethod
    def text(self, scope: Scope) -> str:
        """The condition in the names of options."""

    @property
    @abstractmethod
    def subject(self) -> str:
        """The name that it is about."""

    def each(self) -> Iterator[Condition]:
        """The conditions that must all hold."""
        yield self

    def is_choice(self, scope: Scope) -> bool:
        """Whether users choose it by an option; what parts of the table bind to numbers they do not."""
        return not isinstance(scope.bound.get(self.subject), int)

    def __and__(self, other: Condition) -> Condition:
        return All((*self.each(), *other.each()))

    def __or__(self, other: Condition) -> Condition:
        return OneOf(self, other)

    @abstractmethod
    def __invert__(self) -> Condition: ...


class All(Condition):
    """Several conditions; none for what is always there."""

    def __init__(self, conditions: tuple[Condition, ...]) -> None:
        self.conditions = conditions

    @property
    def subject(self) -> str:
        return self.conditions[0].subject if self.conditions else ""

    def each(self) -> Iterator[Condition]:
        return iter(self.conditions)

    def holds(self, scope: Scope) -> bool:
        return all(condition.holds(scope) for condition in self.conditions)

    def text(self, scope: Scope) -> str:
        return ", ".join(condition.text(scope) for condition in self.conditions)

    def __invert__(self) -> Condition:
        return reduce(or_, (~condition for condition in self.conditions))


ALWAYS = All(())


class OneOf(Condition):
    """At least one of two conditions."""

    def __init__(self, first: Condition, second: Condition) -> None:
        self.first, self.second = first, second

    @property
    def subject(self) -> str:
        return self.first.subject

    def holds(self, scope: Scope) -> bool:
        return self.first.holds(scope) or self.second.holds(scope)

    def text(self, scope: Scope) -> str:
        return f"{self.first.text(scope)} or {self.second.text(scope)}"

    def is_choice(self, scope: Scope) -> bool:
        # Where the type of the model decides, users need not know of the option.
        decided = any(c.subject == "type" and c.holds(scope) for c in (self.first, self.second))
        return not decided and self.first.is_choice(scope)

    def __invert__(self) -> Condition:
        return ~self.first & ~self.second


class OfName(Condition):
    """A condition on the value of one name, ``opposed`` if its opposite is meant."""

    words: str = "{name}"
    opposite: str = "no {name}"

    def __init__(self, name: str, other: Any = None, *, opposed: bool = False) -> None:
        self.name, self.other, self.opposed = name, other, opposed

    @property
    def subject(self) -> str:
        return self.name

    @abstractmethod
    def is_so(self, value: Any, scope: Scope) -> bool:
        """Whether it holds for the value of the name, were it not opposed."""

    def holds(self, scope: Scope) -> bool:
        return self.is_so(scope[self.name], scope) != self.opposed

    def text(self, scope: Scope) -> str:
        words = self.opposite if self.opposed else self.words
        name = scope.text(self.name)
        return words.format(name=self.name if name.isdecimal() else name, other=scope.text(self.other))

    def values(self, scope: Scope) -> str:
        """What it compares, in numbers."""
        return str(scope[self.name])

    def __invert__(self) -> Condition:
        return type(self)(self.name, self.other, opposed=not self.opposed)


class Given(OfName):
    """An option is neither off nor zero nor empty."""

    def is_so(self, value: Any, scope: Scope) -> bool:
        return bool(value)


class Is(OfName):
    """An option has the value ``other``."""

    words, opposite = "{name} {other}", "{name} other than {other}"

    def is_so(self, value: Any, scope: Scope) -> bool:
        return bool(value == self.other)


class Has(OfName):
    """An option, a string of operations, has the letter ``other``."""

    words, opposite = "{other} in {name}", "no {other} in {name}"

    def is_so(self, value: Any, scope: Scope) -> bool:
        return self.other in value


class Above(OfName):
    """A number is greater than ``other``."""

    words, opposite = "{name} above {other}", "{name} up to {other}"

    def is_so(self, value: Any, scope: Scope) -> bool:
        return bool(value > self.other)


class OfSizes(OfName):
    """A condition on the value of a name and a size."""

    def __init__(self, name: str, other: Size, *, opposed: bool = False) -> None:
        super().__init__(name, other, opposed=opposed)

    def values(self, scope: Scope) -> str:
        return f"{scope[self.name]} and {scope.size(self.other)}"


class Same(OfSizes):
    """A number is the same as another."""

    words, opposite = "{name} the same as {other}", "{name} other than {other}"

    def is_so(self, value: Any, scope: Scope) -> bool:
        return bool(value == scope.size(self.other))


class Divides(OfSizes):
    """A number divides another."""

    words = "{name} to divide {other}"

    def is_so(self, value: Any, scope: Scope) -> bool:
        return bool(scope.size(self.other) % value == 0)


class InFile(Condition):
    """The model's file has, or has not, a parameter of this name."""

    def __init__(self, name: str, there: bool = True) -> None:
        self.name, self.there = name, there

    @property
    def subject(self) -> str:
        return self.name

    def holds(self, scope: Scope) -> bool:
        return (joined(scope.prefix, self.name) in scope.names) == self.there

    def text(self, scope: Scope) -> str:
        return f"{'' if self.there else 'no '}{self.name} in the file, as those of old versions have"

    def __invert__(self) -> Condition:
        return InFile(self.name, not self.there)
