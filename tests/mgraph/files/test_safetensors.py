"""Files of the safetensors format: the library's come back byte for byte, damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph import ModelFileError
from mgraph.files.items import MODEL_YML, model_yml, read_npz
from mgraph.files.parameter_files import read_items, write_items
from mgraph.files.safetensors import read_safetensors, write_safetensors
from tests.helpers.items import refuses
from tests.helpers.places import DATA

LIBRARY = DATA / "conversion" / "library.safetensors"
F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def file_of(header: Any, data: bytes = bytes(8), size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


def test_the_librarys_file_comes_back_byte_for_byte(path: Path) -> None:
    arrays, metadata = read_safetensors(LIBRARY)
    assert (
        metadata == {"about": 'an "e\u0301"\n'} and arrays["scalar"] == 3 and arrays["empty"].shape == (0, 5)
    )
    for i, kind in enumerate("f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8".split()):
        array = arrays[f"{kind} é"]
        assert array.dtype == kind and array.tolist() == [[i, i + 1, i + 2], [i + 3, i + 4, i + 5]]
    write_safetensors(path, dict(reversed(arrays.items())), metadata)
    assert path.read_bytes() == LIBRARY.read_bytes()


def test_a_marian_model_keeps_its_items(path: Path) -> None:
    items = read_npz(DATA / "items" / "model.npz")
    write_items(path, items)
    back = read_items(path)
    assert back.keys() == items.keys() and list(back)[-1] == MODEL_YML
    for name, array in items.items():
        assert back[name].dtype == array.dtype and np.array_equal(back[name], array), name


def test_items_without_a_configuration_are_sorted(path: Path) -> None:
    write_safetensors(path, {"b": np.zeros(2), "c": np.zeros(2), "a": np.zeros(2, np.int8)})
    assert list(read_items(path)) == ["a", "b", "c"]


def test_a_byte_that_is_not_utf_8_may_be_half_a_surrogate_pair(path: Path) -> None:
    path.write_bytes(file_of({"__metadata__": {MODEL_YML: "\udcff"}, "x": F32}))
    assert read_safetensors(path).metadata == {MODEL_YML: "\udcff"}
    assert model_yml(read_items(path)) == "\udcff"


def test_bfloat16_becomes_float32(path: Path) -> None:
    halves = np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16
    path.write_bytes(
        file_of({"x": F32 | {"dtype": "BF16", "data_offsets": [0, 4]}}, halves.astype("<u2").tobytes())
    )
    array = read_safetensors(path).arrays["x"]
    assert array.dtype == np.float32 and array.tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not a safetensors file \(0 bytes\)"),
        (b"PK\3\4" + bytes(60), "not a safetensors file"),
        (file_of([1]), "not a safetensors file"),
        (file_of({"x": F32}, size=1 << 20), "cut short: a header of 1048576 bytes in a file of"),
        (file_of(b'{"x": '), "its header is not JSON"),
        (file_of(b'{"x": ' + b"[" * 100_000), "its header is not JSON"),
        (file_of(b'{"a\xff": 1}'), "its header is not JSON"),
        (file_of(b'{"x": {}, "x": {}}'), "a name appears twice"),
        (file_of({"x": 1}), "'x' has invalid data_offsets"),
        (file_of({"x": F32 | {"data_offsets": [8, 0]}}), "'x' has invalid data_offsets"),
        (file_of({"x": F32 | {"data_offsets": [0, 8.0]}}), "'x' has invalid data_offsets"),
        (file_of({"x": F32 | {"dtype": "F8_E4M3"}}), "'x' is of the type 'F8_E4M3'; expected one of F64 F32"),
        (file_of({"x": F32 | {"dtype": ["F32"]}}), "'x' is of the type .*; expected one of F64 F32"),
        (file_of({"__metadata__": {MODEL_YML: "\ud800"}}), "not JSON: a text with half a surrogate pair"),
        (file_of({"x": F32 | {"shape": [3]}}), r"'x' has 8 bytes of data, its shape \(3,\) does not fit"),
        (file_of({"x": F32 | {"shape": [-2]}}), r"'x' has the shape \[-2\]"),
        (file_of({"x": F32 | {"shape": [1] * 99}}), "'x' has the shape"),
        (
            file_of({"x": F32 | {"shape": [0, 1 << 40, 1 << 40], "data_offsets": [0, 0]}}, b""),
            "has the shape",
        ),
        (file_of({"x": F32}, bytes(4)), "cut short or damaged: 4 bytes of data, its header declares 8"),
        (file_of({"x": F32}, bytes(9)), "cut short or damaged: 9 bytes of data"),
        (file_of({"x": F32 | {"data_offsets": [4, 12]}}, bytes(12)), "begins at byte 4, expected 0"),
        (file_of({"x": F32, "y": F32}), "the data of 'y' begins at byte 0, expected 8"),
        (
            file_of({"__metadata__": {"a": 1}, "x": F32}),
            "__metadata__ should be an object with string values",
        ),
    ],
)
def test_what_is_no_sound_file_is_refused(path: Path, data: bytes, message: str) -> None:
    refuses(read_safetensors, path, data, message)


@given(st.integers(0, LIBRARY.stat().st_size - 1), st.integers(0, 255))
def test_any_damage_is_an_error_or_other_numbers(tmp_path_factory: Any, at: int, value: int) -> None:
    path = tmp_path_factory.mktemp("damage") / "x.safetensors"
    data = bytearray(LIBRARY.read_bytes())
    data[at] = value
    for content in (bytes(data), bytes(data[:at])):
        path.write_bytes(content)
        try:
            read_safetensors(path)
        except ModelFileError as error:
            assert str(error).startswith(f"{path}: ")


def test_what_cannot_be_written_leaves_the_file(path: Path) -> None:
    path.write_bytes(b"before")
    for arrays, message in (
        ({"x": np.array(["a"])}, "holds float16"),
        ({"x": np.array([True])}, "is bool"),
        ({"": np.zeros(2)}, "cannot be the name"),
        ({"__metadata__": np.zeros(2)}, "cannot be the name of an array"),
    ):
        with pytest.raises(ModelFileError, match=message):
            write_safetensors(path, arrays)
    with pytest.raises(ModelFileError, match="must be UTF-8"):
        write_safetensors(path, {"x": np.zeros(2)}, {"a": "\udcff"})
    assert path.read_bytes() == b"before"
