"""There is no log until a program asks for one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mgraph
from mgraph import ArgumentError, inits


@pytest.fixture(autouse=True)
def _without_handlers() -> Iterator[None]:
    yield
    mgraph.create_loggers(quiet=True)
    logging.getLogger("mgraph").setLevel(logging.NOTSET)


def test_lines_go_to_stderr_and_to_files_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    general, valid = tmp_path / "general.log", tmp_path / "valid.log"
    for _ in range(2):
        loggers = mgraph.create_loggers(log=general, valid_log=valid)
    loggers.general.info("one line")
    loggers.general.debug("not this one")
    loggers.valid.info("cost 0.5")
    lines = general.read_text().splitlines()
    assert [line.partition("] ")[2] for line in lines] == ["one line", "cost 0.5"]
    assert capsys.readouterr().err.splitlines() == lines
    assert [line.partition("] ")[2] for line in valid.read_text().splitlines()] == ["[valid] cost 0.5"]


def test_debug_prints_to_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mgraph.create_loggers(log=tmp_path / "log", quiet=True)
    graph = mgraph.ExpressionGraph()
    graph.constant((2,), inits.ones()).debug("ones")
    graph.forward()
    assert "Debug: ones op=const" in (tmp_path / "log").read_text()
    assert not capsys.readouterr().err


def test_levels_have_marians_names() -> None:
    level: Any
    for level in ("loud", ["info"]):
        with pytest.raises(ArgumentError, match="expected a log_level of trace, debug, info"):
            mgraph.create_loggers(log_level=level)
    assert mgraph.create_loggers(log_level="off", quiet=True).general.level > logging.CRITICAL
