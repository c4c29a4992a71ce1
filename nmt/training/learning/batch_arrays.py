"""The arrays of batches: the arguments of the programs that compute gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from nmt.text.batches import Batch
from nmt.text.packing import TextRows, rows_for

Arrays = dict[str, Any]
"""A batch as the arguments of a program, by the names of the graph's inputs."""


def padded_arrays(batch: Batch) -> Arrays:
    """A batch whose sentences are rows."""
    found: Arrays = {}
    for i, (ids, mask) in enumerate(zip(batch.ids, batch.masks, strict=True)):
        found[f"ids{i}"], found[f"mask{i}"] = ids, mask
    if batch.weights is not None:
        found["weights"] = batch.weights
    if batch.alignment is not None:
        found["alignment"] = batch.alignment
    return found


def packed_arrays(batch: Batch, groups: int = 1) -> Arrays:
    """A batch whose sentences are packed (``nmt.models.PackedText``).

    groups: of devices that compute it, each some of the sentences; the rows of the batch must be as many for
    each.
    """
    count, last = len(batch.ids[0]), len(batch.ids) - 1
    order = np.concatenate([np.arange(group, count, groups) for group in range(groups)])
    real = order < batch.sentences
    found: Arrays = {}
    for i, (ids, mask) in enumerate(zip(batch.ids, batch.masks, strict=True)):
        room = rows_for(count // groups * ids.shape[1]) if batch.packed is None else batch.packed[i]
        own = mask[order] * real[:, None]
        lengths = own.sum(1).astype(np.int64)
        running = TextRows.running(ids[order], lengths, room, groups)
        found |= _arrays_of(running, i) | {f"mask{i}": running.taken_up(own) if i == last else own}
        if i == last and batch.weights is not None:
            found["weights"] = running.taken_up(batch.weights[order])
    if batch.alignment is not None:
        found["alignment"] = batch.alignment[order] * own[..., None]
    return found


def arrays_of_packed_sources(batch: Batch, groups: int = 1) -> Arrays:
    """A batch whose sources are packed, each sentence within a row, and whose target is padded; groups as
    above."""
    count, last = len(batch.ids[0]), len(batch.ids) - 1
    order = np.concatenate([np.arange(group, count, groups) for group in range(groups)])
    ordered = replace(
        batch,
        ids=tuple(ids[order] for ids in batch.ids),
        masks=tuple(mask[order] for mask in batch.masks),
        weights=None if batch.weights is None else batch.weights[order],
        alignment=None if batch.alignment is None else batch.alignment[order],
    )
    found = padded_arrays(ordered)
    for i, (ids, mask) in enumerate(zip(ordered.ids[:last], ordered.masks[:last], strict=True)):
        rows = count // groups if batch.packed is None else batch.packed[i]
        lengths = (mask.sum(1) * (order < batch.sentences)).astype(np.int64)
        found |= _arrays_of(TextRows.whole(ids, lengths, rows, groups), i)
    return found


def _arrays_of(rows: TextRows, stream: int) -> Arrays:
    """The inputs that say which words there are, and where."""
    return {
        f"ids{stream}": rows.ids,
        f"positions{stream}": rows.positions,
        f"places{stream}": rows.places,
        f"origins{stream}": rows.origins,
    }


def specs_of(arrays: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and element types of arrays by name."""
    return {name: jax.ShapeDtypeStruct(np.shape(array), array.dtype) for name, array in arrays.items()}
