"""Whether vocabularies are those of a model, as far as its files tell.

A model file has the sizes of its vocabularies, but not their words. The configuration that training writes
next to it, ``MODEL.yml``, names their files, and streams that share an embedding matrix share their words.
Marian checks neither: with another vocabulary of the same size it prints nonsense.
"""

from __future__ import annotations

import filecmp
import logging
import os
import re
from collections.abc import Sequence
from itertools import pairwise

import yaml

from mgraph.errors import MGraphError
from nmt.settings import yaml_text
from nmt.settings.model_options import ModelOptions

from .base import Vocab
from .loading import load_vocab

logger = logging.getLogger(__name__)

_COPY = re.compile(r"(\.iter\d+|\.npz\.best-[^/]*|\.bin\.best-[^/]*)\.(npz|bin)$")
"""How the names of checkpoints and best models end; these have no configuration of their own."""
_ADVICE = "Unless the model was trained so, what comes out is nonsense"


def check_agreement(model: str, vocabs: Sequence[Vocab], options: ModelOptions) -> None:
    """Warn of vocabularies whose words are not those that the model in the file ``model`` was trained with.

    vocabs: one for each stream of the model, sources first. options: the model's.
    """
    config, named = trained_with(model)
    if len(named) == len(vocabs):
        told = set()
        for stream, (vocab, path) in enumerate(zip(vocabs, named, strict=True), 1):
            said = _difference_from(vocab, path)
            if said and (vocab.path, path) not in told:
                told.add((vocab.path, path))
                logger.warning(
                    "[data] WRONG VOCABULARY? %s differs from %s, which %s names as vocabulary %d of %s: %s. "
                    "%s; its own are --vocabs %s",
                    *(vocab.path, path, config, stream, model, said, _ADVICE, " ".join(named)),
                )
    check_shared(model, vocabs, options)


def check_shared(model: str, vocabs: Sequence[Vocab], options: ModelOptions) -> None:
    """Warn of streams that share an embedding matrix, but not their words."""
    if options.tied_embeddings_src or options.tied_embeddings_all:
        for one, other in pairwise(vocabs):
            said = "" if _same_file(one.path, other.path) else difference(one, other)
            if said:
                logger.warning(
                    "[data] WRONG VOCABULARY? %s differs from %s, but %s has the same embeddings for both: "
                    "%s. %s",
                    *(one.path, other.path, model, said, _ADVICE),
                )


def trained_with(model: str) -> tuple[str, list[str]]:
    """The configuration that training wrote next to a model, and the vocabulary files that it names; no files
    if no configuration can be read."""
    for config in (f"{model}.yml", *(_COPY.sub(end, model) + ".yml" for end in (".npz", ".bin"))):
        if os.path.isfile(config):
            return config, _named(config)
    return "", []


def difference(one: Vocab, other: Vocab) -> str:
    """How many of the ids that both vocabularies have stand for different words, and the first such id; empty
    if there is none."""
    count = min(len(one), len(other))
    differ = [number for number in range(count) if one[number] != other[number]]
    if not differ:
        return ""
    first = differ[0]
    return (
        f"{len(differ):,} of {count:,} ids have other words, {first} is {one[first]!r} instead of "
        f"{other[first]!r}"
    )


def _difference_from(vocab: Vocab, path: str) -> str:
    """``difference`` from the vocabulary in a file; empty if the file cannot be read."""
    try:
        return "" if _same_file(vocab.path, path) else difference(vocab, load_vocab(path))
    except (OSError, MGraphError) as error:
        logger.debug("[data] %s cannot be compared with %s: %s", vocab.path, path, error)
        return ""


def _same_file(one: str, other: str) -> bool:
    return one == other or filecmp.cmp(one, other, shallow=False)


def _named(config: str) -> list[str]:
    """The vocabulary files that a training configuration names."""
    try:
        content = yaml_text.read_file(config)
    except (OSError, yaml.YAMLError) as error:
        logger.debug("[data] %s cannot be read: %s", config, error)
        return []
    found = content.get("vocabs") if isinstance(content, dict) else None
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        return []
    relative = str(content.get("relative-paths", "")).lower() == "true"
    return [os.path.join(os.path.dirname(config), path) if relative else path for path in found]
