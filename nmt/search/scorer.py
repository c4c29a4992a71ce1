"""Scores of given translations under a Marian model (``mgraph score``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from nmt.files import load_model
from nmt.files.directories import read_directory
from nmt.runtime import compilation_cache, devices
from nmt.runtime.compared import Compared
from nmt.search.made_from_options import MadeFromOptions
from nmt.search.scoring import Scoring
from nmt.settings import (
    SCORE,
    OptionError,
    ScoreOptions,
    products_in,
    require_files,
    require_readable,
    whole_number,
)
from nmt.settings.config import log_notices, takes
from nmt.settings.model_options import described_model
from nmt.text.batches import windows
from nmt.text.output import (
    InOrder,
    alignment_field,
    read_alignment,
    score_line,
    significant,
    with_feature,
    word_scores_field,
)
from nmt.text.parallel import NBestRows, ParallelLines, source_names
from nmt.text.sentences import LineEncoder, Sentence
from nmt.text.vocabs.agreement import check_agreement
from nmt.text.vocabs.loading import load_vocabs

if TYPE_CHECKING:
    from nmt.settings.keywords import Path, Paths, ScoreKeywords, ScoreOverrideKeywords


@dataclass(frozen=True, slots=True, eq=False)
class Score(Compared):
    """The score of one sentence and its translation, in natural logarithms.

    line: its number, from 0.
    log_prob: the log-probability of the target given the sources, ``</s>`` included; NaN if not scored.
    word_scores: the log-probability of each target word; they sum to ``log_prob``.
    problem: why it was not scored, or empty.
    attention: float32 ``[target word, word of the first source]``, with ``alignment`` only.
    entry: the line of the n-best list, with ``n_best`` only.
    """

    line: int
    log_prob: float
    word_scores: tuple[float, ...]
    problem: str = ""
    attention: np.ndarray | None = None
    entry: bytes = b""


@dataclass(slots=True)
class Total:
    """Sums over the scored pairs, for ``--summary``."""

    log_prob: float = 0.0
    sentences: int = 0
    words: int = 0

    @classmethod
    def of(cls, sums: Mapping[str, float]) -> Total:
        """From fields by name; missing fields are 0."""
        words, sentences = (int(sums.get(name, 0)) for name in ("words", "sentences"))
        return cls(sums.get("log_prob", 0.0), sentences, words)

    def add(self, result: Score) -> None:
        """Count one pair, unless it has a problem."""
        if not result.problem:
            self.log_prob += result.log_prob
            self.sentences += 1
            self.words += len(result.word_scores)

    def summary(self, kind: str) -> str:
        """The cost as Marian prints it: a positive number with six significant digits.

        ``ce-sum``: the sum of -log p. ``ce-mean`` (``cross-entropy``): per sentence.
        ``ce-mean-words``: per target word, ``</s>`` counted. ``perplexity``: exp of that.
        """
        cost = 0.0 - self.log_prob  # 0 rather than -0 if no pair was scored
        if kind == "ce-sum":
            return significant(cost)
        per_word = cost / self.words if self.words else math.nan
        if kind == "ce-mean-words":
            return significant(per_word)
        if kind == "perplexity":
            with np.errstate(over="ignore"):
                return significant(float(np.exp(np.float64(per_word))))
        return significant(cost / self.sentences if self.sentences else math.nan)


class Scorer(MadeFromOptions):
    """Scores translations with one model; its results are those of ``mgraph score``.

    model: path of the model file. vocabs: paths of the vocabularies of each source and the target.
    given: Marian's scoring options in snake_case with Marian's defaults, such as ``normalize=True`` or
    ``mini_batch=16``, and ``pieces``, as for ``Translator``; before JAX has started also ``cpu_threads``,
    ``devices`` and ``compilation_cache``. ``nmt.settings.ScoreOptions`` lists them with types; an object of
    that class may be passed in place of ``model``. Options of the command line only, such as ``quiet``, are
    refused; the error says what to do instead.

    Texts are the lines of each source, then of the target: ``score(source, target)``, or ``score(target)``
    for a language model. With ``n_best`` the target is an n-best list; with ``tsv`` one text has all fields.

    Raises as ``Translator`` does; ParallelTextError if the texts differ in length and NBestListError for an
    invalid line of an n-best list, both after the scores of the preceding lines; NBestListError if the list
    is empty and a source is not.
    """

    @takes(SCORE)
    def __init__(
        self,
        model: Path | ScoreOptions,
        vocabs: Paths = (),
        **given: Unpack[ScoreKeywords],
    ) -> None:
        more: dict[str, Any] = {**given, "vocabs": vocabs} if vocabs else {**given}
        if isinstance(model, ScoreOptions):
            options = SCORE.changed(model, more)
        else:
            options = SCORE.from_python({"model": model, **more})
            log_notices(SCORE, options)
        self.options: ScoreOptions = options
        check_scoring(options)
        self.alignment = read_alignment(options.alignment)
        compilation_cache.use(options.compilation_cache)
        if isinstance(model, ScoreOptions) or options.chooses_device:
            devices.start(options.cpu_threads, options.devices, options.local_index)
        self.model = load_model(
            options.model,
            options=described_model(options),
            ignore_config=options.ignore_model_config,
            precision=products_in(options),
            vocabs=options.vocabs,
        )
        self.streams = self.model.sources + 1
        self.scoring = Scoring(
            self.model,
            mini_batch=options.mini_batch,
            mini_batch_words=options.mini_batch_words,
            attention=self.alignment is not None,
        )
        if options.tsv and options.tsv_fields not in (0, self.streams):
            raise OptionError(f"--tsv-fields: this model needs {self.streams}, got {options.tsv_fields}")
        loaded = load_vocabs(
            options.vocabs,
            self.model.dim_vocabs,
            owner=options.model,
            pieces=options.pieces,
            input_types=self.model.options.stream_types,
        )
        check_agreement(options.model, loaded, self.model.options)
        self.encoder = LineEncoder(
            loaded,
            options.max_length,
            options.max_length_crop,
            self.model.options.right_left,
            options.tsv,
        )

    def __repr__(self) -> str:
        return f"Scorer({self.model!r}; {', '.join(map(repr, self.encoder.vocabs))})"

    @classmethod
    def from_dir(cls, path: Path, config: str = "", **options: Unpack[ScoreOverrideKeywords]) -> Scorer:
        """With the model and the vocabularies of a directory that ``Translator.from_dir`` reads.

        config: as there. ``options`` are those of ``Scorer``, and also ``model`` and ``vocabs``, which have
        precedence. All else in a configuration is for translating and does not count. Raises OptionError if
        the configuration names several models, and the errors of ``read_directory``.
        """
        given: dict[str, Any] = {**options}
        names = {"model": "models", "vocabs": "vocabs", "pieces": "pieces"}
        chosen = {name: given.pop(own) for own, name in names.items() if own in given}
        found = read_directory(path, config, **chosen)
        if len(found["models"]) > 1:
            several = ", ".join(map(str, found["models"]))
            raise OptionError(f"{path}: a Scorer has one model; choose it with model=..., among {several}")
        [model] = found["models"]
        return cls(model, found["vocabs"], pieces=found.get("pieces", ()), **given)

    def score(self, *texts: Iterable[str | bytes]) -> list[float]:
        """The score of each line, as ``mgraph score`` prints it: per word with ``normalize``."""
        return [self.value(result) for result in self.scores(*texts)]

    def scores(self, *texts: Iterable[str | bytes], first: int = 0, done: int = 0) -> Iterator[Score]:
        """The scores of streams of lines, in order, each as soon as it is ready.

        first: the number of the first line, for part of a longer text. done: number of lines to skip (of the
        n-best list with ``n_best``). OptionError unless both are whole numbers from 0.
        """
        first, done = whole_number("first", first), whole_number("done", done)
        finished: InOrder[Score] = InOrder(first + done)
        rows = self._rows(texts, done)
        samples = (self.encoder.sentence(number, lines) for number, lines in enumerate(rows, first + done))
        for group in windows(samples, self.options.mini_batch * self.options.maxi_batch):
            for result in self._scored(group):
                entry = rows.entry(result.line - first) if isinstance(rows, NBestRows) else b""
                finished.add(result.line, replace(result, entry=entry))
                yield from finished.take()
        rows.check()

    def value(self, result: Score) -> float:
        """``result`` as one number: the log-probability, per word if ``normalize`` is set; OptionError for
        anything but a result of ``scores``."""
        if not isinstance(result, Score):
            raise OptionError(f"result must be a Score, from scores(...), got {result!r:.80}")
        divide = self.options.normalize and result.word_scores
        return result.log_prob / len(result.word_scores) if divide else result.log_prob

    def format(self, result: Score) -> str:
        """The text that ``mgraph score`` prints for a score, in Marian's format; OptionError as in
        ``value``."""
        value = self.value(result)
        fields = []
        if self.alignment is not None and result.attention is not None:
            fields.append(alignment_field(self.alignment, result.attention.tolist()))
        if self.options.word_scores and result.word_scores:
            fields.append(word_scores_field(result.word_scores))
        if self.options.n_best:
            return with_feature(result.entry, f"{self.options.n_best_feature}= {significant(value)}", fields)
        return score_line(value, fields)

    def require_inputs(self, number: int) -> None:
        """OptionError unless ``number`` is the expected number of texts."""
        tsv = self.options.tsv
        wanted = 1 if tsv else self.streams
        if number != wanted:
            needed = "one text is needed with --tsv" if tsv else f"this model needs {wanted} texts"
            raise OptionError(f"--train-sets: {needed}, got {number}")

    def _rows(self, texts: tuple[Iterable[str | bytes], ...], done: int) -> ParallelLines | NBestRows:
        """The rows of all streams, without the first ``done``."""
        self.require_inputs(len(texts))
        tsv = self.options.tsv
        names = ["text"] if tsv else [*source_names(self.model.sources), "target"]
        if self.options.n_best:
            return NBestRows(texts[:-1], texts[-1], done)
        return ParallelLines(texts, names, done)

    def _scored(self, group: Sequence[Sentence]) -> Iterator[Score]:
        """The scores of sentences, in any order."""
        samples = [sample for sample in group if not sample.problem]
        yield from (Score(each.line, math.nan, (), each.problem) for each in group if each.problem)
        for index, found in self.scoring.scores([sample.sequences for sample in samples]):
            words = tuple(map(float, found.word_scores))
            yield Score(samples[index].line, found.log_prob, words, attention=found.attention)


def check_scoring(options: ScoreOptions) -> None:
    """Check the options before a device is started or the model is loaded: OptionError for invalid values,
    OSError for a file that cannot be read."""
    products_in(options)
    require_files("--model", [options.model], options.vocabs)
    read_alignment(options.alignment)
    if options.n_best and options.tsv:
        raise OptionError("--n-best cannot go with --tsv")
    require_readable("--model", [options.model])
    require_readable("--vocabs", options.vocabs)
    require_readable("--pieces", options.pieces)
