"""The validation set as word ids, read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgraph.errors import MGraphError
from nmt.settings import OptionError, require_readable
from nmt.text.lines import STANDARD_INPUT
from nmt.text.parallel import read_rows
from nmt.text.sentences import LineEncoder, Sentence
from nmt.text.shapes import length_bucket
from nmt.text.vocabs.base import Vocab


class ValidationSetError(MGraphError, ValueError):
    """A validation set is empty, or has a line that cannot be read."""


@dataclass(frozen=True)
class ValidationSet:
    """The sentences of ``--valid-sets`` in the order of the files: ids of each source, then of the target,
    ``</s>`` included.

    mini_batch: sentences in a batch; what a sentence becomes does not depend on it.
    """

    samples: tuple[Sentence, ...]
    mini_batch: int = 32

    @classmethod
    def read(
        cls,
        paths: Sequence[str],
        vocabs: Sequence[Vocab],
        *,
        max_length: int = 1000,
        right_left: bool = False,
        tsv: bool = False,
        mini_batch: int = 32,
    ) -> ValidationSet:
        """The sentences of files, one for each vocabulary, or with ``tsv`` of one with fields.

        Those longer than ``max_length`` words, ``</s>`` counted, are cut to it and keep ``</s>``; empty ones
        are ``</s>`` alone. ``right_left``: their words are reversed, but ``</s>``.

        OptionError if there are too many or too few files; ParallelTextError if they differ in length;
        ValidationSetError for files without lines and for lines with too many fields; OSError for files that
        cannot be read.
        """
        check_sets(paths, 1 if tsv else len(vocabs), tsv)
        encoder = LineEncoder(vocabs, max_length, max_length_crop=True, right_left=right_left, tsv=tsv)
        samples = tuple(encoder.sentence(number, row) for number, row in enumerate(read_rows(paths)))
        if not samples:
            raise ValidationSetError(f"--valid-sets: no lines in {' and '.join(paths)}")
        for sample in samples:
            if sample.problem:
                raise ValidationSetError(f"{' and '.join(paths)}, line {sample.line + 1}: {sample.problem}")
        return cls(samples, mini_batch)

    def batches(self) -> Iterator[list[Sentence]]:
        """Batches, the longest sentences first, so that what does not fit into memory fails at once.

        The whole set is ordered by ``length_bucket`` of the longest stream: that makes fewer shapes, and so
        fewer programs to compile, than Marian's order, and less padding.
        """
        ordered = sorted(self.samples, key=_bucket, reverse=True)
        for first in range(0, len(ordered), self.mini_batch):
            yield ordered[first : first + self.mini_batch]


def check_sets(paths: Sequence[str], wanted: int, tsv: bool) -> None:
    """OptionError for another number of files, OSError for one that cannot be read."""
    if len(paths) != wanted:
        what = "one file with --tsv is" if tsv else f"{wanted} files, one for each vocabulary, are"
        raise OptionError(f"--valid-sets: {what} needed, got {len(paths)}")
    for path in paths:
        if path in STANDARD_INPUT:
            raise OptionError(f"--valid-sets: files are needed, got {path}")
    require_readable("--valid-sets", paths)


def _bucket(sample: Sentence) -> int:
    return length_bucket(max(map(len, sample.sequences)))
