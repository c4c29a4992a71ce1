"""The options of training: Marian's names, defaults, short cuts and files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optax
import pytest
import yaml
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from mgraph import Adam
from mgraph.files.parameter_files import read_items
from nmt.cli import main
from nmt.commands.common import asks_for_help
from nmt.settings import DECODE, SCORE, TRAIN, Command, OptionError, Support, TrainOptions
from nmt.settings.absent import NO_COMET, NO_ULR
from nmt.settings.config import notices, parse, read
from nmt.settings.metrics import EMBED, EVALUATE
from nmt.settings.model_options import model_options, text_of
from nmt.settings.optax_options import assignments
from nmt.settings.option import number
from nmt.settings.printing import decoder_config, dumped, help_text, training_config
from nmt.settings.train import after_divergence, new_model_options
from nmt.settings.yaml_text import entry, scalar
from tests.helpers import places

DATA = places.DATA / "options"
ROWS = dict(line.split(maxsplit=1) for line in (DATA / "dumps" / "rows.txt").read_text().splitlines())
COMMANDS = {"train": TRAIN, "decode": DECODE, "score": SCORE, "evaluate": EVALUATE, "embed": EMBED}
# Marian v1.12.42, train --help.
SHORT_NAMES = {
    "c": "config",
    "w": "workspace",
    "m": "model",
    "t": "train-sets",
    "v": "vocabs",
    "e": "after-epochs",
    "a": "after",
    "T": "tempdir",
    "d": "devices",
    "o": "optimizer",
    "l": "learn-rate",
    "b": "beam-size",
    "n": "normalize",
}


@pytest.fixture(autouse=True)
def in_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)


def train(words: str, files: str = "-t source.txt target.txt") -> TrainOptions:
    return parse(TRAIN, [*files.split(), *shlex.split(words)])


def configuration(command: Command[Any], words: Sequence[str]) -> str:
    return dumped(command, read(command, words)[0])


@pytest.mark.parametrize("name", ROWS)
def test_configurations_are_printed_as_marian_prints_them(name: str) -> None:
    command, *words = shlex.split(ROWS[name])
    first, _, rest = configuration(COMMANDS[command], words).partition("\n")
    assert first.startswith("# Marian configuration file generated at 2") and "version mgraph 0" in first
    assert rest + "\n" == (DATA / "dumps" / f"{name}.yml").read_text()


def trained_values() -> TrainOptions:
    """The option values of Marian's training, and the vocabulary sizes that it found."""
    values = train((DATA / "trained.txt").read_text() + "-m trained/model.npz --no-reload", files="")
    return replace(values, dim_vocabs=(16, 21), no_reload=False)


def test_the_files_of_a_training_are_marians() -> None:
    values = trained_values()
    assert training_config(values) == (DATA / "trained" / "model.npz.yml").read_text()
    assert decoder_config(values) == (DATA / "trained" / "model.npz.decoder.yml").read_text()


def test_a_new_model_has_the_options_that_marian_gives_it() -> None:
    marians = model_options(read_items(str(DATA / "trained" / "model.npz")), "model.npz")
    options = new_model_options(trained_values(), (16, 21))
    ours = text_of(options).splitlines()
    assert ours[:-1] == marians.text.rstrip("\0").splitlines()[:-1]
    assert ours[-1].startswith("version: mgraph ")


def test_training_goes_on_with_its_own_configuration() -> None:
    values = train("-m trained/model.npz --learn-rate 0.5", files="")
    assert values.learn_rate == 0.5 and values.dim_emb == 8 and values.shuffle == "none"
    assert values.train_sets == ("source.txt", "target.txt") and values.dim_vocabs == (16, 21)
    config = yaml.safe_load(training_config(values))
    assert config == yaml.safe_load((DATA / "trained" / "model.npz.yml").read_text()) | {"learn-rate": 0.5}
    anew = train("-m trained/model.npz --no-reload")
    assert anew.dim_emb == 512


def test_options_of_ours_are_written_if_training_needs_them() -> None:
    words = (
        "--marian-exact --log-json log.json --tensorboard events --progress --cpu-devices 2 --shard-state"
        " --tensor-parallel 2"
        " --coordinator localhost:1 --num-processes 2 --process-id 1 --compilation-cache none"
    )
    ours = {word[2:] for word in words.split() if word.startswith("--")}
    needed = {
        "optax-params": ["b1=0.5"],
        "lr-schedule": "optax.linear_schedule",
        "lr-schedule-params": ["boundaries_and_scales={3: 0.5}"],
    }
    assert ours | needed.keys() == {
        option.name for option in TRAIN.sections["Options that Marian does not have"]
    }
    for mode in ("full", "minimal", "expand"):
        assert not ours & set(yaml.safe_load(configuration(TRAIN, [*words.split(), "--dump-config", mode])))
    assert not (ours | needed.keys()) & set(yaml.safe_load(training_config(train(words))))
    words = "--optimizer optax.lion --optax-params b1=0.5 --lr-schedule optax.linear_schedule"
    written = yaml.safe_load(
        training_config(train(f"{words} --lr-schedule-params 'boundaries_and_scales={{3: 0.5}}'"))
    )
    assert needed.items() <= written.items() and written["optimizer"] == "optax.lion"


def test_optax_replaces_settings_of_tasks() -> None:
    task = train("--task transformer-base --optimizer optax.lion --lr-schedule optax.linear_schedule")
    plain = train("")
    for name in ("optimizer_params", "learn_rate", "lr_warmup", "lr_decay_inv_sqrt"):
        assert getattr(task, name) == getattr(plain, name)
    assert task.enc_depth == 6
    given = train("--task transformer-base --optimizer optax.lion --learn-rate 0.5")
    assert (given.learn_rate, given.lr_warmup) == (0.5, "16000")


def test_parameters_of_optax_may_be_a_map_in_python() -> None:
    params = {"b2": 0.98, "nesterov": True, "mask": None, "mu_dtype": "bfloat16", "steps": [{3: 0.5}, 1e-8]}
    words = ("b2=0.98", "nesterov=true", "mask=None", "mu_dtype=bfloat16", "steps=[{3: 0.5}, 1e-08]")
    values = TRAIN.from_python({"train_sets": ["a", "b"], "optax_params": params, "lr_schedule_params": {}})
    assert (values.optax_params, values.lr_schedule_params) == (words, ())
    assert assignments("optax-params", words) == params | {"steps": ({3: 0.5}, 1e-8)}
    with pytest.raises(OptionError, match="--optax-params: expected text, numbers .*got <function exp"):
        TRAIN.from_python({"optax_params": {"mask": optax.exponential_decay}})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "optimizer",
            optax.adamw(1e-3),
            "got GradientTrans.*; in Python optimizer=.* optimizer=.optax.adamw., ",
        ),
        ("optimizer", Adam(1e-3), r"got Adam\(learn_rate=0.001.*; in Python optimizer="),
        ("learn_rate", optax.constant_schedule(1e-3), "got <function .*; in Python lr_schedule="),
        ("lr_schedule", optax.constant_schedule(1e-3), "got <function .*; in Python lr_schedule="),
        ("train_sets", {"a"}, r"got \{'a'\}$"),
        ("dim_emb", None, "got None; leave it out for the default$"),
        ("vocabs", ["a", None], r"got \['a', None\]$"),
    ],
)
def test_objects_are_no_values(option: str, value: object, message: str) -> None:
    name = option.replace("_", "-")
    with pytest.raises(OptionError, match=f"--{name}: expected text, numbers or truth values, {message}"):
        TRAIN.from_python({option: value})


def test_short_names_are_marians() -> None:
    assert {option.short: name for name, option in TRAIN.options.items() if option.short} == SHORT_NAMES


def test_tasks_in_python() -> None:
    values = TRAIN.from_python(
        {"train_sets": ["a", "b"], "task": "transformer-base", "enc_depth": 2, "fp16": True}
    )
    assert values.enc_depth == 2 and values.dec_depth == 6 and values.optimizer_params[1] == 0.98
    assert values.precision == ("float16", "float32") and not values.fp16 and not values.task
    found = {name: getattr(values, name) for name in TRAIN.python_options()}
    assert TRAIN.from_python(found) == values
    with pytest.raises(TypeError, match="unknown option enc_deph; did you mean enc_depth"):
        TRAIN.from_python({"enc_deph": 2})


def test_what_to_do_after_divergence(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("custom-fallbacks:\n  - {fp16: no, precision: [float32]}\n  - clip-norm: 1\n")
    expected = ({"fp16": False, "precision": ("float32",)}, {"clip_norm": 1.0})
    values = train(f"-c {path}")
    assert values.custom_fallbacks == expected
    assert train("--custom-fallbacks '{fp16: off, precision: [float32]}' 'clip-norm: 1'") == replace(
        values, config=()
    )
    again = TRAIN.from_python({"train_sets": ["a", "b"], "custom_fallbacks": values.custom_fallbacks})
    assert again.custom_fallbacks == expected
    assert train("--fp16-fallback-to-fp32").custom_fallbacks == (
        {"cost_scaling": (), "fp16": False, "precision": ("float32", "float32")},
    )


def test_a_fallback_may_use_aliases() -> None:
    values = train("--mini-batch 8")
    halved = after_divergence(values, {"fp16": True, "mini_batch": 4})
    assert halved.precision == ("float16", "float32") and halved.cost_scaling and halved.mini_batch == 4
    assert after_divergence(halved, {"fp16": False, "precision": ("float32",)}).precision == ("float32",)


def test_input_types_name_the_fields_of_alignments_and_weights() -> None:
    values = train("--tsv --input-types sequence sequence alignment weight", "-t all.tsv")
    assert values.guided_alignment == "2" and values.data_weighting == "3"
    assert values.tsv_fields == 4
    assert train("--tsv --type multi-s2s --guided-alignment 3", "-t all.tsv").tsv_fields == 4
    assert train("--tsv --type lm", "-t all.tsv").tsv_fields == 1


def test_standard_input_alone_has_fields() -> None:
    for values in (train("", "-t -"), TRAIN.from_python({"train_sets": ["-"]})):
        assert values.tsv and values.train_sets == ("-",) and values.tsv_fields == 2
    for values in (train("--tsv", ""), TRAIN.from_python({"tsv": True})):
        assert values.tsv and values.train_sets == ("stdin",)
    assert not train("--tsv no --type lm", "-t -").tsv


def test_devices_are_a_list() -> None:
    assert train("--devices '0 1' 3").devices == ("0", "1", "3")
    assert train("--devices all").devices == ("all",)


@pytest.mark.parametrize(
    ("files", "words", "reason"),
    [
        ("", "", "--train-sets: the files of each source and of the target are needed, got none"),
        ("-t a b", "-v v.yml", "--vocabs: 2 training files need as many, got 1"),
        ("-t a stdin", "", "--train-sets: standard input cannot go with files"),
        ("-t a b", "--tsv", "--tsv takes one file or standard input as --train-sets, got 2"),
        ("-t a b", "--valid-sets c", "--valid-sets: 2 training files need as many, got 1"),
        ("-t a", "--tsv --valid-sets c d", "got 2; with --tsv they are one file, too"),
        ("-t a b", "--embedding-vectors c", "--embedding-vectors: 2 training files need as many, got 1"),
        ("-t a", "--tsv --embedding-vectors c", "--embedding-vectors: 2 fields of text need as many, got 1"),
        ("-t a", "--tsv -v v.yml", "--vocabs: 2 fields of text need as many, got 1"),
        ("-t a b", "-m model.pt", "--model: expected a name that ends in .npz or .bin, got 'model.pt'"),
        ("-t a b", "-m nowhere/model.npz", "--model nowhere/model.npz: there is no directory nowhere"),
        ("-t a b", "--early-stopping-epsilon 1 2 3", "one for each of the 1 --valid-metrics, got 3"),
        ("-t a b", "--early-stopping-on some", "--early-stopping-on must be one of first, all, any"),
        ("-t a b", "--optimizer adm", "optax.NAME; got 'adm'; did you mean adam?"),
        ("-t a b", "--lr-decay 1.5", "--lr-decay must be a factor of at most 1, got 1.5"),
        ("-t a b", "--lr-decay-strategy epoch", "--lr-decay-strategy epoch takes one number, got 2"),
        ("-t a b", "--lr-decay-start 3", "--lr-decay-strategy epoch+stalled takes two numbers, got 1"),
        ("-t a b", "--devices 0,1", "--devices takes numbers of GPUs as in '0 1 2 3', or all; got '0,1'"),
        (
            "-t a b",
            "--num-processes 2 --process-id 2",
            "--num-processes 2 has the numbers from 0 to 1",
        ),
        ("-t a b", "--input-types weight weight", "--input-types: 'weight' may appear only once, got 2"),
        ("-t a b", "--input-types weight --data-weighting f", "'weight' cannot go with --data-weighting"),
        ("-t a b", "--task transformer-tiny", "--task must be one of transformer-base, transformer-big,"),
        ("-t a b", "--train-embedder-rank", "--train-embedder-rank is Marian's, and refused: "),
        ("-t a b", "--quantize-bits 1", "--quantize-bits: expected 0 or a number from 2 to 24, got 1"),
        ("-t a b", "--label-smoothing 1.5", "--label-smoothing: expected at most 1, got 1.5"),
        ("-t a b", "--dropout-src 1", "--dropout-src: expected less than 1, got 1"),
        ("-t a b", "--ulr", "--ulr is Marian's, and refused: "),
        ("-t a b", "--learning-rate 1", "unknown option --learning-rate; did you mean --learn-rate?"),
        ("-t a b", "--custom-fallbacks '{lr: 1}'", "--custom-fallbacks: unknown option --lr"),
        ("-t a b", "--custom-fallbacks none", "--custom-fallbacks takes options as {name: value, ...}"),
        ("-t a b", "--dump-config all", "--dump-config must be one of full, minimal, expand, false"),
    ],
)
def test_what_cannot_be_meant_is_refused(files: str, words: str, reason: str) -> None:
    with pytest.raises(OptionError) as error:
        train(words, files)
    assert reason in str(error.value)


def test_what_changes_nothing_is_said_once_by_name() -> None:
    values = train("--sqlite --ulr-dim-emb 3 --comet-mix --no-nccl --sync-sgd -w 4000")
    assert list(notices(TRAIN, values)) == [
        f"ignored, because {NO_COMET}: --comet-mix",
        "ignored, because shuffling needs no database: --sqlite",
        "ignored, because JAX controls the exchange of gradients between devices: --no-nccl",
        f"ignored, because {NO_ULR}: --ulr-dim-emb",
    ]


def test_configurations_of_other_marians(tmp_path: Path) -> None:
    path = tmp_path / "old.yml"
    path.write_text(
        "char-stride: 5\nmulti-node: true\ngrad-dropping-rate: 0\nversion: v1.7.6\nsync-sgd: on\n"
        "batch-flexible-lr: false\nbatch-normal-words: 1920\n"
    )
    assert train(f"-c {path}").sync_sgd is True
    for name, value in [("grad-dropping-rate", "0.9"), ("batch-flexible-lr", "true")]:
        path.write_text(f"{name}: {value}\n")
        with pytest.raises(OptionError, match=f"unknown option --{name}"):
            train(f"-c {path}")


def test_paths_are_written_relative_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    words = "-m models/m.npz -v v.yml v.yml --relative-paths --valid-script-args de ./ref.txt --tempdir tmp"
    values = train(words, "-t data/a data/b")
    assert "  - ../v.yml" in decoder_config(values) and "  - m.npz" in decoder_config(values)
    assert "  - copy.npz" in decoder_config(values, "models/copy.npz")
    (tmp_path / "models" / "m.npz.yml").write_text(training_config(values))
    read = train("-m models/m.npz", "")
    assert [os.path.relpath(path) for path in read.train_sets] == ["data/a", "data/b"]
    assert os.path.relpath(read.model) == "models/m.npz" and read.tempdir == "tmp"
    assert read.valid_script_args[0] == "de" and os.path.relpath(read.valid_script_args[1]) == "ref.txt"


@pytest.mark.parametrize(
    "script",
    ["myscore", "python3 score.py", "sh {0}/data/score.sh", "{0}/models/score.sh x", "'{0}/a b'/c"],
)
def test_a_script_is_the_same_when_its_path_is_read_back(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    script, args = script.format(tmp_path), ("--x", f"{tmp_path}/models/ref.txt")
    values = train("-m models/m.npz --relative-paths")
    values = replace(values, valid_script_path=script, valid_script_args=args)
    config = tmp_path / "models" / "m.npz.yml"
    config.write_text(training_config(values))
    read = train("-m models/m.npz", "")
    assert (read.valid_script_path, read.valid_script_args) == (script, args)
    (tmp_path / "models" / "score.sh").touch()
    config.write_text("relative-paths: true\nvalid-script-path: score.sh -x\n")
    assert train("-m models/m.npz", "-t a b").valid_script_path == f"{tmp_path}/models/score.sh -x"


def test_paths_of_any_bytes_are_read_back(tmp_path: Path) -> None:
    model, paths = tmp_path / "m.npz", ("caf\udce9.de", "\udc80caf\u00e9 \U0001f600")
    values = replace(train(f"-m {model}"), train_sets=paths)
    text = training_config(values).encode("utf-8", "surrogateescape")
    (tmp_path / "m.npz.yml").write_bytes(text)
    assert b"- caf\xe9.de" in text and train(f"-m {model}", "").train_sets == paths


def test_the_number_of_a_field_is_no_path(tmp_path: Path) -> None:
    model = tmp_path / "m.npz"
    values = train(f"-m {model} --relative-paths --tsv --data-weighting 2", "-t text.tsv")
    (tmp_path / "m.npz.yml").write_text(training_config(values))
    read = train(f"-m {model}", "")
    assert read.data_weighting == "2" and read.train_sets == (os.path.abspath("text.tsv"),)


def test_environment_variables_in_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", str(DATA))
    values = train("--interpolate-env-vars -m ${DATA}/trained/model.npz --valid-log ${DATA}/v.log", "")
    assert values.valid_log == f"{DATA}/v.log" and values.dim_emb == 8
    assert values.sqlite == "" and train("--sqlite --interpolate-env-vars").sqlite == "temporary"


@pytest.mark.parametrize("option", ["--authors", "--cite", "--build-info", "--build-info=all"])
@pytest.mark.parametrize("command", [TRAIN, DECODE, SCORE])
def test_what_is_asked_is_printed_in_place_of_running(command, option, capsys) -> None:
    assert asks_for_help(command, [option])
    printed = capsys.readouterr().out
    expected = {"--a": "Marian", "--c": "@inproceedings", "--b": "jaxlib="}
    assert expected[option[:3]] in printed
    assert not asks_for_help(command, ["--quiet", "--build-info=false"])


@pytest.mark.parametrize("name", ["train", "decode", "score"])
def test_a_configuration_is_printed_in_place_of_running(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--dump-config"]) == 0
    assert "n-best: false" in capsys.readouterr().out
    assert configuration(COMMANDS[name], ["--quiet", "--dump-config=false"]) == ""


def test_a_printed_configuration_has_paths_as_bytes(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["decode", "-m", "a\udcff.npz", "-v", "v", "v", "--dump-config", "minimal"]) == 0
    assert b"  - a\xff.npz" in capsysbinary.readouterr().out.splitlines()


def test_a_configuration_from_a_pipe_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ([], "none.npz: No such file or directory (--models)"),
        (["--dump-config"], "- v.spm"),
    ):
        end, start = os.pipe()
        os.write(start, b"models: [none.npz]\nvocabs: [v.spm, v.spm]\n")
        os.close(start)
        assert main(["decode", "-c", f"/dev/fd/{end}", *words]) == (0 if words else 1)
        assert said in "".join(capsys.readouterr())
        os.close(end)


def test_help() -> None:
    text = help_text(TRAIN)
    for option in TRAIN.options.values():
        if option.support is not Support.IGNORED:
            assert f"--{option.name}" in text and (option.help or option.support is Support.REFUSED)
    assert max(map(len, text.splitlines())) <= 100


def test_numbers_as_in_cpp() -> None:
    assert number("8.f") == 8 and number("5.0f") == 5 and number("1e-4") == 1e-4
    for word in ("f", "inf", "8ff"):
        with pytest.raises(ValueError):
            number(word)


@settings(max_examples=200, deadline=None)
@for_all(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_it_was_written(value: float) -> None:
    assert float(scalar(value)) == value


@settings(max_examples=200, deadline=None)
@for_all(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), max_size=8))
def test_a_word_is_read_as_it_was_written(word: str) -> None:
    assert yaml.load(entry("name", (word,)), yaml.BaseLoader) == {"name": [word]}
    assert yaml.load(entry("name", word), yaml.BaseLoader) == {"name": word}
