"""A vocabulary as the search sees it: special ids, and how many words there are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ToyVocab:
    """What the search asks of a vocabulary of ``size`` words."""

    eos_id: int
    unk_id: int
    control_ids: tuple[int, ...] = ()
    size: int = 1000

    def __len__(self) -> int:
        return self.size
