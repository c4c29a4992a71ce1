"""Options: Marian's names, defaults and rules, from the command line, files and Python."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from mgraph import ArgumentError, ExpressionGraph
from nmt import Embedder, Evaluator, Scorer, Trainer, Translator, distill, load_model, load_vocab
from nmt.settings import (
    DECODE,
    SCORE,
    TRAIN,
    DecodeOptions,
    OptionError,
    Options,
    ScoreOptions,
    Support,
    TrainOptions,
)
from nmt.settings.config import Command, notices, parse, read_config
from nmt.settings.metrics import EMBED, EVALUATE, EmbedOptions, EvaluateOptions
from nmt.settings.option import shown
from nmt.settings.printing import help_text

# Marian v1.12.42, decode --help and score --help: the defaults it shows.
DECODE_DEFAULTS = {
    "beam-size": 12,
    "normalize": 0.0,
    "max-length-factor": 3.0,
    "word-penalty": 0.0,
    "max-length": 1000,
    "mini-batch": 1,
    "maxi-batch": 1,
    "maxi-batch-sort": "none",
    "cpu-threads": 0,
    "devices": ("0",),
    "input": ("stdin",),
    "output": "stdout",
    "workspace": 512,
    "log-level": "info",
    "data-threads": 8,
    "precision": ("float32",),
    "gemm-type": "float32",
    "stat-freq": "0",
}
SCORE_DEFAULTS = {
    "model": "model.npz",
    "mini-batch": 64,
    "maxi-batch": 100,
    "maxi-batch-sort": "trg",
    "n-best-feature": "Score",
    "normalize": False,
    "max-length": 1000,
    "output": "stdout",
}
SHORT_NAMES = {
    "m": "models",
    "v": "vocabs",
    "i": "input",
    "o": "output",
    "b": "beam-size",
    "n": "normalize",
    "c": "config",
    "w": "workspace",
    "d": "devices",
    "g": "gemm-type",
}


def decode(words: str) -> DecodeOptions:
    return parse(DECODE, words.split())


@pytest.mark.parametrize(("command", "defaults"), [(DECODE, DECODE_DEFAULTS), (SCORE, SCORE_DEFAULTS)])
def test_defaults_are_marians(command, defaults) -> None:
    values = parse(command, [])
    assert {name: getattr(values, name.replace("-", "_")) for name in defaults} == defaults


def test_short_names_are_marians() -> None:
    found = {option.short: name for name, option in DECODE.options.items() if option.short}
    assert found == SHORT_NAMES


def test_values() -> None:
    values = decode("-m a.npz -v s.yml t.yml -b4 --normalize=0.6 --n-best --word-scores off")
    assert values.models == ("a.npz",) and values.vocabs == ("s.yml", "t.yml")
    assert values.beam_size == 4 and values.normalize == 0.6
    assert values.n_best is True and values.word_scores is False


def test_bare_options_have_implicit_values() -> None:
    values = decode("--cpu-threads -n -b 2")
    assert values.normalize == 1.0 and values.cpu_threads == 1
    assert parse(SCORE, ["--summary"]).summary == "cross-entropy"


def test_lists_grow_when_repeated() -> None:
    assert decode("-m a.npz -m b.npz c.npz").models == ("a.npz", "b.npz", "c.npz")


def test_lists_go_on_after_an_equals_sign() -> None:
    found = parse(DECODE, "--vocabs=a.yml b.yml --models=m --weights=-1 --beam-size=3 --input=x=y".split())
    assert (found.vocabs, found.models, found.weights) == (("a.yml", "b.yml"), ("m",), (-1.0,))
    assert (found.beam_size, found.input) == (3, ("x=y",))
    assert parse(DECODE, ["--input=-x"]).input == ("-x",)
    assert parse(DECODE, "--vocabs a b --models m --input vocabs=x".split()).input == ("vocabs=x",)
    assert parse(EMBED, ["--vocabs=a.yml", "b.yml"]).vocabs == ("a.yml", "b.yml")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--beam 4", "unknown option --beam; did you mean --beam-size?"),
        ("--nbest", "unknown option --nbest; did you mean --n-best?"),
        ("-x 3", "unknown option -x"),
        ("text.de", "unexpected argument 'text.de'"),
        ("-b x", "--beam-size takes a whole number, got 'x'"),
        ("-b 2.5", "--beam-size takes a whole number, got '2.5'"),
        ("-b 0", "--beam-size must be at least 1, got 0"),
        ("-b 2 -b 4", "--beam-size takes one value, got 2: 2, 4"),
        ("-b", "expected one argument"),
        ("--n-best maybe", "--n-best must be true or false, got 'maybe'"),
        ("--normalize true", "--normalize takes a number, got 'true'"),
        ("--normalize abc", "--normalize takes a number, got 'abc'"),
        ("--normalize nan", "--normalize takes a number, got 'nan'"),
        ("--max-length-factor inf", "--max-length-factor takes a number, got 'inf'"),
        ("--maxi-batch-sort length", "--maxi-batch-sort must be one of none, src, trg; got"),
        ("--log-level loud", "--log-level must be one of trace, debug,"),
        ("--cpu-threads -1", "--cpu-threads must be at least 0, got -1"),
        ("--gemm-type packed16", "--gemm-type packed16: it is for FBGEMM's packed matrices"),
        ("--shortlist -b 2", "expected at least one argument"),
        ("--output-approx-knn", "--output-approx-knn is Marian's, and refused: "),
        ("--output-approx-knn 10 100 -b 2", "--output-approx-knn is Marian's, and refused: "),
        ("-m -b 2", "expected at least one argument"),
        ("--optimize", "--optimize is Marian's, and refused: "),
        ("-c no-such.yml", "cannot read configuration file no-such.yml: No such file"),
    ],
)
def test_usage_errors_say_what_is_wrong(words: str, reason: str) -> None:
    with pytest.raises(OptionError) as error:
        decode(words)
    assert reason in str(error.value)


def test_an_unsupported_option_at_its_default_is_no_error() -> None:
    assert decode("--fp16=false --stat-freq 0 --precision float32").fp16 is False


def test_what_is_ignored_is_said() -> None:
    values = decode("-w 4000 --type s2s --skip --relative-paths --data-threads 8")
    assert list(notices(DECODE, values)) == [
        "ignored, because JAX manages the memory: --workspace",
        "ignored where the model file has its own, without --ignore-model-config: --type --skip",
        "--relative-paths counts inside configuration files only, as in Marian",
    ]


CONFIG = """\
# as written by Marian
relative-paths: true
models:
  - model.npz
vocabs: [v.de.yml, /shared/v.en.yml]
beam-size: 6
normalize: 1e-1
n-best: yes
maxi-batch-sort: src
alignment: ""
version: v1.9.0
input:
  - stdin
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "model.npz.decoder.yml"
    path.write_text(CONFIG)
    return path


def test_options_of_the_search() -> None:
    values = decode("--alignment --output-sampling -b 2 --shortlist lex.s2t 50 --weights 1 0.5 --seed 3")
    assert values.alignment == "1" and values.output_sampling == ("full", "1.0")
    assert values.shortlist == ("lex.s2t", "50") and values.weights == (1.0, 0.5)
    assert values.seed == 3 and not values.force_decode


def test_of_a_shortlist_the_first_word_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "decoder.yml"
    path.write_text("relative-paths: true\nshortlist:\n  - lex.s2t.bin\n  - 0\n")
    assert decode(f"-c {path}").shortlist == (str(tmp_path / "lex.s2t.bin"), "0")


def test_paths_of_a_configuration_file_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Therefore files with such paths work from any folder."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "decoder.yml").write_text(
        "relative-paths: true\nmodels: ../models/m.npz\ninput: stdin\n"
    )
    monkeypatch.chdir(tmp_path)
    values = decode("-c conf/decoder.yml")
    assert values.models == (str(tmp_path / "models" / "m.npz"),) and values.input == ("stdin",)
    (tmp_path / "conf" / "train.yml").write_text(
        "relative-paths: true\ntrain-sets: [a, b]\ndata-weighting: c\nvalid-script-args: [d/e, f, -g/h]\n"
    )
    training = parse(TRAIN, ["-c", "conf/train.yml"])
    assert training.data_weighting == str(tmp_path / "conf" / "c")
    assert training.valid_script_args == (str(tmp_path / "conf" / "d" / "e"), "f", "-g/h")


def test_a_configuration_file(config: Path) -> None:
    values = decode(f"-c {config}")
    folder = str(config.parent)
    assert values.models == (os.path.join(folder, "model.npz"),)
    assert values.vocabs == (os.path.join(folder, "v.de.yml"), "/shared/v.en.yml")
    assert values.input == ("stdin",)
    assert values.beam_size == 6 and values.normalize == 0.1 and values.n_best is True
    assert values.maxi_batch_sort == "src"
    assert values.relative_paths is False


def test_the_command_line_overrides_files_and_later_files_earlier(config: Path) -> None:
    second = config.with_name("second.yml")
    second.write_text("beam-size: 3\nmini-batch: 5\nmodels: other.npz\n")
    values = decode(f"-b 2 -c {config} {second}")
    assert values.beam_size == 2 and values.mini_batch == 5
    assert values.models == ("other.npz",)  # only the first file has relative paths


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("beam-sise: 3", "unknown option --beam-sise; did you mean --beam-size?"),
        ("beam-size: [2, 3]", "--beam-size takes one value, got 2: 2, 3"),
        ("beam-size: {a: 1}", "--beam-size takes a value or a list of values"),
        ("beam-size: x", "--beam-size takes a whole number, got 'x'"),
        ("output-approx-knn: [10, 100]", "--output-approx-knn is Marian's, and refused: "),
        ("- a\n- b", "does not hold options"),
        ("models: [a", "is not valid YAML"),
        ("beam-size: " + "[" * 5000, "is not valid YAML: more than 16 nested maps and lists"),
        ('models: ["a\\0.npz"]', "--models: expected text without a NUL character, got 'a\\x00.npz'"),
        ('vocabs: ["a\\ud800"]', "bad.yml: --vocabs: expected text without half a surrogate pair"),
        (f"mini-batch: {2**64}", f"bad.yml: --mini-batch takes a whole number of 64 bits, got {2**64}"),
        ("normalize: 1e39", "bad.yml: --normalize takes a number, got '1e39'"),
        ("word-penalty: -1e39", "bad.yml: --word-penalty takes a number, got '-1e39'"),
        ("normalize: truly", "bad.yml: --normalize takes a number, got 'truly'"),
        ("mini-batch: 2.5", "bad.yml: --mini-batch takes a whole number, got '2.5'"),
        ("mini-batch: inf", "bad.yml: --mini-batch takes a whole number, got 'inf'"),
        ("mini-batch: false", "bad.yml: --mini-batch must be at least 1, got false"),
        ("!!python/object/apply:os.system ['exit 1']", "does not hold options"),
    ],
)
def test_errors_in_a_configuration_file(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(content)
    with pytest.raises(OptionError) as error:
        decode(f"-c {path}")
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("normalize: true", 1.0),
        ("normalize: 'Yes'", 1.0),
        ("normalize: false", 0.0),
        ("max-length-factor: on", 1.0),
        ("word-penalty: no", 0.0),
        ("beam-size: true", 1),
        ("mini-batch: 2.0", 2),
        ("mini-batch: 2e1", 20),
        (f"seed: {2**64 - 1}", 2**64 - 1),
        ("devices: 0", ("0",)),
        ("log: on", "on"),
    ],
)
def test_numbers_are_converted_as_in_marian(tmp_path: Path, line: str, value: object) -> None:
    (tmp_path / "c.yml").write_text(line)
    found = getattr(decode(f"-c {tmp_path / 'c.yml'}"), line.partition(":")[0].replace("-", "_"))
    assert found == value and type(found) is type(value)


def test_text_that_no_system_takes_is_refused_wherever_it_comes_from() -> None:
    deep = "{a: " + "[" * 5000
    with pytest.raises(OptionError, match="--custom-fallbacks takes options as"):
        parse(TRAIN, ["-t", "a", "b", "--custom-fallbacks", deep])
    with pytest.raises(OptionError, match="configuration file: expected text without a NUL character"):
        read_config(DECODE, "a\0b")
    with pytest.raises(OptionError, match="--models: expected text without a NUL character"):
        DECODE.from_python({"models": "a\0b", "vocabs": ["s", "t"]})
    for read in load_model, load_vocab, ExpressionGraph().load, ExpressionGraph().save:
        with pytest.raises(ArgumentError, match=r"without a NUL character, got 'a\\x00b\.npz'"):
            read("a\0b.npz")
    for read in load_model, load_vocab, ExpressionGraph().save:
        with pytest.raises(ArgumentError, match="expected the path of a file, got a bytes"):
            read(b"a.npz")


def test_an_empty_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "empty.yml").write_text("# nothing\n")
    assert decode(f"-c {tmp_path / 'empty.yml'}").beam_size == 12


def test_environment_variables_in_paths(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODELS", "/data")
    values = decode("--interpolate-env-vars -m ${MODELS}/a.npz -o stdout")
    assert values.models == ("/data/a.npz",) and values.output == "stdout"
    assert parse(
        TRAIN, "--interpolate-env-vars --valid-script-args ${MODELS} x -t a b".split()
    ).valid_script_args == ("/data", "x")
    with pytest.raises(OptionError, match=r"cannot read configuration file \$\{MODELS\}/c\.yml"):
        decode("-c ${MODELS}/c.yml")
    with pytest.raises(OptionError, match="environment variable NOWHERE in path .* is not set"):
        decode("--interpolate-env-vars -m ${NOWHERE}/a.npz")
    with pytest.raises(OptionError, match=r"'\$\{' without '\}' in path"):
        decode("--interpolate-env-vars -m ${MODELS/a.npz")
    path = tmp_path / "c.yml"
    path.write_text("relative-paths: true\ninterpolate-env-vars: true\nmodels: ${MODELS}/b.npz\n")
    assert decode(f"-c {path}").models == ("/data/b.npz",)
    path.write_text("relative-paths: true\nmodels: ${MODELS}/b.npz\n")
    assert decode(f"-c {path} --interpolate-env-vars").models == ("/data/b.npz",)


def test_python_arguments_follow_the_same_rules() -> None:
    values = DECODE.from_python(
        {"models": Path("a.npz"), "vocabs": ["s", "t"], "normalize": 1, "n_best": True}
    )
    assert values.models == ("a.npz",) and values.normalize == 1.0
    assert values.n_best is True and values.beam_size == 12
    values = DECODE.from_python({"normalize": True, "word_penalty": False, "mini_batch": 2.0})
    assert (values.normalize, values.word_penalty, values.mini_batch) == (1.0, 0.0, 2)
    assert "quiet" not in DECODE.python_options() and "input" not in DECODE.python_options()
    with pytest.raises(TypeError, match="unknown option beam; did you mean beam_size"):
        DECODE.from_python({"beam": 3})
    with pytest.raises(OptionError, match="--beam-size must be at least 1"):
        DECODE.from_python({"beam_size": 0})
    with pytest.raises(OptionError, match="--optimize is Marian's"):
        DECODE.from_python({"optimize": True})


@pytest.mark.parametrize(
    "command, name, instead",
    [
        (TRAIN, "quiet", r'logging.getLogger\("nmt"\).setLevel\("ERROR"\) keeps only errors'),
        (TRAIN, "config", "pass the options of the file as arguments"),
        (DECODE, "config", "Translator.from_config reads the file"),
        (SCORE, "train_sets", "the methods take the lines"),
    ],
)
def test_an_option_of_the_command_line_says_what_to_do_in_python(
    command: Command, name: str, instead: str
) -> None:
    with pytest.raises(TypeError, match=rf"^{name} is for the command line only; in Python {instead}$"):
        command.from_python({name: "x"})
    with pytest.raises(TypeError, match="^workspace is for the command line only; JAX manages the memory$"):
        DECODE.from_python({"workspace": 1})
    with pytest.raises(TypeError, match="^cite is for the command line only$"):
        DECODE.from_python({"cite": True})
    with pytest.raises(TypeError, match="^log is for the command line only"):
        distill(log="log")


@pytest.mark.parametrize("command", [DECODE, SCORE, EVALUATE, EMBED], ids=lambda command: command.name)
def test_help_names_every_option_that_works(command) -> None:
    text, of_training = help_text(command), help_text(TRAIN)
    for option in command.options.values():
        if option.support in (Support.YES, Support.REFUSED):
            assert f"--{option.name}" in text
        if option.support is Support.YES:
            assert option.help
        if option.support is Support.SAVED:
            assert f"  --{option.name}" in text or f"--{option.name}" in of_training
    entries = re.findall(r"^  (?:-., )?--([\w-]+)", text, re.MULTILINE)
    assert len(entries) == len(set(entries)), "none twice"
    assert "describe a model file" in text and "describe a model file" not in of_training
    assert max(map(len, text.splitlines())) <= 100


def test_help_shows_the_kind_and_the_default_of_each_option() -> None:
    lines = help_text(DECODE).splitlines()
    assert "  -b, --beam-size INT=12            hypotheses kept per sentence" in lines
    assert "  --allow-unk                       let unknown words appear in translations" in lines
    assert any(line.startswith("  -m, --models STR ...              the model") for line in lines)
    assert "  --maxi-batch-sort STR=none        sort them by this side: none, src, trg" in lines
    assert any(line.startswith("  --mini-batch-round-up=true  ") for line in help_text(TRAIN).splitlines())


def test_the_log_shows_values_as_words() -> None:
    values = ("a", 2, 0.5), True, "none", ({"type": "s2s"},)
    assert [shown(value) for value in values] == ["a 2 0.5", "true", "none", '{"type": "s2s"}']


@pytest.mark.parametrize(("function", "command"), [(Translator, DECODE), (Scorer, SCORE), (Trainer, TRAIN)])
def test_python_classes_show_their_options(function, command) -> None:
    parameters = inspect.signature(function).parameters
    options = command.python_options()
    assert options.keys() <= parameters.keys() and "given" not in parameters
    shown = {
        name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY and name in options
    }
    assert shown == {name: options[name].default for name in shown} and len(shown) > 20


def test_options_are_converted_and_checked_where_they_are_made() -> None:
    options = DecodeOptions(models=Path("a.npz"), beam_size="4", normalize=1, alignment=0.3)
    assert options.models == ("a.npz",) and options.beam_size == 4
    assert repr(options.normalize) == "1.0" and options.alignment == "0.3"
    assert options.mini_batch == 1 and ScoreOptions().mini_batch == TrainOptions().mini_batch == 64
    with pytest.raises(OptionError, match="--beam-size must be at least 1, got 0"):
        replace(options, beam_size=0)
    with pytest.raises(OptionError, match="--label-smoothing: expected at most 1, got 2"):
        TrainOptions(label_smoothing=2)
    with pytest.raises(OptionError, match="--custom-fallbacks: unknown option --beem-size"):
        TrainOptions(custom_fallbacks=[{"beem_size": 1}])
    with pytest.raises(TypeError, match="DecodeOptions: unknown field beem_size; did you mean beam_size"):
        DecodeOptions(beem_size=1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'beam_size'"):
        options.beam_size = 3
    with pytest.raises(FrozenInstanceError):
        del options.beam_size


def test_options_are_values() -> None:
    options, same = DecodeOptions(beam_size=4), DecodeOptions(beam_size="4")
    assert options == same and hash(options) == hash(same) and options != DecodeOptions()
    assert options != ScoreOptions() and ScoreOptions(quiet=True) != DecodeOptions(quiet=True)
    assert eval(repr(options), {"DecodeOptions": DecodeOptions}) == options
    parameters = inspect.signature(DecodeOptions).parameters
    assert parameters["beam_size"].default == DecodeOptions().beam_size == 12
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert Options() == Options() and not inspect.signature(Options).parameters


def test_an_object_of_options_says_everything() -> None:
    options = TrainOptions(train_sets=("a", "b"), dim_emb=3)
    assert Trainer(options).options == options
    assert Trainer(options, dim_emb=4).options == replace(options, dim_emb=4)
    for other in "model.npz", {"train_sets": ["a", "b"]}:
        with pytest.raises(TypeError, match="^expected options by name, as Trainer.*, got "):
            Trainer(other)
    with pytest.raises(OptionError, match="--models: at least one model is needed, got 0"):
        Translator(DecodeOptions())
    with pytest.raises(OptionError, match="--vocabs: the vocabularies .* are needed, got none"):
        Scorer(ScoreOptions(model="a.npz"))
    with pytest.raises(FileNotFoundError, match=r"\(--model\).*a\.npz"):
        Scorer(ScoreOptions(model="a.npz"), ["s.yml", "t.yml"])


def test_arguments_after_an_object_of_options_follow_the_same_rules() -> None:
    options = TrainOptions(train_sets=("a", "b"), learn_rate=0.5, enc_depth=3, optimizer="sgd")
    task = Trainer(options, task="transformer-base", enc_depth=2).options
    assert (task.type, task.enc_depth, task.dec_depth, task.learn_rate) == ("transformer", 2, 6, 0.0003)
    assert task.optimizer == "sgd" and not task.task
    own = Trainer(replace(options, optimizer="optax.lion"), task="transformer-base").options
    assert (own.type, own.optimizer_params) == ("transformer", options.optimizer_params)
    assert Trainer(TrainOptions(train_sets=["-"], type="lm"), tsv=False).options.tsv is False
    assert Trainer(TrainOptions(train_sets=["a.tsv"]), tsv=True).options.train_sets == ("a.tsv",)
    with pytest.raises(TypeError, match="^unknown option enc_deph; did you mean enc_depth"):
        Trainer(options, enc_deph=2)
    with pytest.raises(TypeError, match="^quiet is for the command line only; in Python logging"):
        Trainer(options, quiet=True)
    with pytest.raises(OptionError, match="^--train-sets: standard input cannot go with files"):
        Trainer(options, train_sets=["a", "-"])


@pytest.mark.parametrize("command", [DECODE, SCORE, EVALUATE, EMBED], ids=lambda command: command.name)
def test_aliases_override_an_object_of_options(command: Command) -> None:
    had = command.made(precision=("bfloat16",), max_length=7)
    halves = command.changed(had, {"fp16": True})
    assert (halves.precision, halves.fp16, halves.max_length) == (("float16",), False, 7)
    assert command.changed(command.made(fp16=True), {"precision": "float32"}).fp16 is False
    if command in (EVALUATE, EMBED):
        like = "roberta" if command is EMBED else "comet-qe"
        changed = command.changed(had, {"like": like, "mini_batch": 3})
        assert changed == replace(
            command.from_python({"like": like, "mini_batch": 3}), precision=("bfloat16",)
        )


@pytest.mark.parametrize("made", [Translator, Scorer, Evaluator, Embedder], ids=lambda made: made.__name__)
def test_classes_say_what_is_ignored(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    """They say it before they read a model; this model is missing."""
    with pytest.raises(OSError, match=r"a\.npz"):
        made("a.npz", ["v", "v"], dim_emb=3, char_stride=6)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "ignored, because the model file's value is used: --char-stride",
        "ignored where the model file has its own, without --ignore-model-config: --dim-emb",
    ]


@pytest.mark.parametrize("made", [Translator, Scorer, Evaluator, Embedder], ids=lambda made: made.__name__)
def test_classes_refuse_unknown_arguments_after_an_object_of_options(made: Any) -> None:
    options = {Translator: DecodeOptions, Scorer: ScoreOptions, Evaluator: EvaluateOptions}
    with pytest.raises(TypeError, match="^unknown option mini_bach; did you mean mini_batch"):
        made(options.get(made, EmbedOptions)(), mini_bach=1)
