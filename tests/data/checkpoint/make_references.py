"""Makes the files in this folder: Marian trains for a few updates.

    python make_references.py           (needs the command ``pymarian``; made with 1.12.42)

Each folder is the whole checkpoint of a tiny model after three updates. In the optimizer's file, the padding
between parameters, which Marian leaves uninitialized, is set to zero. ``vectors.npz`` has the embeddings of
untrained models that start from ``words.vec``, as they are and normalized; ``joint.yml`` is a vocabulary of
both texts, of nine words at most.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np

from mgraph.files.items import read_npz, write_npz
from nmt.files import load_model
from nmt.files.saving import marian_order
from nmt.training.checkpoints.moments import flat

HERE = Path(__file__).parent
WORDS, DIM = 8, 4
COMMON = f"""
--dim-emb {DIM} --dim-rnn {DIM} --mini-batch 2 --maxi-batch 1 --maxi-batch-sort none --shuffle none --seed 5
--cpu-threads 1 --workspace 64 --overwrite --sync-sgd --after 3u --disp-freq 1u --tempdir .
""".split()
TEXTS = "-t ../source.txt ../target.txt -v ../source.yml ../target.yml".split()
LM = "--type lm -t ../target.txt -v ../target.yml"
CHECKPOINTS = {
    "lm-adam": f"{LM} --optimizer-params .9 .98 --exponential-smoothing 1e-2",
    "lm-adagrad": f"{LM} --optimizer adagrad",
    "new-sgd": "--type transformer-new --transformer-heads 2 --transformer-dim-ffn 4 --optimizer sgd",
    "amun-sgd": "--type amun --optimizer sgd --exponential-smoothing 1e-2",
}


def train(folder: Path, arguments: list[str], learn_rate: str = "0.01") -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    texts = [] if "-t" in arguments else TEXTS
    command = ["pymarian", "train", "-m", "model.npz", *COMMON, *texts, *arguments, "-l", learn_rate]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def clear_padding(folder: Path) -> None:
    model = load_model(folder / "model.npz")
    order = marian_order(model.options, model.params)
    path = folder / "model.npz.optimizer.npz"
    mask = flat({name: np.ones(model.params[name].shape) for name in order}, order)
    items = read_npz(path)
    write_npz(
        path,
        {name: np.where(mask, row, 0) if row.shape == mask.shape else row for name, row in items.items()},
    )


def write_texts() -> None:
    generator = np.random.default_rng(3)
    for name, letter in (("source", "s"), ("target", "t")):
        lines = [" ".join(f"{letter}{n}" for n in generator.integers(0, WORDS - 2, 4)) for _ in range(8)]
        (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
        (HERE / f"{name}.yml").unlink(missing_ok=True)
    vectors = [
        f"{word} {' '.join(f'{x:.4f}' for x in generator.normal(size=DIM))}" for word in range(WORDS + 1)
    ]
    (HERE / "words.vec").write_text("\n".join([f"{WORDS + 1} {DIM}", *vectors]) + "\n")


def embeddings(option: str) -> np.ndarray:
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        arguments = f"--type s2s --embedding-vectors ../words.vec ../words.vec {option}"
        train(Path(folder), arguments.split(), learn_rate="0")
        return read_npz(Path(folder) / "model.npz")["decoder_Wemb"]


def joint_vocab() -> None:
    """The vocabulary of both texts, as Marian cuts it to nine words."""
    (HERE / "joint.yml").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        texts = "-t ../source.txt ../target.txt -v ../joint.yml ../joint.yml --dim-vocabs 9 0"
        train(Path(folder), ["--type", "s2s", *texts.split()])


def main() -> None:
    write_texts()
    joint_vocab()
    for name in sorted(CHECKPOINTS, reverse=True):
        train(HERE / name, CHECKPOINTS[name].split())
        (HERE / name / "model.npz.amun.yml").unlink(missing_ok=True)
        clear_padding(HERE / name)
    tables = {"plain": embeddings(""), "normalized": embeddings("--embedding-normalization")}
    write_npz(HERE / "vectors.npz", tables)


if __name__ == "__main__":
    main()
