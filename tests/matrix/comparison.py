"""Compares two outputs in Marian's formats: the same tokens except for ties, numbers within a tolerance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.helpers.marian_lines import Different

TOLERANCE = 1e-3
TIE = 1e-5
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?|-?inf|-?nan")


@dataclass(slots=True)
class Agreement:
    """How near two outputs are: the largest difference of scores and of attention beyond the printed digits,
    and the number of ties."""

    scores: float = 0.0
    attention: float = 0.0
    ties: int = 0

    def add(self, other: Agreement) -> None:
        """Include another output's differences."""
        self.scores = max(self.scores, other.scores)
        self.attention = max(self.attention, other.attention)
        self.ties += other.ties


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of output: an n-best entry, a translation or a score."""

    line: str
    text: str = ""
    alignment: str = ""
    numbers: tuple[str, ...] = field(default=())

    @property
    def number(self) -> str:
        """The number of the sentence in an n-best list."""
        return self.text.split(" ||| ")[0]

    @property
    def score(self) -> float:
        """The number that hypotheses are ranked by."""
        return float(self.numbers[-1])


def parse(name: str, line: str) -> Entry:
    """An entry of a file of ``marian.DECODED`` or ``SCORED``."""
    fields = line.split(" ||| ")
    if name.startswith("beam1"):
        return Entry(line, line)
    if name.startswith("score"):
        alignment = "" if len(fields) < 3 else fields[1]
        return Entry(line, "", alignment, (*_numbers(fields[-1]), fields[0]))
    number, text, *middle, score = fields
    alignment = middle.pop(0) if name.startswith(("soft", "hard")) else ""
    numbers = [number for part in middle for number in _numbers(part)]
    return Entry(line, f"{number} ||| {text}", alignment, (*numbers, score))


def _numbers(part: str) -> list[str]:
    """The numbers of a field such as ``WordScores= -0.1 -0.2`` or ``F0= -0.1 F1= -0.2``."""
    return NUMBER.findall(re.sub(r"\S+=", "", part))


def compare(name: str, theirs: Sequence[str], ours: Sequence[str], soft: Sequence[str] = ()) -> Agreement:
    """How near our lines are to Marian's; raises Different if they are not the same.

    Entries of one sentence whose scores tie may change places, and a list may end with a different entry
    that ties with Marian's. If ``soft`` has Marian's lines with attention, a hard alignment may link a word
    to a different source word with as much attention.
    """
    found = Agreement()
    if len(theirs) != len(ours):
        raise Different(f"{name}: Marian has {len(theirs)} lines, we have {len(ours)}")
    marians = [parse(name, line) for line in theirs]
    free = set(range(len(marians)))
    for place, line in enumerate(ours):
        entry = parse(name, line)
        match = next((other for other in _candidates(marians, place, entry) if other in free), None)
        if match is None:
            raise Different(f"{name}, line {place + 1}:\n  Marian: {theirs[place]}\n  mgraph: {line}")
        free.remove(match)
        same = marians[match].text == entry.text
        found.ties += match != place or not same
        if same:
            _compare_numbers(name, marians[match], entry, found)
            if name.startswith("hard"):
                table = parse("soft", soft[match]).alignment if soft else ""
                found.ties += _tied_links(name, marians[match], entry, table)
    return found


def _candidates(marians: list[Entry], place: int, entry: Entry) -> Iterator[int]:
    """The places of Marian's entries that our entry in this place may match, the likeliest first."""
    if marians[place].text == entry.text:
        yield place
    if not entry.numbers:
        return
    score = marians[place].score
    # Scores are printed with six digits.
    tie = TIE + 2e-6 * abs(score)
    if abs(score - entry.score) > tie:
        return
    sentence = [other for other, e in enumerate(marians) if e.number == marians[place].number]
    tied = [other for other in sentence if abs(marians[other].score - score) <= 2 * tie]
    yield from (other for other in tied if marians[other].text == entry.text)
    if tied[-1] == sentence[-1]:
        yield from tied


def _compare_numbers(name: str, theirs: Entry, ours: Entry, found: Agreement) -> None:
    where = _where(name, theirs, ours)
    found.scores = max(found.scores, _largest(theirs.numbers, ours.numbers, where))
    if name.startswith("hard"):
        return
    rows, our_rows = theirs.alignment.split(), ours.alignment.split()
    if len(rows) != len(our_rows):
        raise Different(where)
    for row, our_row in zip(rows, our_rows, strict=True):
        found.attention = max(found.attention, _largest(row.split(","), our_row.split(","), where))


def _tied_links(name: str, theirs: Entry, ours: Entry, table: str) -> int:
    """The number of words that are linked differently; raises Different unless Marian's attention ties."""
    wanted, found = _links(theirs.alignment), _links(ours.alignment)
    rows = [[float(weight) for weight in row.split(",")] for row in table.split()]
    differing = [target for target in wanted if found.get(target) != wanted[target]]
    tied = [t for t in differing if rows and rows[t][wanted[t]] - rows[t][found.get(t, 0)] <= TIE]
    if wanted.keys() != found.keys() or differing != tied:
        raise Different(_where(name, theirs, ours))
    return len(tied)


def _links(alignment: str) -> dict[int, int]:
    """The source word of each target word, from pairs ``source-target``."""
    pairs = (link.split("-") for link in alignment.split())
    return {int(target): int(source) for source, target in pairs}


def _where(name: str, theirs: Entry, ours: Entry) -> str:
    return f"{name}:\n  Marian: {theirs.line}\n  mgraph: {ours.line}"


def _largest(theirs: Sequence[str], ours: Sequence[str], where: str) -> float:
    """The largest difference between two lists of numbers; raises Different beyond the tolerance."""
    if len(theirs) != len(ours):
        raise Different(where)
    gaps = [_gap(*pair) for pair in zip(theirs, ours, strict=True)]
    if not all(gap <= TOLERANCE for gap in gaps):
        raise Different(where)
    return max(gaps, default=0.0)


def _gap(one: str, other: str) -> float:
    """How far two printed numbers are apart, beyond one unit in the last digit of the more precise one."""
    if one == other:
        return 0.0
    unit = 10.0 ** -max(_decimals(one), _decimals(other))
    gap = abs(float(one) - float(other)) - unit * (1 + 1e-9)
    return 0.0 if gap < 0 else gap


def _decimals(number: str) -> int:
    """The number of decimals of a printed number: 4 of ``-8.3389``, 9 of ``1.2877e-05``."""
    mantissa, _, exponent = number.partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent or 0)
