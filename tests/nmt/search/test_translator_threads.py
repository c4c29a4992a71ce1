"""``Translator`` with several batches at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest

from nmt import Translator
from nmt.search.results import Hypothesis, Translation
from tests.helpers.places import DATA

OPTIONS = DATA / "options"
MODEL = DATA / "search" / "left-right.npz"
SECONDS = 60
NOTHING = Hypothesis((), (), 0.0, 0.0, (0.0,))
Search = Callable[[list[Any]], list[Translation]]


class Fake:
    """A translator whose batches, of one line each, are translated by a function of the line's number."""

    def __init__(self, translator: Translator, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.translator, self.searched = translator, []
        self.during: Callable[[int], None] = lambda line: None
        monkeypatch.setattr(translator, "_workers", lambda: workers)
        monkeypatch.setattr(translator.service, "translate", self._search)

    def _search(self, batch: list[Any], **_: Any) -> list[Translation]:
        (sample,) = batch
        self.searched.append(sample.line)
        self.during(sample.line)
        return [Translation(sample.line, (str(sample.line),), (NOTHING,))]

    def lines(self, number: int) -> Iterator[str]:
        return (f"cat {i}" for i in range(number))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(str(MODEL), [str(OPTIONS / "source.yml"), str(OPTIONS / "target.yml")], maxi_batch=99)


@pytest.fixture
def fake(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(translator, 3, monkeypatch)


def test_several_are_searched_at_once_and_come_in_order(fake: Fake) -> None:
    together = threading.Barrier(3)
    fake.during = lambda line: void(together.wait(SECONDS))
    assert [t.text for t in fake.translator.translations(fake.lines(6))] == [*map(str, range(6))]


def test_a_batch_that_fails_ends_the_search(fake: Fake) -> None:
    def fail(line: int) -> None:
        if line == 2:
            raise RuntimeError("no memory")
        time.sleep(0.05)  # so that the other threads do not translate everything before they are stopped

    fake.during = fail
    found = fake.translator.translations(fake.lines(90))
    with pytest.raises(RuntimeError, match="no memory"):
        list(found)
    assert len(fake.searched) < 90


def test_who_takes_no_more_stops_the_search(fake: Fake) -> None:
    found = fake.translator.translations(fake.lines(90))
    assert next(found).text == "0"
    found.close()
    assert len(fake.searched) < 90


def test_lines_that_cannot_be_read_fail_before_anything_is_searched(fake: Fake) -> None:
    def lines() -> Iterator[str]:
        yield from fake.lines(9)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        fake.translator.translate(lines())
    assert not fake.searched


def test_the_callers_settings_hold_in_all_threads(fake: Fake) -> None:
    seen = set()
    fake.during = lambda line: seen.add(
        (jax.config.values["jax_default_matmul_precision"], jax.numpy.zeros(1).device)
    )
    device = jax.devices()[-1]
    with jax.default_matmul_precision("float32"), jax.default_device(device):
        fake.translator.translate(fake.lines(6))
    assert {str(d) for _, d in seen} == {str(device)}
    assert {p for p, _ in seen} == {"float32"}


def void(_: object) -> None:
    """For functions of which only what they do matters."""
