"""What is copied and pickled by its options, as its models cannot be."""

from __future__ import annotations

from typing import Any


class MadeAnew:
    """Base of what options make from files: a copy, and what another process unpickles, reads them again."""

    options: Any

    def __reduce__(self) -> Any:
        return type(self), (self.options,)
