"""The lines about validation: ``[valid]`` before them, in the log and in the file of ``--valid-log``."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from nmt.runtime.log import VALID


class _Marked(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"[valid] {msg}", kwargs


valid_log = _Marked(logging.getLogger(VALID), {})


class Announcements:
    """Lines that are logged once, however often there is reason to."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def first(self, reason: str) -> bool:
        """Whether ``reason`` comes up for the first time."""
        if reason in self._made:
            return False
        self._made.add(reason)
        return True
