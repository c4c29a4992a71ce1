"""Parts of an output: killed at any moment, spoilt, joined by several processes at once, never mixed."""

from __future__ import annotations

import gzip
import logging
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from nmt.settings import OptionError
from nmt.text.sharing import parts
from nmt.text.sharing.output import DividedOutput
from nmt.text.sharing.parts import Note, Part, PartError

RUN = {"beam-size": 4, "input": [[6, 20, 1]]}
ROWS = ["one", "two\ntwo again", "", "vier", "fünf\n\n", "six"]
WHOLE = "".join(f"{row}\n" for row in ROWS).encode()


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every row be noted."""
    monkeypatch.setattr(parts, "NOTE_SECONDS", 0.0)


def write(output: DividedOutput, share: int, rows: list[str] = ROWS) -> int:
    """Write what is missing of a part with these rows; return how many it had."""
    with output.parts[share].writing() as part:
        assert part is not None
        done = part.rows
        for row in rows[done:]:
            part.write(row, {"rows": 1, "sum": 0.5})
    return done


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("killed", range(len(ROWS)))
@pytest.mark.parametrize("tail", [b"", b"half a li", b"more\nlines\nand a ha"])
def test_a_killed_part_goes_on_after_its_last_row(killed: int, tail: bytes, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    output = DividedOutput(str(tmp_path / "before" / "out"), 1, RUN)
    with output.parts[0].writing() as part:
        assert part is not None
        for number, row in enumerate(ROWS):
            if number == killed:
                shutil.copytree(tmp_path / "before", tmp_path / "after")
            part.write(row, {"rows": 1, "sum": 0.5})
    output = DividedOutput(str(tmp_path / "after" / "out"), 1, RUN)
    with open(output.parts[0].path, "ab") as file:
        file.write(tail)
    assert not output.parts[0].is_complete and not output.join()
    assert write(output, 0) == killed
    assert output.join() and Path(output.path).read_bytes() == WHOLE
    assert output.sums == {"rows": 6, "sum": 3.0}


def test_what_ends_with_an_error_is_noted(tmp_path: Path) -> None:
    output = DividedOutput(str(tmp_path / "out"), 1, RUN)
    with pytest.raises(KeyboardInterrupt), output.parts[0].writing() as part:
        assert part is not None
        part.write("one", {"rows": 1})
        raise KeyboardInterrupt
    assert output.parts[0].note.rows == 1 and not output.parts[0].is_complete
    assert write(output, 0) == 1


def test_a_part_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    output = DividedOutput(str(tmp_path / "out"), 1, RUN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(OSError, match="File too large") as caught, output.parts[0].writing() as part:
        assert part is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, before[1]))
        try:
            for _ in range(60):
                part.write("one", {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == output.parts[0].path
    assert output.parts[0].note.rows == 37


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("spoilt", [b"on", b"one\n\0\0\0\0", b""])
def test_a_part_that_is_not_what_was_noted_is_begun_anew(
    spoilt: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = DividedOutput(str(tmp_path / "out"), 1, RUN)
    with pytest.raises(ZeroDivisionError), output.parts[0].writing() as part:
        assert part is not None
        part.write("one", {})
        part.write("two", {})
        raise ZeroDivisionError
    Path(output.parts[0].path).write_bytes(spoilt)
    with caplog.at_level(logging.WARNING, "nmt"):
        assert write(output, 0) == 0
    problem = "differs from what its writer recorded" if spoilt else "is gone, or empty"
    assert f"{problem}: started over" in caplog.text
    assert output.join() and Path(output.path).read_bytes() == WHOLE


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[]", b'{"run": 1}', b'{"run": {}, "rows": "1"}', b'{"runs": {}}']
)
def test_a_note_that_is_none(note: bytes, tmp_path: Path) -> None:
    output = DividedOutput(str(tmp_path / "out"), 1, RUN)
    Path(output.parts[0].path).write_bytes(b"something\n")
    Path(output.parts[0].path + parts.NOTE).write_bytes(note)
    assert write(output, 0) == 0
    assert output.join() and Path(output.path).read_bytes() == WHOLE


def test_of_two_writers_one_writes(tmp_path: Path) -> None:
    one, other = (DividedOutput(str(tmp_path / "out"), 1, RUN).parts[0] for _ in range(2))
    with one.writing() as part:
        assert part is not None
        part.write("one", {})
        with other.writing() as second:
            assert second is None
    assert Path(one.path).read_bytes() == b"one\n"


def test_parts_of_another_run_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    write(DividedOutput(path, 2, RUN), 0)
    other = DividedOutput(path, 2, {"beam-size": 6, "input": RUN["input"], "n-best": True})
    for share in (0, 1):  # also if its own part is not begun, before doing work that cannot be joined
        with pytest.raises(
            OptionError, match="part-000-of-002 was started with another value of --beam-size, --n-best"
        ):
            list(other.missing([share]))
    with pytest.raises(OptionError, match="--n-best"):
        other.join()
    with pytest.raises(OptionError, match="--n-best"), other.parts[0].writing():
        pass
    assert DividedOutput(path, 2, RUN).parts[0].is_complete


@pytest.mark.parametrize("complete", [False, True])
def test_a_part_without_rows_is_of_no_run(complete: bool, tmp_path: Path) -> None:
    """Another run failed at its first row, or its text had no rows."""
    other = DividedOutput(str(tmp_path / "out"), 1, {"beam-size": 6})
    with nullcontext() if complete else pytest.raises(ZeroDivisionError), other.parts[0].writing():
        if not complete:
            raise ZeroDivisionError
    assert other.parts[0].is_complete == complete
    output = DividedOutput(str(tmp_path / "out"), 1, RUN)
    assert list(output.missing([0])) == [0] and write(output, 0) == 0
    assert output.join() and Path(output.path).read_bytes() == WHOLE


def test_a_joined_output_of_another_run_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    for shares in (1, 2):  # the second round changes nothing
        output = DividedOutput(path, shares, {**RUN, "shares": shares})
        if shares == 1:
            write(output, 0)
        assert not list(output.missing(range(shares))) and output.join()
    for more in ({"beam-size": 1}, {"summary": "perplexity"}):
        other = DividedOutput(path, 1, {**RUN, **more})
        refusal = f"out was made with another value of --{next(iter(more))}: give another --output"
        with pytest.raises(OptionError, match=refusal):
            list(other.missing([0]))
        with pytest.raises(OptionError, match=refusal):
            other.join()
    assert Path(path).read_bytes() == WHOLE
    Path(path).unlink()
    assert list(other.missing([0])) == [0]


def test_parts_are_joined_when_all_are_there(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"of before\n")
    output = DividedOutput(str(tmp_path / "out"), 3, RUN)
    assert list(output.missing([0, 1, 2])) == [0, 1, 2]
    write(output, 2, ["last"])
    write(output, 0, ["first"])
    assert list(output.missing(range(3))) == [1] and not output.join() and not output.is_joined
    assert (tmp_path / "out").read_bytes() == b"of before\n"
    write(output, 1, [])
    left = [f"out.part-00{share}-of-003{end}" for share in range(3) for end in ("", parts.NOTE)]
    assert names(tmp_path) == ["out", *left]
    assert output.join() and (tmp_path / "out").read_bytes() == b"first\nlast\n"
    assert names(tmp_path) == ["out", "out" + parts.NOTE]
    assert output.join() and output.is_joined and not list(output.missing(range(3)))
    (tmp_path / "out").unlink()
    assert list(output.missing(range(3))) == [0, 1, 2]


def test_the_output_may_be_made_from_sums(tmp_path: Path) -> None:
    output = DividedOutput(str(tmp_path / "out"), 2, RUN)
    for share in (0, 1):
        write(output, share)
    assert output.join(lambda sums: f"{sums['rows']} {sums['sum']}")
    assert (tmp_path / "out").read_bytes() == b"12 6.0\n"


def test_packed_outputs_are_alike(tmp_path: Path) -> None:
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        output = DividedOutput(str(tmp_path / name / "out.gz"), 2, RUN)
        for share in (0, 1):
            write(output, share)
        assert output.join()
        found.append(Path(output.path).read_bytes())
    assert found[0] == found[1] and gzip.decompress(found[0]) == WHOLE * 2


def test_a_spoilt_part_is_not_joined(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"of before\n")
    output = DividedOutput(str(tmp_path / "out"), 2, RUN)
    for share in (0, 1):
        write(output, share)
    part = Path(output.parts[1].path)
    part.write_bytes(part.read_bytes().replace(b"vier", b"five"))
    with pytest.raises(PartError, match="part-001-of-002 differs from what its writer recorded"):
        output.join()
    assert (tmp_path / "out").read_bytes() == b"of before\n"
    part.unlink()
    assert list(output.missing([0, 1])) == [1] and write(output, 1) == 0
    assert output.join() and (tmp_path / "out").read_bytes() == WHOLE * 2


def test_two_that_join_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process joins and removes the parts after this one has read the first part."""
    one, other = (DividedOutput(str(tmp_path / "out"), 3, RUN) for _ in range(2))
    for share in range(3):
        write(one, share)
    copy, copied = Part.copy, []

    def late(part: Part, note: Note, output: BinaryIO) -> None:
        copy(part, note, output)
        copied.append(part)
        if len(copied) == 1:
            assert other.join()

    monkeypatch.setattr(Part, "copy", late)
    assert one.join() and len(copied) == 4
    assert (tmp_path / "out").read_bytes() == WHOLE * 3
    assert names(tmp_path) == ["out", "out" + parts.NOTE]


@pytest.mark.parametrize("whole", [None, lambda sums: f"{sums['rows']}"], ids=["parts", "sums"])
@pytest.mark.parametrize("moment", range(8))
def test_the_other_removes_the_parts_at_any_moment(
    moment: int, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process joins before or after this one opens a file."""
    one, other = (DividedOutput(str(tmp_path / "out"), 1, RUN) for _ in range(2))
    write(one, 0)
    moments = iter(range(100))

    @contextmanager
    def opening(*words: Any) -> Iterator[Any]:
        if next(moments) == moment:
            assert other.join(whole)
        with open(*words) as file:
            if next(moments) == moment:
                assert other.join(whole)
            yield file

    monkeypatch.setattr(parts, "open", opening, raising=False)
    assert one.join(whole)
    assert (tmp_path / "out").read_bytes() == (b"6\n" if whole else WHOLE)
    assert names(tmp_path) == ["out", "out" + parts.NOTE]


@pytest.mark.parametrize("moment", ["os.replace", "nmt.text.sharing.parts.Note.write", "os.unlink"])
def test_a_process_that_is_killed_while_it_joins(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = DividedOutput(str(tmp_path / "out"), 2, RUN)
    for share in (0, 1):
        write(output, share)

    def killed(*words: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(moment, killed)
        output.join()
    assert not list(output.missing([0, 1]))
    assert output.join() and (tmp_path / "out").read_bytes() == WHOLE * 2
    assert names(tmp_path) == ["out", "out" + parts.NOTE]


def test_an_error_of_the_disk_is_no_join_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = DividedOutput(str(tmp_path / "out"), 1, RUN)
    write(output, 0)

    def full(part: Part, note: Note, output: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Part, "copy", full)
    with pytest.raises(OSError, match="No space left"):
        output.join()
    assert output.parts[0].is_complete and Note.read(str(tmp_path / "out")) is None
