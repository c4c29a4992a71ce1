"""The parts of validation: n-grams and segments compared with sacreBLEU, records, scripts, options."""

from __future__ import annotations

import logging
import math
import os
import select
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from nmt.settings import OptionError, TrainOptions
from nmt.text.background import Stopped
from nmt.text.vocabs.loading import load_vocab
from nmt.training.schedule.state import TrainingState
from nmt.training.validation import bleu, metrics
from nmt.training.validation.bleu import NGramCounts
from nmt.training.validation.evaluation import Cost, Evaluation, is_logged
from nmt.training.validation.metrics import (
    CrossEntropy,
    Metric,
    OutputName,
    Record,
    Script,
    ScriptMetric,
    TranslationMetric,
)
from nmt.training.validation.validation import metrics_of
from tests.helpers import places

DATA = places.DATA / "validation"
WORST = float(np.finfo(np.float32).max)

sentences = st.lists(st.sampled_from("abcde"), min_size=6, max_size=12)
corpora = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=4)


def counted(order: int, corpus: list[tuple[Any, Any]]) -> NGramCounts:
    counts = NGramCounts(order)
    for ours, theirs in corpus:
        counts.add(ours, theirs)
    return counts


@given(corpora)
def test_bleu_is_sacrebleus(corpus: list[tuple[list[str], list[str]]]) -> None:
    ours, theirs = ([" ".join(side) for side in sides] for sides in zip(*corpus, strict=True))
    judge = BLEU(tokenize="none", smooth_method="none", force=True)
    found = counted(4, [(tuple(a), tuple(b)) for a, b in corpus]).bleu()
    assert found == pytest.approx(judge.corpus_score(ours, [theirs]).score, rel=1e-5)


@given(corpora)
def test_chrf_is_sacrebleus(corpus: list[tuple[list[str], list[str]]]) -> None:
    """This holds for references that are long enough; for others, Marian and sacreBLEU differ."""
    ours, theirs = (["".join(side) for side in sides] for sides in zip(*corpus, strict=True))
    found = counted(6, list(zip(ours, theirs, strict=True))).chrf()
    assert found == pytest.approx(CHRF().corpus_score(ours, [theirs]).score, rel=1e-5)


def test_scores_at_their_limits() -> None:
    long = tuple("abcdef")
    assert counted(4, [(long, long)]).bleu() == 100.0
    assert counted(6, [("abcdef", "abcdef")]).chrf() == 100.0
    assert counted(4, [((), long)]).bleu() == 0.0
    assert counted(6, [("", "abc"), ("abc", "")]).chrf() == 0.0
    assert counted(6, [("", "")]).chrf() == 0.0
    assert counted(4, [(tuple("abc"), tuple("abc"))]).bleu() == 0.0  # no 4-grams, no score
    twice = counted(4, [(long, long + long)]).bleu()
    assert twice == pytest.approx(100 * math.exp(-1), rel=1e-6)
    assert counted(4, [(long + long, long)]).bleu() == pytest.approx(
        100 * math.exp(math.log(6 / 12 * 5 / 11 * 4 / 10 * 3 / 9) / 4), rel=1e-6
    )


@pytest.mark.parametrize(
    "text",
    [
        'er sagt: "3,5 oder 1.000,50 $?" (siehe §4.1) … a.b',
        "z.B. U.S.A., 10-15 a-b 10- &quot;x&quot; &amp;lt; &lt;i&gt;",
        "  [x]{y}~`^_=+*#%@;<>|\\/ 'tis  ",
        "été, c'est fini!\tweiter",
        "",
    ],
)
def test_tokens_are_sacrebleus(text: str) -> None:
    # sacreBLEU's rules split at all Unicode white space, Marian's only at ASCII white space
    assert bleu.tokenized(text).split() == Tokenizer13a()(text).split()


def test_what_is_between_spaces() -> None:
    assert bleu.tokenized("a\u00a0b") == "a\u00a0b"
    assert bleu.tokenized("<skipped>a <skipped>") == "a"
    assert bleu.words("a  b\u2028c ") == ("a", "b\u2028c")
    assert bleu.characters(" a b\u00a0c") == "ab\u00a0c"
    assert bleu.words(bleu.separated("das 停止is カ한국")) == ("das", "停", "止", "is", "カ", "한국")
    assert [bleu.is_continuous(c) for c in "\u0dff\u0e00\u0e7f\u0e80\u2e9a\U0002fa1d\U0002fa1e"] == [
        *(False, True, True, False, False, True, False)
    ]
    assert sum(map(bleu.is_continuous, map(chr, range(0x30000)))) == 90129  # as many as for Marian


class Lower(Metric):
    """A metric that is better when lower."""

    lower_is_better = True

    def measure(self, evaluation: Evaluation, state: TrainingState) -> None:
        """Nothing is measured here."""


class Higher(Lower):
    """A metric that is better when higher."""

    lower_is_better = False


def test_an_improvement_must_reach_epsilon() -> None:
    metric = Lower("ce-sum", 0.5)
    assert metric.start == Record(WORST)
    assert metric.next_record(metric.start, 3.0) == Record(3.0)
    assert metric.next_record(Record(3.0, 2), 2.5) == Record(2.5)
    assert metric.next_record(Record(3.0, 2), 2.75) == Record(2.75, 3)  # the best, but no progress
    assert metric.next_record(Record(3.0, 2), 3.0) == Record(3.0, 3)
    assert metric.next_record(Record(3.0, 2), math.nan) == Record(3.0, 3)
    metric = Higher("bleu", 0.0)
    assert metric.next_record(metric.start, 0.0) == Record(0.0)
    assert metric.next_record(Record(3.0, 2), 3.0000002) == Record(3.0000002)
    assert metric.next_record(Record(3.0), 2.9) == Record(3.0, 1)
    for each in metric, Lower("ce-sum"):
        assert not each.improves(Record(3.0), 3.0) and each.next_record(Record(3.0), 3.0) == Record(3.0, 1)
    assert Record.of(Record(0.1, 7).entry) == Record(float(np.float32(0.1)), 7)


def test_the_forms_of_cross_entropy() -> None:
    class Found:
        cost = Cost(cost=12.0, words=8, sentences=3)

    state = TrainingState(eta=0.0)
    values = {
        kind: CrossEntropy(kind).measure(Found, state)  # type: ignore[arg-type]
        for kind in ("ce-sum", "cross-entropy", "ce-mean", "ce-mean-words", "perplexity")
    }
    assert list(values.values()) == [12.0, 4.0, 4.0, 1.5, math.exp(1.5)]
    Found.cost = Cost(cost=1e6, words=1, sentences=1)
    assert CrossEntropy("perplexity").measure(Found, state) == math.inf  # type: ignore[arg-type]


def test_fewer_and_fewer_translations_are_logged() -> None:
    assert [line for line in range(1000) if is_logged(line)] == [
        *(0, 1, 2, 3, 4, 5),
        *(10, 20, 40, 80, 160, 320, 640),
    ]


@pytest.mark.parametrize(
    ("output", "score"),
    [("3.25 and more\\n7\\n", 3.25), ("\\n -1e1\\n", -10.0), (".5", 0.5), ("2.", 2.0), ("inf", math.inf)],
)
def test_a_score_is_what_the_output_begins_with(output: str, score: float) -> None:
    assert Script("printf", (f"'{output}'",)).run() == score


def test_scripts_are_lines_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "count.sh"
    script.write_text('echo $#; [ -z "$3" ] || echo "$3" > "$3"\n')
    assert Script(f"sh {script}", ("a", "b  c")).run() == 3.0
    name = str(tmp_path / "a file's name")
    assert Script(f"sh {script}", ("a", "b")).run(name) == 3.0
    assert Path(name).read_text() == name + "\n"
    assert not caplog.records


def test_a_script_reads_nothing_of_the_training_text() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"5\n")
    os.close(writer)
    own = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert Script("cat; echo 3").run() == 3.0
        assert os.read(0, 9) == b"5\n"
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(reader)


def test_scripts_that_fail_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Script("echo 'BLEU = 12'; exit 3").run() == 0.0
    assert [record.getMessage() for record in caplog.records] == [
        "[valid] echo 'BLEU = 12'; exit 3 ended with status 3",
        "[valid] echo 'BLEU = 12'; exit 3: the output must begin with a number, got 'BLEU = 12'; using 0",
    ]
    with pytest.raises(OptionError, match=r"--valid-script-path: .*/none is not an executable program"):
        Script(f"{tmp_path}/none")
    (tmp_path / "text").write_text("echo 1\n")
    with pytest.raises(OptionError, match="not an executable program"):
        Script(f"{tmp_path}/text")
    assert logging.getLevelName(caplog.records[0].levelno) == "WARNING"


@pytest.mark.parametrize("script", ["exec sleep 60", "trap '' TERM; while true; do sleep 1; done"])
def test_scripts_are_ended_when_a_stop_is_asked_for(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "TERMINATION_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(Stopped):
        Script(script).run(stopped=lambda: time.monotonic() > began + 0.3)
    assert time.monotonic() < began + 30


def test_a_script_has_time_to_end(tmp_path: Path) -> None:
    ready, done = tmp_path / "ready", tmp_path / "done"
    ending = f"trap 'echo > {done}; exit' TERM; echo > {ready}; while true; do sleep 0.05; done"
    with pytest.raises(Stopped):
        Script(ending).run(stopped=ready.exists)
    assert done.exists()


def test_scripts_of_metrics_are_ended_too(tmp_path: Path) -> None:
    class Stopping:
        def stopped(self) -> bool:
            return True

        def save_dev(self) -> None:
            """There is no model."""

        def write(self, path: str, *, n_best: bool) -> None:
            """There are no translations."""

    script = Script("echo 1")
    judges: list[Metric] = [
        ScriptMetric("valid-script", 0.0, script),
        TranslationMetric("translation", 0.0, script, OutputName(""), str(tmp_path)),
        TranslationMetric("translation", 0.0, script, OutputName(str(tmp_path / "out")), ""),
    ]
    for judge in judges:
        with pytest.raises(Stopped):
            judge.measure(Stopping(), TrainingState(eta=0.0))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_a_script_has_started_ends_with_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(Stopped):
        Script(f"(echo >&3; sleep 60; true) 3> {pipe}; echo 1").run(
            stopped=lambda: bool(select.select([reader], [], [], 0.0)[0] and os.read(reader, 1))
        )
    assert select.select([reader], [], [], 30.0)[0] and not os.read(reader, 1), "nobody has it open"
    os.close(reader)


def test_what_a_signal_to_all_leaves_of_a_script_is_no_score() -> None:
    with pytest.raises(Stopped):
        Script("echo 0.5").run(stopped=iter([False, True]).__next__)


def test_names_of_output_files() -> None:
    state = TrainingState(eta=0.0, epochs=2, batches=30, batches_epoch=4, labels_total=500)
    assert OutputName("").of(state) == ""
    assert OutputName("o.{E}.{B}.{U:05}.{T}.txt").of(state) == "o.2.4.00030.500.txt"
    for template in ("{X}", "{", "{}", "{E.x}", "{E:q}", "{E[0]}"):
        with pytest.raises(OptionError, match="--valid-translation-output"):
            OutputName(template)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid_metrics": ("ble",)}, r"unknown metric ble; did you mean bleu\?"),
        ({"valid_metrics": ("bert",)}, "unknown metric bert"),
        ({"valid_metrics": ()}, "at least one metric"),
        ({"valid_metrics": ("bleu", "bleu")}, "each metric may be given once"),
        ({"valid_metrics": ("valid-script",)}, "valid-script needs --valid-script-path"),
        ({"valid_translation_output": "{x}"}, "--valid-translation-output"),
        ({"valid_translation_output": "nowhere/{U}"}, "directory nowhere does not exist"),
        ({"valid_metrics": ("translation",), "tempdir": "nowhere"}, "--tempdir nowhere: there is no such"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    vocab = load_vocab(DATA / "target.yml")
    with pytest.raises(OptionError, match=message):
        metrics_of(TrainOptions(**options), vocab)


def test_a_folder_that_is_not_used_need_not_exist() -> None:
    vocab = load_vocab(DATA / "target.yml")
    for more in {"valid_metrics": ("chrf",)}, {"valid_translation_output": "{U}"}:
        (one,) = metrics_of(
            TrainOptions(**{"valid_metrics": ("translation",), "tempdir": "nowhere", **more}), vocab
        )
        assert one.kind in ("chrf", "translation")


def test_each_metric_has_its_epsilon() -> None:
    vocab = load_vocab(DATA / "target.yml")
    kinds = ("perplexity", "chrf")
    one = metrics_of(TrainOptions(valid_metrics=kinds, early_stopping_epsilon=(0.5,)), vocab)
    two = metrics_of(TrainOptions(valid_metrics=kinds, early_stopping_epsilon=(0.5, 2.0)), vocab)
    assert [metric.epsilon for metric in one] == [0.5, 0.5]
    assert [(metric.kind, metric.epsilon) for metric in two] == [("perplexity", 0.5), ("chrf", 2.0)]
