"""What processes that train together must have in common; otherwise their results would differ."""

from __future__ import annotations

import os
from collections.abc import Iterable

import jax

from mgraph import __version__
from nmt.settings import TrainOptions
from nmt.settings.option import Support, options_of, shown
from nmt.text.lines import Fingerprint
from nmt.text.parallel import Fields

MAY_DIFFER = frozenset(
    (
        # paths; files that all processes read are compared by their contents
        "model pretrained-model train-sets vocabs embedding-vectors guided-alignment data-weighting tempdir"
        # what only the first process reads and writes
        " valid-sets valid-script-path valid-script-args valid-translation-output valid-log log log-level"
        " log-time-zone log-json tensorboard progress quiet quiet-translation relative-paths seed"
        # where a process runs
        " devices cpu-threads shuffle-in-ram compilation-cache sigterm coordinator num-processes process-id"
    ).split()
)
"""Options that may differ between processes. All use the seed of the first process."""


def in_common(options: TrainOptions, updates: int | None) -> dict[str, str]:
    """Everything that must be equal in all processes: its value as text, by the name that users see.

    options: with the vocabularies in use. updates: of the checkpoint; None for a new model.
    """
    values = {"mgraph": __version__, "jax": jax.__version__}
    values["the checkpoint"] = "missing" if updates is None else f"after {updates} updates"
    starts = options.pretrained_model if updates is None else options.model
    values |= _contents("the model to start from", filter(os.path.exists, [starts]))
    values |= _contents("--vocabs", options.vocabs)
    corpus = Fields.from_options(options, len(options.vocabs))
    values |= _contents("--train-sets, with alignments and weights,", corpus.paths)
    values |= _contents("--embedding-vectors", options.embedding_vectors)
    for name, option in options_of(TrainOptions).items():
        if name not in MAY_DIFFER and option.support is not Support.IGNORED:
            values[f"--{name}"] = shown(getattr(options, option.attribute))
    return values


def _contents(name: str, paths: Iterable[str]) -> dict[str, str]:
    """The fingerprints of files, by ``name`` and number, without their paths, which may differ. An empty path
    is no file, but has a number."""
    found = {number: Fingerprint.of(path) for number, path in enumerate(paths, 1) if path}
    return {
        f"{name} file {number}": "a stream" if size is None else f"{size} bytes (SHA-256 of the ends {ends})"
        for number, (_, size, ends) in found.items()
    }
