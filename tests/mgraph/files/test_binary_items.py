"""Binary model files: Marian's own come back byte for byte, quantized ones as floats, damaged ones not."""

from __future__ import annotations

import mmap
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mgraph import ModelFileError
from mgraph.files.binary_items import read_bin, write_bin
from mgraph.files.items import MODEL_YML, read_npz, with_model_yml
from nmt.files.loading import load_model
from tests.helpers.items import allocating_less_than, read_changed, refuses, same
from tests.helpers.places import DATA

ITEMS = DATA / "items"
TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
SMALL = {"a": np.arange(3, dtype=np.float32), "b": np.int8([[1, 2]])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.bin"


def entry(name: bytes = b"a\0", code: int = 0x404, shape: tuple[int, ...] = (1,), size: int = 256) -> tuple:
    return name, code, shape, size


def binary(*entries: tuple, count: int | None = None, version: int = 1, data: int | None = None) -> bytes:
    """A file with these entries, whose data is zeros."""
    header = struct.pack("<2Q", version, len(entries) if count is None else count)
    for name, code, shape, size in entries:
        header += struct.pack("<4Q", len(name), code, len(shape), size)
    header += b"".join(name for name, *_ in entries)
    for *_, shape, _ in entries:
        header += struct.pack(f"<{len(shape)}i", *shape)
    return header + struct.pack("<Q", 0) + bytes(sum(e[3] for e in entries) if data is None else data)


# ---------------------------------------------------------------- Marian's files


def test_marians_file_is_its_npz_and_comes_back_byte_for_byte(path: Path) -> None:
    items = read_bin(ITEMS / "model.bin")
    npz = read_npz(ITEMS / "model.npz")
    assert list(items) == list(npz) and items.pop(MODEL_YML).dtype == npz.pop(MODEL_YML).dtype
    assert same(items, npz)
    write_bin(path, read_bin(ITEMS / "model.bin"))
    assert path.read_bytes() == (ITEMS / "model.bin").read_bytes()


def test_europarl_models(path: Path, fixtures: Path) -> None:
    folder = fixtures / "marian" / "transformer-joint"
    items, npz = read_bin(folder / "model.bin"), read_npz(folder / "model.npz")
    quantized = read_bin(folder / "model.intgemm8.bin")
    assert list(items) == list(npz) == list(quantized)
    write_bin(path, items)
    assert path.read_bytes() == (folder / "model.bin").read_bytes()
    for items_ in (items, npz, quantized):
        del items_[MODEL_YML]
    assert same(items, npz)
    for name, array in npz.items():
        step = 1.001 * np.abs(array).max() / 127
        np.testing.assert_allclose(quantized[name], array, rtol=0, atol=step / 2, err_msg=name)
    model = load_model(folder / "model.bin")
    assert model.key == load_model(folder / "model.npz").key == load_model(folder / "model.intgemm8.bin").key


def test_arrays_are_read_only_views_of_the_mapped_file() -> None:
    array = read_bin(ITEMS / "model.bin")["decoder_Wemb"]
    assert not array.flags.writeable and not array.flags.owndata
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)


def test_reading_a_large_file_allocates_nothing(path: Path) -> None:
    write_bin(path, {"big": np.zeros((1 << 20, 4), np.float32), "small": np.zeros(3, np.float32)})
    with allocating_less_than(90_000):
        items = read_bin(path)
    assert items["big"].shape == (1 << 20, 4) and items["small"].shape == (3,)


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize(
    ("bits", "kinds"), [(8, ["", "ssse3", "avx2", "avx512"]), (16, ["", "sse2", "avx2", "avx512"])]
)
def test_quantised_matrices_become_floats(bits: int, kinds: list[str]) -> None:
    npz = read_npz(ITEMS / "quantized.npz")
    first, *others = (read_bin(ITEMS / f"quantized.intgemm{bits}{kind}.bin") for kind in kinds)
    assert all(same(first, other) for other in others)
    assert sorted(first) == sorted(npz)
    for name in ("tall_W", "wide_Wx"):
        multiplier = 127 / np.abs(npz[name]).max() if bits == 8 else 1024
        assert first[name].dtype == np.float32 and first[name].flags.c_contiguous
        np.testing.assert_allclose(first[name], npz[name], rtol=0, atol=0.5001 / multiplier)
        assert not np.array_equal(first[name], npz[name])
    for name in ("ff_bias", "table"):
        assert np.array_equal(first[name], npz[name]) and first[name].dtype == npz[name].dtype


def test_avx512vnni_is_stored_as_avx512(path: Path) -> None:
    data = (ITEMS / "quantized.intgemm8avx512.bin").read_bytes()
    assert data.count(struct.pack("<Q", 0x12001)) == 2
    path.write_bytes(data.replace(struct.pack("<Q", 0x12001), struct.pack("<Q", 0x13001)))
    assert same(read_bin(path), read_bin(ITEMS / "quantized.intgemm8.bin"))


def quantized(code: int, integers: np.ndarray, multiplier: float, name: bytes = b"a_W\0") -> bytes:
    header = binary(entry(name, code, integers.shape), data=0)
    data = integers.tobytes() + struct.pack("<f", multiplier)
    return header + data.ljust(256, b"\0")


@pytest.mark.parametrize(
    ("code", "dtype"), [(0x10001, "i1"), (0x4101, "i1"), (0x10002, "<i2"), (0x4102, "<i2")]
)
def test_integers_lie_transposed_before_their_multiplier(path: Path, code: int, dtype: str) -> None:
    """Bergamot's embeddings, which have other codes, are not transposed."""
    integers = np.array([[-127, 3, 8], [0, 1, 2]], dtype)
    path.write_bytes(quantized(code, integers, 4.0))
    expected = integers.reshape(3, 2).T / np.float32(4)
    np.testing.assert_array_equal(read_bin(path)["a_W"], expected)
    path.write_bytes(quantized(code, integers, 4.0, b"Wemb\0"))
    expected = integers / np.float32(4) if code & 0x4000 else expected
    np.testing.assert_array_equal(read_bin(path)["Wemb"], expected)


def test_a_quantised_matrix_of_zeros(path: Path) -> None:
    path.write_bytes(quantized(0x10001, np.zeros((2, 2), np.int8), np.inf))
    np.testing.assert_array_equal(read_bin(path)["a_W"], np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("multiplier", [0.0, -1.0, np.nan])
def test_impossible_multipliers_are_refused(path: Path, multiplier: float) -> None:
    data = quantized(0x10001, np.zeros((2, 2), np.int8), multiplier)
    refuses(read_bin, path, data, r"'a_W': its quantization multiplier is .*, expected more than 0")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (entry(code=0x11001, shape=(3, 5)), r"'a': a matrix of shape \(3, 5\) cannot be intgemm8avx2"),
        (entry(code=0x10002, shape=(2, 127)), r"'a' has 256 bytes of data, its shape \(2, 127\) needs 512"),
        (entry(code=0x802), "'a' is packed16, packed by FBGEMM .* --gemm-type float32"),
        (entry(code=0x1801), "'a' is packed8avx2"),
        (entry(code=0x2801), "'a' is packed8avx512"),
        (entry(code=0x405), "'a' is of an unknown type, code 0x405"),
        (entry(code=1 << 63), "code 0x8000000000000000"),
    ],
)
def test_types_that_cannot_be_read(path: Path, item: tuple, message: str) -> None:
    refuses(read_bin, path, binary(item), message)


# ---------------------------------------------------------------- our own files


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
        hnp.arrays(
            st.sampled_from(TYPES).map(np.dtype), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)
        ),
        max_size=5,
    )
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, items: dict[str, np.ndarray]) -> None:
    path = tmp_path_factory.mktemp("items") / "model.bin"
    write_bin(path, items)
    assert same(read_bin(path), items)


def test_arrays_of_any_layout_are_stored_in_order(path: Path) -> None:
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    items = {"big": array, "columns": np.asfortranarray(array), "turned": array.T, "cut": array[:, ::2]}
    write_bin(path, items)
    for name, value in read_bin(path).items():
        assert value.dtype == np.dtype("float32") and value.flags.c_contiguous and value.flags.aligned
        np.testing.assert_array_equal(value, items[name])


@pytest.mark.parametrize("count", range(1, 18))
def test_data_begins_at_a_multiple_of_256(path: Path, count: int) -> None:
    """With names of many lengths, the padding before the data is 1 to 256 bytes."""
    for length in (1, 2, 3, 4):
        items = {"x" * length + str(i): np.float32([i]) for i in range(count)}
        write_bin(path, items)
        assert path.stat().st_size % 256 == 0 and same(read_bin(path), items)
        data = path.read_bytes()
        assert data[-256 * count :][:4] == bytes(4) and not any(data[-256 * count - 1 : -256 * count])


def test_old_files_are_not_padded(path: Path) -> None:
    data = struct.pack("<f", 2.5)
    path.write_bytes(binary(entry(b"a\0", size=4), entry(b"bc\0", 0x408, (1,), 8), data=0) + data + bytes(8))
    items = read_bin(path)
    assert items["a"] == 2.5 and items["bc"] == 0 and items["bc"].flags.aligned


def test_writing_is_all_or_nothing(path: Path) -> None:
    write_bin(path, SMALL)
    before = path.read_bytes()
    items = read_bin(path)
    for bad in ({"": np.zeros(1)}, {"a": np.zeros(1, bool)}, {"a": np.zeros((2**31, 0), np.int8)}):
        with pytest.raises(ModelFileError, match=r"model\.bin: "):
            write_bin(path, {"good": np.zeros(1), **bad})
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]
    write_bin(path, {"a": np.zeros(9, np.float32)})
    assert same(items, SMALL), "arrays of the replaced file stay as they were"


# ---------------------------------------------------------------- damaged and hostile files


def test_a_file_cut_at_any_byte_is_refused(path: Path) -> None:
    write_bin(path, {"a": np.arange(3, dtype=np.float32), MODEL_YML: with_model_yml("type: s2s")})
    for size in reversed(range(path.stat().st_size)):
        os.truncate(path, size)
        with pytest.raises(ModelFileError, match=r"model\.bin: (cut short|not a \.bin)"):
            read_bin(path)


def test_changed_bytes_are_refused_or_give_items_of_the_files_size(path: Path) -> None:
    """A binary model has no checksums, so a change may pass, but then only its items come out."""
    write_bin(path, SMALL)
    whole = path.read_bytes()
    header = whole.index(b"a\0b\0") + 4 + 12 + 8
    generator = random.Random(1)
    changes = [[(at, whole[at] ^ 1 << bit)] for at in range(header) for bit in range(8)]
    changes += [
        [(generator.randrange(header), generator.randrange(256)) for _ in range(generator.randint(2, 6))]
        for _ in range(500)
    ]
    passed = 0
    with allocating_less_than(900_000):
        for items in read_changed(read_bin, path, changes):
            passed += 1
            assert len(items) == 2 and sum(array.nbytes for array in items.values()) <= 4 * 512
    assert passed < len(changes) / 4


@given(st.binary(max_size=200), st.integers(0, 3))
def test_any_bytes_are_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, count: int
) -> None:
    path = tmp_path_factory.mktemp("items") / "model.bin"
    for start in (b"", struct.pack("<2Q", 1, count)):
        path.write_bytes(start + data)
        try:
            read_bin(path)
        except ModelFileError as error:
            assert str(error).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not a \.bin model file \(0 bytes\)"),
        (b"PK\3\4" + bytes(100), r"not a \.bin model file: it begins with 0x4034b50, expected version 1"),
        (binary(version=2), r"encrypted by Marian \(version 2 of \.bin\)"),
        (binary(version=3), "begins with 0x3, expected version 1"),
        (binary(count=100_001), "its header declares 100001 items"),
        (binary(count=2**64 - 1), "its header declares 18446744073709551615 items"),
        (binary(count=99_999), "the list of items would reach byte 3199984, the file has 24"),
        (binary(entry(b"a")), "the name of item 0 has 1 bytes"),
        (binary(entry(b"")), "the name of item 0 has 0 bytes"),
        (binary(entry(b"a" * 5000)), "the name of item 0 has 5000 bytes"),
        (binary(entry(b"ab")), "does not end in its only zero byte: b'ab'"),
        (binary(entry(b"a\0b\0")), "does not end in its only zero byte"),
        (binary(entry(b"a\xff\0")), "is not UTF-8"),
        (binary(entry(), entry()), "'a' appears twice"),
        (binary(entry(shape=(-1,))), r"'a' has the shape \(-1,\), which no array can have"),
        (binary(entry(shape=(2, -1, -1))), r"'a' has the shape \(2, -1, -1\)"),
        (binary(entry(shape=(2**31 - 1, 2**31 - 1, 0), size=0)), "which no array can have"),
        (binary(entry(shape=(1,) * 33)), "'a' has 33 axes"),
        (binary(entry(shape=(65,))), r"'a' has 256 bytes of data, its shape \(65,\) needs 260"),
        (binary(entry(size=1024)), "'a' has 1024 bytes of data"),
        (binary(entry(), data=255), "the data of 'a' would reach byte 318, the file has 317"),
        (binary(entry(), data=257), "1 bytes too many after its last item"),
        (binary(entry(size=2**64 - 1), data=0), "the data of 'a' would reach byte 18446744073709551677"),
    ],
)
def test_headers_that_are_refused(path: Path, data: bytes, message: str) -> None:
    refuses(read_bin, path, data, message)


@pytest.mark.parametrize("field", range(6))
def test_absurd_numbers_allocate_nothing(path: Path, field: int) -> None:
    data = bytearray(binary(entry()))
    struct.pack_into("<Q", data, 8 * field, 2**63)
    path.write_bytes(data)
    with allocating_less_than(90_000), pytest.raises(ModelFileError):
        read_bin(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bin(tmp_path / "none.bin")
    with pytest.raises(IsADirectoryError):
        read_bin(tmp_path)
