"""The log of the command line."""

from __future__ import annotations

import logging

import pytest

from nmt.runtime.log import logging_as
from nmt.settings.sections import Logging


def test_a_level_that_a_user_has_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("nmt")
    monkeypatch.setattr(logger, "level", logging.ERROR)
    with logging_as(Logging(quiet=True, log_level="debug")):
        assert logger.level == logging.DEBUG
    assert logger.level == logging.ERROR
