"""Word vectors in word2vec's text format, with vocabulary ids in place of words, as in Marian: a line with
the number of words and the length of their vectors, then a line for each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from ..errors import WordVectorsError


def read_into(table: np.ndarray, stream: BinaryIO, path: str) -> None:
    """Overwrite the rows of ``table (words, dim)`` that have a vector in the file; ids outside the table are
    ignored. ``WordVectorsError`` with ``path`` and line."""
    words, dim = table.shape
    check_head(stream.readline().split(), dim, f"{path}:1")
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


def check_head(fields: Sequence[bytes], dim: int, where: str) -> None:
    """``WordVectorsError`` unless the first line announces vectors of length ``dim``."""
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise WordVectorsError(f"{where}: expected the number of words and the length of their vectors")
    if int(fields[1]) != dim:
        raise WordVectorsError(f"{where}: vectors of length {int(fields[1])}, but dim-emb is {dim}")


def of_unit_length(table: np.ndarray) -> np.ndarray:
    """The table divided by the norm of all its numbers, as in Marian; an all-zero table is unchanged."""
    return table / np.sqrt(np.cumsum(table * table)[-1]) if table.any() else table
