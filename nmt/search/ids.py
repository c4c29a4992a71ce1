"""Checks of word ids that users give."""

from __future__ import annotations

import operator
from collections.abc import Sequence


def require_ids(
    number: int,
    name: str,
    ids: Sequence[int],
    size: float,
    error: type[Exception],
    *,
    empty: bool = False,
) -> None:
    """``error`` unless ``ids``, the ``name`` of sentence ``number``, are ids of a vocabulary with ``size``
    ids. None at all is an error, too, unless ``empty``."""
    try:
        fit = not len(ids) or (min(ids) >= 0 and max(map(operator.index, ids)) < size)
    except TypeError:
        raise error(f"sentence {number}: expected ids in its {name}, got {ids!r:.80}") from None
    if not fit:
        wrong = next(word for word in ids if not 0 <= word < size)
        raise error(f"sentence {number} has id {wrong} in its {name}, of which the vocabulary has {size} ids")
    if not len(ids) and not empty:
        raise error(f"sentence {number} has no ids in its {name}, not even </s>")
