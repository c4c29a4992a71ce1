"""Shared code of ``decode`` and ``score``: large texts in shares, done by several processes.

Processes that a launcher has numbered have fixed shares, so they need no locks between hosts, which do not
work well on every file system. To finish the work of a lost process, run the command again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from nmt.settings import Command, DecodeOptions, OptionError, ScoreOptions, Support
from nmt.settings.option import options_of
from nmt.settings.sections import BatchOptions, Devices, General
from nmt.settings.sharing import Sharing
from nmt.text.lines import STANDARD_OUTPUT, Fingerprint, is_stream
from nmt.text.sharing.output import DividedOutput
from nmt.text.sharing.parts import PartError, Run, Sums
from nmt.text.sharing.texts import SharedTexts

logger = logging.getLogger(__name__)

UNUSED = Support.REFUSED, Support.IGNORED
WITHOUT_EFFECT = (General, Devices, BatchOptions, Sharing)
"""Sections of options that change the output only by rounding, if at all."""
TEXTS = ("input", "train-sets")
FILES = ("models", "model", "vocabs", "pieces")

Results = Iterator[tuple[str, Sums]]
"""For each row the text to print, one line or several, and the counts to add to the totals."""


class Work(Protocol):
    """A command's work on lines."""

    def __call__(self, texts: Sequence[Iterator[bytes]], *, first: int = 0, done: int = 0) -> Results:
        """The results of rows in order. first: the number of the first row. done: how many rows to skip."""


def check_sharing(name: str, inputs: Sequence[str], options: DecodeOptions | ScoreOptions) -> None:
    """OptionError unless ``--shares`` and ``--share`` fit each other, the ``inputs`` (of the option ``name``)
    and the output."""
    if not options.shares:
        if options.share:
            raise OptionError("--share: the number of --shares is needed, too")
        return
    beyond = [share for share in options.share if share >= options.shares]
    if beyond:
        raise OptionError(
            f"--share: --shares {options.shares} has the numbers from 0 to {options.shares - 1}, "
            f"got {beyond[0]}"
        )
    if any(map(is_stream, inputs)):
        raise OptionError(f"--shares: standard input and pipes cannot be divided; give {name} files")
    if options.output in STANDARD_OUTPUT or is_stream(options.output):
        raise OptionError(f"--shares: expected --output FILE, to be joined from parts; got {options.output}")


class SharedWork:
    """A command's work on the shares of this process.

    inputs: the texts, which are read once here; with ``n_best`` the last is an n-best list. OptionError if
    the launcher has started more processes than there are shares, and does not say how many; also raises the
    errors of ``SharedTexts``.
    """

    def __init__(
        self,
        command: Command[Any],
        options: DecodeOptions | ScoreOptions,
        inputs: Sequence[str],
        *,
        n_best: bool = False,
    ) -> None:
        self._shares = own_shares(options)
        self._texts = SharedTexts(inputs, options.shares, n_best=n_best)
        self._output = DividedOutput(options.output, options.shares, _run(command, options, self._texts))

    def do(self, start: Callable[[], Work], whole: Callable[[Sums], str] | None = None) -> Sums | None:
        """Complete the shares of this process, and join the output once all shares are complete.

        start: loads the model and returns the work; not called if no rows are missing. whole: as for
        ``DividedOutput.join``. Returns the totals over all rows; None if other shares are missing.
        """
        output, work = self._output, None
        for share in output.missing(self._shares):
            rows = self._texts.rows(share)
            work = work or (start() if rows else None)
            with output.parts[share].writing() as part:
                if part is None:
                    logger.info("[shares] Share %d is being done by another process", share)
                    continue
                logger.info(
                    "[shares] Share %d of %d: %d lines from line %d on, of which %d are done",
                    share,
                    len(output.parts),
                    len(rows),
                    rows.start + 1,
                    part.rows,
                )
                if work and rows:
                    with self._texts.open(share) as texts:
                        for text, counts in work(texts, first=rows.start, done=part.rows):
                            part.write(text, counts)
                if part.rows != len(rows):
                    raise PartError(
                        f"share {share} has {len(rows)} lines, and {part.rows} were read: the texts must not "
                        "change before all shares are complete"
                    )
        if output.join(whole):
            logger.info("[shares] All shares are complete: %s", output.path)
            return output.sums
        complete = sum(part.is_complete for part in output.parts)
        logger.info(
            "[shares] %d of %d shares are complete; the process that completes the last one joins them",
            complete,
            len(output.parts),
        )
        return None


def own_shares(options: DecodeOptions | ScoreOptions) -> Sequence[int]:
    """The numbers of this process's shares: those of ``--share``; else, for process k of n, the shares k,
    k + n, k + 2 n and so on, or only k if the launcher does not say n; else, without a launcher, all."""
    if options.share:
        return options.share
    launch = options.launch
    if launch is None:
        return range(options.shares)
    logger.info("[shares] Process %d of those started by %s", launch.index, launch.launcher)
    if launch.count is not None:
        return range(launch.index, options.shares, launch.count)
    if launch.index >= options.shares:
        raise OptionError(
            f"--shares {options.shares}: {launch.launcher} started process {launch.index}, and does not tell "
            "how many there are: expected as many shares as processes"
        )
    return [launch.index]


def _run(command: Command[Any], options: DecodeOptions | ScoreOptions, texts: SharedTexts) -> Run:
    """Everything that determines the output: the contents of files, and other options that are not at their
    defaults."""
    without = {name for section in WITHOUT_EFFECT for name in options_of(section)} | {"output", "cpu-devices"}
    without -= {"seed"}
    run: dict[str, Any] = {"shares": options.shares}
    for option in command.options.values():
        value = getattr(options, option.attribute)
        if option.name in TEXTS:
            value = [[text.lines, text.bytes, text.checksum] for text in texts.texts]
        elif option.name in FILES and value:
            value = [_contents(path) for path in (value if option.many else [value])]
        elif option.name == "shortlist" and value:
            value = [_contents(value[0]), *value[1:]]
        elif option.support in UNUSED or option.name in without or value == option.default:
            continue
        run[option.name] = value
    return run


def _contents(path: str) -> Sequence[Any]:
    """The fingerprint of a file's contents, whatever its path on this host."""
    return Fingerprint.of(path)[1:]
