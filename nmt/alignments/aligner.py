"""Word alignment of a parallel text."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from nmt.alignments.model import best_links
from nmt.alignments.pairs import NumberedText, Pairs
from nmt.alignments.symmetrization import JOINED, Link
from nmt.settings import OptionError
from nmt.settings.alignment import DIRECTIONS, AlignmentOptions
from nmt.settings.config import options_from
from nmt.text.lines import require_items
from nmt.text.parallel import ParallelTextError

logger = logging.getLogger(__name__)


def align(
    sources: Iterable[Sequence[Hashable]], targets: Iterable[Sequence[Hashable]], **options: Any
) -> list[list[Link]]:
    """Align the words of sentence pairs, as fast_align and atools do (Dyer et al. 2013).

    sources, targets: sentences as sequences of words: strings, bytes or numbers. options: those of
    ``mgraph align``, such as ``heuristic="intersect"`` or ``iterations=5``.

    Returns for each pair its links ``(source position, target position)``, from 0; none for a pair with an
    empty side. ``forward`` links each target word to at most one source word, in the order of target words;
    all others are sorted.

    Raises OptionError for invalid options, TypeError for unknown ones, ParallelTextError for texts of
    different lengths, ArgumentError for a sentence that is not split into words.
    """
    settings = options_from(AlignmentOptions, options)
    sides = list(sources), list(targets)
    for sentence in chain(*sides):
        require_items("a sentence is a list of words", sentence)
    if len(sides[0]) != len(sides[1]):
        raise ParallelTextError(f"there are {len(sides[0])} sources, but {len(sides[1])} targets")
    return list(aligned(Pairs.of(zip(*sides, strict=True)), settings))


def aligned(pairs: Pairs, options: AlignmentOptions) -> Iterator[list[Link]]:
    """The links of each pair, one after another; the models are estimated before the first."""
    if options.variational_bayes and not options.alpha:
        raise OptionError("--alpha must be above 0 with --variational-bayes")
    left = int(np.count_nonzero(~pairs.full))
    if left:
        first = int(np.argmin(pairs.full)) + 1
        logger.warning("[align] %d pairs with an empty side get no links, the first in line %d", left, first)
    forward, reverse = DIRECTIONS
    chosen = {
        name: best_links(each, options, name)
        for name, each in ((forward, pairs), (reverse, pairs.turned))
        if options.heuristic in (name, *JOINED)
    }
    return _joined(pairs, chosen, options.heuristic)


def _joined(pairs: Pairs, chosen: dict[str, np.ndarray], heuristic: str) -> Iterator[list[Link]]:
    forward, reverse = DIRECTIONS
    for number in range(len(pairs.source.lengths)):
        found: dict[str, list[Link]] = {}
        if forward in chosen:
            links = _of(chosen[forward], pairs.target, number)
            found[forward] = [(source, target) for target, source in links]
        if reverse in chosen:
            found[reverse] = _of(chosen[reverse], pairs.source, number)
        yield JOINED[heuristic](found[forward], found[reverse]) if heuristic in JOINED else found[heuristic]


def _of(chosen: np.ndarray, side: NumberedText, number: int) -> list[Link]:
    """The linked words of a sentence, each with the position to which it is linked."""
    begin, end = side.offsets[number : number + 2]
    return [(place, other) for place, other in enumerate(chosen[begin:end].tolist()) if other >= 0]
