"""Where the figures of training go, apart from the log."""

from __future__ import annotations

import io
import json
import logging
import re
import struct
import sys
import time

import pytest

from nmt.runtime.log import logging_as
from nmt.settings import OptionError
from nmt.settings.sections import Logging
from nmt.settings.training import Extras
from nmt.training.curves import Curves
from nmt.training.reports import Reports, check_reports


def test_nothing_is_reported_unless_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with Reports(Extras(), None, 0) as reports:
        reports.add("train", 1, {"cost": 2.5})
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr() == ("", "")


def test_json_lines_go_on_where_they_ended(tmp_path):
    values = Extras(log_json=str(tmp_path / "log.json"))
    for update in (1, 2):
        with Reports(values, None, 0) as reports:
            reports.add("train", update, {"cost": 2.5, "epoch": 1.0})
            reports.add("valid", update, {"bleu": 31.5})
    found = [json.loads(line) for line in (tmp_path / "log.json").read_text().splitlines()]
    assert found[0] == {"kind": "train", "update": 1, "cost": 2.5, "epoch": 1.0}
    assert [(record["kind"], record["update"]) for record in found] == [
        ("train", 1),
        ("valid", 1),
        ("train", 2),
        ("valid", 2),
    ]


def test_a_torn_line_is_cut_off_when_training_resumes(tmp_path):
    path = tmp_path / "log.json"
    whole = '{"kind": "train", "update": 1, "cost": 2.5}\n'
    for torn in ("", '{"ki', '{"kind": "train", "update": 2, "co'):
        path.write_text(whole + torn)
        assert Curves.read(path).curves[0].updates.tolist() == [1]
        with Reports(Extras(log_json=str(path)), None, 0) as reports:
            reports.add("train", 2, {"cost": 2.0})
        assert path.read_text() == whole + '{"kind": "train", "update": 2, "cost": 2.0}\n'
    path.write_text("another file")
    with Reports(Extras(log_json=str(path)), None, 0):
        assert path.read_text() == "another file"


def test_reports_and_logs_on_a_full_disk_are_given_up(caplog, capsys, monkeypatch):
    monkeypatch.setattr("logging.raiseExceptions", True)
    logged = Logging(quiet=True, log="/dev/full")
    with logging_as(logged, "/dev/full"), Reports(Extras(log_json="/dev/full"), None, 0) as reports:
        for update in (1, 2):
            logging.getLogger("nmt.valid").info("update %d", update)
            reports.add("train", update, {"cost": 2.5})
    full = "/dev/full: No space left on device"
    assert capsys.readouterr().err.splitlines() == [
        f"{option} {full}; lines will be missing" for option in ("--valid-log", "--log")
    ]
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warned == [f"[training] --log-json {full}; it gets no more figures"]


def test_a_figure_that_is_no_number_is_null(tmp_path):
    """JSON has no NaN: readers of the file would fail."""
    values = Extras(log_json=str(tmp_path / "log.json"))
    with Reports(values, None, 0) as reports:
        reports.add("train", 1, {"cost": float("nan"), "words_per_second": float("inf")})
    found = json.loads((tmp_path / "log.json").read_text(), parse_constant=pytest.fail)
    assert found == {"kind": "train", "update": 1, "cost": None, "words_per_second": None}


def test_events_hold_the_figures(tmp_path):
    with Reports(Extras(tensorboard=str(tmp_path)), None, 0) as reports:
        reports.add("train", 7, {"cost": 2.5})
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert b"train/cost" in data
    assert struct.pack("<f", 2.5) in data


def test_the_bar_shows_updates(capsys):
    with Reports(Extras(progress=True), 10, 4) as reports:
        reports.add("train", 6, {})
        time.sleep(0.12)  # longer than from one bar to the next on a terminal
        reports.add("valid", 6, {})
        reports.updated(7)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "4/10" in first and "7/10" in last and "update/s" in last


def test_a_bar_that_cannot_be_written_ends_no_training(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    with Reports(Extras(progress=True), 10, 4) as reports:
        reports.updated(7)


def on_screen(text: str) -> list[str]:
    """The lines that a terminal shows after this text was written to it."""
    lines = []
    for line in text.split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            cells[: len(part)] = part
        lines.append("".join(cells).rstrip())
    return lines


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_bar_and_log_share_no_line(quiet, terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with logging_as(Logging(quiet=quiet)), Reports(Extras(progress=True), 10, 4) as reports:
        logging.getLogger("nmt.training").info("one")
        reports.add("train", 6, {})
        logging.getLogger("mgraph").warning("two")
    *lines, bar, end = on_screen(capsys.readouterr().err)
    assert "6/10" in bar and end == ""
    if not terminal:
        assert "4/10" in lines.pop(0)
    assert [line.partition("] ")[2] for line in lines] == ([] if quiet else ["one", "[warn] two"])
    assert all(re.fullmatch(r"\[[-0-9]{10} [:0-9]{8}\] .*", line) for line in lines)


@pytest.mark.parametrize(
    ("package", "values"), [("tensorboardX", {"tensorboard": "events"}), ("tqdm", {"progress": True})]
)
def test_a_missing_package_is_named_before_training(package, values, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    check_reports(Extras())
    for made in (check_reports, lambda options: Reports(options, None, 0)):
        with pytest.raises(OptionError, match=f"{package}.*pip install"):
            made(Extras(**values))
