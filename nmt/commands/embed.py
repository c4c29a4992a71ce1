"""``mgraph embed``: print vectors of sentences, as marian embed does."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.commands.common import write
from nmt.commands.pooling import reading
from nmt.settings.metrics import EMBED, EmbedOptions
from nmt.text.lines import open_output

COMMAND = EMBED


def run(options: EmbedOptions, argv: Sequence[str]) -> None:
    """Embed the lines of ``--train-sets``, as marian embed does."""
    with reading(EMBED, options, argv) as texts:
        from nmt.search.embedder import Embedder

        embedder = Embedder(options)
        embedder.require_inputs(len(texts))
        with open_output(options.output) as output:
            for result in embedder.vectors(*texts):
                if options.binary:
                    output.write(result.vector.astype("<f4").tobytes())
                else:
                    write(output, "".join(f"{number:.4f} " for number in result.vector.tolist()))
