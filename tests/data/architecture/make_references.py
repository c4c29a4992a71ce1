"""The parameters of Marian's models before training: run from the repository as
``PYTHONPATH=. python tests/data/architecture/make_references.py FOLDER``, with ``pymarian`` on the path.

Marian trains each model for one update at learning rate 0, in a subfolder of FOLDER.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mgraph.files.items import model_yml, read_npz
from nmt.settings.model_options import ModelOptions
from tests.matrix import marian
from tests.matrix.rows import ROWS, Row, merged

HERE = Path(__file__).parent
ONCE = (
    "--after-batches 1 --learn-rate 0 --mini-batch 4 --maxi-batch 1 --seed 1 --no-shuffle --cpu-threads 1"
    " --data-threads 1 --workspace 64 --overwrite"
)
INITIAL = """
multi-s2s lm-deep nematus-layer-normalization mgru-layer-normalization tanh-layer-normalization
relu-layer-normalization sru-decoder ssru-decoder transformer process-rms-pre depth-scaling-highway
depth-scaling-rnn depth-scaling-aan depth-scaling-tied depth-scaling-pool new-depth-scaling
transformer-new-positions
""".split()
"""The rows whose initial values are compared."""


def rows() -> list[Row]:
    """The rows of the matrix and some more; their vocabularies differ in size wherever they may."""
    further = (HERE / "further_rows.txt").read_text(encoding="utf-8")
    lines = [line.split(": ", 1) for line in further.splitlines()]
    every = [*ROWS, *(Row(name, options) for name, options in lines)]
    return [row._replace(options=merged(f"{row.options} --dim-vocabs {_sizes(row)}")) for row in every]


def _sizes(row: Row) -> str:
    sizes = [20 if row.joint else size for size in (20, 21, 22)]
    return " ".join(map(str, sizes[: row.sources] + sizes[-1:]))


def trained(row: Row, texts: Path, folder: Path) -> dict[str, np.ndarray] | None:
    """The items of a row's model; None if Marian refuses it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model.npz"
    if not model.exists():
        sets = [str(texts / f"train.{name}") for name in marian.streams(row)]
        arguments = [*shlex.split(row.options), *ONCE.split()]
        if "guided" in row.options:
            arguments += ["--guided-alignment", str(texts / "train.alignment")]
        try:
            words = ["-m", str(model), "-t", *sets, "-v", *marian.vocabs(row, texts), *arguments]
            marian.run("train", *words, log=folder / "log")
        except marian.MarianRefused as error:
            print(f"{row.name}: {error}")
            return None
    return dict(read_npz(model))


def options_of(row: Row, items: dict[str, np.ndarray]) -> dict[str, Any]:
    """The options in a model that differ from Marian's defaults."""
    said = yaml.safe_load(model_yml(items) or "")
    defaults = ModelOptions()
    options = {
        name: value
        for name, value in said.items()
        if name != "version" and (tuple(value) if isinstance(value, list) else value) != defaults[name]
    }
    if "--transformer-depth-scaling" in row.options:
        options["transformer-depth-scaling"] = True
    return options


def main(folder: Path) -> None:
    """Write parameters.json and initial.json beside this script."""
    texts = folder / "corpus"
    marian.make_corpus(texts)
    models: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}
    initial = {}
    for row in rows():
        items = trained(row, texts, folder / row.name)
        if items is None:
            continue
        params = {name: array for name, array in items.items() if not name.startswith("special:")}
        shapes = {name: "x".join(map(str, array.shape)) for name, array in params.items()}
        models[row.name] = options_of(row, items), shapes
        if row.name in INITIAL:
            initial[row.name] = {name: extremes(array) for name, array in params.items()}
    entries = sorted({f"{name} {shape}" for _, shapes in models.values() for name, shape in shapes.items()})
    places = {entry: place for place, entry in enumerate(entries)}
    table = {
        name: {"options": options, "parameters": ranges(places[f"{n} {s}"] for n, s in shapes.items())}
        for name, (options, shapes) in models.items()
    }
    write("parameters.json", {"parameters": entries, "models": table})
    write("initial.json", initial)


def ranges(numbers: Any) -> str:
    """Numbers as text, such as "0-3 5"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def extremes(array: np.ndarray) -> float | list[float]:
    """The largest magnitude if any number is negative, else the least and the greatest number, if any."""
    if not array.size:
        return []
    low, high = float(array.min()), float(array.max())
    return float(f"{max(-low, high):.5g}") if low < 0 else [int(low), int(high)]


def write(name: str, value: dict[str, Any]) -> None:
    """Write JSON with a line for each entry of the second innermost maps and lists."""
    text = json.dumps(value, separators=(",", ":"))
    (HERE / name).write_text(re.sub(r'(?<=[}\]"]),(?=")', ",\n", text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
