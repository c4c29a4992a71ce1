"""How far int8 and 16 bits move the log-probabilities of words, beside Marian's own int8 of the same model.

All score the same texts: mgraph in each precision, also from an intgemm8 file made of the model, and Marian
itself from both. Each row is held against the float32 of its own program, word by
word: the mean and the largest change, the change of the mean, and the perplexity.

    python -m benchmarks.precision --model model.npz --vocabs V V --texts test.de test.en
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.measuring import ProcessError, Table, finished, print_machine
from benchmarks.peers.programs import add_pymarian, find_pymarian
from nmt import Scorer
from nmt.files.saving import convert_model

GEMM_TYPE = "intgemm8avx2"
"""Marian stops at matrices narrower than the registers of AVX-512."""


def ours(model: str, given: argparse.Namespace, precision: str) -> np.ndarray:
    """The log-probability of each word."""
    scorer = Scorer(model, given.vocabs, precision=precision, word_scores=True)
    lines = [Path(text).read_bytes().splitlines() for text in given.texts]
    return np.concatenate([score.word_scores for score in scorer.scores(*lines)])


def marians(program: str, model: str, given: argparse.Namespace) -> np.ndarray:
    """The same by ``pymarian score``."""
    command = [program, "score", "-m", model, "-v", *given.vocabs, "-t", *given.texts]
    options = ["--cpu-threads", "1", "--mini-batch", "8", "--word-scores", "--quiet", "--max-length", "1000"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "scores")
        finished([*command, *options], stdout=output)
        lines = output.read_text(encoding="utf-8").splitlines()
    return np.array([float(word) for line in lines for word in line.partition("WordScores=")[2].split()])


def row(table: Table, name: str, found: np.ndarray, exact: np.ndarray) -> None:
    """One row of the table; ``ValueError`` if there are not as many words."""
    if len(found) != len(exact):
        raise ValueError(f"{name}: {len(found)} words, and {len(exact)} in float32")
    moved = found - exact
    numbers = np.abs(moved).mean(), np.abs(moved).max(), moved.mean(), np.exp(-found.mean())
    table.row(name, *(f"{number:.4f}" for number in numbers))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--model", required=True, help="a model of float32")
    parser.add_argument("--vocabs", nargs="+", required=True, help="its vocabularies")
    parser.add_argument("--texts", nargs="+", required=True, help="sources and the target")
    add_pymarian(parser)
    given = parser.parse_args(arguments)
    program = find_pymarian(given)
    print_machine(pymarian=program or "none")
    table = Table(["words", "mean change", "largest", "of the mean", "perplexity"])
    with tempfile.TemporaryDirectory() as folder:
        packed = str(Path(folder, "model.bin"))
        convert_model(given.model, packed, gemm_type=GEMM_TYPE)
        exact = ours(given.model, given, "float32")
        row(table, "mgraph, float32", exact, exact)
        for precision in ("float16", "bfloat16", "int8"):
            row(table, f"mgraph, {precision}", ours(given.model, given, precision), exact)
        row(table, f"mgraph, float32 of {GEMM_TYPE}", ours(packed, given, "float32"), exact)
        row(table, f"mgraph, int8 of {GEMM_TYPE}", ours(packed, given, "int8"), exact)
        if program:
            exact = marians(program, given.model, given)
            row(table, "Marian, float32", exact, exact)
            try:
                row(table, f"Marian, {GEMM_TYPE}", marians(program, packed, given), exact)
            except ProcessError:
                table.row(f"Marian, {GEMM_TYPE}", "Marian stops")


if __name__ == "__main__":
    main()
