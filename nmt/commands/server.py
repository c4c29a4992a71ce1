"""``mgraph server``: translate for other programs over websockets, as marian-server does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from nmt.commands.common import greet
from nmt.commands.folders import with_folder
from nmt.runtime.log import logging_as
from nmt.settings import OptionError, require_files
from nmt.settings.serving import SERVER, ServerOptions

logger = logging.getLogger(__name__)

COMMAND = replace(SERVER, complete=lambda given: with_folder(given, SERVER))


def run(options: ServerOptions, argv: Sequence[str]) -> int | None:
    """Serve until SIGTERM or SIGINT; the exit code is 1 if messages were lost."""
    require_files("--models", options.models, options.vocabs)
    try:
        from nmt.serving.server import TranslationServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "websockets":
            raise
        raise OptionError("mgraph server needs websockets: pip install 'mgraph-jax[server]'") from None
    with logging_as(options):
        greet(SERVER, argv, options)
        from nmt.search.translation_queue import TranslationQueue
        from nmt.search.translator import Translator, check_decoding

        check_decoding(options)
        translator = Translator(options)
        _require_one_text(translator.names, options)
        with TranslationQueue(translator, most_lines=options.max_waiting_lines) as queue:
            answered = asyncio.run(TranslationServer(queue, options).run_until_signalled())
            if not answered:
                queue.close(drop=True)  # otherwise lines that are being searched would be searched to the end
        return None if answered else 1


def _require_one_text(names: Sequence[str], options: ServerOptions) -> None:
    """OptionError if a line of a message cannot hold all the fields that the model needs."""
    if len(names) > 1 and not options.tsv:
        raise OptionError(
            f"--tsv is needed: a line of a message has {len(names)} fields ({', '.join(names)})"
        )
