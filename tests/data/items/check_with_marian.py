"""Checks that Marian translates with the files that we write as with its own.

    python check_with_marian.py [FOLDER]        (needs the command ``pymarian``; all were equal with 1.12.42)

We load each model and save it as ``.npz`` and as ``.bin``, then load each of these and save it in the other
format. With all four files Marian prints the same n-best lists and word scores as with the model itself.
FOLDER holds the Europarl models, as the tests' ``MGRAPH_FIXTURES`` does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mgraph import ExpressionGraph

DATA = Path(__file__).parent.parent
SHIPPED = DATA.parent.parent / "nmt" / "numbers" / "model"


def saved(model: Path, folder: Path) -> Iterator[Path]:
    """The model's parameters after each of our ways of reading and writing them."""
    for name, source in (
        ("first.npz", model),
        ("first.bin", model),
        ("again.npz", folder / "first.bin"),
        ("again.bin", folder / "first.npz"),
    ):
        graph = ExpressionGraph()
        graph.load(source)
        graph.save(folder / name)
        yield folder / name


def translations(model: Path, vocabs: list[Path], source: Path) -> bytes:
    command = ["pymarian", "decode", "-m", model, "-v", *vocabs, "-i", source, "-b", "4"]
    command += "--normalize 0.6 --n-best --word-scores --mini-batch 1 --maxi-batch 1".split()
    command += "--max-length 1000 --cpu-threads 1 --quiet".split()
    return subprocess.run(command, capture_output=True, check=True).stdout


def check(model: Path, vocabs: list[Path], source: Path) -> bool:
    wanted = translations(model, vocabs, source)
    same = True
    with tempfile.TemporaryDirectory() as folder:
        for path in saved(model, Path(folder)):
            equal = translations(path, vocabs, source) == wanted
            print(f"{model} as {path.name}: {'equal' if equal else 'DIFFERENT'}", flush=True)
            same = same and equal
    return same


def main(folders: list[str]) -> int:
    shipped, s2s = SHIPPED / "model.npz", DATA / "s2s-numbers" / "model.npz"
    vocabs = [SHIPPED / "vocab.spm"] * 2
    results = [check(model, vocabs, DATA / "numbers" / "input.en") for model in (shipped, s2s)]
    for folder in map(Path, folders):
        for meta in sorted(folder.glob("marian/*/meta.json")):
            about = json.loads(meta.read_text())
            texts = folder / "data"
            vocabs = [texts / name for name in about["vocabs"]]
            results.append(check(meta.parent / "model.npz", vocabs, texts / about["sources"][0]))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
