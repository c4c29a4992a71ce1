"""What can be wrong with a training corpus."""

from __future__ import annotations

from mgraph.errors import MGraphError


class CorpusError(MGraphError, ValueError):
    """Training files do not belong together, hold nothing, or cannot be read a second time."""
