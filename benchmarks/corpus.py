"""The training corpus: shapes and padding, lines a second and memory.

First an epoch of 3,000 pairs for each way to make batches: programs that would be compiled, and positions
that padding takes. Then an epoch of a large text, shuffled through files: lines a second, and the memory of
the process.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import Table, positive, print_machine
from benchmarks.measuring.launcher import UNIT
from nmt.settings import TRAIN
from nmt.text.corpus import Corpus
from nmt.text.vocabs.base import Vocab
from nmt.text.vocabs.creation import word_vocab
from nmt.text.vocabs.loading import load_vocab

WORDS = 20_000
SMALL = 3_000
DEFAULTS = TRAIN.from_python({"model": "m.npz", "train_sets": ("s", "t"), "max_length": 100})
WAYS: dict[str, dict[str, Any]] = {
    "mini-batch 16": {"mini_batch": 16},
    "mini-batch 64": {"mini_batch": 64},
    "mini-batch-words 1000": {"mini_batch_words": 1000},
}


def write_text(folder: Path, lines: int) -> tuple[str, str]:
    """Pairs of sentences, 1 to 100 words long and 22 on average, the target about as long as the source."""
    dice = random.Random(1)
    words = [f"word{number}" for number in range(WORDS)]
    paths = folder / "source.txt", folder / "target.txt"
    with paths[0].open("w") as source, paths[1].open("w") as target:
        for _ in range(lines):
            length = min(100, max(1, round(dice.lognormvariate(2.9, 0.65))))
            other = min(100, max(1, round(length * dice.gauss(1, 0.15))))
            start = int(dice.paretovariate(0.5)) % (WORDS - 200)
            source.write(" ".join(words[start : start + length]) + "\n")
            target.write(" ".join(words[start + 50 : start + 50 + other]) + "\n")
    return str(paths[0]), str(paths[1])


def memory() -> float:
    """The peak memory of the process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT / 2**20


def shapes(texts: tuple[str, str], vocab: Vocab) -> None:
    """Print what padding to few shapes costs for each way to make batches."""
    table = Table(["batches", "number", "programs", "not chosen", "padding", "for shapes"])
    for way, options in WAYS.items():
        for sort in ("trg", "src", "none"):
            settings = replace(DEFAULTS, **options, train_sets=texts, maxi_batch_sort=sort)
            with closing(Corpus(settings, [vocab] * 2, seed=1)) as corpus:
                for _ in range(2):
                    corpus.begin_epoch()
                    for _ in corpus:
                        pass
                report = corpus.report()
            table.row(
                f"{way}, sorted by {sort}",
                report.batches,
                len(report.shapes),
                report.fresh,
                f"{report.padding:.1%}",
                f"{report.waste:.1%}",
            )
    print()


def speed(texts: tuple[str, str], vocab: Vocab, folder: str) -> None:
    """Print how long an epoch of a shuffled text takes when nothing is trained."""
    settings = replace(DEFAULTS, train_sets=texts, tempdir=folder)
    with closing(Corpus(settings, [vocab] * 2, seed=1)) as corpus:
        before, start = memory(), time.perf_counter()
        corpus.begin_epoch()
        batches = iter(corpus)
        next(batches)
        first = time.perf_counter()
        for _ in batches:
            pass
        end = time.perf_counter()
        report = corpus.report()
    print(f"{report.read:,} lines, {sum(Path(text).stat().st_size for text in texts) / 2**20:,.0f} MiB")
    print(f"first batch after {first - start:.1f} s, epoch {end - start:.1f} s")
    lines, words = report.read / (end - start), report.words / (end - start)
    print(f"{lines:,.0f} lines a second, {words:,.0f} words a second")
    print(f"memory: {before:.0f} MiB before the epoch, at most {memory():.0f} MiB in it")
    print(*report.lines(), sep="\n")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lines", type=positive, default=5_000_000, help="pairs in the large text (%(default)s)"
    )
    parser.add_argument("--folder", help="where the text is made, and removed again (a temporary folder)")
    options = parser.parse_args()
    print_machine(lines=options.lines)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        vocab_path = Path(folder) / "words.yml"
        vocab_path.write_bytes(word_vocab(f"word{number}".encode() for number in range(WORDS)))
        vocab = load_vocab(vocab_path)
        shapes(write_text(Path(folder), SMALL), vocab)
        speed(write_text(Path(folder), options.lines), vocab, folder)


if __name__ == "__main__":
    main()
