"""Model files: Marian's own come back byte for byte, damaged and hostile ones are refused."""

from __future__ import annotations

import errno
import io
import os
import random
import stat
import struct
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mgraph.errors import ModelFileError
from mgraph.files import archive
from mgraph.files.items import MODEL_YML, model_yml, read_npz, replacing, with_model_yml, write_npz
from tests.helpers.items import allocating_less_than, read_changed
from tests.helpers.places import DATA

MARIAN = DATA / "items" / "model.npz"
TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "u1", "u2", "u4", "u8"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.npz"


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode("latin-1")
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(text))
        + text
        + data
    )


def header(descr: str = "<f4", shape: str = "(1,)", order: str = "False") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n"


def zipped(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return path


def test_marians_file_comes_back_byte_for_byte(path: Path) -> None:
    items = read_npz(MARIAN)
    assert list(items)[-1] == MODEL_YML
    assert (items["decoder_Wemb"].shape, items["decoder_Wemb"].dtype) == ((4, 2), np.float32)
    write_npz(path, items)
    assert path.read_bytes() == MARIAN.read_bytes()


def test_europarl_models_come_back_byte_for_byte(path: Path, fixtures: Path) -> None:
    files = sorted((fixtures / "marian").glob("*/*.npz"))
    assert files
    for file in files:
        items = read_npz(file)
        write_npz(path, items)
        assert path.read_bytes() == file.read_bytes()
        text = model_yml(items)
        assert text is not None and np.array_equal(with_model_yml(text), items[MODEL_YML])


def test_model_yml() -> None:
    items = read_npz(MARIAN)
    text = model_yml(items)
    assert text is not None and "\nversion: v1.12.42" in text and "\ntype: s2s\n" in text
    assert with_model_yml(text).tobytes() == items[MODEL_YML].tobytes()
    assert model_yml({}) is None
    with pytest.raises(ModelFileError, match=r"a row of int8, it is float32 of shape \(2,\)"):
        model_yml({MODEL_YML: np.zeros(2, np.float32)})


@pytest.mark.parametrize("length", [0, 1, 254, 255, 256, 511])
def test_model_yml_is_padded_as_marian_pads(length: int) -> None:
    item = with_model_yml("x" * length)
    assert item.dtype == np.int8 and item.size == (length // 256 + 1) * 256
    assert model_yml({MODEL_YML: item}) == "x" * length


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
    path = tmp_path_factory.mktemp("items") / "model.npz"
    write_npz(path, items)
    again = read_npz(path)
    assert list(again) == list(items)
    for name, array in items.items():
        assert (again[name].dtype, again[name].shape) == (array.dtype, array.shape)
        assert again[name].tobytes() == array.tobytes()
    with np.load(path) as loaded:
        assert {name: loaded[name].tobytes() for name in loaded.files} == {
            name: array.tobytes() for name, array in items.items()
        }


def test_arrays_of_any_layout_are_stored_in_order(path: Path) -> None:
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    items = {"big": array, "columns": np.asfortranarray(array), "turned": array.T, "cut": array[:, ::2]}
    write_npz(path, items)
    for name, value in read_npz(path).items():
        assert value.dtype == np.dtype("float32") and value.flags.c_contiguous and value.flags.writeable
        np.testing.assert_array_equal(value, items[name])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_what_numpy_saves(path: Path, save: Callable[..., None]) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    save(path, a=array, b=np.asfortranarray(array), c=array.astype(">f8"), d=np.arange(3), e=np.float16(2))
    items = read_npz(path)
    np.testing.assert_array_equal(items["a"], array)
    np.testing.assert_array_equal(items["b"], array)
    np.testing.assert_array_equal(items["c"], array)
    assert items["d"].dtype == np.uint64  # as Marian reads 8-byte integers
    assert items["e"].shape == ()


def test_reads_zip64(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    items = {name: np.full(200, i, np.int32) for i, name in enumerate("abc")}
    write_npz(path, items)
    data = bytearray(path.read_bytes())
    assert b"PK\6\6" in data
    end = data.rindex(b"PK\5\6")
    data[end + 8 : end + 20] = b"\xff" * 12  # as in a file of more than 4 GiB
    path.write_bytes(data)
    assert {name: array[0] for name, array in read_npz(path).items()} == {"a": 0, "b": 1, "c": 2}
    for at, message in (data.rindex(b"PK\6\6"), "Zip64 end record"), (end - 20, "Zip64 locator"):
        data[at : at + 4] = b"none"
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match=message):
            read_npz(path)


@pytest.mark.parametrize("before", [b"", struct.pack("<2H5s", 0x5455, 5, b"times")])
@pytest.mark.parametrize(
    ("kind", "length", "given"),
    [(1, 16, 2), (1, 15, 2), (1, 24, 2), (1, 8, 1), (2, 16, 2), (2, 13, 2), (1, 16, 0)],
)
def test_sizes_of_64_bits_are_in_a_field_of_the_directory(
    before: bytes, kind: int, length: int, given: int, path: Path
) -> None:
    data = bytearray(zipped(path, ("a.npy", npy(header(), struct.pack("<f", 2.5)))).read_bytes())
    at, end = data.rindex(b"PK\1\2"), data.rindex(b"PK\5\6")
    (size,) = struct.unpack_from("<L", data, at + 20)
    extra = before + struct.pack(f"<2H{given}Q", kind, length, *[size] * given)
    data[at + 20 : at + 28] = b"\xff" * 8
    struct.pack_into("<H", data, at + 30, len(extra))
    struct.pack_into("<L", data, end + 12, end - at + len(extra))
    path.write_bytes(data[:end] + extra + data[end:])
    if (kind, length, given) == (1, 16, 2):
        assert read_npz(path)["a"] == 2.5
    else:
        with pytest.raises(ModelFileError, match=r"'a\.npy' claims to be .* but gives no size"):
            read_npz(path)


def test_a_file_cut_at_any_byte_is_refused(path: Path) -> None:
    write_npz(path, {"a": np.arange(3, dtype=np.float32), MODEL_YML: with_model_yml("type: s2s")})
    for size in reversed(range(path.stat().st_size)):
        os.truncate(path, size)
        with pytest.raises(ModelFileError, match=r"model\.npz: (cut short|not an npz)"):
            read_npz(path)


def test_changed_bytes_are_refused_or_change_nothing(path: Path) -> None:
    small = {"a": np.arange(3, dtype=np.float32), "b": np.int8([[1, 2]])}
    write_npz(path, small)
    whole = path.read_bytes()
    random_ = random.Random(1)
    changes = [[(at, whole[at] ^ 1)] for at in range(len(whole))]
    changes += [
        [(random_.randrange(len(whole)), random_.randrange(256)) for _ in range(random_.randint(2, 6))]
        for _ in range(500)
    ]
    with allocating_less_than(900_000):
        for items in read_changed(read_npz, path, changes):
            assert {n: a.tobytes() for n, a in items.items()} == {n: a.tobytes() for n, a in small.items()}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (npy(header("|O")), "not an array of plain numbers"),
        (npy(header("[('a', '<f4')]")), "not an array of plain numbers"),
        (npy(header("<c8")), "not an array of plain numbers"),
        (npy(header("|b1")), "not an array of plain numbers"),
        (npy(header("<U1")), "not an array of plain numbers"),
        (npy(header("<f1")), "not an array of plain numbers"),
        (npy(header("|f4"), b"\0" * 4), "not an array of plain numbers"),
        (npy(header(shape="(-1,)")), "not an array of plain numbers"),
        (npy(header(shape="(1e9,)")), "not an array of plain numbers"),
        (npy(header(shape="__import__('os')")), "not an array of plain numbers"),
        (npy("{'shape': (1,)}"), "not an array of plain numbers"),
        (
            npy(header(shape="(2,)"), b"\0" * 4),
            r"4 bytes of numbers, but its shape is \(2,\) of 4 bytes each",
        ),
        (npy(header(shape="(1,)"), b"\0" * 5), "5 bytes of numbers"),
        (npy(header(shape="(999999999999, 999999999999)")), "0 bytes of numbers"),
        (npy(header(shape="(0, 9999999999999999999)")), "0 bytes of numbers"),
        (npy(header(shape=f"({'1, ' * 33})"), b"\0" * 4), "4 bytes of numbers"),
        (npy(header() + " " * 5000, b"\0" * 4), "a header of 5"),
        (npy(header(), b"\0" * 4, version=9), "not an array in numpy's format"),
        (npy(header())[:9], "not an array in numpy's format"),
        (npy(header())[:40], "a header of"),
        (b"", "not an array in numpy's format"),
        (b"\x80\x04K*.", "not an array in numpy's format"),  # a pickle
    ],
)
def test_arrays_that_are_refused(path: Path, array: bytes, message: str) -> None:
    zipped(path, ("good.npy", npy(header(), b"\0" * 4)), ("bad.npy", array))
    with pytest.raises(ModelFileError, match=rf"model\.npz: 'bad\.npy' .*{message}"):
        read_npz(path)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_of_numpys_format(path: Path, version: int) -> None:
    zipped(path, ("a.npy", npy(header(), struct.pack("<f", 2.5), version)))
    assert read_npz(path)["a"] == 2.5


def test_names_that_are_refused(path: Path) -> None:
    array = npy(header(), b"\0" * 4)
    with pytest.raises(ModelFileError, match=r"'a\.txt' is not an item"):
        read_npz(zipped(path, ("a.txt", array)))
    with pytest.raises(ModelFileError, match=r"'\.npy' is not an item"):
        read_npz(zipped(path, (".npy", array)))
    with pytest.raises(ModelFileError, match="a member's name has 5004 bytes"):
        read_npz(zipped(path, ("a" * 5000 + ".npy", array)))
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped(path, ("a.npy", array), ("a.npy", array))
    with pytest.raises(ModelFileError, match=r"'a\.npy' appears twice"):
        read_npz(path)
    data = zipped(path, ("abc.npy", array)).read_bytes()
    path.write_bytes(data.replace(b"abc", b"a\xffc"))
    with pytest.raises(ModelFileError, match="name is not UTF-8"):
        read_npz(path)
    path.write_bytes(data.replace(b"abc", b"xyz", 1))
    with pytest.raises(ModelFileError, match=r"header of 'abc\.npy' disagree"):
        read_npz(path)


def test_a_bomb_is_refused_before_it_grows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert archive.expansion_limit(1 << 30) == 1 << 34
    monkeypatch.setattr(archive, "MIN_EXPANSION_BYTES", 1 << 19)
    data = npy(header("|u1", f"({1 << 20},)")) + bytes(1 << 20)
    zipped(path, ("a.npy", data), method=zipfile.ZIP_DEFLATED)
    with (
        allocating_less_than(90_000),
        pytest.raises(ModelFileError, match=rf"would expand to {len(data)} \(at most {1 << 19} are read\)"),
    ):
        read_npz(path)


def test_a_member_that_grows_beyond_its_size_is_refused(path: Path) -> None:
    data = npy(header("|u1", "(50000,)")) + bytes(50000)
    packed = bytearray(zipped(path, ("a.npy", data), method=zipfile.ZIP_DEFLATED).read_bytes())
    entry = packed.rindex(b"PK\1\2")
    struct.pack_into("<L", packed, entry + 24, 100)
    path.write_bytes(packed)
    with pytest.raises(ModelFileError, match="does not unpack to the 100 bytes"):
        read_npz(path)


def test_damaged_compressed_data_are_refused(path: Path) -> None:
    packed = bytearray(
        zipped(path, ("a.npy", npy(header(), bytes(4))), method=zipfile.ZIP_DEFLATED).read_bytes()
    )
    packed[packed.index(b"a.npy") + 5] = 0xFF  # begins a block of a kind that does not exist
    path.write_bytes(packed)
    with pytest.raises(ModelFileError, match=r"model\.npz: 'a\.npy' is damaged: .*invalid block type"):
        read_npz(path)


def test_members_over_one_another_are_refused(path: Path) -> None:
    """Many names for the same bytes: small as a file, large in memory."""
    data = zipped(path, ("a.npy", npy(header("|u1", "(9000,)")) + bytes(9000))).read_bytes()
    start = data.rindex(b"PK\1\2")
    end = data.rindex(b"PK\5\6")
    entries = b"".join(data[start:end].replace(b"a.npy", b"%c.npy" % i) for i in range(97, 107))
    end_record = bytearray(data[end:])
    struct.pack_into("<2HL", end_record, 8, 10, 10, len(entries))
    path.write_bytes(data[:start] + entries + end_record)
    with pytest.raises(ModelFileError, match="its members overlap"):
        read_npz(path)


def test_too_many_members_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(path, *((f"{i}.npy", b"") for i in range(4)))
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    with pytest.raises(ModelFileError, match="with 4 members"):
        read_npz(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(path: Path, method: int) -> None:
    zipped(path, ("a.npy", npy(header(), b"\0" * 4)), method=method)
    with pytest.raises(ModelFileError, match="packed by a method"):
        read_npz(path)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [(2, 3, "the zip directory is damaged at its byte 0"), (8, 1, r"'a\.npy' is encrypted or packed by")],
)
def test_other_entries_of_the_directory_are_refused(path: Path, at: int, value: int, message: str) -> None:
    data = bytearray(zipped(path, ("a.npy", npy(header(), b"\0" * 4))).read_bytes())
    data[data.rindex(b"PK\1\2") + at] = value
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        read_npz(path)


def test_other_files_are_refused(path: Path, tmp_path: Path) -> None:
    for data in (b"", b"PK", b"\x93NUMPY", b"a" * 100_000, b"PK\5\6"):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match="not an npz"):
            read_npz(path)
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "none.npz")


def test_an_archive_comment_is_allowed(path: Path) -> None:
    with zipfile.ZipFile(zipped(path, ("a.npy", npy(header(), b"\0" * 4))), "a") as file:
        file.comment = b"PK of mine"
    assert list(read_npz(path)) == ["a"]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"": np.zeros(1)}, "cannot be the name"),
        ({"a\0b": np.zeros(1)}, "cannot be the name"),
        ({"\ud800": np.zeros(1)}, "cannot be the name"),
        ({"a" * 4093: np.zeros(1)}, "cannot be the name"),
        ({"a": np.array([object()])}, "item 'a' is object"),
        ({"a": np.zeros(1, bool)}, "item 'a' is bool"),
        ({"a": np.zeros(1, complex)}, "item 'a' is complex128"),
        ({"a": "text"}, "item 'a' is <U4"),
    ],
)
def test_items_that_cannot_be_written(path: Path, items: dict[str, np.ndarray], message: str) -> None:
    path.write_bytes(b"before")
    with pytest.raises(ModelFileError, match=message):
        write_npz(path, {"good": np.zeros(1), **items})
    assert path.read_bytes() == b"before"


def test_the_longest_name_and_the_most_axes(path: Path) -> None:
    items = {"a" * 4092: np.zeros((1,) * 32)}
    write_npz(path, items)
    assert [(name, array.ndim) for name, array in read_npz(path).items()] == [("a" * 4092, 32)]
    write_npz(path, {"a": np.zeros((1,) * 33)})
    with pytest.raises(ModelFileError, match=r"'a\.npy' has 8 bytes of numbers, but its shape"):
        read_npz(path)


def test_writing_is_all_or_nothing(path: Path) -> None:
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError, match="disk"), replacing(path) as file:
        file.write(b"half")
        raise RuntimeError("the disk is gone")
    assert path.read_bytes() == b"before"
    with replacing(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert os.listdir(path.parent) == [path.name]


def test_a_file_and_then_its_folder_are_flushed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    monkeypatch.setattr(os, "fsync", lambda handle: folders.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    write_npz(path, {})
    assert folders == [False, True]


def test_any_name_that_the_system_allows_is_written(tmp_path: Path) -> None:
    for name in ("a" * 251 + ".npz", "я" * 125 + ".npz"):
        write_npz(tmp_path / name, {"a": np.zeros(1)})
        assert list(read_npz(tmp_path / name)) == ["a"]


def test_permissions_of_a_file_stay(path: Path) -> None:
    path.write_bytes(b"before")
    for mode in (0o600, 0o640, 0o444):
        path.chmod(mode)
        write_npz(path, {"a": np.zeros(1)})
        assert stat.S_IMODE(path.stat().st_mode) == mode and list(read_npz(path)) == ["a"]


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with replacing(pipe) as file:
        file.write(b"through")
    reader.join(5)
    assert read == [b"through"] and pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_full_disk_is_named_by_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_npz(path, {"a": np.zeros(1)})
    assert caught.value.filename == str(path) and not os.listdir(path.parent)


def test_what_cannot_be_opened_is_named_as_the_user_did(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "model.npz"
    with pytest.raises(FileNotFoundError) as caught:
        write_npz(path, {"a": np.zeros(1)})
    assert caught.value.filename == str(path)


def test_writing_through_a_link_and_onto_a_folder(tmp_path: Path) -> None:
    target, link = tmp_path / "target.npz", tmp_path / "link.npz"
    target.write_bytes(b"")
    link.symlink_to(target)
    write_npz(link, {"a": np.zeros(1, np.float32)})
    assert link.is_symlink() and list(read_npz(target)) == ["a"]
    with pytest.raises(IsADirectoryError), replacing(tmp_path):
        pytest.fail("a folder is refused before there is anything to write")


def test_an_empty_file(path: Path) -> None:
    write_npz(path, {})
    assert read_npz(path) == {}
    assert path.read_bytes() == _empty_zip()


def _empty_zip() -> bytes:
    stream = io.BytesIO()
    zipfile.ZipFile(stream, "w").close()
    return stream.getvalue()
