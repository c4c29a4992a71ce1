"""Shares of parallel texts: together they have all rows, each once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.text.parallel import NBestListError, NBestRows, ParallelTextError
from nmt.text.sharing.texts import SharedTexts

LIST = [0, 0, 5, 3, 3, 7, 7, 6, 9]
"""Numbers of n-best entries: from 5 on, they belong to the second source line, from 7 on to the third."""


def write(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join(lines))  # the last line has no newline
    return str(path)


@pytest.mark.parametrize("shares", [1, 2, 3, 5, 12])
def test_all_lines_once_and_in_order(shares: int, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(5)]
    texts = SharedTexts([write(tmp_path / "a", lines), write(tmp_path / "b", lines[::-1])], shares)
    sizes, found = [], []
    for share in range(shares):
        with texts.open(share) as (one, other):
            rows = list(zip(one, other, strict=True))
        assert len(rows) == len(texts.rows(share)) and texts.rows(share).start == len(found)
        sizes.append(len(rows))
        found += rows
    assert [one.decode().strip() for one, _ in found] == lines
    assert [other.decode().strip() for _, other in found] == lines[::-1]
    assert max(sizes) - min(sizes) <= 1


def test_texts_of_other_lengths(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a", ["x"]), write(tmp_path / "b", ["x", "y"])]
    with pytest.raises(ParallelTextError, match="same number of lines, got .*a: 1, .*b: 2"):
        SharedTexts(paths, 2)


@pytest.mark.parametrize("sources", [0, 2])
@pytest.mark.parametrize("shares", [1, 2, 3, 4, 7])
def test_entries_stay_with_their_source_line(shares: int, sources: int, tmp_path: Path) -> None:
    entries = [f"{number} ||| text {place} ||| F= 1 ||| 1" for place, number in enumerate(LIST)]
    texts = [[f"{number} of {source}" for number in range(6)] for source in range(sources)]
    paths = [write(tmp_path / str(place), text) for place, text in enumerate([*texts, entries])]
    shared, found = SharedTexts(paths, shares, n_best=True), []
    for share in range(shares):
        assert shared.rows(share).start == len(found)
        for done in range(len(shared.rows(share)) + 1):
            with shared.open(share) as (*lines, part):
                rest = list(NBestRows(lines, part, done))
            with shared.open(share) as (*lines, part):
                own = list(NBestRows(lines, part))
            assert rest == own[done:]
        found += own
    assert found == list(NBestRows(texts, entries))
    assert len(found) == len(LIST)


def test_a_wrong_list(tmp_path: Path) -> None:
    source, entries = write(tmp_path / "source", ["one"]), tmp_path / "list"
    write(entries, ["0 ||| a ||| F= 1 ||| 1", "nothing"])
    with pytest.raises(NBestListError, match="line 2 of the n-best list: expected"):
        SharedTexts([source, str(entries)], 2, n_best=True)
    write(entries, ["0 ||| a ||| F= 1 ||| 1", "1 ||| a ||| F= 1 ||| 1"])
    with pytest.raises(NBestListError, match="the source has no more lines"):
        SharedTexts([source, str(entries)], 2, n_best=True)
    write(entries, [])
    with pytest.raises(NBestListError, match="the n-best list is empty, and the source is not"):
        SharedTexts([source, str(entries)], 2, n_best=True)
