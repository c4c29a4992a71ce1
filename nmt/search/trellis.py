"""The arrays of beam search, and tracing hypotheses back through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from nmt.models import Source
from nmt.search.results import Hypothesis

Arrays = Mapping[str, jax.Array]

NONE = -np.inf
FREE = -1
SLACK = 1e-4  # float32 powers differ in the last digits


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sentences:
    """The batch to translate; unused features are None.

    sources: for each source stream ids int32 and mask float32 ``[batch, length]``.
    limits int32 ``[batch]``: the maximum number of target words; 0 for a row of padding.
    empty bool ``[batch]``: sources without words, whose translation is ``</s>`` with score 0.
    prefixes int32 ``[batch, steps]``: forced words, ``FREE`` for any.
    candidates int32 ``[batch, candidates]``, counts int32 ``[batch]``: the sorted shortlist of each sentence,
        padded, and its length.
    keys uint32 ``[batch, 2]``: the random key of each sentence's noise.
    """

    sources: tuple[Source, ...]
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

    step int32 ``[]``: the number of words of each living hypothesis.
    slots int32 ``[batch]``: how many hypotheses of each sentence may live; 0 when it is done.
    best float32 ``[batch]``: the best score of the finished hypotheses, if the search may end early.
    words int32, paths float32 ``[batch, beam]``: last word and path score of each hypothesis.
    scores float32 ``[batch, beam, model]``: its unweighted log-probability under each model.
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

    words int32 ``[step, batch, beam]``: the last word of the hypothesis.
    origins int32 ``[step, batch, beam]``: the place of its prefix in the beam of the step before.
    paths float32 ``[step, batch, beam]``: its path score; minus infinity if there is no hypothesis.
    scores float32 ``[step, batch, beam, model]``: as in ``Beam``.
    attention float32 ``[step, batch, beam, length]``: of the word to the first source, or None.
    """

    words: Any
    origins: Any
    paths: Any
    scores: Any
    attention: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ranking:
    """How finished hypotheses are compared.

    A hypothesis of ``n`` words, ``</s>`` counted, has the score
    ``(path_score - word_penalty * n) / n ** normalize``, in float32 as in Marian.
    """

    normalize: Any
    word_penalty: Any

    @property
    def bounded(self) -> bool:
        """Whether ``bound`` holds: only a larger divisor can improve a score."""
        return bool(self.normalize >= 0 and self.word_penalty >= 0)

    def scores(self, paths: Any, lengths: Any) -> Any:
        """The float32 scores of hypotheses with these path scores and lengths; NumPy or JAX arrays."""
        length = lengths.astype(np.float32)
        return (paths - self.word_penalty * length) / length**self.normalize

    def bound(self, paths: Any, limits: Any) -> Any:
        """An upper bound on the score of any extension to at most ``limits`` words of hypotheses with these
        path scores, if path and word scores are at most 0."""
        return paths * np.float32(1 - SLACK) / limits.astype(np.float32) ** self.normalize


def join(parts: Sequence[tuple[np.ndarray, Trellis]], batch: int) -> Trellis:
    """Join parts of a trellis, in NumPy arrays, along time into one for ``batch`` sentences.

    Each part comes with the batch rows of its first rows; other sentences have no hypotheses in it.
    """

    def placed(rows: np.ndarray, array: np.ndarray, empty: float) -> np.ndarray:
        whole = np.full((len(array), batch, *array.shape[2:]), empty, array.dtype)
        whole[:, rows] = array[:, : len(rows)]
        return whole

    attention = None if parts[0][1].attention is None else 0
    empty = Trellis(0, 0, -np.inf, 0, attention)
    placed_parts = (
        jax.tree.map(lambda array, value, rows=rows: placed(rows, array, value), part, empty)
        for rows, part in parts
    )
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *placed_parts)


def best_hypotheses(
    trellis: Trellis, sentences: Sentences, ranking: Ranking, eos: int, count: int
) -> list[list[Hypothesis]]:
    """The ``count`` best hypotheses of each sentence; of equals the one that ended first.

    A hypothesis ends with ``</s>`` or at the length limit. All arrays are NumPy's.
    """
    words, paths = trellis.words, trellis.paths
    sizes = sentences.sources[0].mask.sum(axis=1).astype(int)
    lengths = np.arange(1, len(words) + 1)[:, None]
    cut = (lengths == sentences.limits)[:, :, None]
    ends = (paths != -np.inf) & ((words == eos) | cut)
    found = []
    for sentence in range(words.shape[1]):
        step, place = np.nonzero(ends[:, sentence])
        scores = ranking.scores(paths[step, sentence, place], step + 1)
        order = np.argsort(-scores, kind="stable")[:count]
        size = sizes[sentence]
        found.append(
            [_traced_back(trellis, sentence, step[i], place[i], float(scores[i]), eos, size) for i in order]
        )
    return found


def _traced_back(
    trellis: Trellis, sentence: int, last: int, place: int, score: float, eos: int, size: int
) -> Hypothesis:
    """The hypothesis in ``place`` of its beam after step ``last``, from 0; its source has ``size`` words."""
    origins = trellis.origins[:, sentence]
    places = [place]
    for step in range(last, 0, -1):
        places.append(origins[step, places[-1]])
    places.reverse()
    path = np.arange(last + 1), sentence, places
    words = trellis.words[path].tolist()
    paths = trellis.paths[path]
    attention = None if trellis.attention is None else trellis.attention[path][:, :size]
    return Hypothesis(
        words=tuple(words),
        word_scores=tuple(np.diff(paths, prepend=np.float32(0)).tolist()),
        path_score=float(paths[-1]),
        score=score,
        scorer_scores=tuple(trellis.scores[last, sentence, place].tolist()),
        finished=words[-1] == eos,
        alignment=None if attention is None else tuple(map(tuple, attention.tolist())),
    )
