"""pymarian's classes on this implementation: ``from nmt.pymarian import Translator, Evaluator``.

A script for Marian's Python bindings runs when its import says ``nmt.pymarian`` in place of ``pymarian``.
Each class takes a string of Marian's options, keywords, or both; words of the string are separated by spaces.
Keywords are options with ``_`` for ``-``: a list gives several values, and so does a string with spaces,
unless it is a path; ``""`` gives none, and None means that the option is not given. Unless ``quiet`` is set,
the log goes to stderr. ``workspace`` has no effect here.

Differs: an error raises an exception (``OptionError``, ``MGraphError``, ``OSError``), where Marian ends the
process; empty lines at the end of a text count as lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from mgraph.errors import ArgumentError
from nmt.commands import decode, dispatch, embed, train
from nmt.runtime.log import logging_as
from nmt.search import evaluator, translator
from nmt.settings import DECODE, TRAIN, OptionError, whole_number
from nmt.settings.config import parse
from nmt.settings.metric_options import METRICS
from nmt.settings.metrics import AVERAGES, EMBED, EVALUATE
from nmt.settings.option import Option
from nmt.text.batches import windows
from nmt.text.lines import as_bytes

MOST_SETTINGS = 8
"""The most translators to keep for calls that override options."""
Row = str | bytes | Sequence[str | bytes]
"""The texts of a line to score: one string separated by tabs, or one string per text."""


def words_of(cli_string: str, given: Mapping[str, Any], options: Mapping[str, Option]) -> list[str]:
    """A string of options and keywords as the words of a command line; keywords come last.

    options: those of the command. For an option with several values a string is split at spaces, unless it is
        the path of a file.

    OptionError if ``cli_string`` is not a string but, say, a list of words.
    """
    if not isinstance(cli_string, str):
        raise OptionError(f"expected the options as one string, got {cli_string!r:.80}")
    words = cli_string.split()
    for name, value in given.items():
        if value is None:
            continue
        name = name.replace("_", "-")
        words.append("--" + name)
        several = name in options and options[name].many
        if several and isinstance(value, str) and not os.path.exists(value):
            value = value.split()
        values = value if isinstance(value, list | tuple) else [] if value == "" else [value]
        words += [str(one).lower() if isinstance(one, bool) else str(one) for one in values]
    return words


def lines_of(text: str | bytes | Iterable[str | bytes]) -> list[bytes]:
    """The lines of a text, or of a list of texts with any number of lines; a line end after the last line
    starts no further one. ArgumentError for anything else."""
    if not isinstance(text, Iterable):
        raise ArgumentError(f"expected a text or a list of lines, got {text!r:.80} ({type(text).__name__})")
    texts = [as_bytes(one) for one in ([text] if isinstance(text, str | bytes) else text)]
    lines = [line for one in texts for line in one.split(b"\n")]
    return lines[:-1] if texts and texts[-1].endswith(b"\n") else lines


class TranslatorBinding:
    """Translates lines: ``Translator("-m model.npz -v de.spm en.spm", beam_size=4).translate(lines)``.

    Takes the options of ``mgraph decode``. See ``nmt.Translator``, which has more methods.
    """

    def __init__(self, cli_string: str = "", **options: Any) -> None:
        self._options = parse(decode.COMMAND, words_of(cli_string, options, DECODE.options))
        with logging_as(self._options):
            self._translator = translator.Translator(self._options)
        self._with: dict[str, translator.Translator] = {}

    @overload
    def translate(self, text: str | bytes, **options: Any) -> str: ...

    @overload
    def translate(self, text: Sequence[str | bytes], **options: Any) -> list[str]: ...

    def translate(self, text: str | bytes | Sequence[str | bytes], **options: Any) -> str | list[str]:
        """Translate a list of lines into a list, or a string of lines into a string.

        An item with line ends is several lines; with ``n_best`` the result has a line for each hypothesis.
        options: for this call only, such as ``n_best=True``, or ``force_decode=True, tsv=True,
        tsv_fields=2``. OptionError for an option that matters only when models are loaded; TypeError for an
        unknown one; ArgumentError for anything but text.
        """
        with logging_as(self._options):
            chosen = self._for(options) if options else self._translator
            lines = lines_of(text)
            found = "\n".join(chosen.translate(lines))
        if isinstance(text, str | bytes):
            return found
        return found.split("\n") if lines else []

    def _for(self, options: dict[str, Any]) -> translator.Translator:
        key = repr(sorted(options.items()))
        if key not in self._with:
            if len(self._with) >= MOST_SETTINGS:
                del self._with[next(iter(self._with))]
            self._with[key] = self._translator.with_options(**options)
        return self._with[key]


class TrainerBinding:
    """Trains a model: ``Trainer(model="model.npz", train_sets=[...], vocabs=[...], after="10e").train()``.

    Takes the options of ``mgraph train``.
    """

    def __init__(self, cli_string: str = "", **options: Any) -> None:
        self._words = words_of(cli_string, options, TRAIN.options)
        self._options = parse(TRAIN, self._words)

    def train(self) -> int:
        """Train until a criterion is met; returns 0, or 143 after SIGTERM."""
        return train.run(self._options, self._words) or 0


class EvaluatorBinding:
    """Scores translations: ``Evaluator("-m comet.npz -v all.spm all.spm --like comet-qe").evaluate(lines)``.

    Takes the options of ``mgraph evaluate``. See ``nmt.Evaluator``, which gives all scores of a line.
    """

    def __init__(self, cli_string: str = "", **options: Any) -> None:
        self._options = parse(EVALUATE, words_of(cli_string, options, EVALUATE.options))
        with logging_as(self._options):
            self._evaluator = evaluator.Evaluator(replace(self._options, tsv=False, tsv_fields=0))

    @classmethod
    def new(
        cls,
        model_file: str | os.PathLike[str],
        vocab_file: str | os.PathLike[str],
        devices: Sequence[int] | None = None,
        width: int = 4,
        mini_batch: int = 16,
        maxi_batch: int = 256,
        like: str = "comet-qe",
        workspace: int = 8000,
        max_length: int = 512,
        cpu_threads: int = 0,
        average: str = "skip",
        **options: Any,
    ) -> EvaluatorBinding:
        """An evaluator with one vocabulary for all texts; it crops long texts."""
        known = [name for name, texts in METRICS.items() if texts]
        if like not in known:
            raise OptionError(f"like: expected one of {', '.join(known)}, got {like!r}")
        return cls(
            **options,
            model=model_file,
            vocabs=[vocab_file] * METRICS[like],
            devices=devices,
            width=width,
            mini_batch=mini_batch,
            maxi_batch=maxi_batch,
            like=like,
            workspace=workspace,
            max_length=max_length,
            max_length_crop=True,
            cpu_threads=cpu_threads,
            average=average,
        )

    @property
    def model_type(self) -> str:
        """The type of the model, such as ``comet-qe``."""
        return self._evaluator.model.type

    def get_model_config(self) -> str:
        """The options in the model file, as YAML."""
        return self._evaluator.model.config

    def evaluate(
        self,
        input_lines: Iterable[Row],
        average: str = "skip",
        batch_size: int | None = None,
    ) -> Iterator[float]:
        """Yield the first score of each line, in order.

        input_lines: texts separated by tabs, or sequences of texts. average: ``append`` for the mean after
        the scores, ``only`` for the mean alone. batch_size: how many lines are read at a time; OptionError
        unless it is a whole number.
        """
        if average not in AVERAGES:
            raise OptionError(f"average: expected {', '.join(AVERAGES)}, got {average!r}")
        found = []
        ahead = whole_number("batch_size", batch_size or 0)
        ahead = ahead or 2 * self._options.mini_batch * self._options.maxi_batch
        for group in windows(self._rows(input_lines), ahead):
            for score, *_ in self._scores(group):
                found.append((score,))
                if average != "only":
                    yield score
        if average != "skip":
            yield from evaluator.average(found)

    def run(self, rows: Iterable[Row]) -> list[list[float]]:
        """All scores of each row of texts."""
        return self._scores(list(self._rows(rows)))

    def _rows(self, lines: Iterable[Row]) -> Iterator[tuple[str | bytes, ...]]:
        """The texts of each line. ArgumentError unless ``lines`` has lines of text; OptionError for a line
        whose number of texts is not the model's."""
        if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
            raise ArgumentError(f"expected a list of lines, got {lines!r:.80} ({type(lines).__name__})")
        names = self._evaluator.names
        for number, line in enumerate(lines, 1):
            if isinstance(line, str | bytes):
                line = as_bytes(line).rstrip(b"\r\n").split(b"\t")
            elif not isinstance(line, Iterable):
                raise ArgumentError(f"row {number}: expected a line or its texts, got {line!r:.80}")
            row = tuple(line)
            if len(row) != len(names):
                expected = f"{len(names)} texts ({', '.join(names)})"
                raise OptionError(f"row {number}: expected {expected}, got {len(row)}")
            yield row

    def _scores(self, rows: Sequence[Sequence[str | bytes]]) -> list[list[float]]:
        with logging_as(self._options):
            texts = zip(*rows, strict=True) if rows else [()] * len(self._evaluator.names)
            return [list(result.scores) for result in self._evaluator.scores(*texts)]


class EmbedderBinding:
    """Embeds files: ``Embedder("-m model.npz -v all.spm -t text.txt -o vectors.txt").embed()``.

    Takes the options of ``mgraph embed``. See ``nmt.Embedder``, which returns vectors.
    """

    def __init__(self, cli_string: str = "", **options: Any) -> None:
        self._words = words_of(cli_string, options, EMBED.options)
        self._options = parse(EMBED, self._words)

    def embed(self) -> int:
        """Write the vectors of ``train_sets`` to ``output``; returns 0."""
        embed.run(self._options, self._words)
        return 0


def help(*words: str) -> None:
    """Print the help of ``mgraph``, or of one of its commands, such as ``help("evaluate")``."""
    dispatch.run([*words, "--help"])


Translator = TranslatorBinding
Trainer = TrainerBinding
Evaluator = EvaluatorBinding
Embedder = EmbedderBinding
