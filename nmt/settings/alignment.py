"""The options of shortlists, and those of word alignment: fast_align's, with the settings that its authors
recommend."""

from __future__ import annotations

from nmt.settings.option import Options, option

DIRECTIONS = ("forward", "reverse")
HEURISTICS = ("intersect", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")


class AlignmentOptions(Options):
    """How words are aligned."""

    title = "Alignment"

    heuristic: str = option(
        "grow-diag-final-and",
        "one direction, or how to combine both, as in atools",
        short="c",
        choices=(*DIRECTIONS, *HEURISTICS),
    )
    iterations: int = option(5, "passes over the text; the last chooses the links", short="I", least=1)
    favor_diagonal: bool = option(True, "prefer links near the diagonal")
    diagonal_tension: float = option(4.0, "how strongly at first; 0: not at all", short="T", least=0)
    optimize_tension: bool = option(True, "fit the tension to the text")
    variational_bayes: bool = option(True, "a Dirichlet prior for the words' translations")
    alpha: float = option(0.01, "parameter of that prior, above 0", least=0)
    p0: float = option(0.08, "probability that a word has no link", short="q", least=0, below=1)
    null_word: bool = option(True, "allow words without links")


class ShortlistLimits(Options):
    """What a lexical shortlist keeps."""

    title = "Shortlist"

    first: int = option(100, "in binary files: always list the first N words of the vocabulary", least=0)
    best: int = option(100, "at most N target words for a source word", least=1)
    threshold: float = option(0.0, "only probabilities above it", least=0, below=1)
