"""``Memo``: an inference graph computes values that depend only on parameters once, not for every batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..leaves import ParamNode
from ..node import Node
from ..structure import is_leaf
from ..tape import Tape


class Memo:
    """Computed values by key, kept as long as the arrays that they were computed from are the same objects.

    At most ``capacity`` computations are kept, the latest ones. Source: Marian, ``Node::setMemoize``.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[Hashable, tuple[list[Any], list[Any]]] = OrderedDict()

    def values(self, key: Hashable, sources: list[Any], compute: Callable[[], list[Any]]) -> list[Any]:
        """The values kept for ``key``, or new ones if one of ``sources`` is a different array than before."""
        known = self._kept.pop(key, None)
        if known is None or any(a is not b for a, b in zip(known[0], sources, strict=True)):
            known = sources, compute()
        self._kept[key] = known
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return known[1]

    def __len__(self) -> int:
        return len(self._kept)


def frontier(tape: Tape[Node], stop: int, outputs: Sequence[int]) -> tuple[list[int], list[int]]:
    """The operators before row ``stop`` that depend on parameters alone and are ``outputs`` or used by
    operators that depend on more; and those other operators."""
    alone: list[bool] = []
    for i, row in enumerate(tape.rows[:stop]):
        alone.append(isinstance(tape.nodes[i], ParamNode) if is_leaf(row) else all(alone[k] for k in row[1:]))
    rest = [i for i in range(stop) if not alone[i] and not is_leaf(tape.rows[i])]
    used = {k for i in rest for k in tape.rows[i][1:]}.union(outputs)
    return [i for i in sorted(used) if alone[i] and not is_leaf(tape.rows[i])], rest
