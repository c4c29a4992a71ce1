"""Trainings drawn at random: a model that the matrix draws, and new combinations of training options."""

from __future__ import annotations

import random
import re

from ..matrix import draws
from .row import Row, Start

# One value of each tuple is drawn; an empty one omits the option.
OPTIMIZERS = (
    "",
    "--optimizer-params 0.9 0.98 1e-9",
    "--optimizer-params 0.8 0.99 1e-6 0.01",
    "--optimizer adagrad --learn-rate 0.01",
    "--optimizer sgd --learn-rate 0.05",
)
GRADIENTS = (
    "--clip-norm 1",
    "--clip-norm 0.1",
    "--clip-norm 0.5 --normalize-gradient",
    "--clip-norm 0.5 --normalize-gradient-by-ratio",
    "--clip-norm 1 --dynamic-gradient-scaling 0.5 --gradient-norm-average-window 6",
    "--clip-norm 1 --dynamic-gradient-scaling 0.8 log --gradient-norm-average-window 4",
)
COSTS = ("", "--cost-type ce-mean", "--cost-type ce-sum", "--cost-type perplexity")
SMOOTHING = ("", "--label-smoothing 0.1")
BATCHES = (
    "",
    "--mini-batch 20 --maxi-batch 1",
    "--mini-batch 10 --maxi-batch 3 --maxi-batch-sort src",
    "--maxi-batch-sort none",
    "--mini-batch-words 150",
    "--mini-batch-words 120 --mini-batch-words-ref 100",
    "--mini-batch-words-ref 80",
    "--mini-batch-warmup 15u --maxi-batch 8",
    "--mini-batch-warmup 400t --mini-batch-words 120",
)
DELAYS = ("", "", "", "--optimizer-delay 2", "--optimizer-delay 0.5", "--optimizer-delay 1.5")
ORDERS = ("", "", "--shuffle data", "--shuffle batches")
LENGTHS = ("", "", "--max-length 8", "--max-length 7 --max-length-crop")
AVERAGES = (
    "",
    "",
    "--exponential-smoothing 0.05",
    "--exponential-smoothing",
    "--exponential-smoothing 0.1 --exponential-smoothing-replace-freq 10",
)
RATES = (
    "",
    "",
    "--lr-warmup 8",
    "--lr-warmup 8 --lr-decay-inv-sqrt 10",
    "--lr-warmup 600t --lr-warmup-start-rate 0.001 --lr-decay-inv-sqrt 900t 500t",
    "--lr-warmup 15 --lr-warmup-cycle",
    "--lr-decay 0.5 --lr-decay-strategy epoch --lr-decay-start 2 --lr-decay-reset-optimizer",
    "--lr-decay 0.5 --lr-decay-strategy epoch+batches --lr-decay-start 2 9 --lr-decay-freq 3",
    "--lr-decay 0.7 --lr-decay-strategy batches --lr-decay-freq 5 --lr-decay-start 10 "
    "--lr-decay-repeat-warmup --lr-warmup 6",
)
REPORTS = (
    "",
    "",
    "--disp-freq 5",
    "--disp-first 3 --disp-freq 5",
    "--disp-freq 300t",
    "--disp-label-counts false",
    "--logical-epoch 10u 2",
    "--logical-epoch 700t",
)
VALIDATION = (
    "",
    "--valid-freq 7u --valid-metrics ce-mean-words perplexity",
    "--valid-freq 4u --valid-metrics cross-entropy --early-stopping 2 --lr-decay 0.5 "
    "--lr-decay-strategy stalled --lr-decay-start 1",
    "--valid-freq 5u --valid-metrics perplexity --valid-mini-batch 7 --valid-max-length 8",
    "--valid-freq 300t --valid-metrics ce-mean-words --early-stopping 1 --early-stopping-on all",
)
WEIGHTS = (
    "",
    "--data-weighting train.sentence-weight --data-weighting-type sentence",
    "--data-weighting train.word-weight --data-weighting-type word",
    "--data-weighting train.choice --data-weighting-type word --unlikelihood-loss",
)
ALIGNMENTS = tuple(
    f"--guided-alignment train.alignment {options}"
    for options in (
        "",
        "--guided-alignment-weight 0.3 --multi-loss-type scaled",
        "--multi-loss-type mean",
    )
)
# Only for recurrent models: Marian does not train the scales of a norm right after fixed embeddings.
FIXED = ("--embedding-fix-src", "--embedding-fix-trg")
GROUPS = (
    *(OPTIMIZERS, GRADIENTS, COSTS, SMOOTHING, BATCHES, DELAYS, ORDERS, LENGTHS, AVERAGES, RATES, REPORTS),
    *(WEIGHTS, VALIDATION),
)
# These models amplify rounding: in one, clipping at 0.99966 instead of 1 changed Marian's own norm by 1 %.
DEEP_LSTM = "(?=.*--layer-normalization)(?=.*--enc-cell lstm)(?=.*--enc-cell-depth [2-9])"
# Marian's results for the other models depend on the padding of the batch, or on chance.
UNSOUND = re.compile(rf"transformer-new|--enc-cell mgru|dropout|process(-emb|-top)? \w*r|{DEEP_LSTM}")


def draw(count: int, seed: int) -> list[Row]:
    """Draw ``count`` trainings, the same for the same seed; Marian may refuse some."""
    generator = random.Random(seed)
    return [_row(generator, f"random-{seed}-{number}") for number in range(count)]


def _row(generator: random.Random, name: str) -> Row:
    start = Start(name, _sound(generator))
    options = " ".join(filter(None, map(generator.choice, GROUPS)))
    alignable = len(start.streams) == 2 and "--right-left" not in start.options and "-crop" not in options
    if alignable and generator.random() < 0.25:
        options += f" {generator.choice(ALIGNMENTS)}"
    if generator.random() < 0.25 and "transformer" not in start.type:
        options += f" {generator.choice(FIXED)}"
    if "--valid" in options:
        options += " ".join([" --valid-sets", *(f"train.{stream}" for stream in start.streams)])
    return Row(name, start, f"--after-batches 20 {options}")


def _sound(generator: random.Random) -> str:
    """An architecture without dropout whose training in Marian depends on neither padding nor rounding."""
    while True:
        (drawn,) = draws.draw(1, generator.randrange(2**32))
        if not UNSOUND.search(drawn.options):
            return drawn.options
