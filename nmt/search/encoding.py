"""Encoding sentences that wait for a lane: padded to one length, or packed into bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
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


@dataclass(frozen=True)
class EncodePlan(Plan, by_key=["models"], code=["layers", "nmt"]):
    """Encodes sentences that wait for a lane: their encoder states, or if they are packed what these are
    arranged from.

    waiting, entering, sources, length: see ``LaneShape``. packed: whether sentences are. size: of the ids of
    a source, bins or sentences, and words.
    """

    models: tuple[Model, ...]
    waiting: int
    entering: int
    sources: int
    length: int
    packed: bool
    size: tuple[int, int]

    def __str__(self) -> str:
        """``encoding: 32 sentences of 48 words in 4 x 128``, for the log."""
        return f"encoding: {self.waiting} sentences of {self.length} words in {self.size[0]} x {self.size[1]}"

    def inputs(self) -> tuple[Any, ...]:
        ids, laid_out = spec(*self.size), (self.waiting, self.length)
        source: Any = Source(ids, spec(*self.size, kind=np.float32))
        if self.packed:
            source = PackedSource(ids, ids, ids, spec(*laid_out), spec(*laid_out, kind=np.float32))
        return params_of(self.models), [source] * self.sources

    def __call__(self, params: Sequence[Arrays], sources: Any) -> Any:
        parts = zip(self._encoders(), self.models, params, strict=True)
        return tuple(encoder(own, sources[: model.sources]) for encoder, model, own in parts)

    def _encoders(self) -> Sequence[Callable[..., Any]]:
        if self.packed:
            return packed_encoders(self.models, self.waiting, self.entering, self.length, self.size)
        return [
            model.encoder(self.waiting, (self.length,) * model.sources, derivatives=UNUSED)
            for model in self.models
        ]
