"""The options of ``mgraph server``."""

from __future__ import annotations

from nmt.settings.aliases import OF_READING
from nmt.settings.config import Command
from nmt.settings.option import Options, Support, again, option
from nmt.settings.sections import DecodedModelOptions, DecodeOptions, General, TranslatorOptions

MESSAGES = "messages are the input, and answers the output"
MOST_PORT = (1 << 16) - 1


class Serving(Options):
    """Connections, and the limits of what they may send."""

    title = "Server options"

    port: int = option(
        8080, "port for websockets; 0: any that is free", short="p", least=0, most=MOST_PORT, command=True
    )
    host: str = option("", "address to listen on; by default all", command=True, dumped=False)
    max_connections: int = option(
        1000, "most connections at once; others are refused", least=1, command=True, dumped=False
    )
    max_message_bytes: int = option(
        1 << 20,
        "most bytes of a message; a longer one closes its connection",
        least=1,
        command=True,
        dumped=False,
    )
    max_waiting_lines: int = option(
        10_000, "most lines at once in the queue; others wait for room", least=1, command=True, dumped=False
    )
    message_timeout: float = option(
        600.0,
        "most seconds to translate a message (unfinished lines are empty), and for taking its answer",
        least=0.001,
        command=True,
        dumped=False,
    )


class ServerOptions(DecodeOptions, General, DecodedModelOptions, TranslatorOptions, Serving):
    """The options of ``mgraph server``; the bases of ``DecodeOptions`` again are its sections."""

    input: tuple[str, ...] = again(DecodeOptions, "input", support=Support.IGNORED, reason=MESSAGES)
    output: str = again(DecodeOptions, "output", support=Support.IGNORED, reason=MESSAGES)
    shares: int = again(DecodeOptions, "shares", support=Support.IGNORED, reason=MESSAGES)
    share: tuple[int, ...] = again(DecodeOptions, "share", support=Support.IGNORED, reason=MESSAGES)


SERVER = Command("server", "translate messages of websockets", ServerOptions, aliases=OF_READING)
