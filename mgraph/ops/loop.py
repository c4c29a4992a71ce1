"""The steps of a recorded loop, forward and backward.

The backward rule of a loop is another loop that runs the other way, through the rules of the body. It stores
only the expensive values of each step and recomputes the others. Gradients that are needed only as a sum over
the steps, such as those of weights, do not accumulate in the loop: one product after it gives the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from ..platforms import kept_apart
from ..rules import (
    backward_of,
    bound,
    divided,
    evaluate,
    gradients_of,
    on_explicit_mesh,
    row_gradients,
)
from ..structure import Structure, is_leaf
from ..varying import varied_as, zeros_like
from .cells import CellNodeOp
from .product import PRODUCTS

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Body:
    """The recorded step of a loop; its leaves are the state, the slices and the nodes used from outside."""

    structure: Structure
    states: tuple[int, ...]
    """Rows of the next state."""
    results: tuple[int, ...]
    """Rows of the step's results."""

    is_canonical: ClassVar[bool] = True
    """Whether equal bodies compute the same result."""

    def generic(self) -> tuple[Body, tuple[float, ...]]:
        """The body with its runtime fields left open, and their numbers."""
        structure, numbers = self.structure.generic()
        return (replace(self, structure=structure), numbers) if numbers else (self, ())


@dataclass(frozen=True)
class Loop:
    """A body run over time by one rule set, forward and backward.

    trained: a flag for each leaf of the body: states, then sequences, then nodes from outside.
    """

    body: Body
    sequences: int
    length: int
    reverse: bool
    unroll: int
    rule_set: str
    trained: tuple[bool, ...]

    @cached_property
    def rows(self) -> tuple[Any, ...]:
        return self.body.structure.rows

    @cached_property
    def flags(self) -> list[bool]:
        """For each row, whether a gradient flows through it."""
        return self.body.structure.trainable(self.trained)

    @cached_property
    def leaves(self) -> list[int]:
        """The rows that are leaves, in order."""
        return [i for i, row in enumerate(self.rows) if is_leaf(row)]

    @property
    def changing(self) -> list[int]:
        """The leaves that differ from step to step: states and slices."""
        return self.leaves[: len(self.body.states) + self.sequences]

    @property
    def fixed(self) -> list[int]:
        """The leaves that are the same in all steps."""
        return self.leaves[len(self.body.states) + self.sequences :]

    @cached_property
    def kept(self) -> list[int]:
        """The rows whose values the backward loop does not recompute."""
        return [i for i, row in enumerate(self.rows) if not is_leaf(row) and row[0].stored_by_loops]

    @cached_property
    def late(self) -> dict[int, tuple[bool, ...]]:
        """Products of a changing and a fixed factor, with a flag for each child: whether one product over all
        steps gives its gradient."""
        fixed = set(self.fixed)
        found = {}
        for i, (head, *children) in enumerate(self.rows):
            if not _is_plain_product(head, self.rule_set) or head.trans_a:
                continue
            # A bias must be fixed, too: the product after the loop takes its value.
            if children[0] not in fixed and fixed.issuperset(children[1:]):
                chosen = tuple(k in fixed and self.flags[k] for k in children)
                if self.flags[i] and any(chosen):
                    found[i] = chosen
        return found

    @cached_property
    def turned(self) -> list[int]:
        """The fixed factors whose transposes multiply adjoints in each step."""
        products = (self.rows[i] for i in self.late)
        return sorted({b for head, a, b, *_ in products if self.flags[a] and not head.trans_b})

    @cached_property
    def summed(self) -> list[int]:
        """The fixed leaves whose gradients are added up step by step."""
        uses = {
            k
            for i, row in enumerate(self.rows)
            if not is_leaf(row) and self.flags[i]
            for place, k in enumerate(row[1:])
            if not (i in self.late and self.late[i][place])
        }
        uses.update(self.body.states, self.body.results)
        return [k for k in self.fixed if k in uses and self.flags[k]]

    @cached_property
    def blocks(self) -> list[int]:
        """For each row, the number of equal parts of its last axis in which it is read."""
        uses: dict[int, set[int]] = {i: {1} for i in (*self.body.states, *self.body.results)}
        for head, *children in (row for row in self.rows if not is_leaf(row)):
            for place, k in enumerate(children):
                parts = head.parts if isinstance(head, CellNodeOp) and 0 < place < 4 else 1
                uses.setdefault(k, set()).add(parts)
        return [max(uses[i]) if len(uses.get(i, ())) == 1 else 1 for i in range(len(self.rows))]

    def scanned(self, step: Any, carry: Any, read: Any, backward: bool = False) -> tuple[Any, Any]:
        """The last carry and the stacked results of ``step(carry, read, t)``; ``t`` is the step's number.

        ``jax.lax.scan`` gives the same, but stacks results in zeros that XLA makes at the beginning of the
        program, for all loops, and then copies for each result. Here each result has its own zeros, made when
        ``carry`` and ``read`` are known.
        """
        steps, reverse = jnp.arange(self.length), self.reverse is not backward
        specs, tree = jax.tree.flatten(jax.eval_shape(step, carry, read, steps[0])[1])
        zeros, carry, read = kept_apart(([jnp.zeros((), spec.dtype) for spec in specs], carry, read))
        stacks = [
            varied_as(jnp.broadcast_to(zero, (self.length, *spec.shape)), (carry, read))
            for zero, spec in zip(zeros, specs, strict=True)
        ]
        if on_explicit_mesh():
            places = [PartitionSpec(None, *(spec.sharding.spec if spec.sharding else ())) for spec in specs]
            stacks = jax.sharding.reshard(stacks, places)

        def stacking(held: tuple[Any, list[Any]], t: Any) -> tuple[tuple[Any, list[Any]], None]:
            carry, stacks = held
            carry, results = step(carry, read, t)
            found = zip(stacks, jax.tree.leaves(results), strict=True)
            return (carry, [jax.lax.dynamic_update_index_in_dim(s, x, t, 0) for s, x in found]), None

        (carry, stacks), _ = jax.lax.scan(stacking, (carry, stacks), steps, None, reverse, self.unroll)
        return carry, jax.tree.unflatten(tree, stacks)

    def slices(self, rows: Sequence[int], stacked: Sequence[Any], t: Any) -> dict[int, Any]:
        """The values of rows in one step."""
        return {i: _at(x, t, self.blocks[i]) for i, x in zip(rows, stacked, strict=True)}

    def complete(self, values: dict[int, Any], numbers: Any) -> None:
        """Add the values of all other rows to the known values of leaves and rows. The loop's derivatives
        come from its own rule; only second derivatives differentiate the code here, and they use JAX's
        derivatives of the values, as outside loops.
        """
        for i, row in enumerate(self.rows):
            if i not in values:
                trained, children = tuple(self.flags[k] for k in row[1:]), tuple(values[k] for k in row[1:])
                values[i] = evaluate(row[0], "jax", trained, children, self.numbers_of(i, numbers))

    def numbers_of(self, i: int, numbers: Any) -> Any:
        """The numbers of a row among those of the body."""
        place = self.body.structure.places.get(i)
        return None if place is None else numbers[place]


def _is_plain_product(head: Any, rule_set: str) -> bool:
    """Whether ``head`` is a product with its own rule, which needs no value, rather than a user's rule."""
    cls = type(head)
    return cls in PRODUCTS and backward_of(cls, rule_set) is cls.backward_ops


def _at(x: Any, t: Any, blocks: int = 1) -> Any:
    """Step ``t`` of a stacked value. XLA does not vectorize a kernel that reads several parts of one slice,
    unless each part is sliced separately. So the parts are sliced here and concatenated; XLA cancels that
    against the split in the operator.
    """
    if blocks == 1:
        return jax.tree.map(lambda v: jax.lax.dynamic_index_in_dim(v, t, keepdims=False), x)
    width = x.shape[-1] // blocks
    starts = [(t, *(0 for _ in x.shape[1:-1]), block * width) for block in range(blocks)]
    size = (1, *x.shape[1:-1], width)
    return jnp.concatenate([jax.lax.dynamic_slice(x, start, size)[0] for start in starts], -1)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def run(loop: Loop, numbers: Any, *values: Any) -> Values:
    """The last states, then the stacked results. ``values`` are the values of the leaves (sequences stacked),
    ``numbers`` the numbers of a generic body."""
    return _forward(loop, numbers, values)[0]


def _forward(loop: Loop, numbers: Any, values: Values) -> tuple[Values, Any]:
    """What ``run`` returns, and what the backward loop needs: the state before each step, and expensive
    values."""
    states = len(loop.body.states)
    first, stacked, fixed = (
        values[:states],
        values[states:][: loop.sequences],
        values[states:][loop.sequences :],
    )

    def step(state: Values, stacked: Values, t: Any) -> tuple[Values, Any]:
        rows = dict(zip(loop.fixed, fixed, strict=True)) | dict(zip(loop.leaves, state, strict=False))
        rows |= loop.slices(loop.changing[states:], stacked, t)
        loop.complete(rows, numbers)
        after = tuple(rows[i] for i in loop.body.states)
        return after, ([rows[i] for i in loop.body.results], state, [rows[i] for i in loop.kept])

    last, (results, before, kept) = loop.scanned(step, tuple(first), stacked)
    return (*last, *results), ((*before, *stacked), fixed, kept, numbers)


def _run_forward(loop: Loop, numbers: Any, *values: Any) -> tuple[Values, Any]:
    return _forward(loop, numbers, values)


def _run_backward(loop: Loop, saved: Any, adjoints: Values) -> Values:
    if not on_explicit_mesh():
        return None, *_gradients(loop, saved, adjoints)
    (changing, fixed, *_), states = saved, len(loop.body.states)
    first = jax.tree.map(lambda before: before[0], changing[:states])
    leaves = (*first, *changing[states:], *fixed)
    return None, *divided(lambda _, *given: _gradients(loop, *given), leaves, saved, adjoints)


def _gradients(loop: Loop, saved: Any, adjoints: Values) -> Values:
    """The gradient for each leaf, ``None`` where none flows."""
    changing, fixed, kept, numbers = saved
    states = len(loop.body.states)
    known = {**dict(zip(loop.changing, changing, strict=True)), **dict(zip(loop.kept, kept, strict=True))}
    constants = dict(zip(loop.fixed, fixed, strict=True))
    last = [None if _is_none(a) else a for a in adjoints[:states]]
    given = [(row, a) for row, a in zip(loop.body.results, adjoints[states:], strict=True) if not _is_none(a)]
    operands = {i: loop.rows[i][1] for i in loop.late}
    zeros = {k: zeros_like(constants[k]) for k in loop.summed}
    # XLA's products with a transposed matrix are slower on CPUs, so it is transposed before the loop; a step
    # transposes the copy back, which XLA cancels against the rule's own transposition.
    turned = {k: kept_apart(constants[k].mT) for k in loop.turned if constants[k].ndim == 2}

    def step(carry: Any, stacks: list[Any], t: Any) -> tuple[Any, Any]:
        after, sums = carry
        values = constants | {k: matrix.mT for k, matrix in turned.items()}
        values |= loop.slices(list(known), list(known.values()), t)
        loop.complete(values, numbers)
        adj: dict[int, Any] = {}
        for row, a in zip(loop.body.states, after, strict=True):
            _add(adj, row, a)
        for (row, _), stack in zip(given, stacks, strict=True):
            _add(adj, row, _at(stack, t))
        late = _sweep(loop, values, adj, numbers)
        before = [
            None if a is None else adj.get(i, zeros_like(a)) for i, a in zip(loop.leaves, last, strict=False)
        ]
        sums = {k: sums[k] + adj[k] if k in adj else sums[k] for k in sums}
        slices = {i: adj.get(i, zeros_like(values[i])) for i in loop.changing[states:] if loop.flags[i]}
        own = {i: values[k] for i, k in operands.items() if i in late and k not in known}
        return (before, sums), (slices, late, own)

    (first, sums), (slices, late, own) = loop.scanned(step, (last, zeros), [a for _, a in given], True)
    for i, adj in late.items():
        operand = known[operands[i]] if operands[i] in known else own[i]
        _add_late(loop, i, adj, operand, constants, numbers, sums)
    # Compute all gradients now: otherwise XLA puts off the products and keeps their operands in memory.
    first, slices, sums = kept_apart((first, slices, sums))
    found = {**dict(zip(loop.leaves, first, strict=False)), **slices, **sums}
    return tuple(found.get(i) if loop.flags[i] else None for i in loop.leaves)


run.defvjp(_run_forward, _run_backward)


def _sweep(loop: Loop, values: dict[int, Any], adj: dict[int, Any], numbers: Any) -> dict[int, Any]:
    """Marian's backward pass over one step, from the last row to the first, into ``adj``; returns the
    adjoints of the products whose gradients are computed after the loop."""
    late = {}
    for i in range(len(loop.rows) - 1, -1, -1):
        row = loop.rows[i]
        if is_leaf(row) or i not in adj or not loop.flags[i]:
            continue
        chosen = loop.late.get(i)
        if chosen:
            late[i] = adj[i]
        trained = tuple(loop.flags[k] and not (chosen and chosen[place]) for place, k in enumerate(row[1:]))
        if not any(trained):
            continue
        children = tuple(values[k] for k in row[1:])
        own = loop.numbers_of(i, numbers)
        found = row_gradients(row[0], loop.rule_set, trained, adj[i], values[i], children, own)
        for k, train, gradient in zip(row[1:], trained, found, strict=True):
            if train:
                _add(adj, k, gradient)
    return late


def _add_late(
    loop: Loop, i: int, adj: Any, operand: Any, constants: dict[int, Any], numbers: Any, sums: dict[int, Any]
) -> None:
    """Add the gradients of fixed leaves that one product over all steps gives."""
    head, first, *others = loop.rows[i]
    head = bound(head, loop.numbers_of(i, numbers))
    children = (head.steps_as_rows(operand), *(constants[k] for k in others))
    backward = backward_of(type(head), loop.rule_set)
    found = gradients_of(type(head), backward, head, loop.late[i], head.steps_as_rows(adj), None, children)
    for k, gradient in zip((first, *others), found, strict=True):
        _add(sums, k, gradient)


def _add(sums: dict[int, Any], row: int, more: Any) -> None:
    if more is not None:
        sums[row] = jax.tree.map(jnp.add, sums[row], more) if row in sums else more


def _is_none(adjoint: Any) -> bool:
    """Whether this is the zero gradient of an integer."""
    return adjoint.dtype == jax.dtypes.float0
