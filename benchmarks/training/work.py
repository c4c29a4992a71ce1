"""The floating point operations that updates need: by a formula for the model, whatever programs compute."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.measuring import Samples
from benchmarks.measuring.chips import TERA
from layers import Parameter
from nmt.models.parameters import parameters
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import Batch
from nmt.training.vocabularies import embedding_tables

OF_SOURCE = "_context_Wk", "_context_Wv", "_Wc_att"
"""Endings of the names of a decoder's matrices that multiply source words."""
OF_SENTENCES = "_ff_state_W"
"""The same for a matrix that multiplies sentences."""
TRAINING = 3
"""How many times the forward pass an update costs: each product has a gradient by either operand."""
RATES = "TFLOP/s", "% of peak"
"""The columns of ``rates_of``."""


def work_of(options: ModelOptions, batch: Batch) -> float:
    """Floating point operations of an update by a batch, for a model with one source and attention to all
    words (``transformer``, ``s2s``).

    A multiplication and an addition are two. Each word is multiplied with the matrices ``(m, n)`` of its
    side, and attention multiplies each pair of words twice by the features of all heads:
    ``3 (2 m n words + 4 dim pairs)``. Padding, recomputation, the softmax, norms and the optimizer are not
    counted, as usual. Source: Chowdhery et al. 2022, appendix B.
    """
    source, target = (mask[: batch.sentences].sum(1, dtype=np.float64) for mask in batch.masks)
    numbers = batch.sentences, float(source.sum()), float(target.sum())
    products = sum(math.prod(matrix.shape) * numbers[_factor(matrix)] for matrix in _matrices(options))
    cross = float(source @ target)
    if options.type == "transformer":
        within = options.enc_depth * float(source @ source) + options.dec_depth * float(target @ target)
        pairs = options.dim_emb * (within + options.dec_depth * cross)
    else:
        pairs = 2 * options.dim_rnn * cross
    return TRAINING * (2 * products + 4 * pairs)


def _matrices(options: ModelOptions) -> Iterator[Parameter]:
    """The matrices of products: embedding tables are not among them, unless tied to the output."""
    *_, table = embedding_tables(options)
    tied = options.tied_embeddings or options.tied_embeddings_all
    for matrix in parameters(options).values():
        multiplies = not matrix.layer.endswith("Embedding") or (tied and matrix.name == table)
        if multiplies and min(matrix.shape) > 1:
            yield matrix


def _factor(matrix: Parameter) -> int:
    """What is multiplied with the matrix: 0 for sentences, 1 for source words, 2 for target words."""
    if matrix.name.endswith(OF_SENTENCES):
        return 0
    return 1 if matrix.name.startswith("encoder_") or matrix.name.endswith(OF_SOURCE) else 2


def rates_of(
    work: float, seconds: Samples, peak: float | None, chips: int = 1
) -> tuple[Samples, Samples | str]:
    """TFLOP/s if ``work`` operations took these seconds, and the percentage of the chips' peak; empty if the
    peak is not known."""
    speed = seconds.rates(work / TERA)
    return speed, speed.times(100 / (peak * chips)) if peak else ""
