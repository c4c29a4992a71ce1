"""The matrix's small models: real Marian's results for each type and option, compared with ours."""

from __future__ import annotations

import pytest

from nmt import Scorer, Translator
from tests.helpers import places
from tests.helpers.marian_lines import Different
from tests.matrix import draws, marian, rows
from tests.matrix.check import check
from tests.matrix.comparison import compare
from tests.matrix.small import SMALL

pytestmark = pytest.mark.optimized

DATA = places.DATA / "matrix"
NAMED = """
--type: amun nematus s2s multi-s2s shared-multi-s2s transformer multi-transformer shared-multi-transformer lm
    lm-transformer transformer_s2s transformer-new char-s2s bert bert-classifier
--enc-cell: gru gru-nematus lstm mlstm mgru tanh relu sru ssru
--dec-cell: gru gru-nematus lstm mlstm mgru tanh relu sru ssru
--enc-type: bidirectional bi-unidirectional alternating
--transformer-decoder-autoreg: average-attention rnn
--transformer-aan-depth: 1 3
--transformer-ffn-activation: swish relu gelu sigmoid
--transformer-attention-mask: alibi
"""
FLAGS = """
--skip --layer-normalization --right-left --tied-embeddings --tied-embeddings-src --tied-embeddings-all
--output-omit-bias --transformer-no-projection --transformer-rnn-projection --transformer-pool
--transformer-train-position-embeddings --transformer-disable-position-embeddings --transformer-depth-scaling
--transformer-no-bias --transformer-no-affine --transformer-aan-nogate --transformer-tied-layers
--transformer-guided-alignment-layer --dropout-rnn --dropout-src --dropout-trg --transformer-dropout
--transformer-dropout-attention --transformer-dropout-ffn --enc-depth --enc-cell-depth --dec-depth
--dec-cell-base-depth --dec-cell-high-depth --transformer-heads --transformer-dim-ffn --transformer-ffn-depth
--transformer-decoder-dim-ffn --transformer-decoder-ffn-depth --transformer-aan-activation --dim-vocabs
"""
LIST = [
    "0 ||| das Buch ||| 0-0 1-1 ||| F0= -1.68057 ||| -0.573543",
    "0 ||| das Haus ||| 0-0 1-1 ||| F0= -1.68058 ||| -0.573544",
    "0 ||| das Kind ||| 0-0 1-0 ||| F0= -2.75 ||| -0.925",
]


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
@pytest.mark.sampled("transformer", "lm")
def test_a_row_is_as_marians(row):
    found = check(row, DATA)
    # Printed digits are compared; beyond the last one, the results hardly differ.
    assert found.scores < 2e-5 and found.attention < 2e-6 and not found.ties


@pytest.mark.thorough
def test_the_decoder_agrees_with_the_scorer_unless_marians_does_not():
    """The scorer confirms the scores of a pre-norm model's translations, except with ``--marian-exact``."""
    row = next(row for row in SMALL if row.name == "prenorm")
    given = (str(DATA / row.name / "model.npz"), marian.vocabs(row, DATA / "corpus"))
    lines = [line for line in (DATA / "corpus" / "test.english").read_text().splitlines() if line]
    gaps = {}
    for exact in (False, True):
        translator = Translator(*given, beam_size=4, marian_exact=exact, mini_batch=len(lines))
        found = list(translator.translations(lines))
        scores = Scorer(*given).scores(lines, [translation.text for translation in found])
        gaps[exact] = max(
            abs(translation.hypotheses[0].path_score - score.log_prob)
            for translation, score in zip(found, scores, strict=True)
            if translation.hypotheses[0].finished
        )
    assert gaps[False] < 1e-4 and gaps[True] > 0.1


def test_every_value_is_in_a_row():
    options = [row.options.split() for row in rows.ROWS]
    for line in NAMED.strip().replace("\n    ", " ").splitlines():
        name, values = line.split(": ")
        missing = set(values.split()) - {w[w.index(name) + 1] for w in options if name in w}
        assert not missing, f"{name}: {missing}"
    assert not set(FLAGS.split()) - {word for words in options for word in words}
    names = [row.name for row in (*rows.ROWS, *rows.ENSEMBLES)]
    assert len(names) == len(set(names)) and set(rows.REFUSED) <= set(names)
    assert {row.type for row in rows.ROWS} - set(rows.REFUSED) <= {row.type for row in SMALL} | {
        "shared-multi-s2s",
        "shared-multi-transformer",
    }


def test_drawn_rows_come_from_their_seed():
    assert draws.draw(20, 3) == draws.draw(20, 3) != draws.draw(20, 4)
    assert len({row.type for row in draws.draw(100, 1)}) == len(draws.TYPES)


def test_a_tie_is_no_difference():
    assert compare("hard.nbest", LIST, LIST).ties == 0
    assert compare("hard.nbest", LIST, [LIST[1], LIST[0], LIST[2]]).ties == 2
    cut = [LIST[0], LIST[1].replace("Haus", "Pferd")]
    assert compare("hard.nbest", LIST[:2], cut).ties == 1


def test_words_attended_to_alike_are_a_tie():
    soft = ["0 ||| das Buch ||| 0.7,0.3 0.499999,0.500001 ||| F0= -1.68057 ||| -0.573543"]
    assert compare("hard.nbest", LIST[:1], [LIST[0].replace("1-1", "0-1")], soft).ties == 1
    with pytest.raises(Different):
        compare("hard.nbest", LIST[:1], [LIST[0].replace("0-0", "1-0")], soft)


@pytest.mark.parametrize(
    "changed",
    [
        LIST[:2],
        [LIST[0], LIST[2], LIST[1]],
        [LIST[0], LIST[0], LIST[2]],
        [LIST[0].replace("-1.68057", "-1.68257"), *LIST[1:]],
        [LIST[0].replace("1-1", "1-0"), *LIST[1:]],
        [LIST[0].replace("Buch", "Tier"), *LIST[1:]],
        [LIST[0].replace("-1.68057", "nan"), *LIST[1:]],
        [*LIST[:2], LIST[2].replace("F0= -2.75", "F0= -2.75 F1= -2.75")],
    ],
    ids=["missing", "order", "twice", "score", "alignment", "word", "nan", "models"],
)
def test_a_difference_is_found(changed):
    with pytest.raises(Different):
        compare("hard.nbest", LIST, changed)
