"""The line that a user reads about an error, the same on stderr and in the log."""

from __future__ import annotations

from jax.errors import JaxRuntimeError

from mgraph import MGraphError, OutOfMemoryError
from mgraph.errors import first_line

REMEDY = "; smaller batches (--mini-batch) need less"


def reason(error: Exception) -> str:
    """The message of an error, with the file of an ``OSError``, a remedy if memory ran out, and the class of
    an error that is not the user's mistake."""
    if isinstance(error, OSError):
        said = error.strerror or str(error)
        said = f"{error.filename}: {said}" if error.filename else said
    elif isinstance(error, OutOfMemoryError | JaxRuntimeError):
        said = first_line(error)
        said += REMEDY * ("out of memory" in said.lower())
    else:
        said = str(error) if isinstance(error, MGraphError) else f"{type(error).__name__}: {error}"
    return " ".join(said.split())
