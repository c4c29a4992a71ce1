"""Searches with programs that another process has traced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgraph
from mgraph.running import stored
from nmt.files import create_model
from nmt.search import encoding, lane_loop
from nmt.search.beam_search import BeamSearch
from nmt.search.choice import Sampling
from nmt.search.results import Hypothesis
from nmt.search.shortlist import Lexicon, Shortlist
from nmt.settings.model_options import ModelOptions
from nmt.settings.sections import BeamOptions
from tests.helpers.small_models import S2S, TRANSFORMER
from tests.helpers.toy_search import ToyVocab

VOCAB = ToyVocab(0, 1, (), 13)
SENTENCES = [[5, 3, 0], [4, 0], [7, 8, 9, 2, 0]]


NO_LEXICON = Lexicon(np.zeros(1, np.int64), np.zeros(0, np.int32), first=5, best=100)


@pytest.mark.parametrize(
    ("models", "options", "given"),
    [
        ([TRANSFORMER], {}, {}),
        ([TRANSFORMER], {"n_best": True, "beam": 3}, {"attention": True}),
        ([S2S], {"sampling": Sampling(), "seed": 3}, {}),
        ([TRANSFORMER], {"shortlist": Shortlist(NO_LEXICON, 13)}, {}),
        pytest.param(
            [TRANSFORMER, S2S],
            {"weights": [1.0, 0.5]},
            {"prefixes": [[4], [], [5, 6]]},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [replace(TRANSFORMER, type="multi-transformer", dim_vocabs=(11, 11, 13))],
            {"beam": 2},
            {},
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.sampled("models0-options0-given0")
def test_a_later_process_finds_the_same_and_traces_nothing(
    models: list[ModelOptions],
    options: dict[str, Any],
    given: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored, "folder", lambda: tmp_path)
    beam = BeamOptions(beam_size=options.pop("beam", 1))

    def found() -> list[list[Hypothesis]]:
        mgraph.clear_programs()
        own = [create_model(model) for model in models]
        search = BeamSearch(own, source_vocab=VOCAB, target_vocab=VOCAB, options=beam, **options)
        return search.search(*[SENTENCES] * own[0].sources, **given)

    first = found()
    assert len([*tmp_path.glob("*")]) == 2, "a lane and its encoder"
    monkeypatch.delattr(lane_loop.LaneLoop, "advance")
    monkeypatch.delattr(encoding.EncodePlan, "__call__")
    np.testing.assert_equal(found(), first)
