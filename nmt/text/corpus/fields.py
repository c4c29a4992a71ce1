"""Which file, or which field of a line, holds what: sentences, word alignments, weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.settings import OptionError
from nmt.settings.training import NOTHING


@dataclass(frozen=True)
class Fields:
    """The layout of a corpus.

    paths: its files. tsv: there is one, and a line of it holds all fields with tabs between (``--tsv``).
    sentences: numbers of the fields that hold sentences, sources first.
    alignment, weights: numbers of the fields that hold them; None if none does (``--guided-alignment``,
        ``--data-weighting``).
    """

    paths: tuple[str, ...]
    tsv: bool
    sentences: tuple[int, ...]
    alignment: int | None = None
    weights: int | None = None

    @property
    def number(self) -> int:
        """How many fields there are."""
        return len(self.sentences) + (self.alignment is not None) + (self.weights is not None)

    @classmethod
    def from_options(cls, values: Mapping[str, Any], streams: int) -> Fields:
        """The layout that options describe, with so many ``streams`` of sentences.

        OptionError if they contradict each other, or the streams.
        """
        paths = tuple(values["train_sets"])
        alignment, weights = (
            None if values[option] in NOTHING else values[option]
            for option in ("guided_alignment", "data_weighting")
        )
        if alignment is not None and (values["right_left"] or streams != 2):
            raise OptionError("--guided-alignment is for models with one source, and without --right-left")
        if values["tsv"]:
            return _tsv_fields(paths, streams, alignment, weights, values["tsv_fields"])
        if len(paths) != streams:
            raise OptionError(
                f"--train-sets: {streams} files are needed, one for each vocabulary, got {len(paths)}"
            )
        extra = [path for path in (alignment, weights) if path is not None]
        return cls(
            (*paths, *extra),
            False,
            tuple(range(streams)),
            None if alignment is None else streams,
            None if weights is None else streams + len(extra) - 1,
        )


def _tsv_fields(
    paths: tuple[str, ...],
    streams: int,
    alignment: str | None,
    weights: str | None,
    fields: int,
) -> Fields:
    places = [_place(alignment, "guided-alignment"), _place(weights, "data-weighting")]
    taken = [place for place in places if place is not None]
    number = streams + len(taken)
    if len(set(taken)) < len(taken) or any(place >= number for place in taken):
        raise OptionError(
            "--guided-alignment and --data-weighting: with --tsv the numbers of different fields from 0 to "
            f"{number - 1}, got {' and '.join(map(str, taken))}"
        )
    if fields not in (0, number):
        raise OptionError(
            f"--tsv-fields: {number} fields are needed ({streams} for vocabularies, {len(taken)} for "
            f"alignments and weights), got {fields}"
        )
    return Fields(paths, True, tuple(place for place in range(number) if place not in taken), *places)


def _place(value: str | None, option: str) -> int | None:
    """The number of the field that an option names."""
    if value is None:
        return None
    if not value.isascii() or not value.isdigit():
        raise OptionError(f"--{option}: with --tsv the number of a field, from 0, got '{value}'")
    return int(value)
