"""The states of a decoder in the order of the hypotheses that go on from them."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

T = TypeVar("T")

LARGE = 1024
"""Numbers of a hypothesis. Of fewer it takes longer to say what is to be moved than to move everything."""


def reordered(states: T, origins: jax.Array, living: jax.Array) -> T:
    """``states``, arrays ``[batch * beam, ...]``, with each living hypothesis in the place of its origin's.

    origins int32 ``[batch, beam]``: the place in the beam that a hypothesis comes from. living bool
    ``[batch, beam]``: which matter; the states of others are any.

    Caches are most of what a step moves. On a CPU, which moves no faster than its memory, they are changed
    in place, and only where hypotheses have changed their order.
    """
    batch, beam = origins.shape
    if beam == 1:
        return states
    places = jnp.arange(beam, dtype=jnp.int32)
    chosen = jnp.where(living, origins, places)
    rows = (jnp.arange(batch, dtype=jnp.int32)[:, None] * beam + chosen).reshape(-1)
    leaves, structure = jax.tree.flatten(states)
    large = [leaf.size >= LARGE * batch * beam for leaf in leaves]
    caches = [leaf for leaf, is_large in zip(leaves, large, strict=True) if is_large]
    moved = iter(lax.platform_dependent(caches, chosen, rows, cpu=_in_place, default=_gathered))
    others = (rows_of(leaf, rows) for leaf, is_large in zip(leaves, large, strict=True) if not is_large)
    return jax.tree.unflatten(structure, [next(moved if is_large else others) for is_large in large])


def rows_of(array: jax.Array, chosen: jax.Array) -> jax.Array:
    """The chosen rows, which there are: a gather that need not look for others is a plain copy."""
    return array.at[chosen].get(mode="promise_in_bounds")


def _gathered(caches: list[jax.Array], chosen: jax.Array, rows: jax.Array) -> list[jax.Array]:
    return [rows_of(cache, rows) for cache in caches]


def _in_place(caches: list[jax.Array], chosen: jax.Array, rows: jax.Array) -> list[jax.Array]:
    """Sentence by sentence, those first whose hypotheses have moved; the others are never reached."""
    batch, beam = chosen.shape
    unmoved = jnp.all(chosen == jnp.arange(beam), axis=1)
    sentences = jnp.argsort(unmoved)

    def move(i: jax.Array, caches: list[jax.Array]) -> list[jax.Array]:
        sentence = sentences[i]
        first, places = sentence * beam, chosen[sentence]
        blocks = [lax.dynamic_slice_in_dim(cache, first, beam) for cache in caches]
        return [
            lax.dynamic_update_slice_in_dim(cache, rows_of(block, places), first, 0)
            for cache, block in zip(caches, blocks, strict=True)
        ]

    return lax.fori_loop(0, batch - jnp.sum(unmoved, dtype=jnp.int32), move, caches)
