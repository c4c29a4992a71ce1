"""The encoder states of sentences, in full batches of few shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from mgraph import Plan, Type, compiled
from nmt.models import Model, Source
from nmt.runtime.compared import compared
from nmt.search.few_batches import FewBatches
from nmt.text.batches import pad


@compared
class States(NamedTuple):
    """Encoder states of lines."""

    states: np.ndarray
    """float32 ``[line, word, dim]``, zeros after the last word of a line."""
    mask: np.ndarray
    """float32 ``[line, word]``: 1 at words, ``</s>`` included, 0 after them."""


@dataclass(frozen=True)
class EncodingPlan(Plan, by_key=["model"]):
    """One of a model's encoders for ``rows`` sentences padded to ``length`` words."""

    model: Model
    stream: int
    rows: int
    length: int

    def __str__(self) -> str:
        return f"encoding of {self.rows} sentences of {self.length} words"

    def __call__(self, params: dict[str, jax.Array], ids: np.ndarray, mask: np.ndarray) -> jax.Array:
        graph, shape = self.model.blank_graph(), (self.rows, self.length)
        source = Source(graph.input("ids", shape, Type.int32), graph.input("mask", shape, Type.float32))
        context = self.model.context(source, self.stream).context
        (found,) = graph.function([context], list(source), derivatives="jax").pure(params, [ids, mask])
        return found


def encode_sentences(
    model: Model, sentences: Sequence[Sequence[int]], stream: int, batches: FewBatches
) -> States:
    """The encoder states of sentences of source stream ``stream``; sentences are word ids with ``</s>``.

    Neither padding nor the other sentences change a state.
    """
    lengths = [len(sentence) for sentence in sentences]
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.float32)
    states = np.zeros((*mask.shape, 0), np.float32)
    for chosen, shape in batches(lengths):
        batch = pad([[sentences[number] for number in chosen]], shape)
        encode = compiled(EncodingPlan(model, stream, *shape))
        found = np.asarray(encode(model.params, *batch.ids, *batch.masks), np.float32)
        if not states.size:
            states = np.zeros((*mask.shape, found.shape[-1]), np.float32)
        for number, row in zip(chosen, found, strict=False):
            states[number, : lengths[number]] = row[: lengths[number]]
    return States(states, mask)
