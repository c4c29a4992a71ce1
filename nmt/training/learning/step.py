"""The update step: scale and clip the gradient, then move, smooth and quantize the parameters."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mgraph import register_tuple
from mgraph.optimizers import Optimizer, OptimizerState, moved
from nmt.settings.train import check_bits
from nmt.settings.training import Numerics
from nmt.training.learning.objective import Differentiated
from nmt.training.learning.scaling import CostScale, CostScaling, sanitized
from nmt.training.update import Tensors


def smoothed(average: Tensors, params: Tensors, decay: Any) -> Tensors:
    """``(1 - decay) average + decay params``."""
    return jax.tree.map(lambda a, p: (1 - decay) * a + decay * p, average, params)


def decay_of_update(share: float, number: int, words: int, reference: int = 0) -> float:
    """The weight of the new parameters in the average after update ``number``, counted from 1.

    ``max(1 - b, 1 - t / (t + 9))`` with ``b = 1 - share`` and ``t = number``: early averages follow the
    parameters closely. If the update has more than ``reference`` target words and ``reference`` is not 0,
    ``b`` is raised to the power ``words / reference``, and ``t - 1`` is multiplied by this ratio. Options:
    ``exponential-smoothing`` and ``mini-batch-words-ref``. Rounded as in Marian,
    ``optimizers/exponential_smoothing.cpp``.
    """
    kept = 1.0 - float(np.float32(share))
    before = number - 1
    if 0 < reference < words:
        kept **= words / reference
        before = int(before * words / reference)
    one = np.float32(1)
    return float(max(one - np.float32(kept), one - np.float32(before + 1) / np.float32(before + 10)))


LOG_MIDDLE = math.log(4 / 3)
"""Logarithmic quantization rounds up from 3/4 of the next power of two."""


@dataclass(frozen=True)
class Quantization:
    """Quantizes parameters after each update and feeds the error back at the next (``quantize-bits``).

    bits: per value, at least 2, which give ``c = 2^(bits-1) - 1`` values on each side of 0. logarithmic: use
    powers of two (``quantize-log-based``). steps: ``quantize-optimization-steps``. biases: quantize tensors
    with a single row too (``quantize-biases``).
    Source: Aji and Heafield 2020; Marian, ``optimizers/quantizer.cpp``.
    """

    bits: int
    logarithmic: bool = False
    steps: int = 0
    biases: bool = False

    @classmethod
    def from_options(cls, options: Numerics) -> Quantization | None:
        """``None`` without ``quantize-bits``; ``OptionError`` if the number of bits is not supported."""
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
        """The quantized parameters, and the quantization errors: values before minus values after."""
        whole = {name: value + errors[name] for name, value in params.items()}
        rounded = {name: self.rounded(value) for name, value in whole.items()}
        return rounded, {name: value - rounded[name] for name, value in whole.items()}

    def rounded(self, x: Any) -> Any:
        """``round(clip(x, S) c / S) S / c``, or logarithmically
        ``sgn(x) S 2^clip(floor(log2(4/3 |x| / S)), c)``.

        ``S`` starts as the largest magnitude; each step sets it to the least-squares optimum for the current
        quantized values.
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
    """Round to the nearest integer, halves away from 0, as C does."""
    return jnp.trunc(x + jnp.copysign(0.5, x))


@register_tuple
class DeviceState(NamedTuple):
    """The state that an update changes; its buffers are donated."""

    params: Tensors
    optimizer: OptimizerState
    average: Tensors | None
    """Exponentially smoothed parameters, with ``exponential-smoothing``."""
    scale: CostScale | None
    """With ``cost-scaling``."""
    errors: Tensors | None = None
    """Quantization errors, with ``quantize-bits``."""


class Scalars(NamedTuple):
    """Numbers that change with each update; float32."""

    rate: Any
    """The learning rate."""
    words: Any
    """Target words of the update."""
    normalizer: Any
    """Divides the gradient, in addition to the cost scale."""
    decay: Any
    """The weight of the new parameters in the average."""
    norm_average: Any
    """The running average of the gradient's norm per word, or of its logarithm."""
    norm_excess: Any
    """How far the norm, or its logarithm, may exceed the average; infinite for no limit."""

    def packed(self) -> np.ndarray:
        """All numbers as one array, so that one transfer sends them to the device."""
        return np.array(self, np.float32)


@register_tuple
class Reported(NamedTuple):
    """The figures that an update reports; float32, shape ()."""

    cost: Any
    labels: Any
    gradient_norm: Any


@dataclass(frozen=True)
class UpdateStep:
    """Computes new parameters from gradients.

    optimizer: clips the gradient and computes the moves. normalize_gradient: the gradient is already divided
    by the words, so its norm is reported as it is. check_gradient: ``check-gradient-nan``. cost_scaling:
    ``cost-scaling``. dynamic: limit the gradient's norm (``norm``) or its logarithm (``log``) by running
    statistics; empty for no limit. largest: the largest number of the compute type. frozen: parameters that
    are not trained. quantization: ``None`` to keep full precision.

    With ``check_gradient``, ``cost_scaling`` or ``dynamic``, an update whose gradient is not finite, or with
    ``dynamic`` is 0, is skipped: it changes only the cost scale.
    """

    optimizer: Optimizer
    normalize_gradient: bool = False
    check_gradient: bool = False
    cost_scaling: CostScaling | None = None
    dynamic: str = ""
    largest: float = float(np.finfo(np.float32).max)
    frozen: frozenset[str] = field(default=frozenset())
    quantization: Quantization | None = None

    @property
    def skips(self) -> bool:
        """Whether updates with a gradient that is not finite are skipped."""
        return bool(self.check_gradient or self.cost_scaling or self.dynamic)

    @property
    def key(self) -> Hashable:
        """Equal for steps that compute the same function."""
        own = (self.normalize_gradient, self.check_gradient, self.cost_scaling, self.dynamic, self.largest)
        frozen = tuple(sorted(self.frozen))
        return type(self.optimizer), self.optimizer.key, own, frozen, self.quantization

    def __call__(
        self, state: DeviceState, found: Differentiated, packed: Any
    ) -> tuple[DeviceState, Reported]:
        """The state after the update, and its figures."""
        scalars = Scalars(*packed)
        gradients, sane = self._checked(found.gradients, state.scale)
        normalizer = scalars.normalizer * self._unusual(gradients, state.scale, scalars)
        cost = found.cost / normalizer
        if state.scale is not None:
            normalizer = normalizer * state.scale.factor
        gradients = jax.tree.map(lambda g: g / normalizer, gradients)
        norm = optax.tree.norm(gradients)
        after = self._moved(state, gradients, cost, scalars)
        if sane is not None:
            after = jax.tree.map(lambda new, old: jnp.where(sane, new, old), after, state)
            norm = jnp.where(sane, norm, 0)
        if self.cost_scaling and state.scale is not None and sane is not None:
            after = after._replace(scale=self.cost_scaling.after(state.scale, sane))
        reported = norm if self.normalize_gradient else norm / scalars.words
        return after, Reported(found.cost, found.labels, reported)

    def _checked(self, gradients: Tensors, scale: CostScale | None) -> tuple[Tensors, Any]:
        """The gradients, sanitized for cost scaling, and whether they are usable; ``None`` if unchecked."""
        if not self.skips:
            return gradients, None
        if self.cost_scaling and scale is not None and not self.check_gradient:
            gradients = sanitized(gradients, scale.factor == self.cost_scaling.minimum, self.largest)
        if self.dynamic:
            norm = optax.tree.norm(gradients)
            return gradients, jnp.isfinite(norm) & (norm > 0)
        finite = [jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]
        return gradients, jnp.stack(finite).all()

    def _unusual(self, gradients: Tensors, scale: CostScale | None, scalars: Scalars) -> Any:
        """The ratio of the norm to its average if it exceeds the limit, else 1."""
        if not self.dynamic:
            return 1.0
        norm = optax.tree.norm(gradients) / scalars.words
        if scale is not None:
            norm = norm / scale.factor
        logs = self.dynamic == "log"
        average = jnp.exp(scalars.norm_average) if logs else scalars.norm_average
        excess = (jnp.log(norm) if logs else norm) - scalars.norm_average
        return jnp.where(excess > scalars.norm_excess, norm / average, 1)

    def _moved(self, state: DeviceState, gradients: Tensors, cost: Any, scalars: Scalars) -> DeviceState:
        params, rate = state.params, scalars.rate
        moves, moments = self.optimizer.moves(gradients, state.optimizer, params, rate, cost)
        params = self._thawed(moved(params, moves), params)
        average = state.average
        if average is not None:
            average = self._thawed(smoothed(average, params, scalars.decay), average)
        errors = state.errors
        if self.quantization and errors is not None:
            params, errors = self.quantization(params, errors)
        return DeviceState(params, moments, average, state.scale, errors)

    def _thawed(self, after: Tensors, before: Tensors) -> Tensors:
        """The new values, except that frozen parameters keep their old ones."""
        return {name: before[name] if name in self.frozen else value for name, value in after.items()}
