"""Training of parameters that few bits can hold (``quantize-bits``).

Source: Aji and Heafield 2020; Marian, ``optimizers/quantizer.cpp``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from nmt.settings.train import check_bits
from nmt.settings.training import Numerics
from nmt.training.update import Tensors

LOG_MIDDLE = math.log(4 / 3)
"""Between powers of two numbers are rounded at 3/4 of the upper one."""


@dataclass(frozen=True)
class Quantization:
    """Rounds parameters after each update, and adds what that took off before the next rounding.

    bits: of a number, at least 2: ``c = 2^(bits-1) - 1`` values on each side of 0. logarithmic: whether
    these are powers of two, ``quantize-log-based``. steps: ``quantize-optimization-steps``. biases: whether
    rows are rounded too, ``quantize-biases``.
    """

    bits: int
    logarithmic: bool = False
    steps: int = 0
    biases: bool = False

    @classmethod
    def from_options(cls, options: Numerics) -> Quantization | None:
        """``None`` without ``quantize-bits``; ``OptionError`` for a number of bits that makes no sense."""
        bits = options.quantize_bits
        check_bits(bits)
        if not bits:
            return None
        return cls(
            bits,
            options.quantize_log_based,
            options.quantize_optimization_steps,
            options.quantize_biases,
        )

    def __call__(self, params: Tensors, errors: Tensors) -> tuple[Tensors, Tensors]:
        """Rounded parameters, and their errors: what was there before minus what is there now."""
        whole = {name: value + errors[name] for name, value in params.items()}
        rounded = {name: self.rounded(value) for name, value in whole.items()}
        return rounded, {name: value - rounded[name] for name, value in whole.items()}

    def rounded(self, x: Any) -> Any:
        """The array in few bits: ``round(clip(x, S) c / S) S / c``, or, logarithmically,
        ``sgn(x) S 2^clip(floor(log2(4/3 |x| / S)), c)``.

        ``S`` is the largest magnitude; each step then moves it to where the squared error is least for the
        values that were chosen.
        """
        if x.shape[0] == 1 and not self.biases:
            return x
        scale = jnp.max(jnp.abs(x))
        safe = jnp.where(scale > 0, scale, 1)
        for _ in range(self.steps):
            unit = self._nearest(x, safe) / safe
            total = jnp.sum(unit * unit)
            safe = jnp.where(total > 0, jnp.sum(unit * x) / jnp.where(total > 0, total, 1), safe)
        return jnp.where(scale > 0, self._nearest(x, safe), x)

    def _nearest(self, x: Any, scale: Any) -> Any:
        centers = (1 << (self.bits - 1)) - 1
        cut = jnp.clip(x, -scale, scale)
        if not self.logarithmic:
            multiplier = centers / scale
            return _rounded_away(cut * multiplier) / multiplier
        power = jnp.floor((jnp.log(jnp.abs(cut / scale)) + LOG_MIDDLE) / math.log(2))
        return jnp.sign(cut) * scale * jnp.exp2(jnp.clip(power, -centers, centers))


def _rounded_away(x: Any) -> Any:
    """To the nearest integer, halves away from 0, as C rounds."""
    return jnp.trunc(x + jnp.copysign(0.5, x))
