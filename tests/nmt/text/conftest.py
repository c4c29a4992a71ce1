"""A corpus that is closed after its test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nmt.settings import TRAIN
from nmt.text.corpus import Corpus
from nmt.text.few_shapes import PROGRAM
from nmt.text.layouts import PADDED, PaddedLayout
from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.corpora import DATA, GIVEN, SEED


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return load_vocab(DATA / "words.yml")


@pytest.fixture
def corpora(vocab: Vocab) -> Iterator[Any]:
    made: list[Corpus] = []

    def make(
        streams: int = 2,
        seed: int = SEED,
        sizes: Any = None,
        layout: PaddedLayout = PADDED,
        program: float = PROGRAM,
        **options: Any,
    ) -> Corpus:
        values = TRAIN.from_python(GIVEN | options)
        vocabs = [vocab] * streams
        made.append(Corpus(values, vocabs, seed=seed, sizes=sizes, layout=layout, program=program))
        return made[-1]

    yield make
    for corpus in made:
        corpus.close()
