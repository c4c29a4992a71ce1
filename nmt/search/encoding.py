"""The states that an encoder gives sentences."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from mgraph import ExpressionGraph, Plan, Type, compiled
from nmt.models import Model, Source
from nmt.text.batches import pad


class States(NamedTuple):
    """What an encoder makes of lines."""

    states: np.ndarray
    """float32 ``[line, word, dim]``, zeros after the last word of a line."""
    mask: np.ndarray
    """float32 ``[line, word]``: 1 at words, ``</s>`` included, 0 after them."""


@dataclass(frozen=True)
class EncodingPlan(Plan):
    """The states of so many sentences, padded to so many words, by one of a model's encoders."""

    model: Model
    stream: int
    rows: int
    length: int

    @property
    def key(self) -> Hashable:
        return self.model.key, self.stream, self.rows, self.length

    def __str__(self) -> str:
        return f"encoding of {self.rows} sentences of {self.length} words"

    def __call__(self, params: dict[str, jax.Array], ids: np.ndarray, mask: np.ndarray) -> jax.Array:
        graph, shape = ExpressionGraph(inference=True), (self.rows, self.length)
        source = Source(graph.input("ids", shape, Type.int32), graph.input("mask", shape, Type.float32))
        context = self.model.context(source, self.stream).context
        (found,) = graph.function([context], list(source), derivatives="jax").pure(params, [ids, mask])
        return found


def encode_sentences(model: Model, sentences: Sequence[Sequence[int]], stream: int = 0) -> States:
    """The states of sentences of the source stream number ``stream``, given as word ids with ``</s>``.

    They are padded to ``length_bucket`` while they are computed; neither that nor the other sentences change
    a state.
    """
    batch = pad([sentences])
    encode = compiled(EncodingPlan(model, stream, *batch.shape))
    states = np.asarray(encode(model.params, *batch.ids, *batch.masks))
    longest = max(map(len, sentences))
    mask = batch.masks[0][: batch.sentences, :longest]
    return States(states[: batch.sentences, :longest] * mask[:, :, None], mask)
