"""Translation of lines of text with Marian models, as ``mgraph decode`` does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nmt import devices
from nmt.batches import Sample, batches
from nmt.config import read_config
from nmt.hypothesis import Hypothesis
from nmt.lines import read_lines
from nmt.models import load_model
from nmt.options import DECODE, require_files
from nmt.output import InOrder, best_line, n_best_line
from nmt.samples import LineEncoder, load_vocabs
from nmt.search import BeamSearch

BATCH_OPTIONS = ("mini_batch", "mini_batch_words", "maxi_batch", "maxi_batch_sort")
SEARCH_OPTIONS = (
    "beam_size",
    "normalize",
    "word_penalty",
    "allow_unk",
    "allow_special",
    "max_length_factor",
    "n_best",
)


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of one line.

    line: its number, from 0.
    texts: the translations, best first; only the best one without ``n_best``.
    hypotheses: their word ids and scores, in the same order.
    problem: why the line was not translated, or empty; its only text is then empty, its scores
        are not numbers.
    """

    line: int
    texts: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...]
    problem: str = ""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.texts[0]


class Translator:
    """Translates lines with one model; what it returns is what ``mgraph decode`` prints.

    models: path of the model file. vocabs: paths of the source and the target vocabulary.
    options: Marian's decoding options in snake_case with Marian's defaults: ``beam_size=12,
    normalize=0, word_penalty=0, allow_unk, allow_special, n_best, word_scores, max_length=1000,
    max_length_crop, max_length_factor=3, mini_batch=1, mini_batch_words=0, maxi_batch=1,
    maxi_batch_sort="none"``, and, before JAX has started, ``cpu_threads`` and ``devices``.

    Files are read once, here; a second call reads none, and compiles nothing for lengths and
    batch sizes of a bucket that it has seen.

    Raises OptionError for a wrong value, TypeError for an unknown option, ModelFileError and
    others derived from MGraphError for files that cannot be used, OSError for missing ones.
    """

    def __init__(self, models: Any, vocabs: Any, **options: Any) -> None:
        self.options = DECODE.python_values({"models": models, "vocabs": vocabs, **options})
        options = self.options
        require_files(options)
        if options["cpu_threads"] or options["devices"] != ("0",):
            devices.start(options["cpu_threads"], options["devices"])
        self.models = [load_model(path) for path in options["models"]]
        source, self.target_vocab = load_vocabs(options["vocabs"], self.models[0].dim_vocabs)
        self.encoder = LineEncoder([source], options["max_length"], options["max_length_crop"])
        self.search = BeamSearch(
            self.models,
            source_vocab=source,
            target_vocab=self.target_vocab,
            **{name: options[name] for name in SEARCH_OPTIONS},
        )

    @classmethod
    def from_config(cls, path: str, **options: Any) -> Translator:
        """The translator of a ``decoder.yml``, with `options` overriding what it says."""
        table = DECODE.options
        found = {table[name].attribute: value for name, value in read_config(DECODE, path).items()}
        kept = {name: found[name] for name in DECODE.python_options() if name in found}
        return cls(**(kept | options))

    def translate(self, lines: Iterable[str | bytes]) -> list[str]:
        """What ``mgraph decode`` prints for each line: as many strings as lines, in their order.

        That is the best translation, with its word scores if ``word_scores`` is set; or, if
        ``n_best`` is set, the whole list as one string with a line for each entry.
        """
        return [self.format(translation) for translation in self.translations(lines)]

    def translations(self, lines: Iterable[str | bytes]) -> Iterator[Translation]:
        """The translations of a stream of lines, in order, each as soon as it can be had."""
        finished: InOrder[Translation] = InOrder()
        batching = {name: self.options[name] for name in BATCH_OPTIONS}
        for batch in batches(self._samples(lines), **batching):
            for translation in self._translate_batch(batch):
                finished.add(translation.line, translation)
            yield from finished.take()

    def format(self, translation: Translation) -> str:
        """The text that ``mgraph decode`` prints for a translation, in Marian's format."""
        word_scores = self.options["word_scores"]
        if not self.options["n_best"]:
            return best_line(translation.text, translation.hypotheses[0], word_scores=word_scores)
        return "\n".join(
            n_best_line(translation.line, text, hypothesis, word_scores=word_scores)
            for text, hypothesis in zip(translation.texts, translation.hypotheses, strict=True)
        )

    def _samples(self, lines: Iterable[str | bytes]) -> Iterator[Sample]:
        for number, line in enumerate(read_lines(lines)):
            yield self.encoder.sample(number, [line])

    def _translate_batch(self, batch: list[Sample]) -> Iterator[Translation]:
        if batch[0].problem:
            yield Translation(batch[0].line, ("",), (self._no_hypothesis(),), batch[0].problem)
            return
        found = self.search.search([sample.sequences[0] for sample in batch])
        for sample, hypotheses in zip(batch, found, strict=True):
            texts = tuple(self.target_vocab.decode(h.words) for h in hypotheses)
            yield Translation(sample.line, texts, tuple(hypotheses))

    def _no_hypothesis(self) -> Hypothesis:
        unknown = float("nan")
        return Hypothesis((), (), unknown, unknown, (unknown,) * len(self.models), finished=False)
