"""The arrays of beam search: the sentences, the beams between two steps, and all that was ever in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

Arrays = Mapping[str, jax.Array]

NONE = -np.inf
FREE = -1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sentences:
    """The batch to translate; what is not wanted is None.

    sources: for each source stream ids int32 and mask float32 ``[batch, length]``: words, 1 where there
        is one.
    limits int32 ``[batch]``: the most target words of each sentence; 0 for a row without one.
    empty bool ``[batch]``: sources without words, whose translation is ``</s>`` with score 0.
    prefixes int32 ``[batch, steps]``: the word that each translation must have there, ``FREE`` for any.
    candidates int32 ``[batch, candidates]``, counts int32 ``[batch]``: the words of each sentence's
        shortlist in order, and how many there are; the rest is padding.
    keys uint32 ``[batch, 2]``: what the noise of each sentence is drawn from.
    """

    sources: tuple[tuple[Any, Any], ...]
    limits: Any
    empty: Any
    prefixes: Any = None
    candidates: Any = None
    counts: Any = None
    keys: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Beam:
    """The state of the search between two steps.

    step int32 ``[]``: how many words each living hypothesis has.
    slots int32 ``[batch]``: how many hypotheses of each sentence may be alive; 0 when it is done.
    best float32 ``[batch]``: the best score of its finished hypotheses, if the search may end early.
    words int32, paths float32 ``[batch, beam]``: last word and path score of each hypothesis.
    scores float32 ``[batch, beam, model]``: its log-probability by each model, unweighted.
    decoders: the decoder state of each model, ``[batch * beam, ...]``.
    """

    step: Any
    slots: Any
    best: Any
    words: Any
    paths: Any
    scores: Any
    decoders: tuple[Arrays, ...]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trellis:
    """Every hypothesis that was ever in a beam, step by step.

    words int32 ``[step, batch, beam]``: the word that the hypothesis was extended by.
    origins int32 ``[step, batch, beam]``: its place in the beam of the step before.
    paths float32 ``[step, batch, beam]``: its path score; minus infinity where there is none.
    scores float32 ``[step, batch, beam, model]``: as in ``Beam``.
    attention float32 ``[step, batch, beam, length]``: that of the word to the first source, or None.
    """

    words: Any
    origins: Any
    paths: Any
    scores: Any
    attention: Any = None
