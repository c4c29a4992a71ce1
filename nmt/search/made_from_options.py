"""Objects that are copied and pickled as their options, without parameters, devices and threads."""

from __future__ import annotations

from functools import partial
from typing import Any


class MadeFromOptions:
    """Base of objects made from options and files: a copied or unpickled object reads the files again."""

    options: Any

    def __reduce__(self) -> Any:
        return partial(type(self), **self._beside_options()), (self.options,)

    def _beside_options(self) -> dict[str, Any]:
        """What else the object was made from: arguments that are no options."""
        return {}
