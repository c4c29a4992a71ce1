"""``TranslationServer``: marian-server's protocol for websockets."""

from __future__ import annotations

import asyncio
import http
import logging
import math
import re
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from nmt.runtime.signals import on_signals
from nmt.search.results import Translation
from nmt.search.translation_queue import TranslationQueue
from nmt.settings.serving import ServerOptions

logger = logging.getLogger(__name__)

PATH = re.compile(r"/translate/?(\?.*)?")
LINES = 1024
"""The most lines of a message that are in the queue or wait for it at the same time."""
MESSAGES = 4
"""How many messages of a connection are read ahead."""
GRACE = 0.1
"""Seconds for messages under way to arrive when the server stops."""
STOPPING = "the server stops"
COMPLAINTS = 60.0
"""Seconds between two lines of the log that say that connections cannot be accepted."""


class TranslationServer:
    """Answers messages of websockets at the path ``/translate``, as marian-server does.

    A message is lines that end in ``\\n``, the last one with or without it. The answer is one text message
    with the lines that ``mgraph decode`` prints for them, each ended by ``\\n``; an empty message is
    answered by ``\\n``. A connection's messages are answered one after the other, in order; lines of all
    connections are translated together. Messages may be text or binary; bytes that are not UTF-8 are unknown
    words.

    A line is empty in the answer if it is left out, is not done in ``message_timeout``, or its search fails;
    the log says why. A client that does not take its answer in that time is disconnected; one that does not
    answer pings is not, as it may be busy. A message of more than ``max_message_bytes`` closes its connection
    with status 1009. Connections beyond ``max_connections`` are refused with HTTP status 503, other paths
    with 404.

    queue: translates. options: the limits.
    """

    def __init__(self, queue: TranslationQueue, options: ServerOptions) -> None:
        self._queue, self._options = queue, options
        self._format = queue.translator.format
        self._handlers: set[asyncio.Task[Any]] = set()
        self._stopping: asyncio.Future[None] | None = None
        self._complained = -math.inf

    async def run(self, ready: Callable[[int], None] = lambda _: None) -> None:
        """Serve until ``stop`` is called.

        Then the server accepts no more connections, answers the messages that have arrived, and closes its
        connections with status 1001. ready: called with the port once connections are accepted. OSError for
        an address or port that cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._stopping = loop.create_future()
        server = await self._opened()
        before = loop.get_exception_handler()
        loop.set_exception_handler(self._reported)
        try:
            port = next(iter(server.sockets)).getsockname()[1]
            logger.info("Server is listening on port %d", port)
            ready(port)
            await self._stopped(server)
        except asyncio.CancelledError:
            for handler in self._handlers:
                handler.cancel()
            raise
        finally:
            server.close()
            await server.wait_closed()
            loop.set_exception_handler(before)

    async def _opened(self) -> Server:
        options = self._options
        at: dict[str, Any] = {"host": options.host, "port": options.port}
        try:
            return await serve(
                self._connected,
                **(at if options.host else {"sock": _at_all_addresses(options.port)}),
                process_request=self._admitted,
                max_size=options.max_message_bytes,
                max_queue=MESSAGES,
                ping_timeout=None,  # a client that is busy, or has sent many messages, answers too late
                logger=logger.getChild("websockets"),
            )
        except OSError as error:
            place = " ".join(f"--{name} {value}" for name, value in at.items() if value)
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"{place}: the server cannot listen there: {reason}") from error

    async def _stopped(self, server: Server) -> None:
        assert self._stopping is not None
        await self._stopping
        logger.info("Server stops: %d connection(s), %d line(s) to do", len(self._handlers), len(self._queue))
        server.close(close_connections=False)
        await server.wait_closed()

    def stop(self) -> None:
        """End ``run``; to be called in its event loop."""
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)

    async def run_until_signalled(self) -> bool:
        """Serve until SIGTERM or SIGINT, which ends it as ``stop`` does. A second signal ends it immediately,
        and unanswered messages are lost. Returns whether all messages were answered."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if self._stopping is not None and self._stopping.done():
                task.cancel()
            self.stop()

        with on_signals(lambda: loop.call_soon_threadsafe(stop), signal.SIGTERM, signal.SIGINT):
            try:
                await self.run()
                return True
            except asyncio.CancelledError:
                logger.warning("Server ended before all messages were answered")
                return False

    def _reported(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Called with the errors that asyncio reports. Without a file descriptor for another connection, it
        reports a hundred a second, with tracebacks; the log says so once in a while."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and "socket" in context):
            loop.default_exception_handler(context)
        elif loop.time() >= self._complained + COMPLAINTS:
            self._complained = loop.time()
            logger.error("connections wait, because they cannot be accepted: %s", error.strerror)

    def _admitted(self, connection: ServerConnection, request: Request) -> Response | None:
        """None for a connection that is accepted."""
        if not PATH.fullmatch(request.path):
            return connection.respond(http.HTTPStatus.NOT_FOUND, "the path is /translate\n")
        if len(self._handlers) >= self._options.max_connections:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "too many connections\n")
        return None

    async def _connected(self, connection: ServerConnection) -> None:
        if len(self._handlers) >= self._options.max_connections:  # several were admitted at the same time
            await connection.close(CloseCode.TRY_AGAIN_LATER, "too many connections")
            return
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        closed = asyncio.ensure_future(connection.wait_closed())
        try:
            while (message := await self._received(connection)) is not None:
                await self._reply(connection, message, closed)
            for message in await self._rest(connection):
                await self._reply(connection, message, closed)
            await connection.close(CloseCode.GOING_AWAY, STOPPING)
        except ConnectionClosed as error:
            logger.debug("a connection was closed: %s", error)
        finally:
            closed.cancel()
            self._handlers.discard(task)

    async def _received(self, connection: ServerConnection) -> bytes | None:
        """The next message; None when the server stops."""
        assert self._stopping is not None
        received = asyncio.ensure_future(connection.recv(decode=False))
        events: list[asyncio.Future[Any]] = [received, self._stopping]
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        finally:
            received.cancel()  # which loses no message
        with suppress(asyncio.CancelledError):
            return _bytes(await received)
        return None

    async def _rest(self, connection: ServerConnection) -> list[bytes]:
        """The messages that have arrived when the server stops."""
        found = []
        with suppress(TimeoutError, ConnectionClosed):
            async with asyncio.timeout(GRACE):
                while True:
                    found.append(_bytes(await connection.recv(decode=False)))
        return found

    async def _reply(
        self, connection: ServerConnection, message: bytes, closed: asyncio.Future[None]
    ) -> None:
        """Answer a message, unless the connection is closed before that."""
        began, answer = time.perf_counter(), asyncio.ensure_future(self._answer(message))
        events: list[asyncio.Future[Any]] = [answer, closed]
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answer.cancel()  # and with it the lines
        if answer.done():
            await self._send(connection, await answer)
            if not self._options.quiet_translation:
                logger.info("Translation took: %.5fs", time.perf_counter() - began)

    async def _send(self, connection: ServerConnection, answer: str) -> None:
        """Send an answer; the connection is cut if the client does not take it."""
        seconds = self._options.message_timeout
        try:
            async with asyncio.timeout(seconds):
                await connection.send(answer)
        except TimeoutError:
            logger.warning("a client did not take its answer in %g s: its connection is cut", seconds)
            connection.transport.abort()

    async def _answer(self, message: bytes) -> str:
        lines = message.split(b"\n")
        if not lines[-1]:
            lines.pop()
        found: dict[int, str] = {}
        numbered = iter(enumerate(lines))

        async def translated() -> None:
            for number, line in numbered:
                found[number] = await self._line(number, line)

        seconds = self._options.message_timeout
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(translated() for _ in range(min(LINES, len(lines)))))
        except TimeoutError:
            missing = len(lines) - len(found)
            logger.warning("%d of %d line(s) were not translated in %g s", missing, len(lines), seconds)
        return "\n".join([*(found.get(number, "") for number in range(len(lines))), ""]) or "\n"

    async def _line(self, number: int, line: bytes) -> str:
        """The output for a line of a message; empty after an error, which is logged."""
        try:
            found: Translation = await self._queue.translation(line)
        except Exception as error:
            logger.error("line %d of a message is not translated: %s", number + 1, error)
            return ""
        text = self._format(replace(found, line=number))
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _at_all_addresses(port: int) -> socket.socket:
    """One socket for IPv4 and, where available, IPv6, so that port 0 means one port, not one for each."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _bytes(message: str | bytes) -> bytes:
    """A message that was received with ``decode=False``."""
    assert isinstance(message, bytes)
    return message
