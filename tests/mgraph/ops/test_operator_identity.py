"""Two operators are one only if they compute the same: fields must agree in type, sign and contents."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import fractions
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import ArgumentError, ExpressionGraph, UnaryNodeOp


@dataclasses.dataclass(frozen=True)
class Cfg:
    value: Any
    hidden: Any = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class Other:
    value: Any


@dataclasses.dataclass(eq=False)
class Own:
    """Equal only to itself."""

    value: Any


class Pair(NamedTuple):
    a: Any
    b: Any


class Twin(NamedTuple):
    a: Any
    b: Any


class Count(enum.IntEnum):
    ONE = 1


class Configured(UnaryNodeOp):
    type = "configured"
    differentiable = False
    cfg: Any

    def forward_ops(self, x):
        return jnp.asarray(x)


DIFFERENT = [
    (Cfg(0.0), Cfg(-0.0)),
    (Cfg(1), Cfg(1.0)),
    (Cfg(1), Cfg(True)),
    (Cfg(1), Other(1)),
    (Cfg((0.0,)), Cfg((-0.0,))),
    (Cfg(Cfg(1)), Cfg(Cfg(1.0))),
    (Cfg(1, hidden=1), Cfg(1, hidden=2)),
    (Own(1), Own(1)),
    (Pair(1, 2), Twin(1, 2)),
    (Pair(1, 2), (1, 2)),
    (Pair(0.0, 1), Pair(-0.0, 1)),
    (1, Count.ONE),
    (1, fractions.Fraction(1)),
    (decimal.Decimal(0), decimal.Decimal("-0")),
    (complex(0.0, 0.0), complex(-0.0, 0.0)),
    (np.float32(1), np.float64(1)),
    (np.float32(0), np.float32(-0.0)),
    (np.int32(1), 1),
    (frozenset({0.0}), frozenset({-0.0})),
    (frozenset({1}), frozenset({True})),
    (range(3), (0, 1, 2)),
    ("1", b"1"),
    (float("nan"), None),
]
SAME = [
    (Cfg(float("nan")), Cfg(float("nan"))),
    (Pair(1, (2.0, "x")), Pair(1, (2.0, "x"))),
    (frozenset({1, "b", 2.5}), frozenset({2.5, 1, "b"})),
    (decimal.Decimal("0.5"), decimal.Decimal("0.5")),
]


def are_one(a: Any, b: Any) -> bool:
    graph = ExpressionGraph()
    x = graph.ones((2,))
    one, other = Configured(x, cfg=a), Configured(x, cfg=b)
    assert one.equal(other) is (one is other)
    return one is other


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_what_differs_in_type_or_bits_stays_apart(a: Any, b: Any) -> None:
    assert not are_one(a, b) and not are_one(b, a)


@pytest.mark.parametrize(("a", "b"), SAME)
def test_equal_values_are_one(a: Any, b: Any) -> None:
    assert are_one(a, b)


def test_a_value_of_its_own_is_equal_to_itself() -> None:
    own = Own(1)
    assert are_one(own, own) and are_one(len, len) and not are_one(lambda: 0, lambda: 0)


@pytest.mark.parametrize("value", [Cfg([1]), Pair([1], 2), (1, np.ones(2)), {1: 2}], ids=repr)
def test_what_can_change_is_no_field(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Configured\.cfg must be"):
        Configured(ExpressionGraph().ones((2,)), cfg=value)
