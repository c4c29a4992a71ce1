"""The inputs of training besides the text: vocabularies and pretrained word vectors."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from mgraph import ArgumentError, ExpressionGraph, inits
from mgraph.files.word_vectors import check_head, of_unit_length, read_into
from nmt.models.types import find_type
from nmt.settings import OptionError, require_readable, require_writable
from nmt.settings.model_options import STREAM_TYPES, ModelOptions
from nmt.settings.training import TrainOptions
from nmt.text.lines import STANDARD_INPUT, open_input
from nmt.text.vocabs.base import ASKED, Vocab, VocabError
from nmt.text.vocabs.creation import check_new_vocab, create_vocab
from nmt.text.vocabs.factored import ENDING
from nmt.text.vocabs.loading import factors_of, load_vocab
from nmt.text.vocabs.yaml_words import YAML_ENDINGS

logger = logging.getLogger(__name__)


def embedding_tables(options: ModelOptions) -> tuple[str, ...]:
    """The embedding parameter of each stream, sources first: ``Wemb`` if all sides share one table."""
    prefixes = [prefix for _, prefix in find_type(options.type).encoders] + ["decoder"]
    shared = options.tied_embeddings_src or options.tied_embeddings_all
    return tuple("Wemb" if shared else f"{prefix}_Wemb" for prefix in prefixes)


def word_vectors(
    options: ModelOptions, paths: Sequence[str], *, normalization: bool = False, seed: int = 1
) -> dict[str, np.ndarray]:
    """The embeddings in the files of ``--embedding-vectors``, one file per stream, by parameter.

    A stream with an empty file name is skipped; of several files for a shared table the first is used.
    ``ArgumentError`` for the wrong number of files; other errors and arguments as in ``read_vectors``.
    """
    tables = embedding_tables(options)
    if len(paths) != len(tables):
        raise ArgumentError(
            f"embedding-vectors: expected a file for each of {len(tables)} streams, got {len(paths)}"
        )
    found: dict[str, np.ndarray] = {}
    for stream, (table, path) in enumerate(zip(tables, paths, strict=True)):
        if table not in found and path:
            logger.info("[data] Loading embedding vectors from %s", path)
            shape = (options.dim_vocabs[stream], options.dim_emb)
            found[table] = read_vectors(path, shape, normalization=normalization, name=table, seed=seed)
    return found


def read_vectors(
    path: str,
    shape: tuple[int, int],
    *,
    normalization: bool = False,
    name: str = "Wemb",
    seed: int = 1,
) -> np.ndarray:
    """Read a float32 table ``(words, dim)`` from a file of word vectors (``*.gz`` too).

    The first line gives the number of words and the length of the vectors; every other line gives the id of a
    word in the vocabulary and its vector. Ids outside the vocabulary are ignored; words without a vector are
    initialized from the normal distribution with variance ``2 / (words + dim)``.

    normalization: divide by the norm of the whole table (``--embedding-normalization``), as Marian does.
    name, seed: the parameter's name and the model's seed, for the initialization.
    ``WordVectorsError`` with file and line, ``OSError`` if the file cannot be read.
    """
    graph = ExpressionGraph(inference=True, seed=seed)
    table = np.array(graph.param(name, shape, inits.glorot_normal()).val())
    with open_input(path) as stream:
        read_into(table, stream, path)
    return of_unit_length(table) if normalization else table


def check_vectors(paths: Sequence[str], dim: int) -> None:
    """OSError for an unreadable file of ``--embedding-vectors``, WordVectorsError for one without vectors of
    length ``dim``. Reads only the first line of each file, and does not open pipes."""
    require_readable("--embedding-vectors", paths)
    for path in filter(os.path.isfile, paths):
        with open_input(path) as stream:
            check_head(stream.readline().split(), dim, f"{path}:1")


class TrainingVocabs(NamedTuple):
    """The vocabularies of all streams, sources first."""

    vocabs: tuple[Vocab, ...]
    paths: tuple[str, ...]
    """The vocabularies' files; streams may share one."""
    dim_vocabs: tuple[int, ...]
    """How many ids a new model has for each: the size of the file, or for words ``--dim-vocabs`` if given."""


@dataclass(frozen=True)
class _Stream:
    """A stream of text and its vocabulary.

    text: the file. field: the number of the tab-separated field, None for the whole line. path: the
    vocabulary's file. dim: ``--dim-vocabs``.
    """

    text: str
    field: int | None
    path: str
    dim: int
    input_type: str


def load_or_create_vocabs(options: TrainOptions, *, owner: str = ASKED) -> TrainingVocabs:
    """Load the vocabularies of ``--vocabs``, or those next to the training text; create missing ones.

    A missing file is created from the text of the streams that name it: words by frequency (``.yml``,
    ``.yaml``, ``.json``) or pieces (``.spm``, with ``--sentencepiece-options`` and
    ``--sentencepiece-max-lines``), at most ``--dim-vocabs`` of them. Without ``--vocabs`` each text uses
    ``TEXT.yml`` (or ``.yaml``, ``.json``, if that exists), and the fields of a ``--tsv`` file share one.

    owner: the existing model whose ``dim_vocabs`` apply, for messages.
    ``OptionError`` for invalid options, ``VocabError`` for a file that is damaged or does not match,
    ``OSError`` for one that cannot be read or written.
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
        # A file of pieces or factors alone determines how many ids there are, as in Marian.
        size = 0 if stream.path.endswith((".spm", ENDING)) else sizes[stream.path]
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
    """Raise the errors of ``load_or_create_vocabs`` that can be found without reading text, except those of
    ``require_streams``."""
    streams = _streams(options)
    if any(stream.path.endswith(ENDING) for stream in streams):
        _check_factored(options)
    for path in {stream.path: None for stream in streams}:
        if os.path.exists(path):
            require_readable("--vocabs", [path])
        else:
            _require_new(path, [stream for stream in streams if stream.path == path], options)


def require_vocabs_writable(options: TrainOptions) -> None:
    """``OSError`` if a vocabulary is missing and cannot be created."""
    for stream in _streams(options):
        if not os.path.exists(stream.path):
            require_writable("--vocabs", stream.path)


def _check_factored(options: TrainOptions) -> None:
    """``OptionError`` for options that cannot go with factored vocabularies, and the errors of
    ``factors_of``."""
    for name, given in (
        ("embedding-vectors", options.embedding_vectors),
        ("all-caps-every", options.all_caps_every),
        ("english-title-case-every", options.english_title_case_every),
    ):
        if given:
            raise OptionError(f"--{name} cannot go with factored vocabularies ({ENDING})")
    require_readable("--vocabs", options.vocabs)
    factors_of(options.vocabs)


def require_streams(options: TrainOptions) -> None:
    """``OptionError`` if models of ``--type`` need another number of streams;
    ``UnsupportedOptionError`` for an unknown type."""
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
    types = [kind for kind in options.input_types if kind in STREAM_TYPES]
    return [
        _Stream(
            text,
            field,
            _nth(vocabs, i, "") or _default_path(text),
            _nth(options.dim_vocabs, i, 0),
            _nth(types, i, STREAM_TYPES[0]),
        )
        for i, (text, field) in enumerate(sources)
    ]


def _nth(items: Sequence[Any], index: int, default: Any) -> Any:
    return items[index] if index < len(items) else default


def _default_path(text: str) -> str:
    paths = [text + ending for ending in YAML_ENDINGS]
    return next(filter(os.path.exists, paths), paths[0])


def _require_new(path: str, streams: Sequence[_Stream], options: TrainOptions) -> None:
    """Raise the errors of creating a vocabulary that can be found without reading text."""
    check_new_vocab(path, options.sentencepiece_options)
    texts = [stream.text for stream in streams]
    if any(text in STANDARD_INPUT for text in texts):
        raise OptionError(
            f"--vocabs: {path} does not exist, and standard input can be read only once; "
            "create the vocabularies first, with mgraph vocab"
        )
    given = [*options.extra_fields] if options.tsv else []
    if given:
        raise OptionError(
            f"--vocabs: {path} does not exist, and is not created from --tsv with --{given[0]}, "
            "as in Marian; create the vocabularies first, with mgraph vocab"
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
        raise OptionError(f"--train-sets: no words to create {path} from in {', '.join(texts)}")
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
        logger.warning("[data] Using %s, which another process has created meanwhile", path)


def _lines(text: str, fields: Sequence[int]) -> Iterator[bytes]:
    """The lines of a text; with ``fields`` only those fields that a line has, joined by spaces."""
    with open_input(text) as stream:
        for line in stream:
            if not fields:
                yield line
                continue
            found = line.removesuffix(b"\n").split(b"\t")
            yield b" ".join(found[field] for field in fields if field < len(found))
