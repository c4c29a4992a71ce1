"""Encoding sentences that wait for a lane: padded to one length, or packed into bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import Plan
from nmt.models import Model, PackedSource, Source
from nmt.models.functions import PackedEncoder
from nmt.search.lane_state import spec
from nmt.search.trellis import Arrays

UNUSED = "jax"
"""The kind of derivatives for functions that are never differentiated: the fastest to trace."""


def params_of(models: Sequence[Model]) -> tuple[dict[str, jax.ShapeDtypeStruct], ...]:
    """The shapes and types of the parameters of models."""
    return tuple({name: spec(*a.shape, kind=a.dtype) for name, a in m.params.items()} for m in models)


def packed_encoders(
    models: Sequence[Model], waiting: int, entering: int, length: int, bins: tuple[int, int]
) -> list[PackedEncoder]:
    """The encoders of packed sentences for lanes of these sizes, see ``LaneShape``."""
    return [
        model.packed_encoder(waiting, entering, (length,) * model.sources, *bins, derivatives=UNUSED)
        for model in models
    ]


def encode(
    models: Sequence[Model], params: Sequence[Arrays], sources: Sequence[Source], length: int
) -> tuple[Arrays, ...]:
    """The encoder states of sentences, for a lane of sources of ``length`` words.

    sources: for each stream ids and mask ``[sentences, door]``, where ``door`` is at most ``length``.
    """
    count, door = sources[0].ids.shape
    found = []
    for model, own in zip(models, params, strict=True):
        arrays = model.encoder(count, (door,) * model.sources, derivatives=UNUSED)(
            own, sources[: model.sources]
        )
        if door < length:
            whole = model.encoder(count, (length,) * model.sources, derivatives=UNUSED)
            arrays = _padded(arrays, whole.state)
        found.append(arrays)
    return tuple(found)


def _padded(arrays: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """``arrays`` with zeros at the end of the axes that are longer in ``shapes``."""

    def padded(array: jax.Array, shape: Sequence[int]) -> jax.Array:
        return jnp.pad(array, [(0, new - old) for old, new in zip(array.shape, shape, strict=True)])

    return {name: padded(array, shapes[name].shape) for name, array in arrays.items()}


@dataclass(frozen=True)
class EncodePlan(Plan, by_key=["models"], code=["layers", "nmt"]):
    """Encodes sentences that wait for a lane: with ``encode``, or, if they are packed, into the projections
    from which encoder states are arranged.

    waiting, entering, sources, length, bins: see ``LaneShape``. size: the shape of a source's ids, bins or
    sentences by words. It is at most the lane's, and the result is padded to the lane's.
    """

    models: tuple[Model, ...]
    waiting: int
    entering: int
    sources: int
    length: int
    bins: tuple[int, int] | None
    size: tuple[int, int]

    def __str__(self) -> str:
        """``encoding: 32 sentences of 48 words in 4 x 128``, for the log."""
        return f"encoding: {self.waiting} sentences of {self.length} words in {self.size[0]} x {self.size[1]}"

    def inputs(self) -> tuple[Any, ...]:
        ids, laid_out = spec(*self.size), (self.waiting, self.length)
        source: Any = Source(ids, spec(*self.size, kind=np.float32))
        if self.bins:
            source = PackedSource(ids, ids, ids, spec(*laid_out), spec(*laid_out, kind=np.float32))
        return params_of(self.models), [source] * self.sources

    def __call__(self, params: Sequence[Arrays], sources: Any) -> Any:
        if not self.bins:
            return encode(self.models, params, sources, self.length)
        sizes = self.waiting, self.entering, self.length
        encoders = packed_encoders(self.models, *sizes, self.size)
        parts = zip(encoders, self.models, params, strict=True)
        found = tuple(encoder(own, sources[: model.sources]) for encoder, model, own in parts)
        if self.size == self.bins:
            return found
        lanes = packed_encoders(self.models, *sizes, self.bins)
        return tuple(_padded(own, encoder.projected) for own, encoder in zip(found, lanes, strict=True))
