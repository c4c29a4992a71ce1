"""The options of commands whose input is divided among processes."""

from __future__ import annotations

import os

from nmt.runtime.launchers import Launch, found
from nmt.settings.option import Options, option


class Sharing(Options):
    """Division of the input into shares."""

    shares: int = option(
        0,
        "divide the lines into N shares, which several processes do, resume and join; 0: do not",
        least=0,
        command=True,
        dumped=False,
    )
    share: tuple[int, ...] = option(
        (),
        "numbers of the shares to do, from 0; by default those for the launcher's process number, "
        "or without a launcher all that no other process does",
        least=0,
        command=True,
        dumped=False,
    )

    @property
    def launch(self) -> Launch | None:
        """How this process was launched as one of several that do shares; None for any other process."""
        return found(os.environ) if self.shares else None

    @property
    def local_index(self) -> int | None:
        """The number of this process among those on its host that do shares; None if there are no others."""
        return self.launch.local_index if self.launch else None
