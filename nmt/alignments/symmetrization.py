"""Links of two directions, joined (Och and Ney 2003; Koehn et al. 2003), as atools does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from heapq import heappop, heappush

Link = tuple[int, int]
"""Positions in the source and in the target, from 0."""

NEIGHBORS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


def intersect(forward: Collection[Link], reverse: Collection[Link]) -> list[Link]:
    """The links that both directions have."""
    return sorted(set(forward) & set(reverse))


def union(forward: Collection[Link], reverse: Collection[Link]) -> list[Link]:
    """The links that either direction has."""
    return sorted({*forward, *reverse})


class _Growing:
    """Links that grow from the intersection towards the union."""

    def __init__(self, forward: Collection[Link], reverse: Collection[Link]) -> None:
        self.links = set(forward) & set(reverse)
        self._sources = {source for source, _ in self.links}
        self._targets = {target for _, target in self.links}

    def _add(self, link: Link) -> None:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])

    def _touches(self, link: Link) -> bool:
        return not self.links.isdisjoint(_around(link))

    def _is_new(self, link: Link, both: bool) -> bool:
        """Whether at least one word of ``link`` has no link yet, or with ``both`` whether neither has one."""
        free = link[0] not in self._sources, link[1] not in self._targets
        return all(free) if both else any(free)

    def diagonal(self, candidates: Collection[Link]) -> None:
        """Add candidates that are next to a link and have an unlinked word, until there are no more.

        The order is that of sorted passes over all candidates, of which only those next to a new link are
        looked at. One whose words are linked stays out for good.
        """
        waiting = set(candidates) - self.links
        due = sorted(filter(self._touches, waiting))
        while due:
            later: list[Link] = []
            while due:
                link = heappop(due)
                if link not in waiting:
                    continue
                waiting.remove(link)
                if self._is_new(link, both=False):
                    self._add(link)
                    for near in waiting.intersection(_around(link)):
                        heappush(due if near > link else later, near)
            due = later

    def final(self, candidates: Collection[Link], both: bool) -> None:
        """Add candidates with a word that has no link, or with ``both`` only if neither word has one."""
        for link in sorted(set(candidates) - self.links):
            if self._is_new(link, both):
                self._add(link)


def _around(link: Link) -> list[Link]:
    """The places next to a link."""
    return [(link[0] + s, link[1] + t) for s, t in NEIGHBORS]


def grow_diag(forward: Collection[Link], reverse: Collection[Link]) -> list[Link]:
    """The intersection, and links of the union next to chosen ones, unless both words are linked already."""
    growing = _Growing(forward, reverse)
    growing.diagonal({*forward, *reverse})
    return sorted(growing.links)


def grow_diag_final(forward: Collection[Link], reverse: Collection[Link]) -> list[Link]:
    """``grow_diag``, then links of either direction, unless both words are linked already."""
    return _final(forward, reverse, both=False)


def grow_diag_final_and(forward: Collection[Link], reverse: Collection[Link]) -> list[Link]:
    """``grow_diag``, then links of either direction if neither word is linked yet."""
    return _final(forward, reverse, both=True)


def _final(forward: Collection[Link], reverse: Collection[Link], both: bool) -> list[Link]:
    growing = _Growing(forward, reverse)
    growing.diagonal({*forward, *reverse})
    growing.final(forward, both)
    growing.final(reverse, both)
    return sorted(growing.links)


JOINED: Mapping[str, Callable[[Collection[Link], Collection[Link]], list[Link]]] = {
    "intersect": intersect,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    "grow-diag-final-and": grow_diag_final_and,
}
"""The functions that join links, by the names of ``nmt.settings.alignment.HEURISTICS``."""
