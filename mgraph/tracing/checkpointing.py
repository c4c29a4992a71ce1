"""Gradient checkpointing: keep few values, and recompute the others for the gradient.

The rows of a structure are cut into spans after the checkpoints. Only the inputs and outputs of a span are
kept; its backward pass runs the span again. The last span, whose gradient is needed first, is kept whole.
Source: Chen et al. 2016; Marian, ``ExpressionGraph::setCheckpointing``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..node import Node
from ..specs import Specs, is_real
from ..structure import Row, is_leaf
from ..tape import Tape
from ..varying import alike, zeros_like

Values = list[Any]


def spans(rows: int, checkpoints: Iterable[int]) -> list[range]:
    """The rows cut after each checkpoint."""
    cuts = [0, *sorted({c + 1 for c in checkpoints if c + 1 < rows}), rows]
    return [range(a, b) for a, b in itertools.pairwise(cuts)]


def recomputed(
    f: Callable[[str, Values], Any], inputs: Values, trained: Sequence[bool], platform: str, rule_set: str
) -> Any:
    """``f(rule_set, inputs)``, whose backward pass runs ``f`` again instead of keeping its inner values.

    No gradient flows into inputs that are not ``trained``. On CPUs XLA merges the second run of
    ``jax.checkpoint`` with the first, and so keeps everything after all. There the second run is therefore in
    a branch that is taken if no adjoint begins with NaN, which XLA cannot know. That needs a custom rule,
    which excludes forward mode; the rule set ``"jax"`` therefore uses ``jax.checkpoint`` on CPUs, too.
    """
    if platform != "cpu" or rule_set == "jax":
        return jax.checkpoint(partial(f, rule_set))(inputs)
    leaves, tree = jax.tree.flatten(alike(inputs))
    moving = [
        flag and is_real(leaf)
        for value, flag in zip(inputs, trained, strict=True)
        for leaf in jax.tree.leaves(value)
    ]

    def outputs_of(rule_set: str, leaves: Values) -> Any:
        return f(rule_set, jax.tree.unflatten(tree, leaves))

    # Only second derivatives differentiate these values, possibly in forward mode.
    values_of = partial(outputs_of, "jax")
    span = jax.custom_vjp(values_of)

    def forward(leaves: Values) -> tuple[Any, Values]:
        return values_of(leaves), leaves

    def reverse(leaves: Values, adjoints: Any) -> tuple[Values]:
        adjoints = [a for a in jax.tree.leaves(adjoints) if is_real(a)]
        is_number = zero_after(adjoints) == 0

        def again(leaves: Values, adjoints: Values) -> Values:
            def outputs(moved: Values) -> Values:
                values = outputs_of(rule_set, _chosen(moving, moved, leaves))
                return [v for v in jax.tree.leaves(values) if is_real(v)]

            moved = [leaf for leaf, flag in zip(leaves, moving, strict=True) if flag]
            gradients: Values = jax.vjp(outputs, moved)[1](adjoints)[0]
            return gradients

        def not_a_number(leaves: Values, adjoints: Values) -> Values:
            return [zeros_like(v) + jnp.nan for v, flag in zip(leaves, moving, strict=True) if flag]

        gradients = jax.lax.cond(is_number, again, not_a_number, leaves, adjoints)
        return (_chosen(moving, gradients, [None] * len(leaves)),)

    span.defvjp(forward, reverse)
    return span(leaves)


def zero_after(values: Sequence[Any]) -> Any:
    """How many of ``values`` begin with NaN: a zero that XLA cannot know before it has computed ``values``.
    Without it XLA draws the masks of all spans first and keeps them.
    """
    first = [v.reshape(-1)[:1] for v in jax.tree.leaves(values) if is_real(v) and v.size]
    return sum(((v != v).astype(jnp.uint32).sum() for v in first), start=jnp.uint32(0))


def _chosen(flags: Sequence[bool], where_true: Values, where_false: Values) -> Values:
    """The next element of ``where_true`` for each true flag, and for each false flag the element of
    ``where_false`` at its place."""
    chosen = iter(where_true)
    return [next(chosen) if flag else other for flag, other in zip(flags, where_false, strict=True)]


def cuts(tape: Tape[Node], parts: int) -> set[int]:
    """The nodes after which a tape is cut: nodes marked as checkpoints and, for more than one part, nodes
    that ``placed`` finds; none if ``parts`` is 0."""
    if not parts:
        return set()
    marked = {n.id for n in tape.nodes if n.is_checkpoint and n.children}
    return marked.union(placed(tape.rows, [n.spec for n in tape.nodes], parts) if parts > 1 else ())


def placed(rows: Sequence[Row], specs: Sequence[Specs], count: int) -> tuple[int, ...]:
    """``count - 1`` checkpoints that cut the rows into spans of similar memory. Each cut is placed near an
    even cut, where the live values of operators have the fewest bytes: in a stack of layers, between two
    layers.
    """
    sizes = [0 if is_leaf(row) else _bytes(spec) for row, spec in zip(rows, specs, strict=True)]
    alive = _alive(rows, sizes)
    grown = list(itertools.accumulate(sizes))
    chosen = set()
    for i in range(1, count):
        low, middle, high = (grown[-1] * (i + d) / count for d in (-0.5, 0, 0.5))
        around = [k for k, size in enumerate(grown) if low <= size <= high and not is_leaf(rows[k])]
        if around:
            chosen.add(min(around, key=lambda k: (alive[k], abs(grown[k] - middle))))
    return tuple(sorted(chosen))


def _alive(rows: Sequence[Row], sizes: Sequence[int]) -> list[int]:
    """For each row, the bytes of the values up to this row that later rows use."""
    last = {}
    for i, row in enumerate(rows):
        if not is_leaf(row):
            last.update(dict.fromkeys(row[1:], i))
    changes = [0] * (len(rows) + 1)
    for k, end in last.items():
        changes[k] += sizes[k]
        changes[end] -= sizes[k]
    return list(itertools.accumulate(changes[:-1]))


def _bytes(spec: Specs) -> int:
    parts = spec if isinstance(spec, tuple) else (spec,)
    return sum(p.type.dtype.itemsize * max(1, p.struct.size) for p in parts)
