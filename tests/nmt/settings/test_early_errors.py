"""Errors that can be known are raised before a vocabulary is made, a model loaded or a device started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layers import UnsupportedOptionError
from nmt import Scorer, Trainer, Translator, cli, load_model, numbers
from nmt.files import export
from nmt.settings import TRAIN, OptionError, require_folder, require_readable, require_writable
from nmt.settings.config import parse
from nmt.training.setup import check_training
from tests.helpers.places import ROOT

MODEL, VOCAB = str(numbers.model_dir() / "model.npz"), str(numbers.model_dir() / "vocab.spm")
PAIR = f"-v {VOCAB} {VOCAB}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with texts; functions that take long or make something raise errors here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.de").write_text("eins\nzwei\n")
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "dir").mkdir()
    (tmp_path / "model.npz").mkdir()
    (tmp_path / "vectors").write_text("2 3\n0 1 2 3\n")

    def late(*words: Any, **named: Any) -> None:
        raise AssertionError("too late")

    for name in (
        "nmt.runtime.devices.start",
        "nmt.runtime.devices.start_all",
        "nmt.training.session.load_or_create_vocabs",
        "nmt.training.vocabularies.create_vocab",
        "nmt.commands.vocab.create_vocab",
        "nmt.search.translator.load_model",
        "nmt.search.scorer.load_model",
        "nmt.files.load_model",
        "nmt.files.convert_model",
        "nmt.files.huggingface.import_huggingface",
        "nmt.files.huggingface.export_huggingface",
        "nmt.search.shortlist.convert_shortlist",
    ):
        monkeypatch.setattr(name, late)
    return tmp_path


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package look as if it were not installed."""
    monkeypatch.setitem(sys.modules, package, None)


TEXTS = "train -m m.npz -t a.de a.en -v s.yml t.yml"
VALID = f"{TEXTS} --valid-sets a.de a.en"
DECODE, SCORE = f"decode -m {MODEL} {PAIR}", f"score -m {MODEL} {PAIR}"
WRONG = {
    "train -m m.npz -t a.de nosuch.en": "nosuch.en: No such file or directory (--train-sets)",
    "train -m m.npz -t a.de dir": "dir: Is a directory (--train-sets)",
    f"{TEXTS} --valid-sets a.de no": "no: No such file or directory (--valid-sets)",
    f"{TEXTS} --valid-sets a.de dir": "dir: Is a directory (--valid-sets)",
    f"{TEXTS} --valid-sets a.de no --valid-metrics valid-script bleu --valid-script-path true": "no: No such",
    f"{TEXTS} --guided-alignment no": "no: No such file or directory (--guided-alignment)",
    f"{TEXTS} --data-weighting no": "no: No such file or directory (--data-weighting)",
    f"{TEXTS} --pretrained-model no.npz": "no.npz: No such file or directory (--pretrained-model)",
    f"{TEXTS} --embedding-vectors vectors no": "no: No such file or directory (--embedding-vectors)",
    f"{TEXTS} --dim-emb 4 --embedding-vectors vectors vectors": "vectors:1: vectors of length 3, but dim-emb",
    "train -m m.npz -t a.de a.en -v dir t.yml": "dir: Is a directory (--vocabs)",
    "train -m m.npz -t a.de a.en -v s.yml no/t.yml": "no/t.yml: No such file or directory; there is no",
    "train -m m.npz -t a.de a.en -v s.yml t.txt": "t.txt: a new vocabulary is .yml, .yaml, .json (words) or",
    "train -m m.npz -t a.de a.en -v s.yml t.spm --sentencepiece-options --eos_id=3": "cannot set --eos_id",
    "train -m m.npz -t a.de": "--train-sets: --type amun needs 2 files, sources first, then the target; got",
    f"{TEXTS} --type transfomer": "type: ",
    f"{TEXTS} --type transformer --transformer-heads 7": "transformer-heads: expected a divisor of dim-emb",
    f"{TEXTS} --type transformer --tensor-parallel 3": "--tensor-parallel 3: expected a number that divides",
    f"{TEXTS} --input-types sequence": "input-types: expected one for each of 2 streams, got sequence",
    f"{VALID} --valid-metrics blue": "unknown metric blue; did you mean bleu? (metrics: cross-entropy,",
    f"{VALID} --valid-metrics bleu bleu": "each metric may be given once",
    f"{VALID} --valid-metrics valid-script": "valid-script needs --valid-script-path",
    f"{TEXTS} --valid-script-path ./no.sh": "./no.sh is not an executable program",
    f"{VALID} --valid-freq 3e": "--valid-freq: expected updates (u) or target words (t), got epochs",
    f"{VALID} --valid-translation-output no/out": "--valid-translation-output: directory no does not exist",
    f"{TEXTS} --after 3x": "--after: expected a whole number",
    f"{TEXTS} --save-freq often": "--save-freq: expected a whole number",
    f"{TEXTS} --lr-warmup 3x": "--lr-warmup: expected a whole number",
    f"{TEXTS} --throw-on-divergence a": "--throw-on-divergence",
    f"{TEXTS} --cost-scaling a": "--cost-scaling",
    f"{TEXTS} --dynamic-gradient-scaling a": "--dynamic-gradient-scaling",
    f"{TEXTS} --precision float12": "float12",
    f"{TEXTS} --optimizer-params 2": "--optimizer-params",
    f"{TEXTS} --optimizer optax.lionn": "optax has no optimizer 'lionn'; did you mean lion?",
    f"{TEXTS} --optimizer optax.lion --optax-params beta=1": "optax.lion has no argument 'beta' to set",
    f"{TEXTS} --lr-schedule optax.linear": "--lr-schedule: optax has no schedule 'linear'",
    f"{TEXTS} --guided-alignment a.de --right-left": "--guided-alignment is for models with one source",
    f"{TEXTS} --sentencepiece-alphas 0.1 0.1 0.1": "--sentencepiece-alphas: one for each of 2 streams, got 3",
    "train -t a.de a.en -m model.npz": "--model model.npz: expected the name of a file, this is a directory",
    f"{TEXTS} --tempdir no": "--tempdir no: there is no such directory",
    f"{TEXTS} --log-json no/log": "no/log: No such file or directory; there is no folder no (--log-json)",
    f"{TEXTS} --tensorboard a.de": "a.de: Not a directory (--tensorboard)",
    f"{TEXTS} --custom-fallbacks '{{after: 3x}}'": "--after: expected a whole number",
    f"{VALID} --custom-fallbacks '{{valid-metrics: blue}}'": "unknown metric blue; did you mean bleu?",
    f"{TEXTS} --custom-fallbacks '{{lr-decay: 2}}'": "--lr-decay must be a factor of at most 1, got 2",
    f"{TEXTS} --custom-fallbacks '{{optimizer-delay: 0}}'": "--optimizer-delay: expected a number above 0",
    f"{TEXTS} --custom-fallbacks '{{model: n.npz}}'": "--custom-fallbacks: --model cannot change while",
    f"{TEXTS} --custom-fallbacks '{{devices: [1]}}'": "--custom-fallbacks: --devices cannot change while",
    f"{TEXTS} --custom-fallbacks '{{quiet: true}}'": "--custom-fallbacks: --quiet cannot change while",
    f"embed -m no.npz -v {VOCAB} -t a.de": "no.npz: No such file or directory (--model)",
    f"embed -m {MODEL} -v no.spm -t a.de": "no.spm: No such file or directory (--vocabs)",
    f"embed -m {MODEL} -v {VOCAB} -t a.de --precision int8": "one of float32, float16, bfloat16; got 'int8'",
    f"evaluate -m {MODEL} -v {VOCAB} no.spm -t a.de a.en": "no.spm: No such file or directory (--vocabs)",
    f"{DECODE} -i no": "no: No such file or directory (--input)",
    f"{DECODE} -i dir": "dir: Is a directory (--input)",
    f"{DECODE} -i a.de -o no/out": "no/out: No such file or directory; there is no folder no (--output)",
    f"{DECODE} -i a.de -o dir": "dir: Is a directory (--output)",
    f"{DECODE} -i a.de --log no/log": "no/log: No such file or directory; there is no folder no (--log)",
    f"{DECODE} -o out --shares 2": "--shares: standard input and pipes cannot be divided; give --input files",
    f"{DECODE} -i a.de --shares 2": "--shares: expected --output FILE, to be joined from parts; got stdout",
    f"{DECODE} -i a.de --share 1": "--share: the number of --shares is needed, too",
    f"{DECODE} -i a.de -o out --shares 2 --share 0 2": "--shares 2 has the numbers from 0 to 1, got 2",
    f"{DECODE} -i a.de no -o out --shares 2": "no: No such file or directory (--input)",
    f"{DECODE} -i a.de --alignment foo": "--alignment must be soft, hard or a number above 0, got 'foo'",
    f"{DECODE} -i a.de --output-sampling foo": "--output-sampling must be full, topk, nucleus or epsilon",
    f"{DECODE} -i a.de --shortlist no": "no: No such file or directory (--shortlist)",
    f"{DECODE} -i a.de --weights 1 2": "expected one weight for each of 1 model(s), got 2",
    f"decode -i a.de -m no.npz {PAIR}": "no.npz: No such file or directory (--models)",
    f"decode -i a.de -m {MODEL} -v {VOCAB} no.spm": "no.spm: No such file or directory (--vocabs)",
    f"{SCORE} -t a.de no": "no: No such file or directory (--train-sets)",
    f"{SCORE} -t a.de a.en -o no/out": "no/out: No such file or directory; there is no folder no (--output)",
    f"{SCORE} -t a.de - -o out --shares 2": "--shares: standard input and pipes cannot be divided; give",
    f"{SCORE} -t a.de a.en --alignment foo": "--alignment must be soft, hard or a number above 0, got 'foo'",
    f"{SCORE} -t a.de a.en --n-best --tsv": "--n-best cannot go with --tsv",
    f"score -t a.de a.en -m no.npz {PAIR}": "no.npz: No such file or directory (--model)",
    "vocab a.de no -o v.yml": "no: No such file or directory (FILE)",
    "vocab a.de -o no/v.yml": "no/v.yml: No such file or directory; there is no folder no (--output)",
    "vocab a.de -o v.txt": "v.txt: a new vocabulary is .yml, .yaml, .json (words) or .spm (pieces)",
    "vocab a.de -o v.spm --sentencepiece-options word": "--sentencepiece-options takes --name=value",
    "vocab a.de -o v.yml --sentencepiece-options --a=1": "--sentencepiece-options is for vocabularies that",
    "vocab a.de -o v.json --sentencepiece-max-lines 5": "--sentencepiece-max-lines is for vocabularies that",
    "vocab a.de --seed 2": "--seed is for vocabularies that end in .spm, got --output stdout",
    "convert -f no.npz -t m.bin": "no.npz: No such file or directory (--from)",
    f"convert -f {MODEL} -t no/m.bin": "no/m.bin: No such file or directory; there is no folder no (--to)",
    f"convert -f {MODEL} -t m.pt": "--to: expected a name that ends in .npz, .bin, .safetensors, got m.pt",
    f"convert -f {MODEL} -t m.npz -g intgemm8": "--gemm-type intgemm8 is for models that end in .bin",
    f"convert -f {MODEL} -t a.de/m --export-as huggingface": "a.de/m: Not a directory (--to)",
    f"convert -f {MODEL} -t m --export-as huggingface -V no no": "no: No such file or directory (--vocabs)",
    f"convert -s no -d lex.bin -V {VOCAB} {VOCAB}": "no: No such file or directory (--shortlist)",
    f"convert -s a.de -d no/l.bin -V {VOCAB} {VOCAB}": "there is no folder no (--dump-shortlist)",
    f"average -m {MODEL} -o m.pt": "--output: expected a name that ends in .npz, .bin, .safetensors, got",
    "export -m no.npz -t onnx": "no.npz: No such file or directory (--model)",
    f"export -m {MODEL} -t a.de": "a.de: Not a directory (--to)",
    f"export -m {MODEL} -t onnx --opset 3": "expected an operator set from 18 to 23, got 3",
    f"gradcheck -m {MODEL} {PAIR} -t a.de no": "no: No such file or directory (--train-sets)",
    f"gradcheck -m no.npz {PAIR} -t a.de a.en": "no.npz: No such file or directory (--model)",
    f"diff {MODEL} no.npz": "no.npz: No such file or directory (FILE)",
    "gradcheck layer_nrom": "there is no operator 'layer_nrom'; did you mean 'layer_normalization'?\n",
    "gradcheck zzqq": "there is no operator 'zzqq'; mgraph operators lists all",
    "gradcheck --module no.py": "no.py: No such file or directory (--module)",
}


@pytest.mark.parametrize("line", WRONG)
def test_errors_come_first(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())
    code = cli.main(shlex.split(line))
    said = capsys.readouterr().err
    assert code in (1, 2) and WRONG[line] in said
    assert said.splitlines()[-1].startswith(f"mgraph {line.split()[0]}: error: ")
    assert sorted(folder.iterdir()) == before


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "line",
    [
        "train -m m.pt -t a.de a.en -v s.yml t.yml",
        "train -m m.npz -t a.de a.en -v s.yml t.txt",
        "vocab a.de -o v.txt",
        "vocab a.de -o v.spm --sentencepiece-options word",
        f"convert -f {MODEL} -t m.pt",
        f"average -m {MODEL} -o m.pt",
    ],
)
def test_wrong_words_for_what_is_made_are_usage_errors(line: str) -> None:
    assert cli.main(line.split()) == 2


@pytest.mark.parametrize(
    ("line", "package", "extra"),
    [
        (f"{TEXTS} --tensorboard events", "tensorboardX", "tensorboard"),
        (f"{TEXTS} --progress", "tqdm", "progress"),
        (f"export -m {MODEL} -t folder/onnx", "onnx", "onnx"),
    ],
)
def test_packages_are_asked_for_first(
    line: str,
    package: str,
    extra: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(folder.iterdir())
    without(monkeypatch, package)
    assert cli.main([*shlex.split(line), "--quiet"]) in (1, 2)
    said = capsys.readouterr().err
    assert f"needs the package {package}" in said and f"pip install 'mgraph-jax[{extra}]'" in said
    assert sorted(folder.iterdir()) == before


def test_python_says_the_same(folder: Path) -> None:
    with pytest.raises(OptionError, match="--alignment must be soft, hard"):
        Translator(MODEL, [VOCAB, VOCAB], alignment="foo")
    with pytest.raises(OptionError, match="--alignment must be soft, hard"):
        Scorer(MODEL, [VOCAB, VOCAB], alignment="foo")
    with pytest.raises(FileNotFoundError, match=r"\(--pieces\)"):
        Translator(MODEL, ["a.de", "a.de"], pieces=["no.spm", "no.spm"])
    with pytest.raises(FileNotFoundError) as missing:
        Trainer(model="m.npz", train_sets=["a.de", "no"], vocabs=["s.yml", "t.yml"]).train()
    assert missing.value.filename == "no"


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any, outputs: Any, inputs: Any, path: Path, **options: Any) -> None:
        path.write_bytes(b"half")
        if path.name == export.DECODER:
            raise OSError("full")

    model = load_model(MODEL)
    monkeypatch.setattr(export, "export_onnx", broken)
    with pytest.raises(OSError, match="full"):
        export.export_model(model, tmp_path / "new" / "onnx")
    assert not list(tmp_path.iterdir())
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "kept").touch()
    with pytest.raises(OSError, match="full"):
        export.export_model(model, tmp_path / "there")
    assert (tmp_path / "there" / "kept").exists()


def test_files_that_may_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    require_readable("--input", [str(file), "", "stdin", "-"])
    for path in ("", "stdout", "-", str(file), str(tmp_path / "new"), os.devnull):
        require_writable("--output", path)
    require_folder("--to", str(tmp_path / "new" / "newer"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for require, path in (
        (lambda option, path: require_readable(option, [path]), file),
        (require_writable, file),
        (require_writable, tmp_path / "new"),
        (require_folder, tmp_path / "new"),
    ):
        with pytest.raises(PermissionError, match=r"Permission denied \(--this\)"):
            require("--this", str(path))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    for path in (file, tmp_path / "new"):
        with pytest.raises(OSError, match=r"Read-only file system \(--this\)"):
            require_writable("--this", str(path))
    with pytest.raises(PermissionError):
        require_readable("--this", [str(file)])


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    require_readable("--input", [str(pipe)])


@pytest.mark.usefixtures("folder")
def test_only_the_first_of_several_processes_must_be_able_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(TRAIN, f"{TEXTS} --log-json dir".split()[1:])
    with pytest.raises(OSError, match=r"Is a directory \(--log-json\)"):
        check_training(options)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(OptionError, match=r"--model m\.npz: the directory \. is not writable"):
        check_training(options)
    with pytest.raises(OptionError, match=r"--model dir/m\.npz: the directory dir is not writable"):
        check_training(replace(options, model="dir/m.npz"))
    check_training(options, first=False)


@pytest.mark.usefixtures("folder")
def test_options_of_a_model_that_goes_on_are_not_checked() -> None:
    Path("m.npz").touch()
    words = f"-m m.npz -t a.de a.en {PAIR} --type transformer --transformer-heads 7".split()
    check_training(parse(TRAIN, words))
    with pytest.raises(UnsupportedOptionError, match="transformer-heads: expected a divisor of dim-emb"):
        check_training(parse(TRAIN, [*words, "--no-reload"]))


@pytest.mark.usefixtures("folder")
def test_texts_are_needed_also_if_there_are_vocabularies() -> None:
    with pytest.raises(FileNotFoundError, match=r"\(--train-sets\): 'nosuch.en'"):
        check_training(parse(TRAIN, f"-m m.npz -t a.de nosuch.en {PAIR}".split()))


@pytest.mark.usefixtures("folder")
def test_a_script_alone_needs_no_validation_set() -> None:
    words = f"-m m.npz -t a.de a.en {PAIR} --valid-metrics valid-script --valid-script-path true".split()
    check_training(parse(TRAIN, words))


@pytest.mark.usefixtures("folder")
def test_fields_of_tsv_are_no_files() -> None:
    words = f"-m m.npz -t a.de --tsv --tsv-fields 3 --guided-alignment 2 {PAIR}".split()
    check_training(parse(TRAIN, words))


def test_nothing_is_started_by_looking(tmp_path: Path) -> None:
    """All of a training's options are checked, and JAX has no device yet."""
    script = """
import sys
from nmt.runtime import devices
from nmt.settings import TRAIN
from nmt.settings.config import parse
from nmt.training.setup import check_training
for more in "--lr-warmup 10", "--lr-schedule optax.constant_schedule --lr-schedule-params value=1":
    check_training(parse(TRAIN, [*sys.argv[1:], *more.split()]))
sys.exit(devices.started())
"""
    (tmp_path / "a").write_text("one\n")
    words = "-t a a -v s.yml t.yml --valid-sets a a --cost-scaling --quantize-bits 8 --fp16"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command: Sequence[str] = [sys.executable, "-c", script, *words.split()]
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == 0
