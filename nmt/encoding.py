"""The states that an encoder gives sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from mgraph import ExpressionGraph, Type
from mgraph.running.programs import PROGRAMS
from nmt.data.batches import pad
from nmt.models import Model, Source


class States(NamedTuple):
    """What an encoder makes of lines."""

    states: np.ndarray
    """float32 ``[line, word, dim]``, zeros after the last word of a line."""
    mask: np.ndarray
    """float32 ``[line, word]``: 1 at words, ``</s>`` included, 0 after them."""


def encode_sentences(model: Model, sentences: Sequence[Sequence[int]], stream: int = 0) -> States:
    """The states of sentences of the source stream number `stream`, given as word ids with ``</s>``.

    They are padded to `length_bucket` while they are computed; neither that nor the other sentences change
    a state.
    """
    batch = pad(sentences)
    rows, length = batch.ids.shape

    def encode(params: dict[str, jax.Array], ids: np.ndarray, mask: np.ndarray) -> jax.Array:
        graph = ExpressionGraph(inference=True)
        source = Source(
            graph.input("ids", (rows, length), Type.int32), graph.input("mask", (rows, length), Type.float32)
        )
        context = model.context(graph, source, stream).context
        (found,) = graph.function([context], list(source), derivatives="jax").pure(params, [ids, mask])
        return found

    arguments = model.params, batch.ids, batch.mask
    key = ("encode", stream, model.key, batch.ids.shape)
    label = f"encoding of {rows} sentences of {length} words"
    states = np.asarray(PROGRAMS.get(key, label).run(encode, *arguments))
    longest = max(map(len, sentences))
    mask = batch.mask[: batch.size, :longest]
    return States(states[: batch.size, :longest] * mask[:, :, None], mask)
