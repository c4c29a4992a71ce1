"""Objects that are copied and pickled as their options, without parameters, devices and threads."""

from __future__ import annotations

from typing import Any


class MadeFromOptions:
    """Base of objects made from options and files: a copied or unpickled object reads the files again."""

    options: Any

    def __reduce__(self) -> Any:
        return type(self), (self.options,)
