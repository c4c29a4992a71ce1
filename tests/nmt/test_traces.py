"""Training equals Marian's: the cost of each update and the parameters at the end, from the same start."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mgraph.files.items import read_npz
from nmt.settings import TRAIN
from nmt.settings.config import parse
from tests.helpers import places
from tests.helpers.marian_lines import Different
from tests.matrix.row import merged
from tests.traces import draws, ours, rows
from tests.traces.check import check
from tests.traces.comparison import COST, compare_lines, compare_parameters
from tests.traces.trace import changes, kept

DATA = places.DATA / "traces"
OPTIONS = """
--optimizer: sgd adagrad
--cost-type: ce-sum ce-mean ce-mean-words perplexity
--clip-norm: 0 1 0.1
--maxi-batch-sort: src none
--lr-decay-strategy: epoch batches
--shuffle: none data batches
--data-weighting-type: sentence word
--optimizer-delay: 2 0.5
--multi-loss-type: mean scaled
"""
FLAGS = """
--label-smoothing --lr-warmup --lr-decay-inv-sqrt --exponential-smoothing --mini-batch-words
--mini-batch-words-ref --normalize-gradient --normalize-gradient-by-ratio --dynamic-gradient-scaling
--guided-alignment --max-length --max-length-crop --tsv --embedding-fix-src --embedding-fix-trg
--embedding-vectors --quantize-bits --unlikelihood-loss --mini-batch-warmup --all-caps-every
--english-title-case-every --right-left --tied-embeddings --tied-embeddings-src --tied-embeddings-all
--skip --layer-normalization --lr-decay-reset-optimizer --lr-warmup-cycle --logical-epoch --disp-first
"""
LINES = [
    "Ep. 1 : Up. 9 : Sen. 9 : Cost 2.50000000 * 1,030 @ 10 after 90 : gNorm 0.1000 : L.r. 5.0000e-03",
    "Seen 9 samples",
]


@pytest.mark.parametrize("row", rows.SMALL, ids=lambda row: row.name)
@pytest.mark.sampled("s2s-adam", "transformer-adam")
def test_training_is_as_marians(row):
    found = check(row, DATA)
    # The changes of parameters are stored in float16.
    assert found.costs < 5e-6 and found.parameters < 2e-4


EUROPARL = ["transformer-joint/adam-warmup-smoothing", "s2s-gru/adam"]


@pytest.mark.slow
@pytest.mark.parametrize("trace", EUROPARL)
def test_training_on_europarl_is_as_marians(trace: str, fixtures: Path, tmp_path: Path):
    folder, name = (fixtures / "marian" / trace).parent, trace.partition("/")[2]
    texts, meta = fixtures / "data", json.loads((folder / "meta.json").read_text())
    arguments = f"""--config {folder}/arch.yml --train-sets {" ".join(meta["train"])} --shuffle none
        --vocabs {" ".join(meta["vocabs"])} --after-batches 50 --disp-freq 1 --seed 1 --max-length 60
        --cost-type ce-mean-words {(folder / f"{name}.options.txt").read_text()}"""
    lines, saved = ours.train(arguments.split(), texts, folder / "model.npz", tmp_path)
    theirs = [line for line in (folder / f"{name}.trace.txt").read_text().splitlines() if "Cost" in line]
    pairs = list(zip(theirs, lines, strict=True))
    assert len(pairs) == 50
    costs = [[float(COST.search(line)[1]) for line in pair] for pair in pairs]
    assert max(abs(our - their) / their for their, our in costs) < 2e-6
    final = {n: v for n, v in read_npz(folder / f"{name}.final.npz").items() if not n.startswith("special:")}
    gap, size = (
        np.sqrt(sum(np.sum(np.square(d)) for d in differences))
        for differences in ([saved[n] - v for n, v in final.items()], final.values())
    )
    assert gap < 2e-3 * size


def test_every_option_is_in_a_row():
    table = [row.arguments for row in rows.ROWS]
    for line in OPTIONS.strip().splitlines():
        name, values = line.split(": ")
        missing = set(values.split()) - {w[w.index(name) + 1] for w in table if name in w}
        assert not missing, f"{name}: {missing}"
    assert not set(FLAGS.split()) - {word for words in table for word in words}
    for table in (rows.ROWS, rows.SMALL):
        assert len({row.name for row in table}) == len(table)
    assert {row.start for row in rows.ROWS} == set(rows.STARTS.values())


def test_drawn_trainings_come_from_their_seed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(DATA / "text")
    drawn = draws.draw(40, 3)
    assert drawn == draws.draw(40, 3) and drawn[:9] == draws.draw(9, 3) != draws.draw(9, 4)
    for row in drawn:
        assert not draws.UNSOUND.search(row.start.options)
        assert parse(TRAIN, row.arguments).after_batches == 20


def test_the_last_of_an_option_counts():
    assert merged("--a 1 2 --b --a 3") == "--a 3 --b"


def test_times_are_not_kept():
    log = "[2026-01-01 00:00:00] Ep. 1 : Up. 1 : Cost 2.5 : Time 0.04s : 508.67 words/s : gNorm 0.1\n[data] x"
    assert kept(log.splitlines()) == ["Ep. 1 : Up. 1 : Cost 2.5 : gNorm 0.1"]
    valid = "[valid] Ep. 1 : Up. 7 : perplexity : 8.18577 : new best"
    assert kept([f"[2026-01-01 00:00:00] {valid}"]) == kept([valid]) == [valid]


def test_numbers_may_differ_a_little():
    assert compare_lines(LINES, LINES) == 0
    near = LINES[0].replace("2.50000000", "2.50010000").replace("0.1000", "0.1001")
    assert compare_lines(LINES, [near, LINES[1]]) == pytest.approx(4e-5)


@pytest.mark.parametrize(
    "changed",
    [
        LINES[:1],
        [LINES[0].replace("2.5000", "2.5005"), LINES[1]],
        [LINES[0].replace("2.50000000", "nan"), LINES[1]],
        [LINES[0].replace("Sen. 9", "Sen. 8"), LINES[1]],
        [LINES[0].replace("1,030", "1,031"), LINES[1]],
        [LINES[0].replace("0.1000", "0.1003"), LINES[1]],
        [LINES[0].replace("5.0000e-03", "5.0020e-03"), LINES[1]],
        [LINES[0], "Seen 8 samples"],
    ],
    ids=["missing", "cost", "nan", "sentences", "labels", "norm", "rate", "epoch"],
)
def test_a_difference_of_lines_is_found(changed):
    with pytest.raises(Different):
        compare_lines(LINES, changed)


def test_a_difference_of_parameters_is_found():
    before = {"W": np.ones((3, 4), np.float32), "a_bk": np.zeros((1, 4), np.float32)}
    after = {name: value + 0.25 for name, value in before.items()}
    moved = changes(before, after)
    assert compare_parameters(before, moved, after) == (0, 0)
    parameters, everything = compare_parameters(before, moved, {**after, "a_bk": after["a_bk"] + 1})
    assert parameters == 0 and everything > 0.1
    wrong = after["W"].copy()
    wrong[1, 2] *= 1.01
    for other in ({**after, "W": wrong}, {"W": after["W"]}):
        with pytest.raises(Different):
            compare_parameters(before, moved, other)
