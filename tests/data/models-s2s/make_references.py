"""Makes the files in this folder: Marian trains models and scores their training lines.

python make_references.py      (needs the command ``pymarian`` and numpy; made with pymarian 1.12.42)
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
OPTIONS = HERE.parent / "options"
SOURCE, SECOND, TARGET, JOINT = "source", "second", "target", "joint"
TEXTS = {SOURCE: OPTIONS / "source.txt", SECOND: HERE / "second.txt", TARGET: OPTIONS / "target.txt"}
VOCABS = {name: OPTIONS / f"{name}.yml" for name in (SOURCE, TARGET, JOINT)} | {SECOND: HERE / "second.yml"}

COMMON = "--dim-emb 4 --dim-rnn 5 --cpu-threads 1 -w 200 --quiet"
TRAINING = "--after-batches 20 --learn-rate 0.05 --mini-batch 8 --seed 7"
SCORING = "--word-scores --mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 200 --quiet"
DEEP = "--enc-depth 2 --dec-depth 2 --skip"
NEMATUS = (
    "--type nematus --enc-cell gru-nematus --dec-cell gru-nematus --layer-normalization --enc-cell-depth 2 "
    f"--dec-cell-base-depth 4 {DEEP}"
)
ROWS = {
    "amun": ((SOURCE, TARGET), "--type amun --layer-normalization"),
    "amun-tied": ((JOINT, JOINT), "--type amun --tied-embeddings-src"),
    "nematus": ((SOURCE, TARGET), NEMATUS),
    "multi-s2s": (
        (SOURCE, SECOND, TARGET),
        f"--type multi-s2s --enc-cell lstm --dec-cell lstm --layer-normalization {DEEP}",
    ),
    "shared-multi-s2s": ((SECOND, SECOND, TARGET), "--type shared-multi-s2s --tied-embeddings"),
    "lm": ((TARGET,), "--type lm --dec-cell lstm --dec-depth 2 --dec-cell-base-depth 3 --tied-embeddings"),
    "transformer_s2s": (
        (SOURCE, TARGET),
        "--type transformer_s2s --transformer-heads 2 --transformer-dim-ffn 6 --enc-depth 2"
        " --output-omit-bias",
    ),
}
"""Vocabularies and options of each model."""


def texts(vocabs: tuple[str, ...]) -> list[Path]:
    """The texts of a model's streams."""
    names = {1: (TARGET,), 2: (SOURCE, TARGET), 3: (SOURCE, SECOND, TARGET)}[len(vocabs)]
    return [TEXTS[name] for name in names]


def run(command: str, *arguments: object) -> bytes:
    return subprocess.run(
        ["pymarian", command, *map(str, arguments)], check=True, stdout=subprocess.PIPE
    ).stdout


def score(model: Path, vocabs: tuple[str, ...], *arguments: str) -> bytes:
    paths = [VOCABS[vocab] for vocab in vocabs]
    return run("score", "-m", model, "-v", *paths, "-t", *texts(vocabs), *SCORING.split(), *arguments)


def as_nematus_saves(model: Path, path: Path) -> None:
    """Save the parameters as Nematus does: rows as vectors, items of its own, no configuration."""
    items = dict(np.load(model))
    del items["special:model.yml"]
    items["ff_logit_W"] = np.ascontiguousarray(items.pop("decoder_ff_logit_l2_Wt").T)
    rows = {name: array[0] for name, array in items.items() if array.shape[0] == 1}
    np.savez(path, **{**items, **rows, "uidx": np.int64(20), "history_errs": np.array([3.5, 2.5])})


def main() -> None:
    with (HERE / "second.yml").open("wb") as file:
        file.write(
            subprocess.run(["pymarian", "vocab"], stdin=TEXTS[SECOND].open(), capture_output=True).stdout
        )
    for name, (vocabs, options) in ROWS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model.npz"
            paths = [VOCABS[vocab] for vocab in vocabs]
            arguments = [*options.split(), *COMMON.split(), *TRAINING.split()]
            run("train", "-t", *texts(vocabs), "-v", *paths, "-m", model, *arguments)
            (HERE / f"{name}.npz").write_bytes(model.read_bytes())
        soft = ["--alignment", "soft"] if len(vocabs) > 1 else []
        (HERE / f"{name}.txt").write_bytes(score(HERE / f"{name}.npz", vocabs, *soft))
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old.npz"
        as_nematus_saves(HERE / "nematus.npz", old)
        given = [*NEMATUS.split(), "--dim-emb", "4", "--dim-rnn", "5", "--dim-vocabs", "16", "21"]
        (HERE / "nematus-old.txt").write_bytes(score(old, ROWS["nematus"][0], *given))


if __name__ == "__main__":
    main()
