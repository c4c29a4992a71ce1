"""The numbers that pooled models give for lines, in full batches of few shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np

from mgraph import Plan, Type, compiled
from nmt.models.parts import Source
from nmt.models.pooled import PooledModel
from nmt.runtime import compilation_cache, devices
from nmt.search.few_batches import KEPT_NUMBERS, FewBatches
from nmt.settings import OptionError, require_files, require_readable
from nmt.settings.config import Command, log_notices
from nmt.settings.metrics import EmbedOptions, EvaluateOptions
from nmt.text.batches import pad, windows
from nmt.text.fields import FieldEncoder
from nmt.text.output import InOrder
from nmt.text.parallel import ParallelLines, Row
from nmt.text.sentences import LineEncoder

Chosen = TypeVar("Chosen", EvaluateOptions, EmbedOptions)


@dataclass(frozen=True)
class PoolingPlan(Plan, by_key=["model"]):
    """``PooledModel.pooled`` for ``rows`` lines, with sequences padded to ``length`` words."""

    model: PooledModel
    rows: int
    length: int

    def __str__(self) -> str:
        return f"pooling: {self.rows} lines of {self.length} words"

    def __call__(self, params: dict[str, jax.Array], streams: Sequence[np.ndarray]) -> jax.Array:
        graph, shape = self.model.blank_graph(), (self.rows, self.length)
        sources = [
            Source(
                graph.input(f"ids{i}", shape, Type.int32),
                graph.input(f"mask{i}", shape, Type.float32),
            )
            for i in range(self.model.streams)
        ]
        leaves = [part for source in sources for part in source]
        function = graph.function([self.model.pooled(sources)], leaves, derivatives="jax")
        (found,) = function.pure(params, streams)
        return found


class Pooling:
    """Runs one pooled model; neither padding nor other lines change a number.

    mini_batch: the most lines in a batch. mini_batch_words: the most words of a stream in a batch.
    """

    def __init__(self, model: PooledModel, mini_batch: int, mini_batch_words: int = 0) -> None:
        self.model, self._mini_batch = model, mini_batch
        self._batches = FewBatches(mini_batch, mini_batch_words, KEPT_NUMBERS)

    def numbers(self, samples: Sequence[Sequence[Sequence[int]]]) -> Iterator[tuple[int, np.ndarray]]:
        """The index of each line and its numbers, float32, longest lines first.

        samples: the ids of each stream of a line, at least one in every stream.
        """
        for chosen, (rows, length) in self._batches([max(map(len, streams)) for streams in samples]):
            streams = zip(*(samples[number] for number in chosen), strict=True)
            batch = pad(list(streams), (rows, *[length] * self.model.streams))
            arrays: list[Any] = [part for pair in zip(batch.ids, batch.masks, strict=True) for part in pair]
            plan = PoolingPlan(self.model, rows, length)
            found = np.asarray(compiled(plan)(self.model.params, arrays), np.float32)
            yield from zip(chosen, found, strict=False)

    def lines(
        self,
        encoder: FieldEncoder | LineEncoder,
        texts: Sequence[Iterable[str | bytes]],
        names: Sequence[str],
        maxi_batch: int,
    ) -> Iterator[tuple[int, np.ndarray, str]]:
        """The index, from 0, of each line of texts, its numbers, and an empty string; for a line that is left
        out, NaNs and the reason. In order, ``mini_batch * maxi_batch`` lines at a time.

        names: of the texts, for errors. ParallelTextError if texts differ in length, after the preceding
        lines; OptionError for a line of ``--tsv`` with too many fields.
        """
        finished: InOrder[tuple[int, np.ndarray, str]] = InOrder()
        rows = ParallelLines(texts, names)
        samples = (
            encoder.sentence(number, _fitting(encoder, number, row)) for number, row in enumerate(rows)
        )
        missing = np.full(self.model.numbers, np.nan, np.float32)
        for group in windows(samples, self._mini_batch * maxi_batch):
            good = [sample for sample in group if not sample.problem]
            for sample in group:
                if sample.problem:
                    finished.add(sample.line, (sample.line, missing, sample.problem))
            for index, numbers in self.numbers([sample.sequences for sample in good]):
                line = good[index].line
                finished.add(line, (line, numbers, ""))
            yield from finished.take()
        rows.check()


def _fitting(encoder: FieldEncoder | LineEncoder, number: int, row: Row) -> Row:
    """Row ``number``, from 0, as it is; OptionError if it has more fields than texts, where Marian aborts."""
    expected, found = len(encoder.vocabs), row[0].count(b"\t") + 1
    if encoder.tsv and found > expected:
        raise OptionError(f"--tsv: expected {expected} fields, line {number + 1} has {found}")
    return row


def started(command: Command, kind: type[Chosen], model: Any, vocabs: Any, given: dict[str, Any]) -> Chosen:
    """The checked options of an ``Evaluator`` or ``Embedder``; also sets the cache and the device they name.

    model: a path, or the options of ``command`` as an object of ``kind``, which other arguments override.
    """
    more = {**given, "vocabs": vocabs} if vocabs else given
    said = isinstance(model, kind)
    options: Chosen
    if said:
        options = command.changed(model, more)
    else:
        options = command.from_python({"model": model, **more})
        log_notices(command, options)
    check_pooling(options)
    compilation_cache.use(options.compilation_cache)
    if said or options.chooses_device:
        devices.start(options.cpu_threads, options.devices, 0)
    return options


def check_pooling(options: EvaluateOptions | EmbedOptions) -> None:
    """Check the options before a device is started or the model is loaded: OptionError for invalid values,
    OSError for a file that cannot be read."""
    require_files("--model", [options.model], options.vocabs, of="each text")
    require_readable("--model", [options.model])
    require_readable("--vocabs", options.vocabs)
