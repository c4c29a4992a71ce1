"""Makes the files in this folder: Marian trains a tiny model with each row of options (see README.md).

python make_references.py [ROW ...]      (needs the command ``pymarian``; made with 1.12.42)
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

HERE = Path(__file__).parent
MODEL = (
    "--type s2s --dim-emb 8 --dim-rnn 8 -t german.txt english.txt -v german.yml english.yml --cpu-threads 1 "
    "-w 100 --seed 1 --mini-batch 4 --maxi-batch 1 --shuffle none --quiet --save-freq 1u "
    "--overwrite-checkpoint false"
)
MEASURED = "--cost-type ce-sum --disp-label-counts false --disp-freq 1 --gradient-norm-average-window 1"
"""With these options each cost and norm can be read from the log and the checkpoints."""
SHOWN_ONLY = (*MEASURED.split()[::2], "--disp-first", "--throw-on-divergence")
"""Options that change nothing in the training except when it is given up."""
STATE = ("eta", "eta-factor", "warmup-start", "reset", "gradient-norm-avg", "gradient-norm-var")
LOG_STATE = ("log-gradient-norm-avg", "log-gradient-norm-var", "cost-sum", "cost-count")
LOSS_STATE = ("loss-avg-slow", "loss-avg-fast", "loss-var-slow")
VALID = "--valid-sets german.txt english.txt"
EACH = "--disp-freq 1 --lr-report"

ROWS = {
    "warmup": f"{EACH} --learn-rate 0.013 --lr-warmup 15 --lr-warmup-start-rate 0.001 "
    "--lr-decay-inv-sqrt 20 27 --after-batches 40",
    "labels": f"{EACH} --learn-rate 0.01 --lr-warmup 150t --lr-decay-inv-sqrt 0.2Kt --after 600t",
    "epochs": f"{EACH} --learn-rate 0.01 --lr-warmup 3e --lr-decay-inv-sqrt 2e 3e --after 5e",
    "decay-epoch": f"{EACH} --learn-rate 0.01 --lr-warmup 5 --lr-decay 0.7 --lr-decay-strategy epoch "
    "--lr-decay-start 2 --lr-decay-repeat-warmup --lr-decay-reset-optimizer --after-epochs 5",
    "decay-batches": f"{EACH} --learn-rate 0.01 --lr-warmup 3 --lr-decay 0.9 --lr-decay-strategy batches "
    "--lr-decay-start 5 --lr-decay-freq 6 --lr-decay-repeat-warmup --lr-decay-reset-optimizer "
    "--after-batches 30",
    "decay-epoch-batches": f"{EACH} --learn-rate 0.01 --lr-decay 0.5 --lr-decay-strategy epoch+batches "
    "--lr-decay-start 5 14 --after-batches 40",
    "decay-epoch-stalled": f"{EACH} --learn-rate 0.3 --lr-decay 0.5 --lr-decay-start 6 2 {VALID} "
    "--valid-freq 3 --after-batches 40",
    "decay-stalled": f"{EACH} --learn-rate 0.4 --lr-warmup 4 --lr-decay 0.9 --lr-decay-strategy stalled "
    f"--lr-decay-start 2 {VALID} --valid-freq 30t --early-stopping 5 --lr-decay-reset-optimizer "
    "--lr-decay-repeat-warmup --after-batches 60",
    "cycle": f"{EACH} --learn-rate 0.01 --lr-warmup 8 --lr-warmup-cycle --after-batches 30",
    "reload": f"--learn-rate 0.01 --lr-warmup 9 --lr-warmup-at-reload --lr-report --disp-freq 4 "
    f"{VALID} --valid-freq 6 --after-batches 30",
    "perplexity": "--disp-freq 5 --disp-first 2 --cost-type perplexity --logical-epoch 4u --after 10e,30u",
    "ce-mean": "--disp-freq 40t --cost-type ce-mean --logical-epoch 100t 2 --after 4e",
    "ce-mean-words": "--disp-freq 3u --cost-type ce-mean-words --logical-epoch 2e --after-epochs 2 "
    "--lr-report",
    "ce-sum": "--disp-freq 6 --gradient-norm-average-window 7 --after 1T,0.5Kt",
    "ce-sum-plain": "--disp-freq 4 --disp-label-counts false --logical-epoch 1e 1 --after-batches 30 "
    "--learn-rate 0.05",
    "divergence": f"{EACH} --learn-rate 1 --throw-on-divergence 9 3 0.6 --after-batches 60",
    "divergence-after": f"{EACH} --throw-on-divergence 9 3 50 50t --after-batches 30",
    "grown": "--disp-freq 2 --mini-batch-warmup 10u --mini-batch 16 --after-batches 12",
    "mixed-cycle": "--learn-rate 0.5 --disp-freq 3 --after-batches 23 --lr-report --lr-warmup 7u "
    "--lr-warmup-start-rate 0.003 --lr-warmup-cycle --lr-decay-inv-sqrt 135t 150t --lr-decay 0.7 "
    "--lr-decay-strategy batches --lr-decay-start 5 --lr-decay-freq 2 --lr-decay-reset-optimizer "
    f"--lr-decay-repeat-warmup {VALID} --valid-freq 1 --early-stopping 4 --logical-epoch 2e "
    "--gradient-norm-average-window 7",
    "mixed-first": "--learn-rate 0.5 --disp-freq 1 --after-batches 40 --lr-warmup 12u --lr-warmup-at-reload "
    "--lr-decay-inv-sqrt 30t 30t --lr-decay 0.4 --lr-decay-strategy batches --lr-decay-start 3 "
    f"--lr-decay-freq 1 --lr-decay-repeat-warmup {VALID} --valid-freq 2 --early-stopping 5 "
    "--cost-type perplexity --logical-epoch 50t --throw-on-divergence 2 3 3 --disp-first 7",
    "smoothed": "--disp-freq 9 --exponential-smoothing 0.1 --exponential-smoothing-replace-freq 70t "
    "--after-batches 20",
}


class Run(NamedTuple):
    """A training: the lines of its log without times of day, and the state after each update."""

    lines: list[str]
    states: dict[int, dict[str, str]]


def options(words: list[str]) -> dict[str, list[str]]:
    """Command-line words by option name."""
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--") or re.fullmatch("-[a-z]", word):
            current = found.setdefault(word, [])
        else:
            current.append(word)
    return found


def train(folder: Path, row: str, more: str = "") -> Run:
    """Train in a folder, which may have a model; options in ``more`` replace those in ``row``."""
    merged = options(MODEL.split()) | options(row.split()) | options(more.split())
    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    command = [word for name, values in merged.items() for word in (name, *values)]
    command += ["-m", str(folder / "m.npz"), "--log", str(log)]
    subprocess.run(["pymarian", "train", *command], cwd=HERE, capture_output=True)
    lines = [line.split("] ", 1)[1] for line in log.read_text().splitlines() if line.startswith("[")]
    states = {
        int(path.name.split(".")[1].removeprefix("iter")): yaml.load(path.read_text(), yaml.BaseLoader)
        for path in folder.glob("m.iter*.progress.yml")
    }
    return Run(lines, states)


def measures(run: Run, before: dict[str, str] | None) -> dict[int, str]:
    """The event of each update: sentences, words, batches, cost, norm of the gradient."""
    costs = {
        int(m[1]): m[2] for line in run.lines if (m := re.match(r"Ep\. .* Up\. (\d+) .* Cost (\S+) ", line))
    }
    events = {}
    for number, state in sorted(run.states.items()):
        if number not in costs:
            continue
        previous = run.states.get(number - 1) or before or {}
        same = previous.get("epochs", "1") == state["epochs"]
        sentences, batches = (
            int(state[key]) - (int(previous.get(key, "0")) if same else 0)
            for key in ("samples", "batches-epoch")
        )
        words = int(state["labels-total"]) - int(previous.get("labels-total", "0"))
        norm = np.float32(math.exp(float(state["log-gradient-norm-avg"])))
        events[number] = f"update {sentences} {words} {batches} {costs[number]} {norm:.9g}"
    return events


def events(shown: Run, updates: dict[int, str]) -> list[str]:
    """The events, each followed by what Marian logged about it (>) and the state that it saved (=)."""
    start = next(i for i, line in enumerate(shown.lines) if line == "Training started")
    found: list[str] = []
    pending: list[str] = []
    seen: set[int] = set()
    for line in shown.lines[start + 1 :]:
        if saved := re.search(r"Saving model weights and runtime parameters to \S+\.iter(\d+)\.npz", line):
            number = int(saved[1])
            seen.add(number)
            state = shown.states[number]
            keys = [*STATE, *LOG_STATE, *(LOSS_STATE if state["loss-avg-slow"] != "0" else ())]
            found += [updates[number], *pending, "= " + " ".join(f"{key}={state[key]}" for key in keys)]
            pending = []
        elif valid := re.match(r"\[valid\] .* : (new best|stalled (\d+) times)", line):
            found.append(f"stalled {valid[2] or 0}")
        elif re.match(r"Seen \d", line):
            found += ["epoch", f"> {line}"]
        elif line.startswith("Replacing"):
            found.append(f"> {line}")
        elif line.startswith(("Starting data epoch", "Restarting", "Resetting", "Decaying")):
            follows = found and re.match("stalled|> (?!Starting)", found[-1]) and not line.endswith("batches")
            (found if follows and not pending else pending).append(f"> {line}")
        elif re.match(r"Ep\. \S+ : Up\.|Detected training|Training reached", line):
            pending.append(f"> {line}")
        elif line == "Training finished":
            found.append(f"> {line}")
    missing = sorted(set(updates) - seen)
    return found + [part for number in missing[:1] for part in (updates[number], *pending)]


def make(name: str, row: str) -> None:
    """Write NAME.txt; for the row that resumes, also NAME.progress.yml, from which it resumes."""
    trained = {option: words for option, words in options(row.split()).items() if option not in SHOWN_ONLY}
    measured = (
        " ".join(word for option, words in trained.items() for word in (option, *words)) + " " + MEASURED
    )
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        before = None
        if name == "reload":
            for folder, words in ((Path(one), row), (Path(two), measured)):
                train(folder, words, "--after-batches 11")
                for path in folder.glob("m.iter*"):
                    path.unlink()
            text = (Path(one) / "m.npz.progress.yml").read_text()
            (HERE / f"{name}.progress.yml").write_text(text)
            before = yaml.load(text, yaml.BaseLoader)
        updates = measures(train(Path(two), measured), before)
        lines = events(train(Path(one), row), updates)
    (HERE / f"{name}.txt").write_text("\n".join([f"# {row}", *lines]) + "\n")


def main() -> None:
    for text in ("german", "english"):
        words = (HERE / f"{text}.txt").read_bytes()
        vocab = subprocess.run(["pymarian", "vocab"], input=words, capture_output=True, check=True)
        (HERE / f"{text}.yml").write_bytes(vocab.stdout)
    for name in sys.argv[1:] or ROWS:
        make(name, ROWS[name])
    for text in ("german", "english"):
        (HERE / f"{text}.yml").unlink()


if __name__ == "__main__":
    main()
