"""``mgraph evaluate`` and ``mgraph embed`` print what Marian prints, for metric and translation models."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

from layers import UnsupportedOptionError
from mgraph import ExpressionGraph, ModelFileError, Node, ParameterError, Type, inits
from mgraph.files.items import read_npz, write_npz
from nmt import Embedder, Evaluator, load_model, load_vocab
from nmt.cli import main
from nmt.files.metrics import load_metric, read_metric
from nmt.models.metrics import MetricModel, metric_names
from nmt.models.parts import Source
from nmt.models.pooled import SentenceVectors
from nmt.search import pooling
from nmt.search.text_metrics import TextMetrics
from nmt.settings import OptionError
from nmt.settings.metrics import EMBED, EmbedOptions
from nmt.settings.model_options import model_options
from nmt.text.parallel import ParallelTextError
from nmt.text.vocabs.base import VocabError
from tests.helpers.places import DATA, SHIPPED

FOLDER = DATA / "metrics"
VOCAB = str(SHIPPED / "vocab.spm")
NUMBERS = str(SHIPPED / "model.npz")

Run = Callable[..., bytes]


def model(name: str) -> str:
    return str(FOLDER / f"{name}.npz")


def table(text: str) -> np.ndarray:
    return np.array([line.split() for line in text.splitlines()], np.float64)


def marians(name: str) -> np.ndarray:
    return table((FOLDER / f"{name}.txt").read_text())


@pytest.fixture
def printed(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """What a command prints."""

    def run(command: str, *words: str, stdin: Path | None = None) -> bytes:
        given = stdin.read_bytes() if stdin else b""
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        assert main([command, *words, "--quiet"]) == 0
        return capsysbinary.readouterr().out

    return run


@pytest.mark.parametrize(
    ("name", "like", "text", "more"),
    [
        ("comet-qe", "comet-qe", "pairs.tsv", ["--average"]),
        ("comet-cls", "comet-qe", "pairs.tsv", ["--average", "only"]),
        ("comet", "comet", "text.tsv", []),
        ("comet-max", "comet", "text.tsv", []),
        ("unified", "comet", "text.tsv", []),
        ("bleurt", "bleurt", "references.tsv", []),
    ],
)
@pytest.mark.sampled(every=2)
def test_scores_are_marians(name: str, like: str, text: str, more: list[str], printed: Run) -> None:
    vocabs = [VOCAB] * (3 if like == "comet" else 2)
    words = ["-m", model(name), "-v", *vocabs, "--like", like, "--width", "6", *more]
    found, expected = table(printed("evaluate", *words, stdin=FOLDER / text).decode()), marians(name)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=5e-6)


def test_the_layout_is_marians(printed: Run) -> None:
    words = ["-m", model("comet-qe"), "-v", VOCAB, VOCAB, "--like", "comet-qe", "--width", "3"]
    lines = printed("evaluate", *words, stdin=FOLDER / "pairs.tsv").splitlines()
    assert lines[0] == b"0.113 0.231 "
    assert printed("evaluate", *words, "--average", "only", stdin=FOLDER / "pairs.tsv").count(b"\n") == 1
    assert printed("evaluate", *words, "--average") == b"nan nan \n", "without a line"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("comet-qe", model("comet-qe")),
        ("comet", model("comet")),
        ("comet-max", model("comet-max")),
        ("numbers", NUMBERS),
        ("s2s", str(DATA / "s2s-numbers" / "model.npz")),
    ],
)
def test_vectors_are_marians(name: str, path: str, printed: Run) -> None:
    like = ["--like", "roberta"] if name.startswith("comet") else ["-t", str(FOLDER / "source.txt")]
    found = printed("embed", "-m", path, "-v", VOCAB, *like, stdin=FOLDER / "source.txt")
    np.testing.assert_allclose(table(found.decode()), marians(f"{name}.vectors"), atol=1.01e-4)


def test_cosines_are_marians_and_binary_numbers_are_the_same(printed: Run) -> None:
    words = ["-m", NUMBERS, "-v", VOCAB, "-t", str(FOLDER / "pairs.tsv"), "--tsv", "--compute-similarity"]
    found = table(printed("embed", *words).decode())
    np.testing.assert_allclose(found, marians("cosines"), atol=1.01e-4)
    raw = np.frombuffer(printed("embed", *words, "--binary"), "<f4")
    np.testing.assert_allclose(raw, found[:, 0], atol=5.1e-5)


def test_metrics_of_texts_are_those_of_sacrebleu(printed: Run, tmp_path: Path) -> None:
    texts = {
        "source": ["three", "one hundred forty-two", "nine"],
        "translation": ["drei Haus im Wald", "zwei kleine Haus im Wald", "neun"],
        "reference": ["drei Haus am Wald", "zwei kleine Haus im Wald", "acht"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    words = ["--metrics", "bleu", "chrf", "--average", "--width", "6", "-t"]
    names = [str(tmp_path / name) for name in texts]
    found = table(printed("evaluate", *words, *names[1:]).decode())
    pairs = texts["translation"], texts["reference"]
    whole = sacrebleu.corpus_bleu(pairs[0], [pairs[1]]), sacrebleu.corpus_chrf(pairs[0], [pairs[1]])
    np.testing.assert_allclose(found[-1], [score.score for score in whole], atol=1e-6)
    for row, hypothesis, reference in zip(found, *pairs, strict=False):
        own = (
            sacrebleu.sentence_bleu(hypothesis, [reference]),
            sacrebleu.sentence_chrf(hypothesis, [reference]),
        )
        np.testing.assert_allclose(row, [score.score for score in own], atol=1e-6)
    both = table(printed("evaluate", "-m", model("comet"), "-v", *[VOCAB] * 3, *words, *names).decode())
    np.testing.assert_allclose(both[:, 1:], found, atol=1e-6)
    assert both[-1, 0] == pytest.approx(both[:-1, 0].mean(), abs=2e-6)


def test_only_sentences_have_effective_order() -> None:
    found, text = TextMetrics(["bleu", "ter"]), ["ein Haus"]
    assert found.sentence(text[0], text[0]) == (pytest.approx(100), 0)
    assert found.corpus(text, text) == (sacrebleu.corpus_bleu(text, [text]).score, 0)
    assert [name.split("|")[0] for name in found.signatures] == ["bleu nrefs:1", "ter nrefs:1"]
    assert "eff:no" in found.signatures[0]
    assert np.isnan(found.corpus([], [])).tolist() == [True, True]
    with pytest.raises(OptionError, match="--metrics: expected bleu, chrf, ter, got 'rouge'"):
        TextMetrics(["bleu", "rouge"])


def test_missing_fields_are_empty_also_with_metrics_of_texts(printed: Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("three\tdrei\tdrei\nthree\tdrei\nthree\n")
    words = ["-m", model("comet"), "-v", *[VOCAB] * 3, "--like", "comet"]
    alone = table(printed("evaluate", *words, stdin=rows).decode())
    both = table(printed("evaluate", *words, "--metrics", "chrf", stdin=rows).decode())
    np.testing.assert_allclose(both, [[*alone[0], 100], [*alone[1], 0], [*alone[2], 0]], atol=1e-4)


def test_python_calls() -> None:
    text = [line.split("\t") for line in (FOLDER / "text.tsv").read_text().splitlines()]
    columns = list(zip(*text, strict=True))
    evaluator = Evaluator(model("comet"), [VOCAB] * 3, max_length=64, max_length_crop=True)
    scores = evaluator.score(*columns)
    np.testing.assert_allclose(scores, marians("comet")[:, 0], atol=5e-6)
    alone = [evaluator.score(*[[field] for field in row])[0] for row in text[:2]]
    np.testing.assert_allclose(alone, scores[:2], atol=1e-6)
    assert "MetricModel(comet, " in repr(evaluator)
    vectors = Embedder(NUMBERS, VOCAB).embed(["three", "nine"])
    np.testing.assert_allclose(vectors, marians("numbers.vectors")[[0, 4]], atol=1.01e-4)


@pytest.mark.parametrize("size", [190, 210])
def test_a_list_of_another_size_is_warned_of_and_more_words_are_unknown(
    size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pieces = load_vocab(VOCAB)
    words = [*map(pieces.__getitem__, range(200)), *(f"more{number}" for number in range(10))]
    other = tmp_path / "other.yml"
    other.write_text("".join(f"{word!r}: {number}\n" for number, word in enumerate(words[:size])))
    line = " ".join(pieces[i] for i in pieces.encode("three", add_eos=False))
    vectors = Embedder(NUMBERS, other).embed([line, "more3", "unknown"])
    np.testing.assert_allclose(vectors[:1], Embedder(NUMBERS, VOCAB).embed(["three"]), atol=1e-6)
    np.testing.assert_array_equal(vectors[1], vectors[2])
    scores = Evaluator(model("comet-qe"), [other, other]).score([line, "more3", "unknown"], [line] * 3)
    assert scores[0] != scores[1] == scores[2]
    warned = [record.getMessage() for record in caplog.records if "WRONG VOCABULARY?" in record.getMessage()]
    assert len(warned) == 2 and all(f"other.yml has {size} ids, but" in line for line in warned)


def test_lines_that_do_not_fit_are_nan_and_the_others_stay() -> None:
    evaluator = Evaluator(model("bleurt"), [VOCAB, VOCAB], max_length=12)
    long, short, other = evaluator.scores(["zwei " * 20, "zwei", ""], ["drei", "drei", ""])
    assert np.isnan(long.scores[0]) and "at most 12 are possible" in long.problem
    assert np.isfinite([*short.scores, *other.scores]).all() and not short.problem
    unlimited = Evaluator(model("comet-qe"), [VOCAB, VOCAB])
    assert unlimited.encoder.max_length == 64, "as many as there are positions"


def test_texts_are_as_long_as_each_other_and_may_have_tabs() -> None:
    evaluator = Evaluator(model("bleurt"), [VOCAB, VOCAB])
    lines = evaluator.scores(["zwei\tdrei\tvier", "zwei"], ["drei"])
    assert np.isfinite(next(lines).scores).all()
    with pytest.raises(ParallelTextError, match="ends after 1 lines"):
        list(lines)


def test_python_calls_start_the_device_that_they_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(pooling.devices, "start", lambda *words: started.append(words))
    monkeypatch.setattr(pooling.compilation_cache, "use", started.append)
    plain, named = EmbedOptions(model=NUMBERS), {"cpu_threads": 2, "dim_emb": 9}
    for given, more in ((NUMBERS, {}), (NUMBERS, named), (plain, {})):
        pooling.started(EMBED, EmbedOptions, given, [VOCAB], {"compilation_cache": "none", **more})
    default = plain.devices
    assert started == ["none", "none", (2, default, 0), "none", (plain.cpu_threads, default, 0)]
    assert len(caplog.messages) == 1 and "without --ignore-model-config: --dim-emb" in caplog.text


@pytest.mark.slow
def test_half_precision_is_near() -> None:
    pairs = [line.split("\t") for line in (FOLDER / "pairs.tsv").read_text().splitlines()]
    evaluator = Evaluator(model("comet-qe"), [VOCAB, VOCAB], precision="bfloat16", max_length_crop=True)
    found = [result.scores for result in evaluator.scores(*zip(*pairs, strict=True))]
    np.testing.assert_allclose(found, marians("comet-qe")[:-1], atol=0.03)


def test_files_are_checked(tmp_path: Path) -> None:
    def load(name: str, items: dict[str, np.ndarray]) -> None:
        write_npz(tmp_path / name, items)
        file = read_metric(tmp_path / name)
        assert file is not None
        load_metric(file, separator=0)

    items = read_npz(model("comet-qe"))
    load("whole.npz", items)
    lost = next(name for name in items if name.endswith("kProj->bias"))
    with pytest.raises(ParameterError, match=r"lost\.npz: .*\n  encoder_l1_self_bk \(1, 8\) is missing"):
        load("lost.npz", {name: array for name, array in items.items() if name != lost})
    with pytest.raises(ParameterError, match=r"more \(2, 2\) is not used"):
        load("more.npz", {**items, "more": np.zeros((2, 2), np.float32)})
    with pytest.raises(ModelFileError, match=r"expected floating-point parameters, got more int32"):
        load("more.npz", {**items, "more": np.zeros((2, 2), np.int32)})
    assert read_metric(NUMBERS) is None


def test_names_in_files_go_both_ways() -> None:
    for name in ("comet", "bleurt", "unified"):
        items = read_npz(model(name))
        options = model_options(items, name)
        del items["special:model.yml"]
        names = metric_names(options.type)
        again = names.in_file(names.in_graph(items, options), options)
        assert {key: array.shape for key, array in again.items()} == {k: a.shape for k, a in items.items()}


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match="is no metric; its types are comet-qe, comet"):
        Evaluator(NUMBERS, [VOCAB, VOCAB])
    with pytest.raises(OptionError, match="this model has 2 vocabularies, got 3"):
        Evaluator(model("comet-qe"), [VOCAB] * 3)
    with pytest.raises(OptionError, match=r"expected 2 texts \(source, translation\), got 1"):
        list(Evaluator(model("comet-qe"), [VOCAB] * 2).scores(["three"]))
    with pytest.raises(OptionError, match="--tsv takes one text with the fields source, translation, got 2"):
        list(Evaluator(model("comet-qe"), [VOCAB] * 2, like="comet-qe").scores(["three"], ["drei"]))
    with pytest.raises(OptionError, match="--tsv: expected 2 fields, line 2 has 3"):
        list(
            Evaluator(model("comet-qe"), [VOCAB] * 2, like="comet-qe").scores(["three", "three\tdrei\tdrei"])
        )
    with pytest.raises(OptionError, match="--tsv: expected 2 fields, line 1 has 4"):
        Embedder(NUMBERS, VOCAB, compute_similarity=True, tsv=True).embed(["a\tb\tc\td"])
    with pytest.raises(OptionError, match="metrics of type comet read texts one by one"):
        Evaluator(model("comet"), [VOCAB] * 3, input_join_fields=True)
    with pytest.raises(OptionError, match="one of float32, float16, bfloat16; got 'int8'"):
        Embedder(NUMBERS, VOCAB, precision="int8")
    with pytest.raises(OptionError, match="only translation models have it"):
        Embedder(model("comet-qe"), VOCAB, compute_similarity=True)
    with pytest.raises(
        UnsupportedOptionError, match="mgraph evaluate scores with metrics of the COMET family"
    ):
        load_model(model("comet"))
    assert (
        main(["evaluate", "-m", model("comet-qe"), "-v", VOCAB, VOCAB, "--metrics", "bleu", "-t", VOCAB]) == 2
    )
    assert main(["evaluate", "--metrics", "bleu"]) == 2
    assert "is needed, got none; --tsv reads fields of stdin" in capsys.readouterr().err
    assert main(["evaluate", "-m", model("comet"), "--metrics", "bleu", "-t", VOCAB, VOCAB]) == 2
    assert "--vocabs: the vocabularies of each text are needed" in capsys.readouterr().err
    with pytest.raises(OptionError, match="--vocabs: the vocabularies of each text are needed, got none"):
        Embedder(NUMBERS)
    with pytest.raises(VocabError, match=r"words.spm: \d+ pieces, but .*model.npz has 200 ids"):
        Embedder(NUMBERS, str(DATA / "vocab" / "words.spm"))


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "-m", str(FOLDER / "comet-qe.txt"), "-v", VOCAB, VOCAB, "-t", "text", "text"],
        ["evaluate", "-m", NUMBERS, "-v", VOCAB, VOCAB, "--like", "comet-qe"],
        ["evaluate", "-m", model("comet-qe"), "-v", VOCAB, VOCAB, "-t", "text", "text", "text"],
        ["embed", "-m", model("bleurt"), "-v", VOCAB, "-t", "text"],
        ["embed", "-m", NUMBERS, "-v", VOCAB, "-t", "text", "text"],
    ],
    ids=["no model", "no metric", "too many texts", "no vectors", "too many for vectors"],
)
def test_what_cannot_run_leaves_the_output_as_it_is(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text", "out"):
        Path(name).write_bytes(b"three\n")
    assert main([*words, "-o", "out"]) in (1, 2)
    assert Path("out").read_bytes() == b"three\n"


class Given(SentenceVectors):
    """Vectors that are given in place of words."""

    def _vector(self, source: Source) -> Node:
        return source.ids


def test_a_negative_cosine_is_zero() -> None:
    model = load_model(NUMBERS)
    pairs = np.array([[[1, 2, -1], [2, 0, 2]], [[1, 2, -1], [-1, -2, 1]]], np.float32)
    graph = ExpressionGraph(inference=True)
    first, second = (graph.constant((2, 3), inits.from_tensor(pairs[:, i])) for i in range(2))
    near = Given(model, similarity=True).pooled([Source(first, None), Source(first, None)])
    apart = Given(model, similarity=True).pooled([Source(first, None), Source(second, None)])
    graph.forward()
    np.testing.assert_allclose(near.val(), [[1], [1]], rtol=1e-6)
    np.testing.assert_array_equal(apart.val(), [[0], [0]])


def test_a_score_of_unified_comet_is_at_most_one_and_its_layers_are_few() -> None:
    file = read_metric(model("unified"))
    assert file is not None
    loaded = load_metric(file, separator=0)
    params = dict(loaded.params) | {"pooler_b3": np.full((1, 1), 3, np.float32)}
    with pytest.raises(UnsupportedOptionError, match="comet-pooler-ffn: expected at most 8 sizes, got 9"):
        MetricModel(file.options, replace(loaded.metric, comet_pooler_ffn=(4,) * 9), params, separator=0)
    metric = replace(loaded.metric, comet_final_sigmoid=False)
    found = MetricModel(file.options, metric, params, separator=0)
    graph = found.blank_graph()
    source = Source(graph.input("ids", (1, 2), Type.int32), graph.input("mask", (1, 2)))
    pooled = graph.function([found.pooled([source])], list(source))
    values = pooled.pure(found.params, [np.array([[3, 0]], np.int32), np.ones((1, 2), np.float32)])
    np.testing.assert_array_equal(values[0], [[1]])
