"""Memory bombs: small files that would fill the machine are refused, quickly and with little memory.

Each is read in a process of its own, forked from one that has imported everything.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mgraph.errors import MGraphError
from tests.helpers.malicious import (
    MEBIBYTE,
    PAIRS,
    PROGRESS,
    PROTO,
    array,
    claimed,
    header,
    items,
    laughs,
    legacy,
    objects,
    onnx,
    overlapping,
    packed,
    shortlist,
    with_text,
    zipped,
)
from tests.helpers.places import ROOT

MOST_BYTES, MOST_SECONDS = 200 * MEBIBYTE, 2
# The most that a reader may take if it does not refuse the file, so that the test does no harm.
LIMIT_BYTES, LIMIT_SECONDS = 1 << 31, 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and measures of Linux")


def read_torch(path: str) -> Any:
    from nmt.files.huggingface.torch_files import read_torch

    return read_torch(path)


def read_items(path: str) -> Any:
    from mgraph.files.parameter_files import read_items

    return read_items(path)


def read_options(path: str) -> Any:
    from nmt.settings.model_options import model_options

    return model_options(read_items(path), path)


def read_config(path: str) -> Any:
    from nmt.settings import DECODE
    from nmt.settings.config import read_config

    return read_config(DECODE, path)


def read_progress(path: str) -> Any:
    from nmt.training.checkpoints.state_files import read_state

    return read_state(Path(path).read_text(), path)


def read_json(path: str) -> Any:
    from nmt.files.huggingface.folders import import_huggingface

    return import_huggingface(os.path.dirname(path), "model.npz")


def read_vocab(path: str) -> Any:
    from nmt.text.vocabs.loading import load_vocab

    return load_vocab(path)


def read_pieces(path: str) -> Any:
    from nmt.text.vocabs.pieces import read_piece_model

    return read_piece_model(Path(path).read_bytes(), path)


def read_shortlist(path: str) -> Any:
    from nmt.search.shortlist import load_shortlist
    from nmt.text.vocabs.words import DefaultVocab

    vocab = DefaultVocab({"</s>": 0, "<unk>": 1, "a": 2}, "v")
    return load_shortlist([path], vocab, vocab, size=3, shared=True)


def read_vectors(path: str) -> Any:
    from nmt.training.vocabularies import read_vectors

    return read_vectors(path, (4, 4))


def read_lines(path: str) -> Any:
    from nmt.text.parallel import read_rows

    return sum(1 for _ in read_rows([path]))


def read_onnx(path: str) -> Any:
    import mgraph
    from mgraph.bridges.onnx.importing import import_onnx

    return import_onnx(mgraph.ExpressionGraph(), path)


class Bomb(NamedTuple):
    name: str
    data: Callable[[], bytes]
    read: Callable[[str], Any]
    message: str
    """Part of the error message."""


HUGE = 1 << 40
MANY = 3_000_000
BOMBS = {
    "a place in a pickle's memo": Bomb(
        "p.bin", lambda: PROTO + b"}r\xff\xff\xff\x0f.", read_torch, "not a file of PyTorch's"
    ),
    "the same in an archive": Bomb(
        "p.bin", lambda: zipped({"a/data.pkl": PROTO + b"]r\xff\xff\xff\x0f."}), read_torch, "a dictionary"
    ),
    "a long integer": Bomb("p.bin", lambda: PROTO + b"\x8b\xff\xff\xff\x7f.", read_torch, "an integer of"),
    "a long text": Bomb("p.bin", lambda: b"\x80\4\x8d" + items(HUGE), read_torch, "a text of"),
    "a long array of bytes": Bomb("p.bin", lambda: b"\x80\5\x96" + items(HUGE), read_torch, "the operation"),
    "a pickle's frame": Bomb("p.bin", lambda: b"\x80\4\x95" + items(HUGE) + b"}.", read_torch, "not a file"),
    "many lists": Bomb("p.bin", lambda: PROTO + b"]" * MANY, read_torch, "more than 262144 operations"),
    "many lists, packed": Bomb(
        "p.bin", lambda: zipped({"a/data.pkl": PROTO + b"]" * MANY}), read_torch, "262144 operations"
    ),
    "a large pickle, packed": Bomb(
        "p.bin", lambda: zipped({"a/data.pkl": bytes(48 * MEBIBYTE)}), read_torch, "too large"
    ),
    "a key that takes for ever to hash": Bomb(
        "p.bin", lambda: legacy(PROTO + b"}" + PAIRS[2:] + b"Ns."), read_torch, "string keys"
    ),
    "a storage that takes for ever to print": Bomb(
        "p.bin", lambda: legacy(PAIRS + pickle.BINPERSID + b"."), read_torch, "only plain storages"
    ),
    "storages that take for ever to compare": Bomb(
        "p.bin", lambda: legacy(b"\x80\x02}.", PROTO + b"]" + PAIRS[2:] + b"a."), read_torch, "the storages"
    ),
    "tensors over one another": Bomb("p.bin", overlapping, read_torch, "its tensors overlap"),
    "aliases in a training state": Bomb(
        "p.yml", lambda: (PROGRESS + laughs()).encode(), read_progress, "with its aliases it is longer"
    ),
    "long words behind aliases": Bomb(
        "p.yml",
        lambda: (PROGRESS + f"a: &a {'x' * 30_000}\nb: [{'*a,' * 9_000}]").encode(),
        read_progress,
        "with its aliases it is longer",
    ),
    "an alias of itself": Bomb("p.yml", lambda: f"{PROGRESS}a: &a [*a]".encode(), read_progress, "an alias"),
    "aliases in a configuration": Bomb(
        "c.yml", lambda: laughs("").encode(), read_config, "with its aliases it is longer"
    ),
    "aliases in options": Bomb("m.npz", lambda: with_text(laughs()), read_options, "aliases and tags"),
    "lists in one another": Bomb(
        "c.yml", lambda: b"a: " + b"[" * 60_000, read_config, "more than 16 nested maps and lists"
    ),
    "a long configuration": Bomb("c.yml", lambda: b"- a\n" * MANY, read_config, "at most 65536 are read"),
    "an npz of a huge shape": Bomb(
        "m.npz", lambda: zipped({"a.npy": array(f"({HUGE},)")}), read_items, "0 bytes of numbers, but"
    ),
    "an npz of no numbers": Bomb(
        "m.npz", lambda: zipped({"a.npy": array(f"(0, {HUGE * 2})")}), read_items, "0 bytes of numbers, but"
    ),
    "an npz of zeros": Bomb(
        "m.npz", lambda: zipped({"a.npy": array("(26214400,)", bytes(100 * MEBIBYTE))}), read_items, "expand"
    ),
    "an npz that hides its size": Bomb("m.npz", lambda: claimed(0xFFFFFFF0), read_items, "would expand to"),
    "an npz of objects": Bomb("m.npz", lambda: zipped({"a.npy": objects()}), read_items, "plain numbers"),
    "a header of safetensors": Bomb("m.safetensors", lambda: header(b"{}", HUGE), read_items, "not a safe"),
    "lists in that header": Bomb(
        "m.safetensors",
        lambda: header(b'{"a":[' + b",".join([b"{}"] * MANY) + b"]}"),
        read_items,
        "braces, brackets and commas",
    ),
    "deep lists in it": Bomb(
        "m.safetensors", lambda: header(b'{"a":' + b"[" * 900_000), read_items, "is not JSON"
    ),
    "items of a bin": Bomb("m.bin", lambda: items(1, HUGE, rest=bytes(64)), read_items, "items"),
    "the name of an item": Bomb("m.bin", lambda: items(1, 1, HUGE, 0x404, 1, 4), read_items, "the name of"),
    "the axes of an item": Bomb(
        "m.bin", lambda: items(1, 1, 2, 0x404, HUGE, 4, rest=b"a\0"), read_items, "axes"
    ),
    "the data of an item": Bomb(
        "m.bin",
        lambda: items(1, 1, 2, 0x404, 1, HUGE, rest=b"a\0" + struct.pack("<iQ", 2**31 - 1, 0)),
        read_items,
        "cut short or damaged",
    ),
    "a piece of SentencePiece's": Bomb(
        "v.spm", lambda: b"\n\xff\xff\xff\xff\x07" + bytes(99), read_vocab, "not a SentencePiece model"
    ),
    "empty pieces": Bomb("v.spm", lambda: b"\n\0" * 4 * MANY, read_vocab, "more than 524288 pieces"),
    "texts beside the pieces": Bomb(
        "v.spm", lambda: b"\x12\x80\x9b\xee\x02" + b"\n\0" * MANY, read_vocab, "bytes of other data"
    ),
    "a number without an end": Bomb("v.spm", lambda: b"\xff" * MANY, read_pieces, "does not end"),
    "a long word of a vocabulary": Bomb(
        "v.yml", lambda: b'{"' + b"a" * 2 * MANY + b'": 1}', read_vocab, "needs the word <unk>"
    ),
    "an id of a vocabulary": Bomb(
        "v.yml", lambda: b"</s>: 0\n<unk>: 1\na: 4294967295", read_vocab, "has the id 4294967295"
    ),
    "a packed vocabulary": Bomb("v.gz", lambda: packed(b"\n", 256), read_vocab, "unpacks to more than"),
    "lines of a vocabulary": Bomb("v.txt", lambda: b"\n" * 20 * MANY, read_vocab, "empty line"),
    "a packed shortlist": Bomb("l.gz", lambda: packed(b"aa ", 256), read_shortlist, "unpacks to more than"),
    "words of a shortlist": Bomb("l.txt", lambda: b"aa " * 4 * MANY, read_shortlist, "expected 'target"),
    "a binary shortlist": Bomb("l.bin", lambda: shortlist(HUGE, HUGE), read_shortlist, "by its header"),
    "word vectors of one line": Bomb("e.gz", lambda: packed(b"1 ", 256), read_vectors, "a line of more than"),
    "a corpus of one line": Bomb("t.gz", lambda: packed(b"a", 512), read_lines, "a line of more than"),
    "a configuration of HuggingFace's": Bomb(
        "config.json",
        lambda: b'{"a":[' + b",".join([b"{}"] * MANY) + b"]}",
        read_json,
        "braces, brackets and commas",
    ),
    "a shape in ONNX": Bomb(
        "m.onnx", lambda: onnx("ConstantOfShape", {"s": ([1], [HUGE])}), read_onnx, "makes a constant of"
    ),
    "a range in ONNX": Bomb(
        "m.onnx",
        lambda: onnx("Range", {"a": ([], [0]), "b": ([], [1 << 29]), "c": ([], [1])}),
        read_onnx,
        "makes a constant of",
    ),
}  # fmt: skip


class Outcome(NamedTuple):
    error: str
    message: str
    expected: bool
    """Whether it is our error or the system's error about a file, and not caused by a lack of memory."""
    seconds: float
    """Processor time."""
    bytes: int


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """The outcome of reading each bomb in a process of its own."""
    folder = tmp_path_factory.mktemp("bombs")
    done = subprocess.run(
        [sys.executable, __file__, str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return {name: Outcome(*outcome) for name, outcome in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str, outcomes: dict[str, Outcome]) -> None:
    if name.endswith("ONNX"):
        pytest.importorskip("onnx")
    outcome = outcomes[name]
    assert outcome.expected, outcome
    assert BOMBS[name].message in outcome.message
    assert outcome.bytes < MOST_BYTES
    assert outcome.seconds < MOST_SECONDS


def detonate(bomb: Bomb, folder: Path) -> Outcome:
    """Let a forked child read the bomb; measure its time, and its memory beyond what it inherited."""
    import resource

    folder.mkdir()
    path = folder / bomb.name
    path.write_bytes(bomb.data())
    end, start = os.pipe()
    child = os.fork()
    if not child:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        resource.setrlimit(resource.RLIMIT_AS, (virtual_bytes() + LIMIT_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))
        outcome: list[Any]
        try:
            outcome = ["", repr(bomb.read(str(path)))[:200], False]
        except BaseException as error:
            full = isinstance(error, MemoryError) or isinstance(error.__context__, MemoryError)
            expected = isinstance(error, MGraphError | OSError) and not full
            outcome = [type(error).__name__, str(error)[:1000], expected]
        os.write(start, json.dumps([before, *outcome]).encode())
        os._exit(0)
    os.close(start)
    with os.fdopen(end, "rb") as stream:
        told = stream.read()
    _, _, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    path.unlink()
    before, *outcome = json.loads(told) if told else (0, "", "killed", False)
    return Outcome(*outcome, seconds, (usage.ru_maxrss - before) * 1024)


def virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def main(folder: Path) -> None:
    import nmt  # noqa: F401
    from nmt.files.huggingface import folders  # noqa: F401
    from nmt.training.checkpoints import checkpoint  # noqa: F401

    outcomes = {}
    for i, (name, bomb) in enumerate(BOMBS.items()):
        try:
            outcomes[name] = detonate(bomb, folder / str(i))
        except ModuleNotFoundError:  # onnx is an extra
            continue
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
