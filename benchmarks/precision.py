"""What int8 and 16 bits cost, compared with Marian's own int8 of the same model: word scores, translations.

All rows score the same texts: mgraph in each precision, also from an intgemm8 file made from the model, and
Marian itself from both. Each row is compared with float32 of the same program, word by word: the mean and the
largest change, the change of the mean, and the perplexity. All translate the sources, too: BLEU and chrF of
the translations (sacreBLEU), and how many equal those of float32.

    python -m benchmarks.precision --model model.npz --vocabs V V --texts test.de test.en
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu import BLEU, CHRF

from benchmarks.measuring import ProcessError, Table, finished, lines_of, print_machine
from benchmarks.peers.programs import add_pymarian, find_pymarian
from nmt import Scorer, Translator
from nmt.files.saving import convert_model

GEMM_TYPE = "intgemm8avx2"
"""Marian stops at matrices narrower than the registers of AVX-512."""
SEARCH: dict[str, Any] = {"beam_size": 4, "normalize": 0.6}


def ours(model: str, given: argparse.Namespace, precision: str) -> tuple[np.ndarray, list[str]]:
    """The log-probability of each word, and the translations."""
    scorer = Scorer(model, given.vocabs, precision=precision, word_scores=True)
    lines = [lines_of(text) for text in given.texts]
    words = np.concatenate([score.word_scores for score in scorer.scores(*lines)])
    translator = Translator(model, given.vocabs, precision=precision, **SEARCH)
    return words, translator.translate(*lines[:-1])


def marians(program: str, model: str, given: argparse.Namespace) -> tuple[np.ndarray, list[str]]:
    """The same by ``pymarian score`` and ``pymarian decode``."""
    common = ["-m", model, "-v", *given.vocabs, "--cpu-threads", "1", "--mini-batch", "8", "--quiet"]
    search = [word for name, value in SEARCH.items() for word in (f"--{name.replace('_', '-')}", str(value))]

    def said(command: str, *options: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "output")
            finished([program, command, *common, *options], stdout=output)
            return lines_of(output)

    scored = said("score", "-t", *given.texts, "--word-scores", "--max-length", "1000")
    words = [float(word) for line in scored for word in line.partition("WordScores=")[2].split()]
    return np.array(words), said("decode", "-i", *given.texts[:-1], *search, "--quiet-translation")


class Rows:
    """The rows of one program, the first in float32."""

    def __init__(self, table: Table, references: str) -> None:
        self._table = table
        self._references = lines_of(references)
        self._exact: tuple[np.ndarray, list[str]] | None = None

    def row(self, name: str, words: np.ndarray, lines: list[str]) -> None:
        """Print a row for scores of words and translations; ``ValueError`` for another number of words."""
        exact, expected = self._exact = self._exact or (words, lines)
        if len(words) != len(exact):
            raise ValueError(f"{name}: {len(words)} words, and {len(exact)} in float32")
        moved = words - exact
        changes = np.abs(moved).mean(), np.abs(moved).max(), moved.mean(), np.exp(-words.mean())
        quality = [
            metric.corpus_score(lines, [self._references]).score for metric in (BLEU(force=True), CHRF())
        ]
        same = sum(one == other for one, other in zip(lines, expected, strict=True))
        numbers = [f"{number:.4f}" for number in changes] + [f"{number:.2f}" for number in quality]
        self._table.row(name, *numbers, f"{same} of {len(lines)}")


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
    table = Table(
        [
            "scores of words; translations",
            "mean change",
            "largest",
            "of the mean",
            "perplexity",
            "BLEU",
            "chrF",
        ]
        + ["as float32"]
    )
    with tempfile.TemporaryDirectory() as folder:
        packed = str(Path(folder, "model.bin"))
        convert_model(given.model, packed, gemm_type=GEMM_TYPE)
        rows = Rows(table, given.texts[-1])
        for precision in ("float32", "float16", "bfloat16", "int8"):
            rows.row(f"mgraph, {precision}", *ours(given.model, given, precision))
        for precision in ("float32", "int8"):
            rows.row(f"mgraph, {precision} of {GEMM_TYPE}", *ours(packed, given, precision))
        if program:
            rows = Rows(table, given.texts[-1])
            rows.row("Marian, float32", *marians(program, given.model, given))
            try:
                rows.row(f"Marian, {GEMM_TYPE}", *marians(program, packed, given))
            except ProcessError:
                table.row(f"Marian, {GEMM_TYPE}", "Marian stops")


if __name__ == "__main__":
    main()
