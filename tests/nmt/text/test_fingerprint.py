"""What tells one corpus from another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nmt.text.lines import END, Fingerprint, changes, from_text, to_text


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


@pytest.mark.parametrize("text", ["", "5", "[1]", '["abc"]', '[["a"]]', '[["a", "b", "c"]]', "[" * 100_000])
def test_what_is_no_list_of_files(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)
