"""Lines of bytes: only a line feed ends one, and every one counts."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph.errors import ArgumentError
from nmt.text.lines import (
    END,
    Fingerprint,
    as_bytes,
    changes,
    from_text,
    is_file,
    is_stream,
    is_utf8,
    naming,
    open_input,
    open_output,
    read_lines,
    read_whole,
    to_text,
    without_end,
)


def split(data: bytes) -> list[bytes]:
    return list(read_lines(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),  # the last line counts without a newline
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),  # only one carriage return belongs to the line end
        (b"a\rb\n", [b"a\rb"]),
        (b"\n\n \n", [b"", b"", b" "]),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode()]),
        (b"\xef\xbb\xbfa\tb\xc2\xa0c\n", [b"\xef\xbb\xbfa\tb\xc2\xa0c"]),
        (b"a\x00b\n\xff\xfe\n", [b"a\x00b", b"\xff\xfe"]),
    ],
)
def test_a_line_ends_at_a_line_feed_only(data: bytes, lines: list[bytes]) -> None:
    assert split(data) == lines


@given(st.lists(st.binary(max_size=8).filter(lambda b: b"\n" not in b and not b.endswith(b"\r"))))
def test_n_lines_in_n_lines_out(lines: list[bytes]) -> None:
    assert split(b"".join(line + b"\n" for line in lines)) == lines


def test_strings_are_lines_too() -> None:
    assert list(read_lines(["ä\n", "b", b"c\r\n"])) == ["ä".encode(), b"b", b"c"]


@pytest.mark.parametrize("text", ["six", b"six", None, 3])
def test_one_line_is_no_text(text) -> None:
    with pytest.raises(ArgumentError, match=r"a text is a list, a file .*, got (b?'six'|None|3)"):
        read_lines(text)


@pytest.mark.parametrize("line", [None, 3, ["six"]])
def test_what_is_no_line_is_named(line) -> None:
    with pytest.raises(ArgumentError, match=r"a line must be str or bytes, got (None|3|\['six'\]) \("):
        list(read_lines(["six", line]))


def test_bytes_survive_a_string_and_back() -> None:
    assert as_bytes(b"bad \xff".decode("utf-8", "surrogateescape")) == b"bad \xff"


def test_a_lone_surrogate_is_not_utf8_but_no_error() -> None:
    assert not is_utf8(as_bytes("a\ud800"))


@pytest.mark.parametrize(
    ("line", "valid"),
    [(b"", True), ("ü€😀".encode(), True), (b"\xff", False), (b"\xc3", False), (b"\xc0\x80", False)],
)
def test_is_utf8(line: bytes, valid: bool) -> None:
    assert is_utf8(line) is valid


def test_without_end() -> None:
    assert [without_end(line) for line in (b"a", b"a\n", b"a\r\n", b"a\r")] == [b"a"] * 4


def test_a_line_is_handed_on_before_the_next_is_read() -> None:
    read = []

    def source():
        for line in (b"a\n", b"b\n"):
            read.append(line)
            yield line

    lines = read_lines(source())
    assert next(lines) == b"a"
    assert read == [b"a\n"]


def test_gz_files_are_packed_and_unpacked(tmp_path) -> None:
    path = str(tmp_path / "text.gz")
    with open_output(path) as output:
        output.write(b"a\nb\n")
    assert gzip.decompress(Path(path).read_bytes()) == b"a\nb\n"
    with open_input(path) as stream:
        assert list(read_lines(stream)) == [b"a", b"b"]


def test_a_line_of_packed_text_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.text.lines.MAX_LINE_BYTES", 4)
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"abc\nabcd\n"))
    with open_input(str(path)) as stream:
        lines = read_lines(stream)
        assert next(lines) == b"abc"
        with pytest.raises(OSError, match=r"text\.gz: a line of more than 4 bytes"):
            next(lines)


@pytest.mark.parametrize("name", ["stdout", "-"])
def test_standard_output(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with open_output(name) as output:
        output.write(b"a\xff\n")
        output.flush()
    assert capfdbinary.readouterr().out == b"a\xff\n"


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_the_first_bytes_of_a_file(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    with open_output(path) as output:
        output.write(b"a\nb\n")
    assert (read_whole(path), read_whole(path, 3)) == (b"a\nb\n", b"a\nb")


@pytest.mark.parametrize("name", ["full", "full.gz"])
def test_a_full_disk_is_named(tmp_path: Path, name: str) -> None:
    full = tmp_path / name
    full.symlink_to("/dev/full")
    with (
        pytest.raises(OSError, match=rf"No space left on device: .*/{name}"),
        open_output(str(full)) as stream,
    ):
        stream.write(b"a line\n")


@pytest.mark.parametrize("error", [OSError(28, "full", "other"), OSError("damaged")], ids=str)
def test_only_a_system_error_without_a_name_is_named(error: OSError) -> None:
    with pytest.raises(OSError) as raised, naming("text"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("damage", "plain"),
    [
        (lambda data: data[:-10], False),
        (lambda data: data + b"more", False),
        (lambda data: b"no gzip at all", True),
    ],
)
def test_a_damaged_gz_file_is_named(tmp_path, damage, plain: bool) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(damage(gzip.compress(b"some words\n" * 100)))
    with pytest.raises(OSError, match=r"text\.gz is damaged") as raised, open_input(str(path)) as stream:
        list(read_lines(stream))
    assert str(raised.value).endswith("; a text that is not compressed needs a name without .gz") == plain


@pytest.mark.parametrize("at", [0, END - 1, 2 * END, 3 * END - 1])
def test_a_byte_at_either_end_counts(at: int, tmp_path: Path) -> None:
    text, data = tmp_path / "text", bytearray(3 * END)
    text.write_bytes(data)
    before = Fingerprint.of(str(text))
    assert not before.differs(Fingerprint.of(str(text)))
    data[at] = 1
    text.write_bytes(data)
    now = Fingerprint.of(str(text))
    assert now.differs(before)
    assert now.size == before.size


def test_an_empty_file_and_a_short_one(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"")
    empty = Fingerprint.of(str(text))
    text.write_bytes(b"\n")
    assert changes([empty], [Fingerprint.of(str(text))]) == [f"{text} has 1 bytes, {text} had 0"]


def test_what_can_be_read_once_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = [Fingerprint.of(name) for name in ("stdin", "-", str(pipe))]
    assert [each.size for each in found] == [None] * 3
    assert not changes(found, [Fingerprint("text", 3, "0")] * 3)


def test_the_number_of_files_counts() -> None:
    one = Fingerprint("a", 1, "0")
    assert changes([one], [one, one]) == ["there are 2 files, and there were 1"]


def test_any_name_is_written_and_read_again() -> None:
    names = ["a b", '"', "ü", "\udc80", "\n", "\U0001f600"]
    found = [*(Fingerprint(name, 7, "0f") for name in names), Fingerprint("stdin", None, "")]
    text = to_text(found)
    assert text.isascii()
    assert "\n" not in text
    assert from_text(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "[1]",
        '["abc"]',
        '[["a"]]',
        '[["a", "b", "c"]]',
        '[["a", 1, "c"], [1, 1, "c"]]',
        "[" * 100_000,
    ],
)
def test_what_is_no_list_of_files(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)


def test_a_file_is_there_whole_and_a_pipe_is_not(tmp_path, monkeypatch) -> None:
    path, pipe = tmp_path / "text", tmp_path / "pipe"
    path.write_text("six\n")
    os.mkfifo(pipe)
    assert is_file(str(path)) and not is_file(str(pipe)) and not is_file(str(tmp_path / "none"))
    places = path, pipe, tmp_path, tmp_path / "none"
    assert [is_stream(str(place)) for place in places] == [False, True, False, False]
    reading, writing = os.pipe()
    with open(path) as closed:
        pass
    with open(path) as redirected, open(reading) as piped, open(writing, "w"):
        for stream, known in [
            (redirected, True),
            (piped, False),
            (io.StringIO("six\n"), False),
            (closed, False),
            (None, False),
        ]:
            monkeypatch.setattr("sys.stdin", stream)
            assert is_file("stdin") is is_file("-") is known
