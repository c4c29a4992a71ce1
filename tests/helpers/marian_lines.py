"""Lines that Marian printed, compared with ours."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

TIE = 1e-4


class Different(Exception):
    """Marian's results and ours, or those of two runs, are not the same; the message shows where."""


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def float32s(text: str) -> list[float]:
    """Numbers as they come from a model."""
    return [float(np.float32(word)) for word in text.split()]


def near(found: float | str, expected: str) -> bool:
    """Within 1e-3, or within two units of the last printed digit."""
    limit = max(1e-3, 2 * 10.0 ** -len(expected.partition(".")[2])) * (1 + 1e-6)
    return abs(float(found) - float(expected)) <= limit


def fields(line: str) -> tuple[list[str], list[str]]:
    """What a line says in words, and the numbers that it ends with."""
    words, numbers = [], []
    for place, part in enumerate(line.split(" ||| ")):
        match = re.fullmatch(r"(?:WordScores=|F0=|)((?: ?-?\d[\d.]*(?:e[+-]\d+)?)*)", part)
        if match and (place or re.fullmatch(r"-?\d+\.\d{6}", part)):
            numbers += match.group(1).split()
        else:
            words.append(part)
    return words, numbers


def same_line(found: str, expected: str) -> bool:
    (words, numbers), (wanted, values) = fields(found), fields(expected)
    return (
        words == wanted
        and len(numbers) == len(values)
        and all(near(a, b) for a, b in zip(numbers, values, strict=True))
    )


def check_lines(found: bytes, path: Path) -> None:
    """Assert that the lines are Marian's; entries whose scores tie may change places."""
    lines, expected = found.decode("utf-8", "surrogateescape").split("\n"), path.read_text().split("\n")
    assert len(lines) == len(expected)
    for place, (line, wanted) in enumerate(zip(lines, expected, strict=True)):
        tied = [
            other
            for other in expected[max(0, place - 1) : place + 2]
            if other.partition(" ")[0] == wanted.partition(" ")[0]
            and other.count(" ||| ") > 2
            and abs(float(other.split()[-1]) - float(wanted.split()[-1])) <= TIE
        ]
        assert any(same_line(line, other) for other in [wanted, *tied]), (line, wanted)
