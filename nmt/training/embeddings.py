"""Word vectors that were trained elsewhere, as the embeddings that training begins with."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import numpy as np

from mgraph import ArgumentError, ExpressionGraph, MGraphError, inits
from nmt.models.types import find_type
from nmt.settings import require_readable
from nmt.settings.model_options import ModelOptions
from nmt.text.lines import open_input

logger = logging.getLogger(__name__)


class WordVectorsError(MGraphError, ValueError):
    """A file of word vectors is not of word2vec's text format, or does not fit the model."""


def embedding_tables(options: ModelOptions) -> tuple[str, ...]:
    """The parameter that has the embeddings of each stream, sources first: ``Wemb`` where one table serves
    all sides."""
    prefixes = [prefix for _, prefix in find_type(options.type).encoders] + ["decoder"]
    shared = options.tied_embeddings_src or options.tied_embeddings_all
    return tuple("Wemb" if shared else f"{prefix}_Wemb" for prefix in prefixes)


def word_vectors(
    options: ModelOptions, paths: Sequence[str], *, normalization: bool = False, seed: int = 1
) -> dict[str, np.ndarray]:
    """The embeddings by parameter that the files of ``--embedding-vectors`` hold, one file for each stream.

    An empty name leaves a stream's embeddings as they are; of streams that share a table the first counts.
    ``ArgumentError`` for another number of files; errors and the other arguments as in ``read_vectors``.
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
    """The table ``(words, dim)`` of float32 that a file of word vectors holds (``*.gz`` too).

    Its first line has the number of words and the length of vectors, each other one the id of a word in the
    vocabulary and its vector. Ids from ``words`` on are passed over; words without a vector are drawn from
    the normal distribution with variance ``2 / (words + dim)``.

    normalization: divide all by the norm of the whole table (``--embedding-normalization``), as Marian does.
    name, seed: of the parameter and of the model, for what is drawn.
    ``WordVectorsError`` with file and line, ``OSError`` if the file cannot be read.
    """
    words, dim = shape
    graph = ExpressionGraph(inference=True, seed=seed)
    table = np.array(graph.param(name, shape, inits.glorot_normal()).val())
    with open_input(path) as stream:
        _check_head(stream.readline().split(), dim, f"{path}:1")
        for number, line in enumerate(stream, 2):
            where, fields = f"{path}:{number}", line.split()
            if len(fields) != dim + 1:
                raise WordVectorsError(f"{where}: expected an id and {dim} numbers, got {len(fields)} fields")
            try:
                word, vector = int(fields[0]), np.array(fields[1:], np.float32)
            except ValueError:
                raise WordVectorsError(
                    f"{where}: expected the id of a word, then numbers, got {line[:60]!r}"
                ) from None
            if 0 <= word < words:
                table[word] = vector
    return table / np.sqrt(np.cumsum(table * table)[-1]) if normalization and table.any() else table


def check_vectors(paths: Sequence[str], dim: int) -> None:
    """OSError for a file of ``--embedding-vectors`` that cannot be read, WordVectorsError for one that begins
    with no vectors of length ``dim``. Pipes are not opened."""
    require_readable("--embedding-vectors", paths)
    for path in filter(os.path.isfile, paths):
        with open_input(path) as stream:
            _check_head(stream.readline().split(), dim, f"{path}:1")


def _check_head(fields: Sequence[bytes], dim: int, where: str) -> None:
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise WordVectorsError(f"{where}: expected the number of words and the length of their vectors")
    if int(fields[1]) != dim:
        raise WordVectorsError(f"{where}: vectors of length {int(fields[1])}, but dim-emb is {dim}")
