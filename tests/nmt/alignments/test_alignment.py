"""Word alignment: fast_align's links, atools' heuristics, EM by a plain loop, and lines in as lines out."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import nmt
from mgraph import ArgumentError
from nmt.alignments import pairs
from nmt.alignments.diagonal import LEAST_TENSION, MOST_TENSION, feature, fitted, partition, slope
from nmt.alignments.model import best_links, digamma
from nmt.alignments.pairs import Pairs
from nmt.alignments.symmetrization import JOINED, _Growing
from nmt.alignments.texts import AlignmentError, pharaoh, read_pharaoh
from nmt.cli import main
from nmt.settings import OptionError
from nmt.settings.alignment import HEURISTICS, AlignmentOptions
from nmt.text.parallel import ParallelTextError
from tests.helpers.places import DATA, SHIPPED

REFERENCES = DATA / "alignments"
PLAIN = {"variational_bayes": False, "optimize_tension": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "forward": {},
    "shares": {"variational_bayes": False},
    "uniform": {"variational_bayes": False, "favor_diagonal": False},
    "fixed": {
        "optimize_tension": False,
        "diagonal_tension": 2,
        "p0": 0.3,
        "alpha": 0.1,
        "iterations": 3,
    },
    "linked": {"null_word": False},
}


def sentences(name: str) -> list[list[bytes]]:
    return [line.split() for line in (REFERENCES / name).read_bytes().splitlines()]


def reference(name: str) -> list[str]:
    return (REFERENCES / f"{name}.align").read_text().splitlines()


@pytest.mark.parametrize("name", VARIANTS)
def test_links_are_those_of_fast_align(name: str) -> None:
    found = nmt.align(sentences("text.en"), sentences("text.de"), heuristic="forward", **VARIANTS[name])
    assert list(map(pharaoh, found)) == reference(name)


@pytest.mark.parametrize("name", ["reverse", *HEURISTICS])
def test_both_directions_are_joined_as_by_atools(name: str) -> None:
    found = nmt.align(sentences("text.en"), sentences("text.de"), heuristic=name)
    assert list(map(pharaoh, found)) == reference(name)


def em_by_hand(
    text: list[tuple[str, str]], passes: int, p0: float, tension: float
) -> list[list[tuple[int, int]]]:
    """The model's EM algorithm, cell by cell."""
    t: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)

    def joint(source: list[str], target: list[str], i: int) -> list[float]:
        near = [
            math.exp(-tension * abs((j + 1) / len(source) - (i + 1) / len(target)))
            for j in range(len(source))
        ]
        delta = [p0] + [(1 - p0) * weight / sum(near) for weight in near]
        return [d * t[word, target[i]] for d, word in zip(delta, ["", *source], strict=True)]

    split = [(source.split(), target.split()) for source, target in text]
    for _ in range(passes - 1):
        counts: dict[tuple[str, str], float] = defaultdict(float)
        for source, target in split:
            for i, word in enumerate(target):
                p = joint(source, target, i)
                for other, value in zip(["", *source], p, strict=True):
                    counts[other, word] += value / sum(p)
        totals: dict[str, float] = defaultdict(float)
        for (other, _), count in counts.items():
            totals[other] += count
        t = defaultdict(float, {pair: count / totals[pair[0]] for pair, count in counts.items()})
    found = []
    for source, target in split:
        best = [int(np.argmax(joint(source, target, i))) for i in range(len(target))]
        found.append([(j - 1, i) for i, j in enumerate(best) if j])
    return found


TEXT = [
    ("the house", "das haus"),
    ("the book is small", "das buch ist klein"),
    ("a book", "ein buch"),
    ("is the house small", "ist das haus klein"),
    ("the small house", "das kleine haus ja"),
]


@pytest.mark.parametrize(("passes", "p0", "tension"), [(1, 0.1, 3.0), (3, 0.2, 4.0), (6, 0.05, 1.0)])
def test_the_model_is_that_of_a_plain_loop(passes: int, p0: float, tension: float) -> None:
    source, target = zip(*TEXT, strict=True)
    given = {"iterations": passes, "p0": p0, "diagonal_tension": tension, **PLAIN}
    found = nmt.align(
        [line.split() for line in source], [line.split() for line in target], heuristic="forward", **given
    )
    assert found == em_by_hand(TEXT, passes, p0, tension)


def test_known_links_are_found() -> None:
    """Each word has one translation, neighbors swap places, and all words occur in other sentences, too."""
    draw = np.random.default_rng(1)
    sources, targets, links = [], [], []
    for _ in range(200):
        words = draw.choice(40, 2 * int(draw.integers(1, 6)), replace=False).tolist()
        order = [place ^ 1 for place in range(len(words))]
        sources.append(words)
        targets.append([-words[place] for place in order])
        links.append(sorted((place, i) for i, place in enumerate(order)))
    assert nmt.align(sources, targets) == links


def test_small_parts_give_the_same_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MOST_CELLS", 7)
    text = Pairs.of(zip(sentences("text.en"), sentences("text.de"), strict=True))
    assert max(end - first for first, end in text.parts()) < 8
    found = nmt.align(sentences("text.en"), sentences("text.de"), heuristic="forward")
    assert list(map(pharaoh, found)) == reference("forward")


def test_pairs_with_an_empty_side_have_no_links() -> None:
    found = nmt.align([["a"], [], ["a", "b"], ["b"], []], [["x"], ["y"], ["x", "y"], [], []])
    assert found == [[(0, 0)], [], [(0, 0), (1, 1)], [], []]
    assert nmt.align([], []) == [] and nmt.align([[]], [["x"]]) == [[]]
    assert nmt.align(iter([["a"]]), iter([["x"]])) == [[(0, 0)]]
    none = best_links(Pairs.of([]), AlignmentOptions())
    assert none.tolist() == []


def test_the_partition_is_a_sum_and_the_slope_the_expected_feature() -> None:
    n = np.float64(7.0)
    for i, m in ((1.0, 7.0), (3.0, 7.0), (7.0, 7.0)):
        j = np.arange(1, 8.0)
        near = feature(np.array(i), j, np.array(m), n)
        weights = np.exp(2.5 * near)
        at = np.array(i), np.array(m), n
        assert partition(*at, 2.5) == pytest.approx(weights.sum())
        assert slope(*at, 2.5) == pytest.approx((near * weights).sum() / weights.sum())
    assert partition(np.array([1.0, 2.0]), np.array([2.0, 2.0]), np.array([3.0, 3.0]), 0.0).tolist() == [3, 3]


def test_the_tension_moves_towards_the_feature_that_is_wanted() -> None:
    sizes, counts = np.array([[3, 4], [2, 5]]), np.array([2, 1])
    expected = 0.0
    for (m, n), count in zip(sizes.astype(float), counts, strict=True):
        i = np.arange(1, m + 1)
        expected += count * slope(i, np.full(len(i), m), np.full(len(i), n), 3.0).sum()
    wanted = expected / (2 * 3 + 2)
    assert fitted(3.0, wanted, sizes, counts) == pytest.approx(3.0)
    nearer = fitted(2.9, wanted, sizes, counts)
    assert 2.9 < nearer < 3.0 and nearer > fitted(1.0, wanted, sizes, counts) > 1.0
    assert fitted(0.0, wanted, sizes, counts) == fitted(LEAST_TENSION, wanted, sizes, counts)
    assert fitted(3.0, 0.0, sizes, counts) == MOST_TENSION
    assert fitted(3.0, -1.0, sizes, counts) == LEAST_TENSION


def test_a_perplexity_beyond_all_numbers_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    text = [list(range(1085))], [["x", "y", "z"]]
    options = {"alpha": 1e-9, "p0": 0.0, "variational_bayes": True, "favor_diagonal": False}
    with caplog.at_level("INFO"):
        assert len(nmt.align(*text, heuristic="forward", iterations=3, **options)) == 1
    assert "perplexity 10142320547350" in caplog.text


def test_digamma() -> None:
    euler = 0.5772156649015329
    x = np.array([1.0, 0.5, 2.0, 1e-2, 50.0])
    known = [-euler, -euler - 2 * math.log(2), 1 - euler, -100.56088545786867, 3.901989673427892]
    np.testing.assert_allclose(digamma(x), known, rtol=1e-10)


def test_heuristics_by_hand() -> None:
    forward, reverse = [(0, 0), (1, 1), (1, 2), (4, 4)], [(0, 0), (2, 1), (1, 2), (4, 5), (6, 7)]
    found = {name: join(forward, reverse) for name, join in JOINED.items()}
    assert found["intersect"] == [(0, 0), (1, 2)]
    assert found["grow-diag"] == [(0, 0), (1, 1), (1, 2), (2, 1)]
    assert found["grow-diag-final"] == sorted({*forward, *reverse}) == found["union"]
    assert found["grow-diag-final-and"] == [(0, 0), (1, 1), (1, 2), (2, 1), (4, 4), (6, 7)]


def test_each_candidate_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, is_new = [], _Growing._is_new
    monkeypatch.setattr(
        _Growing, "_is_new", lambda *words, **both: looked.append(1) or is_new(*words, **both)
    )
    line = [(number, 0) for number in range(300)]  # each is added after the one that follows it
    assert JOINED["grow-diag"](line, [(299, 0)]) == line and len(looked) == 299


def test_the_command_prints_a_line_for_each_line(tmp_path, capfd) -> None:
    joint = tmp_path / "joint"
    joint.write_bytes(b"a b ||| x y\n\nb\ty\nno target |||\n ||| y\na b c|||d ||| x y z ||| z\r\n")
    assert main(["align", "-i", str(joint), "-c", "forward", "-I", "3"]) == 0
    out, err = capfd.readouterr()
    assert out.count("\n") == 6 and out.splitlines()[1:5] == ["", "0-0", "", ""]
    assert "3 pairs with an empty side get no links, the first in line 2" in err
    texts = str(REFERENCES / "text.en"), str(REFERENCES / "text.de")
    assert main(["align", "-t", *texts, "-o", str(tmp_path / "links"), "--quiet"]) == 0
    assert (tmp_path / "links").read_text().splitlines() == reference("grow-diag-final-and")


def test_a_line_that_is_no_pair_is_named(tmp_path, capfd) -> None:
    joint = tmp_path / "joint"
    joint.write_text("a ||| x\n\nno target\n")
    assert main(["align", "-i", str(joint)]) == 1
    out, err = capfd.readouterr()
    assert not out and f"{joint}: line 3: expected 'source ||| target', got 'no target'" in err


def test_the_command_splits_by_vocabularies(tmp_path, capfd) -> None:
    vocab = str(SHIPPED / "vocab.spm")
    for name, side in (("a", "text.en"), ("b", "text.de")):
        lines = [b"".join(words).replace("▁".encode(), b" ").strip() for words in sentences(side)]
        (tmp_path / name).write_bytes(b"\n".join(lines) + b"\n")
    texts = [str(tmp_path / name) for name in "ab"]
    assert main(["align", "-t", *texts, "-v", vocab, vocab, "--quiet"]) == 0
    found = capfd.readouterr().out.splitlines()
    same = sum(a == b for a, b in zip(found, reference("grow-diag-final-and"), strict=True))
    assert same == 150


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-t", "a"], "--train-sets: expected two files, of source and target, got 1"),
        (["-t", "a", "a", "-i", "a"], "give the text by one of them"),
        (["-i", "a", "-v", "v.spm"], "--vocabs: expected two files"),
        (["-i", "nosuch"], "nosuch: No such file or directory (--input)"),
        (["-i", "a", "-c", "grow"], "--heuristic must be one of"),
        (["-i", "a", "--alpha", "0"], "--alpha must be above 0"),
        (["-i", "a", "-q", "1"], "--p0: expected less than 1"),
    ],
)
def test_wrong_options_are_named(words, message, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("x ||| y\n")
    assert main(["align", *words]) != 0
    assert message in capfd.readouterr().err


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="unknown option iteration; did you mean iterations"):
        nmt.align([["a"]], [["b"]], iteration=3)
    with pytest.raises(ParallelTextError, match="there are 1 sources, but 2 targets"):
        nmt.align([["a"]], [["b"], ["c"]])
    with pytest.raises(OptionError, match="iterations must be at least 1"):
        nmt.align([["a"]], [["b"]], iterations=0)
    with pytest.raises(ArgumentError, match="a sentence is a list of words, got 'c d'"):
        nmt.align([["a", "b"]], ["c d"])


def test_links_as_text_are_read() -> None:
    assert read_pharaoh(b"0-0 10-2\t3-4 ", "line 1") == [(0, 0), (10, 2), (3, 4)]
    for wrong in (b"0", b"0-", b"a-1", b"0-1-2", b"1,2", b"\xff"):
        with pytest.raises(AlignmentError, match="line 7: expected links"):
            read_pharaoh(b"0-0 " + wrong, "line 7")
