"""The models that commands are drawn for: small, of many types, trained by Marian."""

from __future__ import annotations

from typing import NamedTuple

from tests.helpers.marian_lines import read_lines
from tests.helpers.places import DATA, SHIPPED
from tests.matrix import marian
from tests.matrix.small import SMALL

# Marian's decoder ignores the words that a language model is given.
LEFT_OUT = ("lm", "lm-transformer")


class Known(NamedTuple):
    """A model, and lines that it can translate and score.

    marian_exact: whether our decoder needs ``--marian-exact`` to match Marian's. pieces: whether its
    vocabularies are SentencePiece models.
    """

    name: str
    model: str
    vocabs: tuple[str, ...]
    sources: tuple[tuple[str, ...], ...]
    target: tuple[str, ...]
    marian_exact: bool = False
    pieces: bool = False


def known() -> list[Known]:
    """The shipped number-words model, and the models of the matrix's tests."""
    lines = (read_lines(DATA / "numbers" / f"input.{language}") for language in ("en", "de"))
    pairs = [pair for pair in zip(*lines, strict=True) if "".join(pair).isascii()]
    source, target = zip(*pairs, strict=True)
    vocab = str(SHIPPED / "vocab.spm")
    found = [Known("numbers", str(SHIPPED / "model.npz"), (vocab, vocab), (source,), target, pieces=True)]
    texts = DATA / "matrix" / "corpus"
    for row in SMALL:
        if row.name not in LEFT_OUT:
            *sources, target = (tuple(read_lines(texts / f"test.{stream}")) for stream in marian.streams(row))
            vocabs = tuple(marian.vocabs(row, texts))
            model = str(DATA / "matrix" / row.name / "model.npz")
            found.append(Known(row.name, model, vocabs, tuple(sources), target, row.name == "prenorm"))
    return found
