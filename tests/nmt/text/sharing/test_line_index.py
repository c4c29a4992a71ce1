"""Ranges of lines are found wherever they lie between chunks."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pytest

from nmt.text.sharing import line_index
from nmt.text.sharing.line_index import LineIndex

TEXTS = [
    b"",
    b"\n",
    b"a",
    b"a\n",
    b"\n\n\n",
    b"one\n\r\ntwo three four\n\nf\xff\x00ve\n6",
    b"long" * 9 + b"\n" + b"b\n" * 7,
]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("chunk", [1, 3, 4, 1 << 20])
def test_every_range_of_lines(
    chunk: int, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_index, "CHUNK", chunk)
    path = tmp_path / f"text{ending}"
    for text in TEXTS:
        path.write_bytes(gzip.compress(text) if ending else text)
        lines, index = list(io.BytesIO(text)), LineIndex(str(path))
        assert (index.lines, index.bytes, index.checksum) == (len(lines), len(text), zlib.crc32(text))
        for start in range(len(lines) + 1):
            for stop in range(start, len(lines) + 1):
                with index.open(range(start, stop)) as found:
                    assert list(found) == lines[start:stop]


def test_only_the_chunk_before_a_range_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "CHUNK", 100)
    path = tmp_path / "text"
    path.write_bytes(b"".join(b"%09d\n" % number for number in range(1000)))
    index = LineIndex(str(path))
    sought: list[int] = []

    class Stream(io.FileIO):
        def seek(self, place: int, whence: int = 0) -> int:
            sought.append(place)
            return super().seek(place, whence)

    monkeypatch.setattr("builtins.open", lambda path, mode: Stream(path))
    with index.open(range(555, 557)) as found:
        assert list(found) == [b"000000555\n", b"000000556\n"]
    assert sought == [5500]
