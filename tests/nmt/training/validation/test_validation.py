"""Validation of models in training, compared with Marian's of the same models and sentences."""

from __future__ import annotations

import copy
import itertools
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from mgraph import clear_programs, compile_stats
from nmt.files.loading import read_parameters
from nmt.models import Model
from nmt.runtime.log import logging_as
from nmt.search.scoring import Scoring
from nmt.settings import OptionError, TrainOptions
from nmt.text.background import Stopped
from nmt.text.parallel import ParallelTextError
from nmt.text.sentences import Sentence
from nmt.text.vocabs.loading import load_vocabs
from nmt.training.schedule.state import TrainingState
from nmt.training.validation import Validation, evaluation
from nmt.training.validation.evaluation import Evaluation, ValidationSet, ValidationSetError
from nmt.training.validation.metrics import Metric, Record
from tests.helpers import places

DATA = places.DATA / "validation"
WORDS, PIECES = ("source.yml", "target.yml"), ("vocab.spm", "vocab.spm")
SETS = ("source.txt", "target.txt")
ALL = tuple(
    "cross-entropy ce-mean ce-mean-words ce-sum perplexity bleu bleu-detok bleu-segmented chrf".split()
)
CUT = {
    "beam_size": 2,
    "valid_max_length": 5,
    "max_length_factor": 1.5,
    "word_penalty": 0.1,
    "allow_unk": True,
    "word_scores": True,
}
RUNS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "words.beam": ("words", WORDS, {"beam_size": 3, "normalize": 0.6}),
    "words.cut": ("words", WORDS, CUT),
    "pieces.beam": ("pieces", PIECES, {"beam_size": 3, "normalize": 1.0}),
    "right-left.tsv": (
        "right-left",
        PIECES,
        {"beam_size": 1, "tsv": True, "valid_sets": ("both.tsv",), "quiet_validation": True},
    ),
}
A_VALUE = re.compile(r"\[valid\] Ep\. 1 : Up\. 1 : (\S+) : (\S+) : new best")


def validation(
    model: str, vocabs: Sequence[str], **options: Any
) -> tuple[Validation | None, dict[str, np.ndarray]]:
    """The validation that the options ask for, and the parameters of a model in the data folder."""
    sets = tuple(str(DATA / name) for name in options.pop("valid_sets", SETS))
    values = TrainOptions(valid_sets=sets, **options)
    model_options, params = read_parameters(DATA / f"{model}.npz")
    loaded = load_vocabs([str(DATA / name) for name in vocabs], model_options.dim_vocabs)
    return Validation.from_options(values, model_options, loaded), params


def run(model: str, vocabs: Sequence[str], **options: Any) -> tuple[dict[str, float], TrainingState]:
    """The values of one validation, and the state afterwards."""
    found, params = validation(model, vocabs, **options)
    assert found is not None
    state = TrainingState(eta=0.0, batches=1)
    found.register(state)
    found.run(params, state, save_best=lambda kind: None, save_dev=lambda: None)
    return found.latest, state


def log_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged about validation, except the time of translations."""
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if re.match(r"\[valid\]|Translating|Best", line)]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.sampled("words.cut")
def test_values_are_marians(name: str) -> None:
    model, vocabs, options = RUNS[name]
    values, state = run(model, vocabs, valid_metrics=ALL, **options)
    found = A_VALUE.findall((DATA / f"{name}.log").read_text())
    expected = {kind: float(value) for kind, value in found}
    assert list(values) == list(expected) == list(ALL)
    np.testing.assert_allclose(list(values.values()), list(expected.values()), rtol=1e-5)
    assert state.validators == {kind: {"last-best": value, "stalled": 0} for kind, value in values.items()}


def test_accuracy_is_marians() -> None:
    """With one sentence per batch, because Marian also counts padding."""
    runs = [
        run("words", WORDS, valid_metrics=("accuracy",)),
        run("words", WORDS, valid_metrics=("accuracy",), valid_max_length=5),
        run("pieces", PIECES, valid_metrics=("ce-sum", "accuracy"), valid_mini_batch=3),
        run("right-left", PIECES, valid_metrics=("accuracy",), tsv=True, valid_sets=("both.tsv",)),
    ]
    expected = [float(value) for _, value in A_VALUE.findall((DATA / "accuracy.log").read_text())]
    np.testing.assert_allclose([values["accuracy"] for values, _ in runs], expected, rtol=1e-5)


def test_the_log_is_marians(caplog: pytest.LogCaptureFixture) -> None:
    """With a single metric of translations: with several, Marian translates for each of them."""
    with caplog.at_level(logging.INFO, "nmt"):
        run("words", WORDS, valid_metrics=("bleu",), beam_size=3, normalize=0.6)
    said = (DATA / "words.beam.log").read_text().splitlines()
    said = said[said.index("Translating validation set...") :]
    end = next(number for number, line in enumerate(said) if " : bleu : " in line)
    ours = log_of(caplog)
    assert ours[:1] == said[:1]
    assert sorted(ours) == sorted(said[: end + 1])


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Recorded(Scoring):
        def __init__(self, model: Model, *, mini_batch: int, **options: Any) -> None:
            sizes.append(mini_batch)
            super().__init__(model, mini_batch=mini_batch, **options)

    monkeypatch.setattr(evaluation, "Scoring", Recorded)
    once, _ = run("words", WORDS, valid_metrics=("ce-sum",))
    again, _ = run("words", WORDS, valid_metrics=("ce-sum",), valid_mini_batch=5)
    assert again["ce-sum"] == pytest.approx(once["ce-sum"], rel=1e-6)
    assert sizes == [32, 5]


def test_the_first_validation_compiles_few_programs() -> None:
    clear_programs()
    found, params = validation("words", WORDS, valid_metrics=("cross-entropy", "bleu", "chrf"), beam_size=2)
    assert found is not None
    rng, words = np.random.default_rng(2), len(found.vocabs[-1])
    lengths = np.clip(rng.lognormal(2.9, 0.6, 200), 1, 90).astype(int)
    found.data = ValidationSet(
        tuple(
            Sentence(line, tuple([*rng.integers(2, words, length).tolist(), 0] for _ in range(2)))
            for line, length in enumerate(lengths)
        ),
        mini_batch=32,
    )
    state, before = TrainingState(eta=0.0, batches=1), compile_stats()
    found.register(state)
    found.run(params, state, save_best=lambda kind: None, save_dev=lambda: None)
    assert (compile_stats() - before).misses <= 6


def test_sentences_of_a_length_go_together() -> None:
    found, _ = validation("words", WORDS, valid_mini_batch=5)
    assert found is not None
    lines = [sample.line for sample in found.data.ordered()]
    assert sorted(lines) == list(range(16)) and lines != list(range(16))
    longest = [max(len(ids) for ids in found.data.samples[line].sequences) for line in lines]
    assert [length > 8 for length in longest] == sorted((length > 8 for length in longest), reverse=True)


def test_translations_are_written(tmp_path: Path) -> None:
    name = str(tmp_path / "{E}.{B}.{U}.{T}.txt")
    run("words", WORDS, valid_metrics=("chrf",), valid_translation_output=name, **CUT)
    ours, marians = (path.read_text() for path in (tmp_path / "1.0.1.0.txt", DATA / "words.cut.txt"))
    a_score = re.compile(r"-?\d\.\d{5}")
    assert a_score.sub("#", ours) == a_score.sub("#", marians)
    np.testing.assert_allclose(
        *(np.array(a_score.findall(text), float) for text in (ours, marians)), atol=2e-5
    )


def test_lists_of_translations_are_for_scripts_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "output.txt"
    options = {"n_best": True, "beam_size": 3, "valid_translation_output": str(output)}
    with caplog.at_level(logging.INFO, "nmt"):
        run("words", WORDS, valid_metrics=("translation",), quiet_translation=True, **options)
    assert all("[valid]" in line for line in log_of(caplog)), "it was asked to be quiet"
    assert "Total translation time" not in caplog.text
    entries = output.read_text().splitlines()
    assert len(entries) == 3 * 16
    assert re.fullmatch(
        r"0 \|\|\| das kleine Haus steht nahe am Fluss\. \|\|\| F0= -\S+ \|\|\| -\S+", entries[0]
    )
    run("words", WORDS, valid_metrics=("chrf",), **options)
    assert len(output.read_text().splitlines()) == 16


def test_a_second_validation_compiles_nothing_and_translates_for_all_metrics_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found, params = validation("words", WORDS, valid_metrics=("ce-sum", "bleu", "chrf"), beam_size=3)
    assert found is not None
    state = TrainingState(eta=0.0)
    found.register(state)
    assert found.run(params, state, save_best=lambda kind: None, save_dev=lambda: None) == 0
    first = dict(found.latest)
    before = compile_stats()
    worse = {name: value * np.float32(0.5) for name, value in params.items()}
    with caplog.at_level(logging.INFO, "nmt"):
        assert found.run(worse, state, save_best=lambda kind: None, save_dev=lambda: None) == 1
    assert (compile_stats() - before).misses == 0
    assert sum("Translating" in line for line in log_of(caplog)) == 1
    assert found.latest["ce-sum"] > first["ce-sum"] and found.latest["chrf"] < first["chrf"]
    assert found.run(params, state, save_best=lambda kind: None, save_dev=lambda: None) == 2
    assert found.latest == first


@pytest.mark.parametrize("kinds", [("cross-entropy", "bleu"), ("bleu", "cross-entropy")])
def test_a_validation_that_is_stopped_leaves_the_state_alone(kinds: tuple[str, ...]) -> None:
    found, params = validation("words", WORDS, valid_metrics=kinds, keep_best=True)
    assert found is not None
    state = TrainingState(eta=0.0)
    found.register(state)
    before, asked, best = copy.deepcopy(state), itertools.count(), list[str]()

    def stopped() -> bool:
        return next(asked) >= 20  # there are 16 sentences, so in the second metric

    with pytest.raises(Stopped):
        found.run(params, state, best.append, save_dev=lambda: None, stopped=stopped)
    assert state == before and best == [kinds[0]]
    assert found.run(params, state, best.append, save_dev=lambda: None) == 0
    assert best[1:] == [*kinds] and state != before


class Given(Metric):
    """A metric whose values are known."""

    def __init__(self, kind: str, epsilon: float, values: Sequence[float], lower: bool) -> None:
        super().__init__(kind, epsilon)
        self.given, self.lower_is_better = iter(values), lower

    def measure(self, evaluation: Evaluation, state: TrainingState) -> float:
        return next(self.given)


def test_stalled_validations_are_counted_as_marian_counts(caplog: pytest.LogCaptureFixture) -> None:
    said = [line for line in (DATA / "stalled.log").read_text().splitlines() if " : Up. " in line]
    values = {
        kind: [float(line.split(" : ")[3]) for line in said if f" : {kind} : " in line]
        for kind in ("ce-mean-words", "perplexity", "chrf")
    }
    epsilons = (0.3, 0.0, 1.0)
    metrics = [
        Given(kind, epsilon, values[kind], kind != "chrf")
        for kind, epsilon in zip(values, epsilons, strict=True)
    ]
    options, params = read_parameters(DATA / "words.npz")
    vocabs = load_vocabs([str(DATA / name) for name in WORDS], options.dim_vocabs)
    best: list[str] = []
    found = Validation(TrainOptions(keep_best=True), options, vocabs, metrics, ValidationSet((), 1))
    state = TrainingState(eta=0.0)
    found.register(state)
    with caplog.at_level(logging.INFO, "nmt"):
        for _ in range(22):
            state.epochs += 1 if state.epochs == 1 else 2
            state.batches += 2
            stalled = found.run(params, state, save_best=best.append, save_dev=lambda: None)
    assert log_of(caplog) == said
    saved = yaml.safe_load((DATA / "stalled.yml").read_text())
    assert stalled == saved["stalled"] and state.validator == saved["validator"]
    for kind, entry in saved["validators"].items():
        assert state.validators[kind]["stalled"] == entry["stalled"]
        assert state.validators[kind]["last-best"] == pytest.approx(entry["last-best"], rel=1e-5)
    improvements = len(np.unique(np.minimum.accumulate(values["ce-mean-words"])))
    assert best.count("ce-mean-words") == improvements > 10


def test_a_value_beyond_float32_is_infinite_and_the_best_is_kept_on_request() -> None:
    options, params = read_parameters(DATA / "words.npz")
    vocabs = load_vocabs([str(DATA / name) for name in WORDS], options.dim_vocabs)
    for keeps in (False, True):
        best: list[str] = []
        metrics = [Given("perplexity", 0.0, (1e300, 2.0), True)]
        found = Validation(TrainOptions(keep_best=keeps), options, vocabs, metrics, ValidationSet((), 1))
        state = TrainingState(eta=0.0)
        found.register(state)
        assert found.run(params, state, save_best=best.append, save_dev=lambda: None) == 1
        assert found.latest == {"perplexity": np.inf}
        assert found.run(params, state, save_best=best.append, save_dev=lambda: None) == 0
        assert best == ["perplexity"] * keeps


@pytest.mark.parametrize(("which", "expected"), [("first", 2), ("all", 1), ("any", 5)])
def test_whose_stalled_validations_count(which: str, expected: int) -> None:
    found, _ = validation("words", WORDS, valid_metrics=("ce-sum", "bleu", "chrf"), early_stopping_on=which)
    assert found is not None
    state = TrainingState(eta=0.0)
    found.register(state)
    for kind, stalled in (("ce-sum", 2), ("bleu", 1), ("chrf", 5)):
        state.validators[kind] = Record(1.0, stalled).entry
    assert found.stalled(state) == expected


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ({}, {"last-best": 3.5, "stalled": 4}),
        ({"valid_reset_stalled": True}, {"last-best": 3.5, "stalled": 0}),
        ({"valid_reset_all": True}, {"last-best": float(np.finfo(np.float32).max), "stalled": 0}),
    ],
)
def test_what_a_resumed_training_remembers(reset: dict[str, bool], expected: dict[str, float]) -> None:
    found, _ = validation("words", WORDS, valid_metrics=("ce-sum", "chrf"), **reset)
    assert found is not None
    state = TrainingState(eta=0.0, stalled=4, stalled_max=6, validator="bleu")
    state.validators = {"ce-sum": {"last-best": 3.5, "stalled": 4}, "bleu": {"last-best": 1.0, "stalled": 1}}
    found.register(state)
    assert state.validators["ce-sum"] == expected and state.validator == "bleu"
    assert state.validators["chrf"] == {"last-best": -float(np.finfo(np.float32).max), "stalled": 0}
    assert state.validators["bleu"] == {"last-best": 1.0, "stalled": 1}
    assert (state.stalled, state.stalled_max) == ((0, 0) if reset else (4, 6))


def test_a_script_judges_the_model(tmp_path: Path) -> None:
    """It gets only the words in the options, finds the model where it was saved, and needs no set."""
    (tmp_path / "score.sh").write_text('echo "$(cat "$1") and more"; echo 9\n')
    found, params = validation(
        "words",
        WORDS,
        valid_sets=(),
        valid_metrics=("valid-script",),
        valid_script_path=f"sh {tmp_path}/score.sh",
        valid_script_args=(str(tmp_path / "model"),),
    )
    assert found is not None
    state = TrainingState(eta=0.0)
    found.register(state)
    for score, stalled in (("2.5", 0), ("3", 0), (" 1e0", 1)):
        save = (tmp_path / "model").write_text
        found.run(params, state, lambda kind: None, save_dev=lambda save=save, score=score: save(score))
        assert found.latest == {"valid-script": float(score)}
        assert found.stalled(state) == stalled


def test_a_script_judges_translations(tmp_path: Path) -> None:
    (tmp_path / "count.sh").write_text('echo $#; (grep -c Katzen "$2"; dirname "$2") > "$1"\n')
    values, _ = run(
        "words",
        WORDS,
        valid_metrics=("translation",),
        beam_size=3,
        valid_script_path=f"sh {tmp_path}/count.sh",
        valid_script_args=(str(tmp_path / "cats"),),
        tempdir=str(tmp_path),
    )
    assert values == {"translation": 2.0}
    assert (tmp_path / "cats").read_text() == f"2\n{tmp_path}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cats", "count.sh"]


def test_translations_without_a_script_have_no_value(caplog: pytest.LogCaptureFixture) -> None:
    """Then Marian counts nothing, and each time says that 0 is the best yet."""
    with caplog.at_level(logging.INFO, "nmt"):
        values, state = run("words", WORDS, valid_metrics=("translation",), beam_size=3)
    assert values == {}
    assert log_of(caplog)[0] == "[valid] No post-processing script given for validating translator"
    assert log_of(caplog)[-1] == "[valid] Ep. 1 : Up. 1 : translation : 0 : new best"
    assert state.validators["translation"] == {"last-best": -float(np.finfo(np.float32).max), "stalled": 0}


def test_nothing_is_validated_if_nothing_is_asked_for() -> None:
    assert validation("words", WORDS, valid_freq="0")[0] is None
    options, _ = read_parameters(DATA / "words.npz")
    assert Validation.from_options(TrainOptions(), options, []) is None


def test_values_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    with logging_as(TrainOptions(quiet=True), str(tmp_path / "valid.log")):
        run("words", WORDS, valid_metrics=("ce-mean-words", "chrf"), beam_size=3)
    lines = [line.partition("] ")[2] for line in (tmp_path / "valid.log").read_text().splitlines()]
    assert lines[0].startswith("[valid] Ep. 1 : Up. 1 : ce-mean-words : 0.34973")
    assert all(line.startswith("[valid] ") for line in lines) and len(lines) == 7


@pytest.mark.parametrize(
    ("error", "message", "contents"),
    [
        (OptionError, "2 files, one for each vocabulary, are needed, got 1", {"a": "x\n"}),
        (ParallelTextError, "the file .*a ends after 1 lines", {"a": "x\n", "b": "y\nz\n"}),
        (ValidationSetError, "no lines in .*a and .*b", {"a": "", "b": ""}),
        (OSError, "damaged", {"a.gz": "x\n", "b": "y\n"}),
    ],
)
def test_sets_that_cannot_be_used(
    tmp_path: Path, error: type[Exception], message: str, contents: dict[str, str]
) -> None:
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    vocabs = load_vocabs([str(DATA / name) for name in WORDS], (0, 0))
    sets = tuple(str(tmp_path / name) for name in contents)
    with pytest.raises(error, match=message):
        ValidationSet.read(TrainOptions(valid_sets=sets), vocabs)


def test_a_line_with_too_many_fields_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "set.tsv").write_text("a\tb\n" + 3 * "c\td\te\n")
    vocabs = load_vocabs([str(DATA / name) for name in WORDS], (0, 0))
    with pytest.raises(ValidationSetError, match=r"set\.tsv, line 2: 3 fields separated by tabs, 2 are"):
        ValidationSet.read(TrainOptions(valid_sets=(str(tmp_path / "set.tsv"),), tsv=True), vocabs)
    assert len(caplog.records) == 1, "the rest is not read"
    with pytest.raises(OptionError, match="one file with --tsv is needed, got 2"):
        ValidationSet.read(TrainOptions(valid_sets=("a", "b"), tsv=True), vocabs)
    with pytest.raises(OptionError, match="files are needed, got stdin"):
        ValidationSet.read(TrainOptions(valid_sets=("stdin",), tsv=True), vocabs)
