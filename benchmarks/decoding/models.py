"""What is translated: models that copy, made here, or a model and a text of the user's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.copying import s2s, transformer
from benchmarks.copying.text import made_lines, write_shortlist, write_vocab
from nmt.files.saving import convert_model, save_model
from nmt.models import Model
from nmt.settings import TRAIN
from nmt.training.setup import new_model

FLOAT32, INT8 = "float32", "int8"
PRECISIONS = (FLOAT32, INT8)
SHORTLIST = ", shortlist"
"""Ends the name of a model that is used with one."""
MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "small": (
        2_000,
        {
            "type": "transformer",
            "dim_emb": 256,
            "transformer_heads": 8,
            "transformer_dim_ffn": 1024,
            "enc_depth": 3,
            "dec_depth": 3,
        },
    ),
    "opus": (
        58_000,
        {
            "type": "transformer",
            "dim_emb": 512,
            "transformer_heads": 8,
            "transformer_dim_ffn": 2048,
            "enc_depth": 6,
            "dec_depth": 6,
            "tied_embeddings_all": True,
        },
    ),
    "student": (
        32_000,
        {
            "type": "transformer",
            "dim_emb": 256,
            "transformer_heads": 8,
            "transformer_dim_ffn": 1536,
            "enc_depth": 6,
            "dec_depth": 2,
            "transformer_decoder_autoreg": "rnn",
            "dec_cell": "ssru",
            "tied_embeddings_all": True,
        },
    ),
    "s2s": (2_000, {"type": "s2s", "dim_emb": 256, "dim_rnn": 512}),
}
"""Words of the vocabulary, and options of training."""
WITH_SHORTLIST = ("student",)
"""These are measured twice, without a shortlist and with one."""
_REGISTERS = (("avx512bw", "intgemm8avx512"), ("avx2", "intgemm8avx2"))
"""A flag of a processor, and the type that Marian multiplies fastest with it."""


@dataclass(frozen=True)
class Task:
    """A model, and the text that it translates.

    files: those of the model, by precision. vocabs: those of source and target. shortlist: the words of
    ``--shortlist``. folder: for files made from the model. lines: enough for all tables, or all there are.
    """

    name: str
    files: Mapping[str, str]
    vocabs: tuple[str, str]
    shortlist: tuple[str, ...]
    folder: Path
    lines: Sequence[str]

    def options(self, precision: str) -> dict[str, Any]:
        """The options that ``mgraph decode`` and ``marian decode`` share, by attribute name."""
        shortlist = {"shortlist": self.shortlist} if self.shortlist else {}
        return {"models": self.files[precision], "vocabs": self.vocabs, "max_length": 1000, **shortlist}

    def own_options(self, precision: str) -> dict[str, Any]:
        """The same for ours, which computes in float32 also from an intgemm8 file unless told otherwise."""
        return {**self.options(precision), "precision": precision}

    @property
    def typical(self) -> str:
        """A line of median length."""
        lines = sorted(self.lines[:100], key=lambda line: len(line.split()))
        return lines[len(lines) // 2]


def made_tasks(name: str, folder: Path, lines: int) -> Iterator[Task]:
    """A model of ``MODELS`` that copies, without and, where that is usual, with a shortlist.

    folder: where files are made, unless they exist. lines: how many the text has.
    """
    words, given = MODELS[name]
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    vocab, model, shortlist = str(place / "vocab.yml"), place / "model.npz", place / "lex.bin"
    if not model.exists():
        write_vocab(Path(vocab), words)
        write_shortlist(shortlist, words)
        write_model(model, given, vocab, words)
    task = Task(
        name,
        {FLOAT32: str(model), INT8: int8_file(model, place)},
        (vocab, vocab),
        (),
        place,
        list(islice(made_lines(words), lines)),
    )
    yield task
    if name in WITH_SHORTLIST:
        yield replace(task, name=name + SHORTLIST, shortlist=(str(shortlist),))


def write_model(path: Path, given: Mapping[str, Any], vocab: str, words: int) -> None:
    """Write a model that copies; ``given`` are options of training."""
    values = TRAIN.from_python(
        {**given, "train_sets": ("", ""), "vocabs": (vocab, vocab), "model": str(path)}
    )
    model = new_model(values, [words, words], seed=1)
    if given["type"] == "s2s":
        params = s2s.copying(model.params)
    else:
        options = model.options
        params = transformer.copying(model.params, heads=options.transformer_heads, layers=options.dec_depth)
    save_model(Model(model.options, params), path)


def given_task(
    model: str, vocabs: Sequence[str], text: str, shortlist: Sequence[str], folder: Path, lines: int
) -> Task:
    """A model and a text of the user's."""
    source, target = vocabs
    files = {FLOAT32: model, INT8: int8_file(Path(model), folder)}
    with open(text, encoding="utf-8") as stream:
        found = [line.rstrip("\n") for line in islice(stream, lines)]
    return Task(Path(model).name, files, (source, target), tuple(shortlist), folder, found)


def int8_file(model: Path, folder: Path) -> str:
    """The path of the model in Marian's int8, for this processor, made unless it exists."""
    path = folder / f"{model.stem}.{int8_type()}.bin"
    if not path.exists():
        convert_model(model, path, gemm_type=int8_type())
    return str(path)


def int8_type() -> str:
    """The ``--gemm-type`` that fits this processor; if that is unknown, the one that Marian converts."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    return next((name for flag, name in _REGISTERS if flag in flags), "intgemm8")
