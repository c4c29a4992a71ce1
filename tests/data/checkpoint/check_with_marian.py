"""Checks that Marian resumes from our checkpoints as from its own.

    python check_with_marian.py         (needs the command ``pymarian``; all were equal with 1.12.42)

We load and save each checkpoint in this folder. Marian trains three more updates from its own and from ours:
costs and norms in its log and the files that it writes are the same, except for the padding between
parameters, which Marian leaves uninitialized.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from nmt.settings import TRAIN
from nmt.settings.config import parse
from nmt.training.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

HERE = Path(__file__).parent


def saved_again(folder: Path) -> None:
    """The checkpoint in a folder, as we write it."""
    values, found = loaded(folder)
    for path in folder.glob("model.npz*"):
        path.unlink()
    save_checkpoint("model.npz", values, found.options, found.learner, found.state, final=True)


def loaded(folder: Path) -> tuple[dict[str, Any], Checkpoint]:
    os.chdir(folder)
    values = parse(TRAIN, ["-c", "model.npz.yml"])
    found = load_checkpoint("model.npz", values)
    assert found is not None
    return values, found


def trained_on(folder: Path) -> tuple[list[str], list[bytes]]:
    """What Marian logs, and the files that it writes."""
    command = ["pymarian", "train", "-m", "model.npz", "-c", "model.npz.yml", "--after", "6u"]
    log = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stderr
    costs = re.findall(r"Cost .* after \S+ :|gNorm .*|\[warn\].*", log)
    learner = loaded(folder)[1].learner
    tensors = [learner.params, *learner.moments.values(), learner.average or {}]
    numbers = b"".join(np.asarray(each[name]).tobytes() for each in tensors for name in sorted(each))
    files = [(folder / name).read_bytes() for name in ("model.npz", "model.npz.progress.yml")]
    return costs, [*files, numbers]


def main() -> int:
    same = True
    for source in sorted(path.parent for path in HERE.glob("*/model.npz")):
        with tempfile.TemporaryDirectory() as place:
            for text in HERE.glob("*.*"):
                shutil.copy(text, place)
            own, ours = Path(place, "own"), Path(place, "ours")
            for folder in (own, ours):
                shutil.copytree(source, folder)
            saved_again(ours)
            wanted, got = trained_on(own), trained_on(ours)
            equal = wanted == got and len(wanted[0]) == 6
            print(f"{source.name}: {'equal' if equal else 'DIFFERENT'}", flush=True)
            same = same and equal
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
