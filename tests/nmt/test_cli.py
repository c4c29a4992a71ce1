"""The command line: Marian's results in Marian's formats, N lines in and N lines out."""

from __future__ import annotations

import io
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import pytest
from jax.errors import JaxRuntimeError

import mgraph as mgraph_ops
import nmt
from mgraph import ExpressionGraph, OutOfMemoryError, __version__, compile_stats, inits
from mgraph.files.items import model_yml, with_model_yml
from mgraph.files.parameter_files import read_items, write_items
from nmt import cli
from nmt.cli import main
from nmt.commands import NAMES
from nmt.commands.common import write
from nmt.runtime import devices
from tests.helpers.marian_lines import check_lines
from tests.helpers.places import DATA, ROOT, SHIPPED

VOCAB = str(SHIPPED / "vocab.spm")
MODELS = {"numbers": str(SHIPPED / "model.npz"), "s2s-numbers": str(DATA / "s2s-numbers" / "model.npz")}
EUROPARL = {
    "s2s-gru": ["v.de.yml", "v.en.yml"],
    "transformer-joint": ["v.joint.yml", "v.joint.yml"],
}
SMALL = ["-m", MODELS["numbers"], "-v", VOCAB, VOCAB]
BATCHED = ["--mini-batch", "20", "--maxi-batch", "3", "--maxi-batch-sort", "src"]


class Files(NamedTuple):
    """A model, a text, and the folder with Marian's results for them."""

    model: str
    vocabs: list[str]
    source: str
    target: str
    folder: Path


def reference_files(name: str, request: pytest.FixtureRequest) -> Files:
    if name in MODELS:
        folder = DATA / name
        return Files(MODELS[name], [VOCAB, VOCAB], f"{folder}/input.en", f"{folder}/input.de", folder)
    fixtures = request.getfixturevalue("fixtures")
    data, folder = fixtures / "data", fixtures / "marian" / name
    vocabs = [str(data / vocab) for vocab in EUROPARL[name]]
    return Files(f"{folder}/model.npz", vocabs, f"{data}/test.de", f"{data}/test.en", folder)


class Result(NamedTuple):
    code: int
    out: bytes
    err: str


@pytest.fixture
def mgraph(capsysbinary, monkeypatch):
    """Run the command in this process, so that programs are compiled once for all tests."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(words)
        out, err = capsysbinary.readouterr()
        return Result(code, out, err.decode())

    return run


@pytest.mark.parametrize("name", [*MODELS, *EUROPARL])
@pytest.mark.parametrize(
    ("reference", "options"),
    [
        ("beam1.txt", ["-b", "1", *BATCHED]),
        ("beam4.txt", ["-b", "4", "--normalize", "0.6"]),
        ("beam4.nbest", ["-b", "4", "--normalize", "0.6", "--n-best", "--word-scores", *BATCHED]),
        ("beam12.txt", BATCHED),
    ],
    ids=["greedy", "beam", "n-best", "defaults"],
)
@pytest.mark.sampled("beam-numbers", "n-best-s2s-numbers")
def test_decode_prints_what_marian_prints(mgraph, request, name, reference, options) -> None:
    files = reference_files(name, request)
    if not (files.folder / reference).exists():
        pytest.skip(f"Marian made no {reference} of this model")
    words = ["-m", files.model, "-v", *files.vocabs, "-i", files.source]
    result = mgraph("decode", *words, "--quiet", *options)
    assert (result.code, result.err) == (0, "")
    check_lines(result.out, files.folder / reference)


@pytest.mark.parametrize("name", [*MODELS, *EUROPARL])
@pytest.mark.parametrize(
    ("reference", "options"), [("scores.txt", []), ("word-scores.txt", ["--word-scores"])]
)
def test_score_prints_what_marian_prints(mgraph, request, name, reference, options) -> None:
    files = reference_files(name, request)
    words = ["-m", files.model, "-v", *files.vocabs, "-t", files.source, files.target]
    result = mgraph("score", *words, "--quiet", *options)
    assert (result.code, result.err) == (0, "")
    check_lines(result.out, files.folder / reference)


def test_score_per_word_and_summaries(mgraph) -> None:
    texts = [str(DATA / "numbers" / file) for file in ("input.en", "input.de")]
    command = ["score", *SMALL, "-t", *texts, "--quiet"]
    lines = (DATA / "numbers" / "word-scores.txt").read_text().splitlines()
    words = [len(line.split("WordScores=")[1].split()) for line in lines]
    scores = [float(line.split()[0]) for line in lines]
    per_word = [float(line) for line in mgraph(*command, "--normalize").out.split()]
    assert per_word == pytest.approx([s / n for s, n in zip(scores, words, strict=True)], abs=1e-4)
    costs = {
        "ce-sum": -sum(scores),
        "ce-mean": -sum(scores) / len(scores),
        "ce-mean-words": -sum(scores) / sum(words),
        "perplexity": math.exp(-sum(scores) / sum(words)),
    }
    for kind, cost in costs.items():
        assert float(mgraph(*command, "--summary", kind).out) == pytest.approx(cost, rel=1e-4)


def test_invalid_utf8_is_translated_with_a_warning(mgraph) -> None:
    source = DATA / "numbers" / "invalid-utf8.en"
    result = mgraph("decode", *SMALL, "-i", str(source), "-b", "4", "-n", "0.6", "--quiet-translation")
    check_lines(result.out, DATA / "numbers" / "invalid-utf8.beam4.txt")
    assert "[warn] line 1 is not valid UTF-8" in result.err


LONG = b"six\none two three four five six seven eight nine ten\n\nseven"


def test_a_line_that_is_too_long_is_left_empty(mgraph) -> None:
    result = mgraph("decode", *SMALL, "-b", "4", "--max-length", "9", stdin=LONG)
    assert result.code == 0
    assert result.out.decode().split("\n") == ["sechs", "", "", "sieben", ""]
    assert re.search(r"\[warn\] line 2 is left out: \d+ words with </s>, --max-length is 9", result.err)
    listed = mgraph("decode", *SMALL, "-b", "2", "--n-best", "--max-length", "9", stdin=LONG)
    lines = listed.out.decode().splitlines()
    assert [line.split(" ||| ")[0] for line in lines] == ["0", "0", "1", "2", "2", "3", "3"]
    assert lines[2] == "1 |||  ||| F0= nan ||| nan"


def test_a_line_that_is_too_long_is_not_scored(mgraph, tmp_path) -> None:
    (tmp_path / "en").write_bytes(LONG)
    (tmp_path / "de").write_text("sechs\nzehn\n\nsieben\n")
    command = ["score", *SMALL, "-t", str(tmp_path / "en"), str(tmp_path / "de"), "--max-length", "9"]
    result = mgraph(*command, "--word-scores")
    lines = result.out.decode().splitlines()
    assert result.code == 0 and len(lines) == 4
    assert lines[1] == "nan" and "nan" not in lines[0] + lines[2] + lines[3]
    assert "[warn] line 2 is left out" in result.err
    assert "Total sentences 3" in result.err
    assert math.isfinite(float(mgraph(*command, "--summary").out))


def test_a_line_that_is_too_long_can_be_cut(mgraph) -> None:
    cut = mgraph("decode", *SMALL, "--max-length", "9", "--max-length-crop", stdin=LONG)
    assert [bool(line) for line in cut.out.decode().split("\n")] == [True, True, False, True, False]
    assert "left out" not in cut.err


def test_the_length_counts_the_end_of_sentence(mgraph, request) -> None:
    files = reference_files("s2s-gru", request)
    text = b"wir haben dem nicht .\nwir haben nicht .\n"
    command = ["decode", "-m", files.model, "-v", *files.vocabs, "-b", "1", "--max-length", "5"]
    assert [bool(line) for line in mgraph(*command, stdin=text).out.split(b"\n")] == [False, True, False]


@pytest.mark.parametrize("name", EUROPARL)
@pytest.mark.parametrize(
    ("reference", "options"),
    [
        ("nbest", ["-b", "4", "--n-best", "--word-scores"]),
        ("penalty.nbest", ["-b", "3", "-n", "0.6", "--word-penalty", "0.3", "--n-best"]),
        ("words.txt", ["-b", "1", "--word-scores"]),
        ("crop.txt", ["-b", "2", "--max-length", "4", "--max-length-crop"]),
    ],
)
def test_odd_lines_become_what_marian_makes_of_them(mgraph, request, name, reference, options) -> None:
    files = reference_files(name, request)
    text = (DATA / "edges" / "edges.de").read_bytes().removesuffix(b"\n")  # an unfinished last line counts
    command = ["decode", "-m", files.model, "-v", *files.vocabs, *options, "--quiet"]
    for batching in [], BATCHED:
        found = mgraph(*command, *batching, stdin=text).out
        check_lines(found, DATA / "edges" / f"{name}.{reference}")


def test_a_configuration_file_as_marian_writes_it(mgraph, tmp_path) -> None:
    config = str(SHIPPED / "decoder.yml")
    output = tmp_path / "out.de"
    source = str(DATA / "numbers" / "input.en")
    result = mgraph("decode", "-c", config, "-i", source, "-o", str(output), "--quiet")
    assert result == Result(0, b"", "")
    check_lines(output.read_bytes(), DATA / "numbers" / "beam4.txt")
    translator = nmt.Translator.from_config(config)
    assert translator.translate(["forty-two"]) == ["zweiundvierzig"]


def test_python_gives_what_the_command_line_gives(mgraph) -> None:
    source = (DATA / "numbers" / "input.en").read_bytes()
    options = {"beam_size": 4, "normalize": 0.6, "n_best": True, "word_scores": True}
    words = ["-b", "4", "-n", "0.6", "--n-best", "--word-scores"]
    translator = nmt.Translator(models=MODELS["numbers"], vocabs=[VOCAB, VOCAB], **options)
    printed = mgraph("decode", *SMALL, *words, "--quiet", stdin=source).out
    lines = source.split(b"\n")[:-1]
    # One by one, as the command reads lines: the sizes of products affect the last digits of scores.
    found = map(translator.format, translator.translations(lines))
    assert "\n".join(found) + "\n" == printed.decode()
    assert [t.texts for t in translator.translations(lines)] == [
        t.texts for t in translator.translate(lines, return_scores=True)
    ]


def test_a_second_call_reads_nothing_and_compiles_nothing(monkeypatch) -> None:
    translator = nmt.Translator([MODELS["numbers"]], [VOCAB, VOCAB], beam_size=4, mini_batch=4)
    scorer = nmt.Scorer(MODELS["numbers"], [VOCAB, VOCAB])
    lines = ["forty-two", "six", "", "eleven"]
    translated, scored = translator.translate(lines), scorer.score(lines, lines)

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError(f"a file was opened: {arguments}")

    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    before = compile_stats().misses
    monkeypatch.setattr("builtins.open", refuse)
    assert translator.translate(["seven", "twelve", "ten", "forty-one"])
    assert translator.translate(lines) == translated
    assert scorer.score(lines, lines) == scored
    assert compiled == [] and compile_stats().misses == before
    jax.jit(lambda x: x + 3)(1.0)
    assert compiled, "the listener hears of compilations"


def test_translations_carry_scores_and_problems() -> None:
    translator = nmt.Translator([MODELS["numbers"]], [VOCAB, VOCAB], beam_size=2, n_best=True, max_length=9)
    first, second = translator.translations(["six", "one " * 20])
    assert first.text == "sechs" and not first.problem and len(first.texts) == 2
    best = first.hypotheses[0]
    assert best.finished and best.score == best.path_score
    assert math.isclose(sum(best.word_scores), best.path_score, rel_tol=1e-5)
    assert second.texts == ("",) and math.isnan(second.hypotheses[0].score)
    assert "--max-length is 9" in second.problem


def test_the_log_says_what_marian_says(mgraph, tmp_path) -> None:
    log = tmp_path / "log"
    result = mgraph("decode", *SMALL, "-w", "99", "--log", str(log), stdin=b"six\n")
    stamp = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "
    assert re.search(stamp + "Best translation 0 : sechs\n", result.err)
    assert re.search(stamp + r"\[device\] (no GPU found, using the CPU|using GPU 0)", result.err)
    assert re.search(stamp + r"\[warn\] ignored, because JAX manages the memory: --workspace\n", result.err)
    assert log.read_text() == result.err
    quiet = mgraph("decode", *SMALL, "--quiet-translation", stdin=b"six\n")
    assert "Best translation" not in quiet.err and "Total time" in quiet.err
    assert mgraph("decode", *SMALL, "--log-level", "warn", stdin=b"six\n").err == ""


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_the_log_ends_with_the_error_that_ended_the_command(mgraph, tmp_path, quiet) -> None:
    """As in Marian's log: the reason can be found there, and stderr says it once."""
    damaged, log = tmp_path / "model.npz", tmp_path / "log"
    damaged.write_bytes(b"PK")
    options = ("-m", str(damaged), "-v", VOCAB, VOCAB, "--log", str(log))
    result = mgraph("decode", *options, *quiet, stdin=b"six\n")
    assert result.code == 1
    said = result.err.splitlines()[-1].removeprefix("mgraph decode: error: ")
    assert str(damaged) in said and result.err.count(said) == 1
    assert log.read_text().endswith(f"] Error: {said}\n")
    log.unlink()
    mgraph("decode", *options, "--log-level", "off", stdin=b"six\n")
    assert log.read_text() == ""


@pytest.mark.parametrize("words", ["decode -i no-such-file", "score -t no-such-file -"])
def test_a_missing_text_is_in_the_log(mgraph, tmp_path, words: str) -> None:
    log = tmp_path / "log"
    assert mgraph(*words.split(), *SMALL, "--log", str(log)).code == 1
    assert "] Error: no-such-file: No such file or directory" in log.read_text().splitlines()[-1]


def test_one_line_of_the_log_says_what_was_compiled(mgraph, tmp_path: Path) -> None:
    mgraph_ops.clear_programs()
    (tmp_path / "en").write_text("six\n")
    (tmp_path / "de").write_text("sechs\n")
    runs = {
        "decode": (*SMALL, "-b", "3"),
        "score": (*SMALL, "-t", str(tmp_path / "en"), str(tmp_path / "de")),
    }
    for command, words in runs.items():
        for count in r"[1-9]\d*", "0":
            lines = mgraph(command, *words, stdin=b"six\n").err.splitlines()
            summary = rf"\] \[programs\] Compiled {count}, read 0 from the compilation cache, in \d+\.\d\ds$"
            assert re.search(summary, lines[-2]) and "Total time" in lines[-1]
            assert sum("ompiled" in line for line in lines) == 1
            assert lines[0].endswith(f"] [mgraph] {__version__} {command} {shlex.join(words)}")
        assert "rograms" not in mgraph(command, *words, "--quiet", stdin=b"six\n").err


def test_training_says_what_was_compiled_too(mgraph, monkeypatch, tmp_path: Path) -> None:
    def train(trainer: nmt.Trainer) -> None:
        """Run one program instead of training for minutes."""
        graph = ExpressionGraph()
        graph.param("x", (2, 17, 3), inits.ones()) * 2
        graph.backprop()

    mgraph_ops.clear_programs()
    monkeypatch.setattr(nmt.Trainer, "train", train)
    words = ("train", "-m", str(tmp_path / "m.npz"), "-t", "en", "de", "-v", VOCAB, VOCAB)
    *_, last = mgraph(*words).err.splitlines()
    assert re.search(r"\] \[programs\] Compiled 1, read 0 from the compilation cache, in \d+\.\d\ds$", last)
    assert "programs" not in mgraph(*words, "--quiet").err


def test_programs_are_named_for_people(mgraph) -> None:
    mgraph_ops.clear_programs()
    said = mgraph("decode", *SMALL, "-b", "3", "--log-level", "debug", stdin=b"six\n").err
    assert re.search(r"\] beam search: 1 row x 3 beams, 24 words, \d+ steps: traced in ", said)
    assert "LaneShape(" not in said


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ([], 1),
        (["-c", "decoder.yml"], 1),
        (["--mini-batch", "1"], 3),
        (["--maxi-batch", "2", "-c", "decoder.yml"], 2),
        (["-c", "twos.yml"], 2),
        (["-i", "stdin"], 3),
    ],
)
def test_files_are_read_ahead_unless_the_command_line_says_how_far(
    mgraph, tmp_path, monkeypatch, words, calls
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("six\nseven\neight\n")
    Path("decoder.yml").write_text("mini-batch: 1\nmaxi-batch: 1\n")
    Path("twos.yml").write_text("mini-batch: 2\nmaxi-batch: 1\n")
    source = [] if "-i" in words else ["-i", "text"]
    debug = "--log-level", "debug"
    result = mgraph("decode", *SMALL, *source, *words, *debug, stdin=Path("text").read_bytes())
    assert result.out == b"sechs\nsieben\nacht\n"
    assert result.err.count(" steps of rows") == calls
    assert ("Reading files 6400 lines ahead" in result.err) == (calls == 1)
    assert ("each line as it comes; --mini-batch 64 --maxi-batch 100" in result.err) == ("-i" in words)


def test_no_lines_in_no_lines_out(mgraph, tmp_path) -> None:
    (tmp_path / "empty").touch()
    assert mgraph("decode", *SMALL, "-i", str(tmp_path / "empty"), "--quiet") == Result(0, b"", "")


def test_mgraph_alone_lists_the_commands(mgraph) -> None:
    result = mgraph()
    assert result.code == 2 and not result.out and result.err == mgraph("--help").out.decode()
    assert all(f"\n  {name} " in result.err for name in NAMES)


def test_texts_of_unequal_length(mgraph, tmp_path) -> None:
    (tmp_path / "en").write_text("six\nseven\neight\n")
    (tmp_path / "de").write_text("sechs\nsieben\n")
    result = mgraph("score", *SMALL, "-t", str(tmp_path / "en"), str(tmp_path / "de"), "--quiet")
    assert result.code == 1 and len(result.out.splitlines()) == 2
    assert result.err == "mgraph score: error: the target ends after 2 lines, the other goes on\n"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["decoed"], 2, "mgraph: error: unknown command decoed; did you mean decode?"),
        (["translate"], 2, "mgraph: error: unknown command translate; did you mean decode?"),
        (["decode", "--beam", "3"], 2, "mgraph decode: error: unknown option --beam; did you mean"),
        (
            ["decode", "--model", "m"],
            2,
            "--model; did you mean --models? (--model is an option of mgraph train, score,",
        ),
        (
            ["decode", "--after-epochs", "3"],
            2,
            "--after-epochs (--after-epochs is an option of mgraph train)\n",
        ),
        (["decode"], 2, "mgraph decode: error: --models: at least one model is needed, got 0"),
        (["decode", "-m", "", "-v", VOCAB, VOCAB], 2, "error: --models: at least one model is needed, got 0"),
        (["score", "-m", "", "-v", VOCAB, VOCAB], 2, "error: --model: at least one model is needed, got 0"),
        (["decode", *SMALL, "-m", "b.npz"], 1, "error: b.npz: No such file or directory"),
        (["decode", *SMALL[:-1]], 2, "error: --vocabs: this model has 2 vocabularies, got 1 path(s)"),
        (["decode", *SMALL, "-i", VOCAB, VOCAB], 2, "error: --input: 1 text(s) are needed (source), got 2"),
        (["decode", *SMALL, "-i", "-", "stdin"], 2, "error: --input: standard input can be read only once"),
        (["decode", *SMALL, "--alignment", "strong"], 2, "error: --alignment must be soft, hard or a number"),
        (["decode", *SMALL, "-i", "no-such-file"], 1, "error: no-such-file: No such file or directory"),
        (["decode", *SMALL, "-o", "no/such/folder"], 1, "error: no/such/folder: No such file"),
        (["decode", "-m", "no.npz", "-v", VOCAB, VOCAB], 1, "error: no.npz: No such file or directory"),
        (["decode", "-m", VOCAB, "-v", VOCAB, VOCAB], 1, "mgraph decode: error: "),
        (
            ["score", *SMALL],
            2,
            "error: --train-sets: the sources and the target are needed, got none",
        ),
        (
            ["score", *SMALL, "--summary", "-n", "-t", "a", "b"],
            2,
            "error: --normalize cannot go with --summary",
        ),
        (
            ["score", *SMALL, "--summary", "--alignment", "-t", "a", "b"],
            2,
            "error: --alignment cannot go with --summary",
        ),
        (["score", *SMALL, "-t", "-", "-"], 2, "error: --train-sets: standard input can be read only once"),
    ],
)
def test_errors_are_one_line(mgraph, words, code, reason) -> None:
    result = mgraph(*words, *(["--quiet"] if words[1:] else []))
    assert result.code == code
    assert reason in result.err and result.err.count("\n") == 1
    assert result.out == b""


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("update: Out of memory allocating 9 bytes"),
        JaxRuntimeError("INTERNAL: Error dispatching computation: Out of memory allocating 9 bytes.\nMore"),
    ],
)
def test_full_memory_is_said_in_one_line(mgraph, monkeypatch, error: Exception) -> None:
    def full(*_: object) -> int:
        raise error

    monkeypatch.setattr("nmt.commands.decode.run", full)
    remedy = "; smaller batches (--mini-batch) need less"
    said = str(error).partition("\n")[0] + remedy
    assert mgraph("decode", *SMALL) == Result(1, b"", f"mgraph decode: error: {said}\n")


def test_what_is_read_is_not_written_over(mgraph, tmp_path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"six\n")
    text.with_name("result").symlink_to(text)
    commands = {"--input": ["decode", "-i", str(text)], "--train-sets": ["score", "-t", str(text), str(text)]}
    for option, command in commands.items():
        result = mgraph(*command, *SMALL, "-o", f"{tmp_path}/../{tmp_path.name}/text")
        assert result.code == 2 and f"text is also read by {option}" in result.err
    decode, score = ["decode", "-m"], ["score", "-t", VOCAB, VOCAB, "-m"]
    for option, words in {
        "--models": [*decode, str(text), "-v", VOCAB, VOCAB],
        "--vocabs": [*decode, MODELS["numbers"], "-v", VOCAB, str(text)],
        "--model": [*score, str(text), "-v", VOCAB, VOCAB],
    }.items():
        result = mgraph(*words, "-o", str(text.with_name("result")))
        assert result.code == 2 and f"result is also read by {option}" in result.err
    assert text.read_bytes() == b"six\n"


@pytest.mark.parametrize("shares", [[], ["--shares", "2"]], ids=["whole", "shares"])
@pytest.mark.parametrize("command", ["decode -i text text", "score -t text"])
def test_another_number_of_texts_leaves_the_output_as_it_is(
    mgraph, tmp_path, monkeypatch, command: str, shares: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text", "out"):
        (tmp_path / name).write_bytes(b"six\none\n")
    result = mgraph(*command.split(), *SMALL, "-o", "out", *shares)
    assert result.code == 2 and re.search("are needed .source., got 2|needs 2 texts, got 1", result.err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text"]
    assert (tmp_path / "out").read_bytes() == b"six\none\n"


def test_diff_names_the_first_node_that_differs(mgraph, tmp_path) -> None:
    graph = ExpressionGraph()
    x = graph.param("x", (2,), inits.ones())
    middle = mgraph_ops.exp(x).set_name("middle")
    top = mgraph_ops.sum(middle * 2).set_name("top")
    for name, value in (("a.npz", [1, 1]), ("b.npz", [1, 1 + 1e-3]), ("c.npz", [1, 1])):
        x.set_value(value)
        graph.backprop()
        graph.dump(tmp_path / name)
    assert middle.name in graph.values() and top.name in graph.values()
    files = [str(tmp_path / name) for name in ("a.npz", "b.npz", "c.npz")]
    assert mgraph("diff", files[0], files[2]).code == 0
    found = mgraph("diff", files[0], files[1])
    assert found.code == 1 and found.out.startswith(b"the first node that differs is 'x': by 0.001")
    assert mgraph("diff", *files[:2], "--rtol", "0.01").code == 0
    error = "mgraph diff: error: two files are needed, got 1\n"
    assert mgraph("diff", files[0]) == Result(2, b"", error)
    assert mgraph("diff", files[0], "no.npz") == Result(
        1, b"", "mgraph diff: error: no.npz: No such file or directory (FILE)\n"
    )


def test_diff_compares_the_options_of_models_not_their_text(mgraph, tmp_path) -> None:
    items = read_items(MODELS["numbers"])
    text = model_yml(items)
    assert text and "dim-emb: 64\n" in text and "input-types:\n  []" in text
    texts = [text.replace("\n  []", " []"), text.replace("dim-emb: 64\n", "dim-emb: 32\n"), "[no map"]
    for name, changed in zip(("same", "other", "bad"), texts, strict=True):
        write_items(tmp_path / f"{name}.bin", {**items, "special:model.yml": with_model_yml(changed)})
    same = mgraph("diff", MODELS["numbers"], str(tmp_path / "same.bin"))
    assert same.code == 0 and b" nodes, 0 of them differ beyond" in same.out
    other = mgraph("diff", MODELS["numbers"], str(tmp_path / "other.bin"))
    said = b"the first node that differs is 'special:model.yml': dim-emb is 64 and 32\n"
    assert other.code == 1 and other.out.startswith(said)
    assert mgraph("diff", MODELS["numbers"], str(tmp_path / "bad.bin")).code == 1


def test_help_and_version(mgraph) -> None:
    assert mgraph("--version").out.decode() == f"mgraph {__version__}\n"
    assert mgraph("--help").code == mgraph("decode", "--help").code == 0
    assert b"decode" in mgraph("--help").out and b"--beam-size" in mgraph("decode", "--help").out


def module(*words: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "nmt", *words],
        **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": ""},  # empty: buffered, as for users
        **options,
    )


def test_an_error_of_ours_does_not_wait_for_other_processes(monkeypatch, capsys) -> None:
    def failing() -> int:
        raise RuntimeError("planted")

    left: list[tuple[int, bool]] = []
    monkeypatch.setattr(cli, "main", failing)
    monkeypatch.setattr(devices, "leave_processes", lambda *how: left.append(how))
    monkeypatch.setattr("gc.freeze", lambda: None)
    assert cli.process() == cli.FAILED and left == [(cli.FAILED, False)]
    said = capsys.readouterr().err
    assert said.startswith("Traceback") and said.endswith("RuntimeError: planted\n")


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [("0.10.1", {}, "3"), ("0.10.1", {"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"), ("0.12.0.1", {}, None)],
)
def test_an_old_jaxlib_calls_nothing_an_error_that_is_none(version, before, after) -> None:
    cli.hide_false_errors(version, before)
    assert before.get("TF_CPP_MIN_LOG_LEVEL") == after


def test_a_pipe_is_answered_line_by_line_and_may_close() -> None:
    with module("decode", *SMALL, "-b", "1", "--quiet", "--cpu-threads", "1") as process:
        assert process.stdin and process.stdout and process.stderr
        for line, answer in [(b"six\n", b"sechs\n"), (b"\n", b"\n"), (b"seven\n", b"sieben\n")]:
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == answer
        process.stdout.close()
        process.stdin.write(b"six\n")
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["diff", "--help"], ["train", "--version"]])
def test_information_for_a_closed_pipe_or_a_full_disk_is_no_traceback(monkeypatch, capsys, words) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(words) == 141
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            monkeypatch.setattr(sys, "stdout", full)
            assert main(words) == 1
        name = " ".join(["mgraph", *words[:-1]])
        assert capsys.readouterr().err == f"{name}: error: standard output: No space left on device\n"


def test_a_full_disk_behind_standard_output_is_named() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no device that is full")
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError) as error:
        write(full, "six")
    assert error.value.filename == "standard output"


def redirected(words: str, redirections: str) -> subprocess.CompletedProcess[str]:
    """The result of a Python process whose streams the shell redirects."""
    command = f"exec {shlex.quote(sys.executable)} {words} {redirections}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("redirections", "output", "error", "code"),
    [
        ("<&-", "", "mgraph vocab: error: standard input: it is closed\n", 1),
        ("< /dev/null >&-", "", "mgraph vocab: error: standard output: it is closed\n", 1),
        ("< /dev/null 2>&-", "</s>: 0\n<unk>: 1", "", 0),
    ],
)
def test_a_closed_standard_stream_is_said(redirections: str, output: str, error: str, code: int) -> None:
    done = redirected("-m nmt vocab --quiet", redirections)
    assert (done.stdout, done.stderr, done.returncode) == (output, error, code)


@pytest.mark.parametrize(("words", "code"), [("print()", 1), ("None", 0)])
def test_only_printing_to_a_closed_standard_output_fails(words: str, code: int) -> None:
    """Python discards what is printed there, and a command would end as if all were well."""
    begin = "from nmt import cli; from nmt.commands import dispatch; "
    work = f"dispatch._answered = lambda *_: {words}; raise SystemExit(cli.process())"
    done = redirected(f'-c "{begin}{work}" diff', ">&-")
    error = "mgraph diff: error: standard output: it is closed\n" if code else ""
    assert (done.stderr, done.returncode) == (error, code)


@pytest.mark.parametrize("redirections", ["<&-", "2>&-", "<&- 2>&-"])
def test_no_file_gets_the_number_of_a_closed_standard_stream(redirections: str) -> None:
    code = "from nmt import cli; cli.main = lambda: print(open('/dev/null').fileno() > 2); cli.process()"
    done = redirected(f'-c "{code}"', redirections)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


@pytest.mark.parametrize("words", [["-m", "nmt", "--version"], ["-c", "import nmt; nmt.Translator"]])
@pytest.mark.parametrize("name", ["layers", "mgraph"])
def test_a_file_that_hides_a_package_is_named(tmp_path: Path, name: str, words: list[str]) -> None:
    (tmp_path / f"{name}.py").touch()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last == f"{tmp_path}/{name}.py hides the package {name} that comes with nmt: rename this file"
