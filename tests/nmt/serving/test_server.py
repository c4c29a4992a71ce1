"""``mgraph server``: marian-server's protocol, with real clients."""

from __future__ import annotations

import asyncio
import errno
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from nmt import TranslationQueue, Translator
from nmt.cli import main
from nmt.search.open_job import OpenJob
from nmt.search.results import Hypothesis, Translation
from nmt.serving.server import TranslationServer
from nmt.settings.serving import ServerOptions
from tests.helpers.places import DATA, ROOT

SECONDS = 120
MODEL = str(DATA / "search" / "left-right.npz")
VOCABS = [str(DATA / "options" / f"{side}.yml") for side in ("source", "target")]
WORDS = "the a cat dog house red sees and zebra sleeps".split()
LINES = [" ".join(random.Random(n).choices(WORDS, k=n * 5 % 17 if n % 7 else 0)) for n in range(40)]
Client = Callable[..., connect]


@contextmanager
def serving(
    translator: Translator, host: str = "127.0.0.1", **limits: Any
) -> Iterator[tuple[TranslationServer, Client, Any]]:
    """A server, a function that connects to it, and one that stops it."""
    options = ServerOptions(models=(MODEL,), vocabs=tuple(VOCABS), port=0, host=host, **limits)
    ready, ports, loops = threading.Event(), [], []

    async def run(server: TranslationServer) -> None:
        def listening(port: int) -> None:
            ports.append(port)
            ready.set()

        loops.append(asyncio.get_running_loop())
        await server.run(listening)

    with TranslationQueue(translator, most_lines=options.max_waiting_lines) as queue:
        server = TranslationServer(queue, options)
        thread = threading.Thread(target=lambda: asyncio.run(run(server)))
        thread.start()
        assert ready.wait(SECONDS)

        def client(path: str = "/translate", at: str = "127.0.0.1", **options: Any) -> connect:
            return connect(f"ws://{at}:{ports[0]}{path}", max_size=None, **options)

        def stop() -> None:
            loops[0].call_soon_threadsafe(server.stop)

        try:
            yield server, client, stop
        finally:
            with suppress(RuntimeError):  # the loop may be closed already
                stop()
            thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(MODEL, VOCABS, beam_size=2, max_length=40)


@pytest.fixture(scope="module")
def expected(translator: Translator) -> list[str]:
    return translator.translate(LINES)


def ask(connection: ClientConnection, message: str | bytes) -> str:
    connection.send(message)
    answer = connection.recv(timeout=SECONDS)
    assert isinstance(answer, str)
    return answer


def test_a_message_is_lines_and_so_is_the_answer(translator: Translator, expected: list[str]) -> None:
    """As in marian_server.cpp and translator.h: getline, join, and a final newline."""
    with serving(translator) as (_, client, _), client() as one, client("/translate/?from=en") as other:
        assert ask(one, "\n".join(LINES)) == "\n".join(expected) + "\n"
        assert ask(one, "\n".join(LINES[:5]) + "\n") == "\n".join(expected[:5]) + "\n"
        assert ask(other, LINES[1]) == expected[1] + "\n"
        assert ask(other, LINES[1] + "\r\n\n" + LINES[2]) == f"{expected[1]}\n\n{expected[2]}\n"
        assert ask(other, "") == "\n" and ask(other, "\n") == "\n"


def test_all_addresses_may_be_those_of_ipv4(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with serving(translator, host="") as (_, client, _), client() as connection:
        assert ask(connection, "") == "\n"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
def test_a_free_port_is_one_for_all_addresses(translator: Translator, expected: list[str]) -> None:
    with serving(translator, host="") as (_, client, _), client() as one, client(at="[::1]") as other:
        assert ask(one, LINES[1]) == ask(other, LINES[1]) == expected[1] + "\n"


def test_a_place_that_cannot_be_used_is_named(translator: Translator) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        TranslationQueue(translator) as queue,
        pytest.raises(OSError, match=f"--host 127.0.0.1 --port {(port := taken.getsockname()[1])}: "),
    ):
        options = ServerOptions(models=(MODEL,), vocabs=tuple(VOCABS), port=port, host="127.0.0.1")
        asyncio.run(TranslationServer(queue, options).run())


def test_an_address_of_another_machine_cannot_be_used(translator: Translator) -> None:
    options = ServerOptions(models=(MODEL,), vocabs=tuple(VOCABS), port=0, host="192.0.2.1")
    with (
        TranslationQueue(translator) as queue,
        pytest.raises(OSError, match=r"--host 192\.0\.2\.1: the server cannot listen there: .*192\.0\.2\.1"),
    ):
        asyncio.run(TranslationServer(queue, options).run())


def test_connections_that_cannot_be_accepted_fill_no_log(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a file descriptor, asyncio reports a hundred errors a second."""
    real, failures = socket.socket.accept, [OSError(errno.EMFILE, "Too many open files")] * 150

    def accept(self: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return real(self)

    with serving(translator) as (_, client, _):
        monkeypatch.setattr(socket.socket, "accept", accept)
        with client() as connection:
            assert ask(connection, "") == "\n"
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["connections wait, because they cannot be accepted: Too many open files"]


def test_marians_own_client(translator: Translator, expected: list[str]) -> None:
    """As scripts/server/client_example.py: batches of lines with newlines, printed without the last one."""
    with serving(translator) as (_, client, _), client() as connection:
        printed = []
        for first in range(0, len(LINES), 3):
            batch = "".join(f"{line}\n" for line in LINES[first : first + 3])
            printed.append(ask(connection, batch))
    assert "".join(printed) == "".join(f"{line}\n" for line in expected)


def test_many_clients_get_what_decode_prints(translator: Translator, tmp_path: Path) -> None:
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_text("".join(f"{line}\n" for line in LINES))
    words = [
        "-m",
        MODEL,
        "-v",
        *VOCABS,
        "-b",
        "2",
        "-i",
        str(text),
        "-o",
        str(output),
        "--quiet",
        "--max-length",
        "40",
    ]
    assert main(["decode", *words]) == 0
    found: dict[int, str] = {}

    def work(number: int, client: Client) -> None:
        with client() as connection:
            for _ in range(3):
                found[number] = ask(connection, "\n".join(LINES))

    with serving(translator, max_waiting_lines=50) as (_, client, _):
        threads = [threading.Thread(target=work, args=(number, client)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(found.values()) == {output.read_text()} and len(found) == 6


def test_bad_input_costs_its_line_only(
    translator: Translator, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(translator) as (_, client, _), client() as connection:
        answer = ask(connection, f"{LINES[1]}\n{'cat ' * 50}\n{LINES[2]}")
        assert answer == f"{expected[1]}\n\n{expected[2]}\n"
        assert "is left out: 51 words with </s>" in caplog.text
        answer = ask(connection, b"\xff\xfe\x00\n" + LINES[3].encode())
        assert len(answer.splitlines()) == 2 and answer.endswith(f"\n{expected[3]}\n")


def test_what_fails_or_takes_too_long_costs_its_line_only(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def translation(_: TranslationQueue, line: bytes) -> Translation:
        if line == b"wrong":
            raise MemoryError("no memory for this")
        if line == b"slow":
            await asyncio.sleep(SECONDS)
        hypothesis = Hypothesis((), (), 0.0, 0.0, (0.0,))
        return Translation(0, (line.decode("utf-8", "surrogateescape"),), (hypothesis,))

    monkeypatch.setattr(TranslationQueue, "translation", translation)
    with serving(translator, message_timeout=0.1) as (_, client, _), client() as connection:
        assert ask(connection, b"right\nwrong\nslow\n\xff") == "right\n\n\n\ufffd\n"
    assert "line 2 of a message is not translated: no memory for this" in caplog.text
    assert "1 of 4 line(s) were not translated in 0.1 s" in caplog.text


@pytest.mark.parametrize("quiet", [False, True])
def test_each_message_is_logged_unless_translation_is_quiet(
    quiet: bool, translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with serving(translator, quiet_translation=quiet) as (_, client, stop), client() as connection:
        assert ask(connection, "\n") == "\n"
        stop()
        with pytest.raises(ConnectionClosedOK):
            connection.recv(timeout=SECONDS)
    assert ("Translation took: " in caplog.text) is not quiet
    assert "Server stops: 1 connection(s), 0 line(s) to do" in caplog.text


def test_lists_number_the_lines_of_a_message() -> None:
    """The lines are too long and left out, so nothing needs to be searched."""
    lists = Translator(MODEL, VOCABS, n_best=True, max_length=1)
    with serving(lists) as (_, client, _), client() as connection:
        for _ in range(2):
            found = ask(connection, "a cat\nthe cat").splitlines()
            assert [line.split(" ||| ")[0] for line in found] == ["0", "1"]


def test_limits_of_messages_and_connections(translator: Translator, expected: list[str]) -> None:
    with serving(translator, max_message_bytes=100, max_connections=2) as (_, client, _):
        with client() as one, client() as other:
            with pytest.raises(InvalidStatus, match="503"), client():
                pass
            with pytest.raises(InvalidStatus, match="404"), client("/elsewhere"):
                pass
            one.send("cat " * 26)
            with pytest.raises(ConnectionClosedError) as closed:
                one.recv(timeout=SECONDS)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
            assert ask(other, LINES[1]) == expected[1] + "\n"
        for _ in range(3):  # the places are free again
            with client() as again:
                assert ask(again, LINES[1]) == expected[1] + "\n"


def test_connections_admitted_at_the_same_time_are_limited(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TranslationServer, "_admitted", lambda *_: None)
    with serving(translator, max_connections=1) as (_, client, _), client() as one:
        assert ask(one, "") == "\n"
        with client() as other, pytest.raises(ConnectionClosedError) as closed:
            other.recv(timeout=SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
        assert ask(one, "") == "\n"


def test_a_message_has_its_time(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, free = OpenJob._take, threading.Event()

    def take(self: OpenJob, *arguments: Any, **rest: Any) -> Any:
        assert free.wait(SECONDS)
        return real(self, *arguments, **rest)

    monkeypatch.setattr(OpenJob, "_take", take)
    with serving(translator, message_timeout=0.05) as (_, client, _), client() as connection:
        assert ask(connection, "a cat\nthe cat") == "\n\n"
        assert "2 of 2 line(s) were not translated in 0.05 s" in caplog.text
        free.set()


def test_who_answers_no_pings_stays(
    translator: Translator, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For instance a client that has sent more than is read ahead: its pongs come after its messages."""
    real, free = OpenJob._take, threading.Event()

    def take(self: OpenJob, *arguments: Any, **rest: Any) -> Any:
        assert free.wait(SECONDS)
        return real(self, *arguments, **rest)

    def pinging(*arguments: Any, ping_timeout: float | None = 0.05, **rest: Any) -> Any:
        return serve(*arguments, ping_interval=0.05, ping_timeout=ping_timeout, **rest)

    monkeypatch.setattr(OpenJob, "_take", take)
    monkeypatch.setattr("nmt.serving.server.serve", pinging)
    with serving(translator) as (_, client, _), client() as connection:
        for line in LINES[:12]:
            connection.send(line)
        time.sleep(0.5)
        free.set()
        assert [connection.recv(timeout=SECONDS) for _ in LINES[:12]] == [
            f"{line}\n" for line in expected[:12]
        ]


def test_who_takes_no_answers_is_cut_off(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(*_: Any) -> str:
        return "x" * 10_000_000

    monkeypatch.setattr(TranslationServer, "_answer", answer)
    with (
        serving(translator, message_timeout=0.2) as (_, client, stop),
        client(max_queue=1, compression=None) as connection,
    ):
        for _ in range(4):
            connection.send("a cat")
        last = time.monotonic() + SECONDS
        while "did not take its answer in 0.2 s" not in caplog.text:
            assert time.monotonic() < last
            time.sleep(0.01)
        stop()  # waits for no client
        with pytest.raises(ConnectionClosedError):
            for _ in range(4):
                connection.recv(timeout=SECONDS)


def test_who_goes_away_leaves_no_lines(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    real, free = OpenJob._take, threading.Event()

    def take(self: OpenJob, *arguments: Any, **rest: Any) -> Any:
        assert free.wait(SECONDS)
        return real(self, *arguments, **rest)

    monkeypatch.setattr(OpenJob, "_take", take)
    with serving(translator) as (server, client, _):
        with client() as connection:
            connection.send("a cat\n" * 10)
            while len(server._queue) < 10:
                time.sleep(0.001)
        while len(server._queue):
            time.sleep(0.001)
        free.set()


def test_a_stop_loses_no_message(translator: Translator, expected: list[str]) -> None:
    with serving(translator) as (_, client, stop), ExitStack() as opened:
        connections = [opened.enter_context(client()) for _ in range(4)]
        for number, connection in enumerate(connections):
            for first in range(3):  # more than are being answered
                connection.send("\n".join(LINES[number + first :]))
            assert connection.ping().wait(SECONDS)  # the server has read all that
        stop()
        for number, connection in enumerate(connections):
            for first in range(3):
                answer = connection.recv(timeout=SECONDS)
                assert answer == "\n".join(expected[number + first :]) + "\n"
            with pytest.raises(ConnectionClosedOK) as closed:
                connection.recv(timeout=SECONDS)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        with pytest.raises(OSError), client():
            pass


def test_a_message_that_is_under_way_at_a_stop_is_answered(
    translator: Translator, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, stopping, received = TranslationServer._rest, threading.Event(), []

    async def rest(self: TranslationServer, connection: Any) -> list[bytes]:
        async def recv(**options: Any) -> Any:
            if len(received) == 2:  # the time is over then
                raise TimeoutError
            received.append(await connection.recv(**options))
            return received[-1]

        stopping.set()
        return await real(self, cast(Any, SimpleNamespace(recv=recv)))

    monkeypatch.setattr(TranslationServer, "_rest", rest)
    monkeypatch.setattr("nmt.serving.server.GRACE", SECONDS)
    with serving(translator) as (_, client, stop), client() as connection:
        stop()
        assert stopping.wait(SECONDS)
        for line in LINES[1:3]:
            connection.send(line)
        assert [connection.recv(timeout=SECONDS) for _ in range(2)] == [f"{line}\n" for line in expected[1:3]]
        with pytest.raises(ConnectionClosedOK):
            connection.recv(timeout=SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_comes_while_the_loop_is_behind(translator: Translator, number: signal.Signals) -> None:
    """This happens when many lines have been translated since the loop last ran."""
    options = ServerOptions(models=(MODEL,), vocabs=tuple(VOCABS), port=0, host="127.0.0.1")

    async def run(server: TranslationServer) -> bool:
        serving = asyncio.ensure_future(server.run_until_signalled())
        while server._stopping is None:
            await asyncio.sleep(0.001)
        loop = asyncio.get_running_loop()
        for _ in range(5000):  # more than the loop's pipe holds
            loop.call_soon_threadsafe(int)
        signal.raise_signal(number)
        return await asyncio.wait_for(serving, SECONDS)

    before = signal.getsignal(number)
    with TranslationQueue(translator) as queue:
        assert asyncio.run(run(TranslationServer(queue, options)))
    assert signal.getsignal(number) is before


@contextmanager
def command() -> Iterator[tuple[subprocess.Popen[str], ClientConnection]]:
    """A process that runs the command, and a connection to it."""
    words = ["-m", MODEL, "-v", *VOCABS, "-b", "2", "--port", "0", "--host", "127.0.0.1"]
    argv = [sys.executable, "-m", "nmt", "server", *words]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        timer = threading.Timer(SECONDS, process.kill)  # ends a read that gets nothing
        timer.start()
        try:
            port = next(
                match[1] for line in process.stderr if (match := re.search(r"listening on port (\d+)", line))
            )
            with connect(f"ws://127.0.0.1:{port}/translate") as connection:
                yield process, connection
        finally:
            timer.cancel()
            process.kill()


@pytest.mark.slow
def test_the_command_ends_at_a_signal() -> None:
    with command() as (process, connection):
        assert ask(connection, "the cat\n").count("\n") == 1
        connection.send("\n".join(LINES))
        assert connection.ping().wait(SECONDS)
        process.send_signal(signal.SIGTERM)
        answer = connection.recv(timeout=SECONDS)
        assert isinstance(answer, str) and answer.count("\n") == len(LINES)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None and "Server stops: 1 connection(s)" in process.stderr.read()


@pytest.mark.slow
def test_the_second_signal_ends_the_command_at_once() -> None:
    with command() as (process, connection):
        connection.send("the cat sees the house\n" * 40_000)
        assert connection.ping().wait(SECONDS)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("Server stops" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 1
        assert "ended before all messages were answered" in process.stderr.read()


def test_a_command_that_ends_at_once_drops_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    futures: list[Future[Translation]] = []

    async def ended(self: TranslationServer) -> bool:
        futures.extend(self._queue.submit(line) for line in LINES * 20)
        return False

    monkeypatch.setattr(TranslationServer, "run_until_signalled", ended)
    assert main(["server", "-m", MODEL, "-v", *VOCABS, "-b", "2", "--quiet"]) == 1
    assert futures[-1].cancelled(), "not searched to its end"


def test_what_the_command_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["server", "--help"]) == 0
    shown = capsys.readouterr().out
    titles = [line for line in shown.splitlines() if line.endswith(" options:")]
    assert titles == [f"{title} options:" for title in ("General", "Model", "Translator", "Server")]
    assert "--max-message-bytes" in shown
    two = [str(DATA / "search" / "multi.npz"), "-v", VOCABS[0], *VOCABS]
    assert main(["server", "-m", *two, "--quiet"]) == 2
    assert "--tsv is needed: a line of a message has 2 fields (source 1, source 2)" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "websockets", None)
    monkeypatch.delitem(sys.modules, "nmt.serving.server")
    for name in [name for name in sys.modules if name.startswith("websockets.")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["server", "-m", MODEL, "-v", *VOCABS]) == 2
    assert "pip install 'mgraph-jax[server]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "nmt.serving.server", None)
    with pytest.raises(ModuleNotFoundError, match=r"nmt\.serving\.server"):  # websockets would not help
        main(["server", "-m", MODEL, "-v", *VOCABS])
