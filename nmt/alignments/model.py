"""The alignment model of fast_align, estimated by EM (Dyer, Chahuneau and Smith 2013).

``p(f_i, a_i = j | e) = delta_j t(f_i | e_j)``, with ``delta_0 = p0`` for no link and ``delta_j`` the prior
near the diagonal (``nmt.alignments.diagonal``) times ``1 - p0``, or uniform.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from nmt.alignments import diagonal
from nmt.alignments.pairs import Cells, Pairs
from nmt.settings.alignment import AlignmentOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WordPairs:
    """All pairs of a source and a target word that occur in the same sentence pair, and each target word
    paired with no source word.

    keys: int64, sorted: ``source * targets + target``; source 0 is no word, word ``k`` has number ``k + 1``.
    targets: how many different target words there are. The pairs with no source word come first.
    """

    keys: np.ndarray
    targets: int

    @classmethod
    def of(cls, pairs: Pairs) -> WordPairs:
        """Collect the pairs part by part; new pairs are merged when they outnumber the merged ones."""
        targets = pairs.target.size
        main, new, waiting = np.arange(targets, dtype=np.int64), [], 0
        for first, end in pairs.parts():
            new.append(_sorted_once(_keys(pairs.cells(first, end), targets)))
            waiting += len(new[-1])
            if waiting > len(main):
                main, new, waiting = _sorted_once(np.concatenate([main, *new])), [], 0
        return cls(_sorted_once(np.concatenate([main, *new])), targets)

    def index(self, cells: Cells) -> np.ndarray:
        """int64 ``[cells]``: the index in ``keys`` of each cell's word pair."""
        return np.searchsorted(self.keys, _keys(cells, self.targets))


def _sorted_once(keys: np.ndarray) -> np.ndarray:
    """The distinct keys, sorted; ``np.unique`` hashes first, which takes ten times as long here."""
    keys = np.sort(keys)
    return keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]


def _keys(cells: Cells, targets: int) -> np.ndarray:
    return (cells.source.astype(np.int64) + 1) * targets + cells.target[cells.row]


class _Indices:
    """The indices of all cells' word pairs, in a temporary file: computed once, read in each pass."""

    def __init__(self, file: BinaryIO, pairs: Pairs, table: WordPairs) -> None:
        self._file, self._pairs = file, pairs
        self._type = np.dtype(np.int32 if len(table.keys) < 1 << 31 else np.int64)
        for first, end in pairs.parts():
            self._file.write(table.index(pairs.cells(first, end)).astype(self._type).tobytes())

    def __iter__(self) -> Iterator[tuple[Cells, np.ndarray]]:
        self._file.seek(0)
        for first, end in self._pairs.parts():
            cells = self._pairs.cells(first, end)
            data = self._file.read(len(cells.row) * self._type.itemsize)
            yield cells, np.frombuffer(data, self._type)


@dataclass
class _Totals:
    """Sums over one pass over the text."""

    likelihood: float = 0.0
    feature: float = 0.0
    rows: int = 0


class _Estimation:
    """The parameters while they are estimated: ``t [word pairs]`` and the tension."""

    def __init__(self, pairs: Pairs, table: WordPairs, options: AlignmentOptions) -> None:
        self.table, self.options = table, options
        self.sizes = pairs.sizes
        self.t = np.ones(len(table.keys))
        self.tension = options.diagonal_tension

    def joint(self, cells: Cells, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``delta_j t(f_i | e_j)`` of the cells, and its value for no link in each row, ``[rows]``."""
        null, p0 = self.options.null_word, self.options.p0
        if self.options.favor_diagonal:
            z = diagonal.partition(cells.i, cells.m, cells.n, self.tension) / (1.0 - p0)
            r = cells.row
            near = np.exp(diagonal.feature(cells.i[r], cells.j, cells.m[r], cells.n[r]) * self.tension)
            prior, none = near / z[r], np.full(len(cells.i), p0)
        else:
            none = 1.0 / (cells.n + null)
            prior = none[cells.row]
        return self.t[index] * prior, self.t[cells.target] * none * null

    def expect(self, cells: Cells, index: np.ndarray, counts: np.ndarray, totals: _Totals) -> None:
        """Add the expected counts of the links of the cells to ``counts``."""
        joint, none = self.joint(cells, index)
        total = np.add.reduceat(joint, cells.starts) + none
        r = cells.row
        posterior = joint / total[r]
        np.add.at(counts, index, posterior)
        np.add.at(counts, cells.target, none / total)
        # fast_align counts target words from 0 here.
        near = diagonal.feature(cells.i[r] - 1, cells.j, cells.m[r], cells.n[r])
        totals.feature += float((near * posterior).sum())
        totals.likelihood += float(np.log(total).sum())
        totals.rows += len(total)

    def maximize(self, counts: np.ndarray) -> None:
        """``t(f | e)`` from expected counts: their relative frequencies, or with ``variational_bayes`` the
        variational estimate ``exp(digamma(count + alpha) - digamma(sum of count + alpha))``."""
        of_word = self.table.keys // max(self.table.targets, 1)
        if self.options.variational_bayes:
            counts = counts + self.options.alpha
        sums = np.bincount(of_word, counts)
        # Zero for source 0 without ``null_word``, and for words that occur only in pairs with an empty side.
        sums[sums == 0] = 1.0
        if self.options.variational_bayes:
            self.t = np.exp(digamma(counts) - digamma(sums)[of_word])
        else:
            self.t = counts / sums[of_word]

    def choose(self, cells: Cells, index: np.ndarray) -> np.ndarray:
        """int32 ``[rows]``: the position of the source word with the best link, the first of equals, or -1
        if having no link is at least as probable."""
        joint, none = self.joint(cells, index)
        best = np.maximum.reduceat(joint, cells.starts)
        place = np.where(joint == best[cells.row], cells.j, np.inf)
        first = np.minimum.reduceat(place, cells.starts).astype(np.int32) - 1
        return np.where((best > none) | (not self.options.null_word), first, -1).astype(np.int32)


def best_links(pairs: Pairs, options: AlignmentOptions, name: str = "forward") -> np.ndarray:
    """Estimate the model on the text, and align the text with it.

    Returns int32 ``[target words]``: for each, in order, the position of its source word, from 0, or -1.
    The links equal fast_align's. Memory holds the words, and the different word pairs that occur in the same
    sentence pair; a temporary file holds the rest. name: of the direction, for the log.
    """
    chosen = np.full(len(pairs.target.words), -1, np.int32)
    rows = np.repeat(pairs.full, pairs.target.lengths)
    if not rows.any():
        return chosen
    table = WordPairs.of(pairs)
    model = _Estimation(pairs, table, options)
    with tempfile.TemporaryFile() as file:
        indices = _Indices(file, pairs, table)
        for number in range(1, options.iterations):
            _learn(model, indices, number, name)
        parts = [model.choose(cells, index) for cells, index in indices if len(cells.row)]
    chosen[rows] = np.concatenate(parts)
    return chosen


def _learn(model: _Estimation, indices: _Indices, number: int, name: str) -> None:
    """One pass of EM; from the second pass on the tension is fitted, too."""
    counts, totals = np.zeros(len(model.t)), _Totals()
    for cells, index in indices:
        if len(cells.row):
            model.expect(cells, index, counts, totals)
    options = model.options
    if number > 1:  # in the first pass, all words are equally likely
        perplexity = math.exp(min(-totals.likelihood / totals.rows, 700.0))
        passed = f"pass {number} of {options.iterations}"
        logger.info("[align] %s, %s: perplexity %.3f, tension %.3f", name, passed, perplexity, model.tension)
    if options.favor_diagonal and options.optimize_tension and number > 1:
        model.tension = diagonal.fitted(model.tension, totals.feature / totals.rows, *model.sizes)
    model.maximize(counts)


def digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of ``log(gamma(x))`` for ``x > 0``: seven steps of its recurrence, then the asymptotic
    series around ``x - 1 / 2``."""
    found = np.zeros_like(x)
    for step in range(7):
        found -= 1.0 / (x + step)
    shifted = x + 6.5
    y = 1.0 / shifted**2
    series = y * (1 / 24 + y * (-7 / 960 + y * (31 / 8064 - y * 127 / 30720)))
    return found + np.log(shifted) + series
