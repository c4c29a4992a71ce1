"""``Translator`` with lines that arrive and leave while it translates."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from nmt import Translator
from nmt.search.results import Hypothesis, Translation
from nmt.text.sentences import Sentence
from tests.helpers.places import DATA

OPTIONS = DATA / "options"
MODEL = DATA / "search" / "left-right.npz"
NOTHING = Hypothesis((), (), 0.0, 0.0, (0.0,))


class Fake:
    """A translator whose service translates lines to their numbers, the last of a group first."""

    def __init__(self, translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.translator, self.searched = translator, []
        monkeypatch.setattr(translator.service, "translate", self._search)

    def _search(self, samples: list[Any], **_: Any) -> Iterator[Translation]:
        for sample in reversed(samples):
            self.searched.append(sample.line)
            yield Translation(sample.line, (str(sample.line),), (NOTHING,))

    def lines(self, number: int) -> Iterator[str]:
        return (f"cat {i}" for i in range(number))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(
        str(MODEL), [str(OPTIONS / "source.yml"), str(OPTIONS / "target.yml")], mini_batch=2, maxi_batch=5
    )


@pytest.fixture
def fake(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(translator, monkeypatch)


def test_translations_come_in_order_and_no_more_is_read_than_a_maxi_batch(fake: Fake) -> None:
    found = fake.translator.translations(fake.lines(25))
    assert [next(found).text for _ in range(10)] == [*map(str, range(10))]
    assert fake.searched == [*range(9, -1, -1)]
    assert [t.text for t in found] == [*map(str, range(10, 25))]


def test_an_endless_text_is_translated_as_it_is_read(translator: Translator) -> None:
    """With the real search: it reads no more lines ahead than a maxi-batch, and keeps none."""
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            assert read <= 100, "so that a reader of all lines fails, too"
            yield "cat " * (read % 3)

    def alive() -> list[Sentence | Translation]:
        return [one for one in gc.get_objects() if isinstance(one, (Sentence, Translation))]

    others = alive()
    taken = translator.translations(lines())
    for number in range(95):
        assert next(taken).line == number
        assert read == number // 10 * 10 + 10
    kept = [one.line for one in alive() if all(one is not other for other in others)]
    assert kept and min(kept) >= 90
    taken.close()


def test_all_lines_are_one_group_where_all_are_given(fake: Fake) -> None:
    assert fake.translator.translate(fake.lines(25)) == [*map(str, range(25))]
    assert fake.searched == [*range(24, -1, -1)]


def test_who_takes_no_more_stops_the_search(fake: Fake) -> None:
    found = fake.translator.translations(fake.lines(90))
    assert next(found).text == "0"
    found.close()
    assert len(fake.searched) == 10


def test_lines_that_cannot_be_read_fail_before_anything_is_searched(fake: Fake) -> None:
    def lines() -> Iterator[str]:
        yield from fake.lines(9)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        fake.translator.translate(lines())
    assert not fake.searched
