"""``mgraph convert`` among Marian's formats: byte for byte what ``pymarian convert`` makes; torch files."""

from __future__ import annotations

import hashlib
import io
import logging
import pickle
import pickletools
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph import ArgumentError, ModelFileError
from mgraph.files.binary_items import BinaryItems, read_bin, write_bin
from mgraph.files.intgemm import BERGAMOT, GEMM_TYPES, PACKINGS, is_quantized
from mgraph.files.items import read_npz, write_npz
from nmt.cli import main
from nmt.files import convert_model, load_model
from nmt.files.export import export_model
from nmt.files.huggingface.pickles import read_pickle
from nmt.files.huggingface.torch_files import read_torch
from tests.helpers.places import DATA, SHIPPED

HERE = DATA / "conversion"
NUMBERS = SHIPPED / "model.npz"
DIGESTS = dict(reversed(line.split()) for line in (HERE / "numbers.sha256").read_text().splitlines())


@pytest.mark.parametrize("name", DIGESTS)
def test_what_marian_converts_byte_for_byte(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    gemm_type = target.stem
    assert main(["convert", "-f", str(NUMBERS), "-t", str(target), "-g", gemm_type, "--quiet"]) == 0
    assert hashlib.sha256(target.read_bytes()).hexdigest() == DIGESTS[name]


@pytest.mark.parametrize("gemm_type", sorted(set(GEMM_TYPES) - {"intgemm8avx512vnni", BERGAMOT}))
def test_matrices_are_quantised_as_marian_does(gemm_type: str) -> None:
    """This includes matrices that are too narrow for some processors, which ``write_bin`` leaves alone."""
    source = read_npz(DATA / "items" / "quantized.npz")
    path = DATA / "items" / f"quantized.{gemm_type}.bin"
    data = np.fromfile(path, np.uint8)
    packing = PACKINGS[GEMM_TYPES[gemm_type]]
    for entry in BinaryItems(data, path.name).entries:
        if entry.code == GEMM_TYPES[gemm_type]:
            written = packing.quantize(source[entry.name])
            assert data[entry.offset :][: len(written)].tobytes() == written, entry.name


def test_formats_one_after_the_other_lose_nothing(tmp_path: Path) -> None:
    files = [NUMBERS, *(tmp_path / name for name in ("a.safetensors", "b.bin", "c.npz", "d.npz"))]
    for source, target in pairwise(files):
        convert_model(source, target)
    assert files[-1].read_bytes() == files[-2].read_bytes()
    assert hashlib.sha256(files[-1].read_bytes()).hexdigest() == DIGESTS["float32.npz"]


def test_items_are_sorted_with_numbers_before_integers(tmp_path: Path) -> None:
    one = np.ones((1, 2))
    items = {"c": one.astype(np.int32), "b": one.astype(np.float16), "d": one.astype(np.int8), "a": one}
    write_npz(tmp_path / "a.npz", items)
    convert_model(tmp_path / "a.npz", tmp_path / "b.npz")
    types = {name: str(array.dtype) for name, array in read_npz(tmp_path / "b.npz").items()}
    assert [*types.items()] == [("a", "float32"), ("b", "float32"), ("c", "int32"), ("d", "int8")]


def test_a_quantised_model_becomes_floats(tmp_path: Path) -> None:
    convert_model(NUMBERS, tmp_path / "a.bin", gemm_type="intgemm8")
    convert_model(tmp_path / "a.bin", tmp_path / "b.npz")
    before, after = read_npz(NUMBERS), read_npz(tmp_path / "b.npz")
    assert list(before) == list(after)
    for name, array in before.items():
        step = np.abs(array).max() / 127 if is_quantized(name) else 0
        assert name.startswith("special:") or np.abs(after[name] - array).max() <= step / 2 * 1.001, name


def test_bergamots_files_have_integer_embeddings(tmp_path: Path) -> None:
    """Bergamot's decoder finds them as rows, not transposed; the rounded numbers are read back."""
    convert_model(NUMBERS, tmp_path / "a.bin", gemm_type=BERGAMOT)
    data = np.fromfile(tmp_path / "a.bin", np.uint8)
    entries = {entry.name: entry for entry in BinaryItems(data, "a.bin").entries}
    quantized = {name for name, entry in entries.items() if entry.code == 0x4101}
    assert "Wemb" in quantized and len(quantized) == 1 + sum(map(is_quantized, entries))
    before, after = read_npz(NUMBERS), read_bin(tmp_path / "a.bin")
    table = before["Wemb"]
    rounded = np.rint(table * (np.float32(127) / np.abs(table).max())).astype(np.int8)
    assert data[entries["Wemb"].offset :][: table.size].tobytes() == rounded.tobytes()
    for name in quantized:
        assert np.abs(after[name] - before[name]).max() <= np.abs(before[name]).max() / 254 * 1.001, name


def test_what_marian_would_use_wrongly_stays_float(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Untied outputs, which Marian transposes; sizes that do not fill registers."""
    generator = np.random.default_rng(0)
    shapes = {"a_W": (64, 32), "b_W1": (48, 32), "c_W": (64, 24), "decoder_ff_logit_out_Wt": (64, 64)}
    shapes |= {"d_Wemb": (64, 64), "e_b": (1, 64)}
    items = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    items["f_W"] = np.zeros((64, 16), np.float32)
    write_bin(tmp_path / "a.bin", items)
    with caplog.at_level(logging.WARNING):
        convert_model(tmp_path / "a.bin", tmp_path / "b.bin", gemm_type="intgemm8avx512")
    assert "4 matrices stay float32" in caplog.text
    assert caplog.messages[-1].endswith(": b_W1 c_W decoder_ff_logit_out_Wt f_W")
    after = read_bin(tmp_path / "b.bin")
    same = [name for name, array in items.items() if np.array_equal(array, after[name])]
    assert same == ["b_W1", "c_W", "decoder_ff_logit_out_Wt", "d_Wemb", "e_b", "f_W"]


def test_integers_round_to_even_and_are_cut() -> None:
    matrix = np.zeros((64, 16), np.float32)
    matrix[:4, 0] = [127, 0.5, 1.5, -2.5]
    packing = PACKINGS[GEMM_TYPES["intgemm8"]]
    assert np.frombuffer(packing.quantize(matrix)[:4], np.int8).tolist() == [127, 0, 2, -2]
    wide = PACKINGS[GEMM_TYPES["intgemm16"]]
    matrix[:4, 0] = [40, -40, 1 / 2048, 3 / 2048]
    assert np.frombuffer(wide.quantize(matrix)[:8], "<i2").tolist() == [32767, -32768, 0, 2]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-g", "packed16"], 2, "--gemm-type packed16: it is for FBGEMM's packed matrices"),
        (["-g", "int4"], 2, "--gemm-type must be one of float32, intgemm8"),
        (["--export-as", "onnx-encode"], 2, "--export-as onnx-encode: mgraph export writes models as ONNX"),
        (["--export-as", "pt"], 2, "--export-as must be one of marian-bin, huggingface; got 'pt'"),
        (["--export-as", "huggingface"], 2, "--to: huggingface needs the name of a folder, got model.bin"),
        (["--export-as", "huggingface", "-t", "x", "-g", "intgemm8"], 2, "cannot go with --export-as"),
        (["--add-lsh"], 2, "--add-lsh is Marian's, and refused: approximate search"),
        (["--encryption-key-path", "key"], 2, "--encryption-key-path is Marian's, and refused: Marian reads"),
        (["-s", "lex", "100", "100", "0"], 2, "--shortlist needs two --vocabs"),
        (["-f", "missing.npz"], 1, "missing.npz: No such file"),
        (["-f", str(NUMBERS), "-t", "model.pt"], 2, "--to: expected a name that ends in .npz, .bin,"),
        (
            ["-f", str(NUMBERS), "-t", "a.npz", "-g", "intgemm8"],
            2,
            "--gemm-type intgemm8 is for models that end in .bin",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", *words, "--quiet"]) == code
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-f m.bin -t ./m.bin -g intgemm8", "--to: ./m.bin is also read by --from"),
        ("-f folder -t folder/model.safetensors", "model.safetensors is also read by --from"),
        ("-s lex -V v v -d lex", "--dump-shortlist: lex is also read by --shortlist"),
        ("-s lex -V v v -d v", "--dump-shortlist: v is also read by --vocabs"),
    ],
)
def test_no_input_is_overwritten(words, message, tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    names = "m.bin", "lex", "v", "folder/model.safetensors"
    for name in names:
        Path(name).write_text(name)
    assert main(["convert", *words.split(), "--quiet"]) == 2
    assert message in capfd.readouterr().err
    assert all(Path(name).read_text() == name for name in names)


def test_a_shortlist_byte_for_byte_as_marian_converts_it(tmp_path: Path) -> None:
    text, target = DATA / "search" / "lexicon.txt", tmp_path / "lex.bin"
    vocabs = [str(NUMBERS.parent / "vocab.spm")] * 2
    command = ["convert", "-s", str(text), "20", "5", "0", "-d", str(target), "-V", *vocabs, "--quiet"]
    assert main(command) == 0
    assert target.read_bytes() == (DATA / "search" / "lexicon.bin").read_bytes()


# ---------------------------------------------------------------- files of PyTorch


@pytest.mark.parametrize("protocol", range(1, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_read_as_python_reads_them(protocol: int) -> None:
    """Their plain data is read in every protocol that can name a storage; what follows is left unread."""
    word = "naïve"
    data = {"a": [1, -1, 300, 70_000, 2**70, -(2**70), True, False, None, 1.5], word: (word, (), (1,), [[]])}
    data |= {"b": (1, 2), "c": (1, 2, 3), "d": (1, 2, 3, 4), "e": {}, "f": {1: {"x": word}}, "g": word * 99}
    stream = io.BytesIO(pickle.dumps(data, protocol) + b"rest")
    assert read_pickle(stream, lambda *_: None, lambda *_: None) == data
    assert stream.read() == b"rest"


@pytest.mark.parametrize("name", ["torch.bin", "torch-legacy.bin"])
def test_tensors_of_pytorch(name: str) -> None:
    arrays = read_torch(HERE / name)
    table = np.arange(12.0).reshape(3, 4)
    wanted = {"table": table, "turned": table.T, "part": table[1:, 1:3], "half": table}
    wanted |= {"bfloat16": table, "parameter": table}
    assert arrays.pop("ids").tolist() == [0, 1, 2]
    assert arrays.keys() == wanted.keys() and arrays["half"].dtype == np.float16
    for key, array in wanted.items():
        assert np.array_equal(arrays[key], array), key


class Runs:
    def __reduce__(self):
        return (print, ("harm",))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a file of PyTorch's"),
        (b"PK\3\4", "a.bin: "),
        (pickle.dumps(7), "not a file of PyTorch's"),
        (pickle.dumps(Runs()), "it asks for builtins.print; only dictionaries of tensors are read"),
        (HERE.joinpath("torch-legacy.bin").read_bytes()[:-9], "a.bin: "),
        (HERE.joinpath("torch.bin").read_bytes()[:-9], "a.bin: cut short"),
    ],
)
def test_no_file_of_pytorch(tmp_path: Path, data: bytes, message: str, capsys) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        read_torch(path)
    assert not capsys.readouterr().out


def test_the_numbers_of_a_tensor_are_in_the_file(tmp_path: Path) -> None:
    """Otherwise its array would be whatever else the memory holds."""
    stream = io.BytesIO(HERE.joinpath("torch-legacy.bin").read_bytes())
    for _ in range(4):  # the magic number, the protocol, the machine, the tensors; then the storages
        list(pickletools.genops(stream))
    path = tmp_path / "a.bin"
    path.write_bytes(stream.getvalue()[: stream.tell()] + pickle.dumps([]))
    with pytest.raises(ModelFileError, match=r"a\.bin: the storages \[.*\] of its tensors are missing"):
        read_torch(path)


@given(
    st.sampled_from(["torch.bin", "torch-legacy.bin"]),
    st.integers(0, 2000),
    st.binary(min_size=1, max_size=4),
)
def test_a_damaged_file_of_pytorch_is_an_error_or_other_numbers(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: int, wrong: bytes
) -> None:
    data = (HERE / name).read_bytes()
    path = tmp_path_factory.mktemp("damage") / "a.bin"
    path.write_bytes(data[:at] + wrong + data[at + len(wrong) :])
    try:
        read_torch(path)
    except ModelFileError as error:
        assert str(error).startswith(f"{path}: ")


def test_export_writes_onnx(tmp_path: Path) -> None:
    folder = tmp_path / "onnx"
    assert main(["export", "-m", str(HERE / "all.npz"), "-t", str(folder), "--quiet"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["decoder.onnx", "encoder.onnx"]
    with pytest.raises(ArgumentError, match="expected a beam of at least 1, got 0"):
        export_model(load_model(HERE / "all.npz"), tmp_path / "none", beam=0)
    assert not (tmp_path / "none").exists()
