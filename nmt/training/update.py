"""What passes between the learner, the scheduler and the checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Tensors = dict[str, Any]
"""Arrays by the name of their parameter."""


class UpdateResult(NamedTuple):
    """What an update says of itself. The arrays may still be being computed: read them late."""

    cost: Any
    """The cost summed over the labels, in nats; float32, shape ()."""
    labels: Any
    """The number of labels that it is a sum over: target words, and with guided alignment its weighted links;
    float32, shape ()."""
    gradient_norm: Any
    """The L2 norm of the gradient before clipping, divided by the target words unless
    ``--normalize-gradient``; float32, shape (). 0 if the update was skipped."""
    sentences: int
    words: int
    """Target words, ``</s>`` included."""
    batches: int
    """How many batches of the corpus were used."""


@dataclass
class LearnerState:
    """All that an update depends on and changes, but for the schedule and the data.

    params: the parameters that are trained, float32 (the masters, with 16-bit compute).
    moments: of the optimizer, by Marian's names: ``adam_mt`` and ``adam_vt``, or ``adagrad_gt``, or nothing.
    steps: updates since the moments were zero.
    average: exponentially smoothed parameters; None without ``--exponential-smoothing``.
    cost_scale: factor of the cost and number of updates since it changed, with ``--cost-scaling``; else None.
    average_words: running average of the words of an update, for ``--normalize-gradient-by-ratio``; 0 if
        there was none yet.
    errors: what rounding took off each parameter, with ``--quantize-bits``; else None.
    """

    params: Tensors
    moments: dict[str, Tensors]
    steps: int = 0
    average: Tensors | None = None
    cost_scale: tuple[float, int] | None = None
    average_words: float = 0.0
    errors: Tensors | None = None
