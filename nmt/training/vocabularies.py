"""The vocabularies of a training: read from their files, which are made from the training text if missing."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from nmt.models.support import find_type
from nmt.settings import OptionError, require_readable, require_writable
from nmt.settings.training import TrainOptions
from nmt.text.lines import STANDARD_INPUT, open_input
from nmt.text.vocabs.base import ASKED, Vocab, VocabError
from nmt.text.vocabs.creation import check_new_vocab, create_vocab
from nmt.text.vocabs.loading import INPUT_TYPES, load_vocab
from nmt.text.vocabs.yaml_words import YAML_ENDINGS

logger = logging.getLogger(__name__)


class TrainingVocabs(NamedTuple):
    """The vocabularies of all streams, sources first."""

    vocabs: tuple[Vocab, ...]
    paths: tuple[str, ...]
    """Their files, some of which may be the same."""
    dim_vocabs: tuple[int, ...]
    """How many ids a new model has for each: as many as the file, or ``--dim-vocabs`` of words."""


@dataclass(frozen=True)
class _Stream:
    """Where the words of a stream come from.

    text: the file; field: which of those between tabs, None for the whole line. dim: ``--dim-vocabs``.
    """

    text: str
    field: int | None
    path: str
    dim: int
    input_type: str


def load_or_create_vocabs(options: TrainOptions, *, owner: str = ASKED) -> TrainingVocabs:
    """The vocabularies that ``--vocabs`` names, or those beside the training text.

    A file that does not exist is made from the text of the streams that name it: words by how often they come
    (``.yml``, ``.yaml``, ``.json``) or pieces (``.spm``, with ``--sentencepiece-options`` and
    ``--sentencepiece-max-lines``), ``--dim-vocabs`` of them at most. Without ``--vocabs`` each text has
    ``TEXT.yml`` (or ``.yaml``, ``.json``, if that exists), and the fields of a ``--tsv`` share one.

    owner: the model that is there already and has ``dim_vocabs``, for messages.
    ``OptionError`` where the options do not say what can be done, ``VocabError`` for a file that is damaged
    or does not fit, ``OSError`` for one that cannot be read or written.
    """
    require_streams(options)
    streams = _streams(options)
    sizes: dict[str, int] = {}
    for stream in streams:
        sizes[stream.path] = max(stream.dim, sizes.get(stream.path, 0))
    for path in sizes:
        if not os.path.exists(path):
            _create(path, [stream for stream in streams if stream.path == path], sizes[path], options)
    found: dict[tuple[str, str], Vocab] = {}
    dims = []
    for number, stream in enumerate(streams):
        # How many pieces there are says their model alone, as in Marian.
        size = 0 if stream.path.endswith(".spm") else sizes[stream.path]
        key = (stream.path, stream.input_type)
        if key not in found:
            found[key] = load_vocab(
                stream.path,
                size,
                owner=owner,
                input_type=stream.input_type,
                no_spm_encode=options.no_spm_encode,
            )
        dims.append(max(len(found[key]), size))
        logger.info("[data] Vocabulary of input %d: %s, %s ids", number, stream.path, f"{dims[-1]:,}")
    vocabs = tuple(found[stream.path, stream.input_type] for stream in streams)
    return TrainingVocabs(vocabs, tuple(stream.path for stream in streams), tuple(dims))


def check_vocabs(options: TrainOptions) -> None:
    """The errors of ``load_or_create_vocabs`` that are known before a text is read, but for
    ``require_streams``."""
    streams = _streams(options)
    for path in {stream.path: None for stream in streams}:
        if os.path.exists(path):
            require_readable("--vocabs", [path])
        else:
            _require_new(path, [stream for stream in streams if stream.path == path], options)


def require_streams(options: TrainOptions) -> None:
    """``OptionError`` unless there are as many streams of text as a model of ``--type`` has;
    ``UnsupportedOptionError`` for a type that there is not."""
    needed, got = len(find_type(options.type).encoders) + 1, options.text_streams
    if got != needed:
        kind = "fields of text" if options.tsv else "files"
        raise OptionError(
            f"--train-sets: --type {options.type} needs {needed} {kind}, sources first, then the target; "
            f"got {got}"
        )


def _streams(options: TrainOptions) -> list[_Stream]:
    texts, vocabs = options.train_sets, options.vocabs
    sources: list[tuple[str, int | None]] = [(text, None) for text in texts]
    if options.tsv:
        sources = [(texts[0], field) for field in range(options.text_streams)]
    types = [kind for kind in options.input_types if kind in INPUT_TYPES]
    return [
        _Stream(
            text,
            field,
            _nth(vocabs, i, "") or _default_path(text),
            _nth(options.dim_vocabs, i, 0),
            _nth(types, i, INPUT_TYPES[0]),
        )
        for i, (text, field) in enumerate(sources)
    ]


def _nth(items: Sequence[Any], index: int, default: Any) -> Any:
    return items[index] if index < len(items) else default


def _default_path(text: str) -> str:
    """The vocabulary beside a text."""
    paths = [text + ending for ending in YAML_ENDINGS]
    return next(filter(os.path.exists, paths), paths[0])


def _require_new(path: str, streams: Sequence[_Stream], options: TrainOptions) -> None:
    """The errors of making a vocabulary that are known before the text is read."""
    check_new_vocab(path, options.sentencepiece_options)
    require_writable("--vocabs", path)
    texts = [stream.text for stream in streams]
    if any(text in STANDARD_INPUT for text in texts):
        raise OptionError(
            f"--vocabs: {path} does not exist, and the text on standard input can be read once only; "
            "make vocabularies first, with mgraph vocab"
        )
    given = [*options.extra_fields] if options.tsv else []
    if given:
        raise OptionError(
            f"--vocabs: {path} does not exist, and is not made from fields of --tsv that hold --{given[0]} "
            "too, as in Marian; make vocabularies first, with mgraph vocab"
        )
    require_readable("--train-sets", texts)


def _create(path: str, streams: Sequence[_Stream], size: int, options: TrainOptions) -> None:
    _require_new(path, streams, options)
    texts = sorted({stream.text for stream in streams})
    logger.info("[data] Creating vocabulary %s from %s", path, ", ".join(texts))
    fields = [stream.field for stream in streams if stream.field is not None]
    lines = (line for text in texts for line in _lines(text, fields))
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise OptionError(f"--train-sets: there is no word to make {path} of in {', '.join(texts)}")
    try:
        create_vocab(
            path,
            chain([first], lines),
            size,
            input_type=streams[0].input_type,
            options=options.sentencepiece_options,
            max_lines=options.sentencepiece_max_lines,
            seed=options.seed,
        )
    except VocabError:
        if not os.path.exists(path):
            raise
        logger.warning("[data] %s was made by another process meanwhile, and is what counts", path)


def _lines(text: str, fields: Sequence[int]) -> Iterator[bytes]:
    """The lines of a text, or some of their fields with a space between."""
    with open_input(text) as stream:
        for number, line in enumerate(stream, 1):
            if not fields:
                yield line
                continue
            found = line.removesuffix(b"\n").split(b"\t")
            if len(found) <= max(fields):
                raise VocabError(
                    f"{text}:{number}: expected at least {max(fields) + 1} fields with tabs between, "
                    f"got {len(found)}"
                )
            yield b" ".join(found[field] for field in fields)
