"""The training corpus: sentences, their order, and their batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from nmt.settings.training import TrainOptions
from nmt.text.background import Background, Stopped
from nmt.text.batches import Batch, Batching
from nmt.text.few_shapes import PROGRAM, FittingShapes, Shapes, choose, worth_compiling
from nmt.text.layouts import PADDED, PaddedLayout
from nmt.text.lines import is_utf8
from nmt.text.order import MersenneTwister, Numbered, Rows
from nmt.text.parallel import CorpusError, Fields, Row
from nmt.text.sentences import Sentence, SentenceReader
from nmt.text.shapes import Shape, Sizes
from nmt.text.sharing.reading import Reading, Share
from nmt.text.vocabs.base import Vocab

SAMPLE = 1 << 15
"""How many rows to sample in order to choose the shapes of batches."""
SHARES_AHEAD = 2
"""How many chunks of a process's share of the rows are read ahead of training."""
_Prepared = tuple[Batch, str]
"""A batch, and the state of the batch generator after its maxi-batch."""
NOT_UTF8 = "lines that are not valid UTF-8 (such words are unknown)"
FEW_WEIGHTS = "lines with fewer weights than target words (the missing ones are 1)"


@dataclass
class EpochReport:
    """Counts of one epoch; complete when the epoch has ended.

    read: rows of the text. sentences: those trained on. left_out: rows that were left out, by reason.
    remarks: oddities of rows, by kind.
    batches: all batches. fresh: those that fitted none of the chosen shapes.
    words: in all streams, ``</s>`` included. positions: before batches are padded to a chosen shape; as in
        Marian, unless batches are packed. padded: positions after padding to the chosen shapes.
    shapes: batches of each shape; one program is compiled per shape.
    """

    read: int = 0
    sentences: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    fresh: int = 0
    words: int = 0
    positions: int = 0
    padded: int = 0
    shapes: Counter[Shape] = field(default_factory=Counter)

    @property
    def waste(self) -> float:
        """The share of positions added by padding batches to few shapes."""
        return 1 - self.positions / self.padded if self.padded else 0.0

    @property
    def padding(self) -> float:
        """The share of positions that hold no word."""
        return 1 - self.words / self.padded if self.padded else 0.0

    def count(self, row: Row, sentence: Sentence) -> None:
        """Count a row of the text and its sentence."""
        self.read += 1
        if not all(map(is_utf8, row)):
            self.remarks[NOT_UTF8] += 1
        if sentence.problem:
            self.left_out[sentence.problem] += 1
        if sentence.lacks_weights:
            self.remarks[FEW_WEIGHTS] += 1

    def add(self, size: Shape, words: int, shape: Shape, fresh: bool, layout: PaddedLayout = PADDED) -> None:
        """Count a batch of ``size``, padded to ``shape``."""
        self.batches += 1
        self.fresh += fresh
        self.sentences += size[0]
        self.words += words
        self.positions += layout.positions(size)
        self.padded += layout.positions(shape)
        self.shapes[shape] += 1

    def lines(self) -> list[str]:
        """The report for the log."""
        report = [
            f"{self.sentences:,} sentences in {self.batches:,} batches of {len(self.shapes)} shapes"
            f"{f' ({self.fresh} batches fitted none of those chosen before)' if self.fresh else ''}; "
            f"padding takes {self.padding:.1%} of the positions, {self.waste:.1%} for the shapes"
        ]
        if self.left_out:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common())
            report.append(f"{self.left_out.total():,} of {self.read:,} lines left out: {reasons}")
        report += [f"{remark}: {count:,}" for remark, count in self.remarks.most_common()]
        return report


class Corpus:
    """Training data from files to batches, epoch by epoch.

    Call ``begin_epoch`` for each epoch, then iterate. With Marian's options and seed this gives Marian's
    batches in Marian's order. A thread prepares them ahead of training; if several processes share the
    reading, it only encodes this process's share, and batches are made when training asks for them.

    options: those of ``mgraph train``. vocabs: one for each stream, sources first.
    seed: for the order of rows and of batches: that of ``--seed``, or the one drawn if it is 0.
    sizes: how many sentences fit into memory, given the lengths of all streams (``--mini-batch-fit``).
    layout: whether and how batches are packed. program: the cost of compiling a program, in positions.
    share: the rows that this process encodes for all processes (``Share``); None if it is the only one.
    announce: called with each batch when it is prepared, in the thread that prepares it.
    stopped: once it returns True (after a signal), the batches end soon, even during a long shuffle.

    Attributes:
        seed_batch, seed_corpus: the states of the batch and row generators from which ``restore`` repeats
            the current epoch.
        epoch: the number of the epoch, from 1.

    OptionError for options that contradict each other or the vocabularies.
    """

    def __init__(
        self,
        options: TrainOptions,
        vocabs: Sequence[Vocab],
        *,
        seed: int,
        sizes: Sizes | None = None,
        layout: PaddedLayout = PADDED,
        program: float = PROGRAM,
        share: Share | None = None,
        announce: Callable[[Batch], None] | None = None,
        stopped: Callable[[], bool] | None = None,
    ) -> None:
        fields = Fields.from_options(options, len(vocabs))
        self._rows = Rows(options, fields, self._ends)
        self._reader = SentenceReader(options, vocabs, fields, seed)
        self._batching = Batching(options, sizes)
        self._shuffle_batches = options.shuffle != "none"
        # As in Marian: with several threads, sentences left out take room in their maxi-batch.
        self._count_left_out = options.data_threads > 1
        self._seed, self._layout, self._program, self._stopped = seed, layout, program, stopped
        self._share, self._announce = share, announce
        self._batch_generator, self._row_generator = MersenneTwister(seed), MersenneTwister(seed)
        self.seed_batch, self.seed_corpus = self._batch_generator.text, self._row_generator.text
        self.epoch = 0
        self._shapes: Shapes | None = None
        self._typical: dict[Shape, float] = {}
        self._report = EpochReport()
        self._prepared: Iterator[_Prepared] | None = None
        self._thread: Background[Any] | None = None
        self._after_taken = self.seed_batch

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return self._rows.paths

    def begin_epoch(self) -> None:
        """Start the next epoch: reshuffle, and remember the generators' states for ``restore``.

        The current epoch is abandoned; the generators continue after the last maxi-batch that was used.
        """
        self.close()
        self.epoch += 1
        self._begin(0)

    def end_epoch(self) -> None:
        """End the epoch: ``seed_batch`` and ``seed_corpus`` become those of the next one."""
        self.close()
        self.seed_batch, self.seed_corpus = self._batch_generator.text, self._row_generator.text

    def restore(self, seed_batch: str, seed_corpus: str, batches: int, *, epoch: int = 1) -> None:
        """Continue an interrupted epoch after ``batches`` batches, exactly as without the interruption.

        seed_batch, seed_corpus: the generators' states at the start of the epoch; empty, as Marian writes
            them in its first epoch, for the states that the seed gives. epoch: its number, from 1.

        CorpusError for an invalid state.
        """
        self.close()
        first = MersenneTwister(self._seed).text
        self._batch_generator.restore(seed_batch or first)
        self._row_generator.restore(seed_corpus or first)
        self.epoch = epoch
        self._begin(batches)

    def __iter__(self) -> Iterator[Batch]:
        """The remaining batches of the epoch. CorpusError before ``begin_epoch`` or ``restore``."""
        if self._prepared is None:
            raise CorpusError("call begin_epoch or restore before iterating over the batches")
        if self._stopped and self._stopped():
            return  # else, of several processes, some might wait to exchange rows that others do not have
        for batch, generator in self._prepared:
            self._after_taken = generator
            yield batch
        self._after_taken = self._batch_generator.text  # the thread has ended

    @property
    def ready(self) -> bool:
        """Whether the thread has prepared something, or has ended."""
        return self._thread is None or self._thread.ready

    def report(self) -> EpochReport:
        """The counts of this epoch; complete when it has ended."""
        return self._report

    def close(self) -> None:
        """Stop the thread that prepares batches, and remove its temporary files."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None
        if self._prepared is not None:
            self._prepared = None
            self._batch_generator.restore(self._after_taken)

    def _ends(self) -> bool:
        """Whether reading, which may be waiting for a pipe, is to end: on request, or because the corpus is
        being closed."""
        closing = self._thread is not None and self._thread.closed
        return closing or (self._stopped is not None and self._stopped())

    def _begin(self, skip: int) -> None:
        self.seed_batch, self.seed_corpus = self._batch_generator.text, self._row_generator.text
        self._after_taken = self.seed_batch
        self._report = EpochReport()
        self._prepared = iter(())
        with suppress(Stopped):
            if self._shapes is None:
                self._shapes = self._choose_shapes()
            rows = self._rows.epoch(self._row_generator)
            self._start(rows, self._shapes_of_epoch(self._shapes), skip)

    def _start(self, rows: Iterator[Numbered], shapes: Shapes, skip: int) -> None:
        """Start the thread, which makes batches, or finds the sentences of this process's share."""
        if self._share is None:
            batches = self._prepare(self._read(rows, self.epoch), shapes, self._report, skip)
            self._prepared = self._thread = Background(batches, stopped=self._stopped)
        else:
            share = self._share.own(self._reader, rows, self.epoch)
            self._thread = own = Background(share, SHARES_AHEAD, self._stopped)
            self._prepared = self._prepare(self._share.all(own), shapes, self._report, skip)

    def _read(self, rows: Iterable[Numbered], epoch: int) -> Iterator[Reading]:
        """The rows with their sentences."""
        if self._share is not None:
            return self._share.all(self._share.own(self._reader, rows, epoch))
        return ((row, self._reader.read(number, row, epoch)) for number, row in rows)

    def _prepare(
        self, read: Iterable[Reading], shapes: Shapes, report: EpochReport, skip: int
    ) -> Iterator[_Prepared]:
        """The batches of an epoch except the first ``skip``, which are only counted."""
        batching = _fitted(self._batching, shapes)
        number = 0
        for maxi_batch in self._maxi_batches(read, report):
            batches = batching.marian_batches(maxi_batch)
            if self._shuffle_batches:
                self._batch_generator.shuffle(batches)
            generator = self._batch_generator.text
            for batch in batches:
                number += 1
                size = self._layout.size(batch)
                shape, known = shapes.of(size)
                words = sum(len(words) for sentence in batch for words in sentence.sequences)
                report.add(size, words, shape, not known, self._layout)
                if number > skip:
                    prepared = self._layout.batch(batch, shape)
                    if self._announce:
                        self._announce(prepared)
                    yield prepared, generator
        if self._stopped and self._stopped():
            return
        if not number:
            raise CorpusError(f"nothing to train on: {'; '.join(report.lines()[1:])}")
        if number < skip:
            raise CorpusError(
                f"training continues after {skip} batches of this epoch, but the corpus has only {number}: "
                "the corpus or the options have changed; --no-restore-corpus starts at the first line"
            )

    def _maxi_batches(self, read: Iterable[Reading], report: EpochReport) -> Iterator[list[Sentence]]:
        """The sentences, one maxi-batch at a time."""
        sentences: list[Sentence] = []
        room = self._batching.capacity
        for row, sentence in read:
            report.count(row, sentence)
            if not sentence.problem:
                sentences.append(sentence)
            elif not self._count_left_out:
                continue
            room -= 1
            if not room:
                yield sentences
                sentences, room = [], self._batching.capacity
        if sentences:
            yield sentences

    def _choose_shapes(self) -> Shapes:
        """Shapes chosen for the batches of a sample of the rows."""
        if self._batching.sizes:
            return self._choose_fitting(self._batching.sizes)
        sizes: Counter[Shape] = Counter()
        epochs, maxi_batches = self._sample()
        for maxi_batch in maxi_batches:
            sizes.update(map(self._layout.size, self._batching.marian_batches(maxi_batch)))
        self._typical = {shape: count / epochs for shape, count in sizes.items()} if epochs else {}
        return Shapes(choose(sizes, self._layout), self._layout)

    def _choose_fitting(self, fit: Sizes) -> Shapes:
        """Shapes for batches that fill the memory, and so depend on the lengths that are chosen."""
        sizes: Counter[Shape] = Counter()
        maxi_batches = list(self._sample()[1])
        for maxi_batch in maxi_batches:
            for batch in self._batching.marian_batches(maxi_batch):
                lengths = self._layout.lengths(self._layout.size(batch))
                sizes[(1, *lengths)] += len(batch)
        chosen = choose(sizes)
        shapes = FittingShapes(chosen, fit)
        if not self._layout.packs:
            return shapes
        batching = _fitted(self._batching, shapes)
        batches = (batch for each in maxi_batches for batch in batching.marian_batches(each))
        return FittingShapes(chosen, fit, self._layout, map(self._layout.size, batches))

    def _shapes_of_epoch(self, shapes: Shapes) -> Shapes:
        """The shapes of this epoch: those worth compiling, or all, as with ``--mini-batch-fit``."""
        if not self._typical:
            return shapes
        left = worth_compiling(shapes.chosen, self._typical, self.epoch, self._layout, self._program)
        return Shapes(left, self._layout)

    def _sample(self) -> tuple[int, Iterable[list[Sentence]]]:
        """How many epochs a sample makes, 0 if an epoch is larger than the sample; and its maxi-batches, in
        many orders if rows are shuffled."""
        rows = self._rows.sample(SAMPLE)
        maxi_batches = list(self._maxi_batches(self._read(rows, 0), EpochReport()))
        whole = len(rows) < SAMPLE
        if not self._rows.shuffled:
            return int(whole), maxi_batches
        sentences = list(chain.from_iterable(maxi_batches))
        epochs = -(-SAMPLE // max(1, len(sentences)))
        return epochs if whole else 0, self._shuffled(sentences, epochs)

    def _shuffled(self, sentences: list[Sentence], epochs: int) -> Iterator[list[Sentence]]:
        dice, size = MersenneTwister(0), self._batching.capacity
        for _ in range(epochs):
            dice.shuffle(sentences)
            yield from (sentences[first : first + size] for first in range(0, len(sentences), size))


def _fitted(batching: Batching, shapes: Shapes) -> Batching:
    """``batching``; with ``--mini-batch-fit``, for batches of as many rows as their shape has."""
    return replace(batching, sizes=shapes.rows) if isinstance(shapes, FittingShapes) else batching
