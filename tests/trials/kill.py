"""``python -m tests.trials.kill FOLDER``: kill training at random moments and resume it.

The files saved at the end are compared with those of a training that was never killed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.helpers.marian_lines import Different
from tests.helpers.places import DATA, ROOT

TEXT = DATA / "traces" / "text"
UPDATES = 100
# Everything that has a state is on: shuffling, dropout, moments, smoothing, decay, validation.
OPTIONS = f"""
--model model.npz --type transformer --dim-emb 8 --transformer-heads 2 --transformer-dim-ffn 12
--mini-batch 20 --maxi-batch 3 --maxi-batch-sort none --transformer-dropout 0.1
--after-batches {UPDATES} --save-freq 7 --disp-freq 5 --overwrite --seed 3 --cpu-threads 1
--exponential-smoothing 0.01 --lr-decay 0.9 --lr-decay-strategy epoch --lr-decay-start 2
--valid-freq 30 --valid-metrics ce-mean-words --keep-best --early-stopping 0
"""
MARIANS = "--learn-rate 0.01"
OPTAX = """
--optimizer optax.adafactor --optax-params min_dim_size_to_factor=8 momentum=0.9
--lr-schedule optax.cosine_decay_schedule --lr-schedule-params init_value=0.01 decay_steps=100
"""
"""An optimizer and a schedule of optax."""
UPDATE = re.compile(r"Ep\. \d+ : Up\. (\d+) : Sen")
KILLS = 7


def command(text: Path = TEXT, optimizer: str = MARIANS) -> list[str]:
    """The command that trains in the current folder."""
    files = [str(text / f"train.{name}") for name in ("english", "german")]
    vocabs = [str(text / f"{name}.yml") for name in ("english", "german")]
    sets = ["--train-sets", *files, "--vocabs", *vocabs, "--valid-sets", *files]
    return [sys.executable, "-m", "nmt", "train", *shlex.split(OPTIONS + optimizer), *sets]


def train(
    folder: Path, cache: Path, update: int | None = None, delay: float = 0.0, optimizer: str = MARIANS
) -> bool:
    """Train in a folder, or resume there, and kill the process ``delay`` seconds after an update was shown.

    cache: where compiled programs are kept for the next process. update: None to let training end; 0 for the
    moment it begins. Returns whether it ended by itself. Raises RuntimeError if it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    with (folder / "log").open("a+") as log:
        start = log.tell()
        process = subprocess.Popen(command(optimizer=optimizer), cwd=folder, stderr=log, env=environment)
        try:
            while process.poll() is None:
                if update is not None and _shown(_read(folder / "log", start)) >= update:
                    time.sleep(delay)
                    process.kill()
                    break
                time.sleep(0.01)
            ended = process.wait() == 0
        finally:
            process.kill()
    if process.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"mgraph train failed: {_read(folder / 'log', start)[-2000:]}")
    return ended


def _shown(log: str) -> int:
    """The last update that a log shows; 0 if training has only begun, -1 before that."""
    updates = UPDATE.findall(log)
    return int(updates[-1]) if updates else 0 if "Training started" in log else -1


def _read(path: Path, start: int) -> str:
    with path.open() as file:
        file.seek(start)
        return file.read()


def saved(folder: Path) -> dict[str, bytes]:
    """All files that training left, by name, except the log."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "log"}


def compare(whole: Mapping[str, bytes], killed: Mapping[str, bytes]) -> None:
    """Raise Different unless both have the same files, byte for byte."""
    differ = [name for name in sorted({*whole, *killed}) if whole.get(name) != killed.get(name)]
    if differ:
        raise Different(f"not the same after kills: {', '.join(differ)}")


def trial(folder: Path, kills: int, seed: int = 1, optimizer: str = MARIANS) -> int:
    """Kill trainings ``kills`` times in all, each at most seven times; return the number of trainings.

    Raises Different if one of them saved other files than a training that was never killed. The updates at
    which it is killed are drawn, and so is the delay after them: often a checkpoint is just being written.
    """
    generator = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    cache = folder / "cache"
    train(folder / "whole", cache, optimizer=optimizer)
    whole, done, completed = saved(folder / "whole"), 0, 0
    while done < kills:
        own = folder / f"killed-{completed}"
        for update in sorted(generator.sample(range(UPDATES), min(KILLS, kills - done))):
            done += not train(own, cache, update, generator.uniform(0, 0.05), optimizer)
        train(own, cache, optimizer=optimizer)
        compare(whole, saved(own))
        completed += 1
    return completed


def main() -> int:
    """Print the result; return 1 if the files differ."""
    top = argparse.ArgumentParser(prog="python -m tests.trials.kill", description=__doc__)
    top.add_argument("folder", type=Path, help="where to train; emptied first")
    top.add_argument("--kills", type=int, default=20, help="how often to kill (default: 20)")
    top.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    top.add_argument("--optax", action="store_true", help="with an optimizer and a schedule of optax")
    options = top.parse_args()
    optimizer = OPTAX if options.optax else MARIANS
    try:
        completed = trial(options.folder.resolve(), options.kills, options.seed, optimizer)
    except Different as error:
        print(error)
        return 1
    print(f"{options.kills} kills in {completed} trainings: the same files as of one that nobody killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
