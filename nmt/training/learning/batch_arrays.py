"""The arrays of batches: the arguments of the programs that compute gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from nmt.text.batches import Batch
from nmt.text.packing import TextRows, rows_for, tiered_length

Arrays = dict[str, Any]
"""A batch as the arguments of a program, by the names of the graph's inputs."""
SENTENCES = "sentences"
"""The name of the array of the sentences' numbers in the batch, group by group."""


def padded_arrays(batch: Batch) -> Arrays:
    """The arrays of a batch with one sentence per row."""
    found: Arrays = {SENTENCES: np.arange(len(batch.ids[0]), dtype=np.int32)}
    for i, (ids, mask) in enumerate(zip(batch.ids, batch.masks, strict=True)):
        found[f"ids{i}"], found[f"mask{i}"] = ids, mask
    if batch.weights is not None:
        found["weights"] = batch.weights
    if batch.alignment is not None:
        found["alignment"] = batch.alignment
    return found


def packed_arrays(batch: Batch, groups: int = 1, *, whole: bool = False) -> Arrays:
    """The arrays of a batch with packed sentences (``nmt.models.PackedText``).

    groups: how many groups of devices share the sentences; the rows of the batch must divide evenly among
    them. whole: whether each source sentence stays within a row. Then the sentences of a group are sorted by
    the length of the first source, which is padded to make room for its ``tiers``.
    """
    count, last = len(batch.ids[0]), len(batch.ids) - 1
    of_groups = [np.arange(group, count, groups) for group in range(groups)]
    if whole and last > 0:
        lengths = batch.masks[0].sum(1).astype(np.int64) * (np.arange(count) < batch.sentences)
        of_groups = [own[np.argsort(-lengths[own], kind="stable")] for own in of_groups]
        batch = _with_room(batch, max(tiered_length(lengths[own].tolist()) for own in of_groups))
    order = np.concatenate(of_groups)
    real = order < batch.sentences
    found: Arrays = {SENTENCES: np.int32(order)}
    for i, (ids, mask) in enumerate(zip(batch.ids, batch.masks, strict=True)):
        inside, is_target = mask[order], i == last
        of_sentences = inside * real[:, None]
        lengths = of_sentences.sum(1).astype(np.int64)
        in_whole_rows = whole and not is_target
        most = count // groups if in_whole_rows else rows_for(count // groups * ids.shape[1])
        place = TextRows.whole if in_whole_rows else TextRows.running
        rows = place(ids[order], lengths, most if batch.packed is None else batch.packed[i], groups)
        found |= {
            f"ids{i}": rows.ids,
            f"positions{i}": rows.positions,
            f"places{i}": rows.places,
            f"origins{i}": rows.origins,
        }
        if is_target:
            found[f"mask{i}"] = rows.taken_up(of_sentences)
            if batch.weights is not None:
                found["weights"] = rows.taken_up(batch.weights[order])
            if batch.alignment is not None:
                found["alignment"] = batch.alignment[order] * of_sentences[..., None]
        else:
            # With whole rows a recurrent model takes the mean over the words of each sentence. Added copies
            # keep their words, because a mean over no words is undefined.
            found[f"mask{i}"] = inside if in_whole_rows else of_sentences
    return found


def _with_room(batch: Batch, length: int) -> Batch:
    """The same sentences, with the first source padded to at least ``length``."""
    more = length - batch.ids[0].shape[1]
    if more <= 0:
        return batch
    ids, masks = (
        (np.pad(first, ((0, 0), (0, more))), *others) for first, *others in (batch.ids, batch.masks)
    )
    aligned = batch.alignment
    if aligned is not None:
        aligned = np.pad(aligned, ((0, 0), (0, 0), (0, more)))
    return replace(batch, ids=ids, masks=masks, alignment=aligned)


def part_of_group(arrays: Arrays, group: int, groups: int) -> Arrays:
    """The part of a batch that one of several groups of devices computes."""
    return {name: np.split(array, groups)[group] for name, array in arrays.items()}


def specs_of_group(specs: Mapping[str, jax.ShapeDtypeStruct], groups: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and element types of the part that each of several groups of devices computes."""
    return {
        name: jax.ShapeDtypeStruct((spec.shape[0] // groups, *spec.shape[1:]), spec.dtype)
        for name, spec in specs.items()
    }


def specs_of(arrays: Arrays) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and element types of arrays by name."""
    return {name: jax.ShapeDtypeStruct(np.shape(array), array.dtype) for name, array in arrays.items()}
