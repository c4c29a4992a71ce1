"""The options of validation during training."""

from __future__ import annotations

from nmt.settings.option import Option
from nmt.settings.shared import RANKING, WORD_SCORES

VALIDATION = (
    Option("valid-sets", str, (), "validation files: each source, then the target", many=True),
    Option("valid-freq", str, "10000u", "validate every N updates (u), target words (t) or epochs (e)"),
    Option("valid-metrics", str, ("cross-entropy",), "what to measure; the first is what counts", many=True),
    Option("valid-reset-stalled", help="when training goes on: count validations without progress anew"),
    Option("valid-reset-all", help="when training goes on: forget the best values, too"),
    Option("early-stopping", int, 10, "stop after N validations without progress; 0: never", least=0),
    Option("early-stopping-epsilon", float, (0.0,), "progress is more than this, for each metric", many=True),
    Option("early-stopping-on", str, "first", "whose progress counts", choices=("first", "all", "any")),
    *RANKING,
    Option("n-best", help="write lists of translations"),
    WORD_SCORES,
    Option("valid-mini-batch", int, 32, "lines in a batch of validation", least=1),
    Option("valid-max-length", int, 1000, "longer sentences are cut to so many words", least=1),
    Option("valid-script-path", str, "", "a program that prints one score"),
    Option("valid-script-args", str, (), "its first arguments, before the file of translations", many=True),
    Option(
        "valid-translation-output",
        str,
        "",
        "file for the translations; {E} {B} {U} {T} in it: numbers of epochs, batches, updates, words",
    ),
    Option("keep-best", help="keep the best model of each metric"),
    Option("valid-log", str, "", "write the values to this file, too"),
    Option("quiet-validation", help="do not log samples of translations"),
)
"""In Marian's order."""
