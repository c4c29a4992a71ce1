"""The arrays of batches: the arguments of the programs that compute gradients."""

from __future__ import annotations

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


def packed_arrays(batch: Batch, groups: int = 1, *, whole: bool = False) -> Arrays:
    """A batch whose sentences are packed (``nmt.models.PackedText``).

    groups: of devices that compute it, each some of the sentences; the rows of the batch must be as many for
    each. whole: whether each source is within a row.
    """
    count, last = len(batch.ids[0]), len(batch.ids) - 1
    order = np.concatenate([np.arange(group, count, groups) for group in range(groups)])
    real = order < batch.sentences
    found: Arrays = {}
    for i, (ids, mask) in enumerate(zip(batch.ids, batch.masks, strict=True)):
        own = mask[order] * real[:, None]
        lengths = own.sum(1).astype(np.int64)
        in_whole_rows = whole and i < last
        most = count // groups if in_whole_rows else rows_for(count // groups * ids.shape[1])
        place = TextRows.whole if in_whole_rows else TextRows.running
        rows = place(ids[order], lengths, most if batch.packed is None else batch.packed[i], groups)
        if in_whole_rows:
            own = mask[order]  # a mean over no words would be undefined
        found |= {
            f"ids{i}": rows.ids,
            f"positions{i}": rows.positions,
            f"places{i}": rows.places,
            f"origins{i}": rows.origins,
            f"mask{i}": rows.taken_up(own) if i == last else own,
        }
        if i == last and batch.weights is not None:
            found["weights"] = rows.taken_up(batch.weights[order])
    if batch.alignment is not None:
        found["alignment"] = batch.alignment[order] * own[..., None]
    return found


def specs_of(arrays: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and element types of arrays by name."""
    return {name: jax.ShapeDtypeStruct(np.shape(array), array.dtype) for name, array in arrays.items()}
