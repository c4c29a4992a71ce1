"""The parts that put a corpus into order: the generator, shuffling in files, the thread."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from nmt.text.background import Background, Stopped
from nmt.text.order import MersenneTwister, TextSize, shuffled
from nmt.text.parallel import CorpusError

# ---------------------------------------------------------------- the generator


def test_the_generator_is_that_of_c() -> None:
    """The C++ standard gives the 10000th number that mt19937 draws from its default seed."""
    generator = MersenneTwister(5489)
    state = generator.text.split()
    assert (len(state), state[-1]) == (625, "624")
    drawn = [generator.below((1 << 32) - 1) for _ in range(10000)]
    assert drawn[-1] == 4123659995
    again = MersenneTwister(0)
    again.restore(generator.text)
    assert [again.below(1000) for _ in range(5)] == [generator.below(1000) for _ in range(5)]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 65536, 70000])
def test_an_order_has_each_number_once(count: int) -> None:
    order = MersenneTwister(1).order(count)
    assert sorted(order.tolist()) == list(range(count))
    items = list(range(count))
    MersenneTwister(1).shuffle(items)
    assert items == order.tolist()


def test_many_draws_are_single_draws() -> None:
    """An order of many numbers takes one draw of ``below`` for each, without refused draws."""
    count = 70000
    one, other = MersenneTwister(3), MersenneTwister(3)
    order = list(range(count))
    for i in range(1, count):
        place = other.below(i + 1)
        order[i], order[place] = order[place], order[i]
    assert one.order(count).tolist() == order
    assert one.text == other.text


@pytest.mark.parametrize("text", ["", "1 2 3", "x " * 625, "9999999999 " * 624 + "1", "1 " * 624 + "625"])
def test_a_state_that_is_none(text: str) -> None:
    with pytest.raises(CorpusError, match="625 numbers"):
        MersenneTwister(0).restore(text)


# ---------------------------------------------------------------- shuffling by way of files


@pytest.mark.parametrize("bucket_bytes", [1, 40, 1 << 20])
def test_rows_in_any_order(bucket_bytes: int, tmp_path: Path) -> None:
    rows = [(b"%d" % number, b"x" * (number % 5)) for number in range(999)]
    order = MersenneTwister(2).order(len(rows))
    size = TextSize(len(rows), 5 * len(rows))
    found = list(shuffled(iter(rows), order, size, str(tmp_path), bucket_bytes=bucket_bytes))
    assert found == [rows[number] for number in order]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("bucket_bytes", "files"), [(1, 250), (1000, 5), (4995, 2), (5000, 1)])
@pytest.mark.parametrize("folder", ["", "/spool"])
def test_a_file_for_each_stretch(
    folder: str, bucket_bytes: int, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[str | None] = []

    def temporary(dir: str | None) -> IO[bytes]:
        folders.append(dir)
        return io.BytesIO()

    monkeypatch.setattr("tempfile.TemporaryFile", temporary)
    order = MersenneTwister(2).order(1000)
    size = TextSize(1000, 4995)
    rows = shuffled(((b"a",) for _ in order), order, size, folder, bucket_bytes=bucket_bytes)
    assert next(rows) == (b"a",) and folders == [folder or None] * files


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("r+b", buffering=0)  # noqa: SIM115 - shuffled() closes it
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: full)
    with pytest.raises(OSError, match="No space left") as error:
        list(shuffled(iter([(b"a",)]), MersenneTwister(1).order(1), TextSize(1, 2), "/spool"))
    assert error.value.filename == "--tempdir /spool"


# ---------------------------------------------------------------- the thread


def test_an_error_is_raised_where_its_item_would_be() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise CorpusError("here")

    background = Background(items())
    assert next(background) == 1
    with pytest.raises(CorpusError, match="here"):
        next(background)
    with pytest.raises(StopIteration):
        next(background)


def test_who_waits_stops_waiting_when_asked() -> None:
    stop, go_on = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 1
        stop.set()
        go_on.wait()
        raise Stopped

    background = Background(items(), stopped=stop.is_set)
    assert list(background) == [1]
    go_on.set()
    background.close()


def test_the_thread_runs_no_further_ahead_than_it_may() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    background = Background(items(), ahead=3)
    assert [next(background) for _ in range(5)] == [0, 1, 2, 3, 4]
    background.close()
    assert len(taken) <= 9
    assert list(background) == []
