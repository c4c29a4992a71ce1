"""``mgraph embed``: print vectors of sentences, as marian embed does."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.commands.common import write
from nmt.commands.pooling import reading
from nmt.settings.metrics import EMBED, EmbedOptions

COMMAND = EMBED


def run(options: EmbedOptions, argv: Sequence[str]) -> None:
    """Embed the lines of ``--train-sets``, as marian embed does."""
    with reading(EMBED, options, argv) as (texts, output):
        from nmt.search.embedder import Embedder

        for result in Embedder(options).vectors(*texts):
            if options.binary:
                output.write(result.vector.astype("<f4").tobytes())
            else:
                write(output, "".join(f"{number:.4f} " for number in result.vector.tolist()))
