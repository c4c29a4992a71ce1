"""Progress: one line that counts on a terminal, lines of the log elsewhere."""

from __future__ import annotations

import errno
import io
import logging

import pytest

from nmt.runtime.counting import counting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "line"), [(2, "2 of 2 operators, 0 s; tanh: ok"), (None, "2 operators, 0 s; ")]
)
def test_a_terminal_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, count: int | None, line: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with caplog.at_level(logging.INFO), counting(logging.getLogger("nmt"), "operators", count) as done:
        done("sin: ok")
        done("tanh: ok")
    written = terminal.getvalue()
    assert line in written and "\n" not in written and written.endswith("\r\x1b[K"), "nothing is left"
    assert not caplog.records


@pytest.mark.parametrize("quiet", [False, True])
def test_the_log_gets_a_line_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, quiet: bool
) -> None:
    stderr = Terminal() if quiet else io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    logger = logging.getLogger("nmt")
    with caplog.at_level(logging.INFO), counting(logger, "operators", 2, quiet=quiet) as done:
        done("sin: ok")
    assert caplog.messages == ["sin: ok"] and stderr.getvalue() == ""


def test_a_terminal_that_is_gone_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str, /) -> int:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("sys.stderr", Gone())
    with counting(logging.getLogger("nmt"), "operators", 2) as done:
        done("sin: ok")
