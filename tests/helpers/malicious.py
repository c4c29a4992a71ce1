"""The parts of files that would fill the machine's memory."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zipfile

import numpy as np

MEBIBYTE = 1 << 20


def text(word: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(word)) + word.encode()


def number(value: int) -> bytes:
    return pickle.BININT + struct.pack("<i", value)


def named(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def legacy(*pickles: bytes) -> bytes:
    """A file of an old PyTorch, up to the contents of its storages."""
    first = (pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {}))
    return b"".join([*first, *pickles])


PROTO = b"\x80\x02"
PAIRS = PROTO + pickle.EMPTY_TUPLE + (pickle.BINPUT + b"\0" + pickle.BINGET + b"\0" + pickle.TUPLE2) * 60
"""Nested tuples, each holding the next one twice: tiny in memory, but hashing, printing or comparing them
never ends."""


def overlapping() -> bytes:
    """A hundred tensors, each of which is one whole 8 MiB storage without its first few numbers."""
    count = 1 << 21
    asked = [text("storage"), named("torch", "FloatStorage"), text("0"), text("cpu"), number(count)]
    storage = pickle.MARK + b"".join(asked) + pickle.TUPLE + pickle.BINPERSID + pickle.BINPUT + b"\0"
    entries = [PROTO, pickle.EMPTY_DICT, pickle.MARK]
    for i in range(100):
        view = [storage if i == 0 else pickle.BINGET + b"\0", number(i), number(count - i), pickle.TUPLE1]
        view += [number(1), pickle.TUPLE1, pickle.NEWFALSE, pickle.EMPTY_DICT, pickle.TUPLE, pickle.REDUCE]
        entries += [text(f"w{i}"), named("torch._utils", "_rebuild_tensor_v2"), pickle.MARK, *view]
    entries += [pickle.SETITEMS, pickle.STOP]
    return zipped({"a/data.pkl": b"".join(entries), "a/data/0": bytes(4 * count)}, zipfile.ZIP_STORED)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method, compresslevel=1) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def array(shape: str, data: bytes = b"") -> bytes:
    """A ``.npy`` file that claims to have this shape."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data


def objects() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    return stream.getvalue()


def claimed(size: int) -> bytes:
    """A zip file of one array whose directory says that it unpacks to ``size`` bytes."""
    data = bytearray(zipped({"a.npy": array("(1,)", bytes(4))}))
    at = data.rfind(b"PK\1\2") + 24
    data[at : at + 4] = struct.pack("<L", size)
    return bytes(data)


def laughs(key: str = "a") -> str:
    """A map of lists, each of which repeats the one before ten times: the last has a billion words."""
    lists = [f"{key}0: &a0 [{', '.join(['lol'] * 10)}]"]
    lists += [f"{key}{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    return "\n".join(lists)


PROGRESS = "epochs: 1\nbatches: 1\nbatches-epoch: 1\nsamples: 1\neta: 1\n"


def with_text(yml: str) -> bytes:
    """A model that has nothing but ``special:model.yml``."""
    return zipped({"special:model.yml.npy": array(f"({len(yml)},)", yml.encode()).replace(b"<f4", b"<i1")})


def header(body: bytes, size: int | None = None) -> bytes:
    """A safetensors file whose header is ``body``."""
    return struct.pack("<Q", len(body) if size is None else size) + body


def items(*numbers: int, rest: bytes = b"") -> bytes:
    """A ``.bin`` file that begins with these numbers."""
    return struct.pack(f"<{len(numbers)}Q", *numbers) + rest


def packed(unit: bytes, mebibytes: int) -> bytes:
    """``unit`` repeated until it fills ``mebibytes`` MiB, compressed by gzip."""
    return gzip.compress(unit * (16 * MEBIBYTE // len(unit)), 1) * (mebibytes // 16)


def shortlist(*sizes: int) -> bytes:
    return struct.pack("<6Q", 0xF11A48D5013417F5, 0, 100, 100, *sizes)


def onnx(operation: str, values: dict[str, tuple[list[int], list[int]]]) -> bytes:
    """An ONNX model of one operation on known integers."""
    import onnx

    made, kind = onnx.helper, onnx.TensorProto.INT64
    tensors = [made.make_tensor(name, kind, *value) for name, value in values.items()]
    output = made.make_tensor_value_info("out", kind, [None])
    graph = made.make_graph([made.make_node(operation, list(values), ["out"])], "g", [], [output], tensors)
    found: bytes = made.make_model(graph, opset_imports=[made.make_opsetid("", 17)]).SerializeToString()
    return found
