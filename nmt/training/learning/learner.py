"""``Learner``: a model's parameters and all that changes with them, updated by compiled programs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgraph.optimizers import OptimizerState
from mgraph.running.memory import MemoryUse
from mgraph.running.programs import Compiled, Plan, compiled
from mgraph.tracing.draws import run_draws
from nmt.models import Model
from nmt.text.corpus.batch import TrainingBatch
from nmt.training.learning.cost_scaling import CostScale
from nmt.training.learning.normalization import Normalization
from nmt.training.learning.objective import Arrays, Differentiated, Objective, specs_of
from nmt.training.learning.placement import ONE_DEVICE, Placement
from nmt.training.learning.settings import normalization_of, objective_of, step_of
from nmt.training.learning.smoothing import decay_of_update
from nmt.training.learning.step import DeviceState, Scalars, UpdateStep
from nmt.training.update import LearnerState, Tensors, UpdateResult


class Learner:
    """What Marian calls a graph group: computes gradients of batches and updates the parameters by them.

    An update is two compiled programs. The first computes the gradient of a batch and adds it to those of
    the batches before; there is one for each shape of batches. The second, one for all shapes, clips, moves
    and smooths, and writes over the buffers of parameters, moments and averages. All that changes from update
    to update (learning rate, words, random draws) are their inputs. In one program the second part, which
    takes half as long to compile as the first, would be compiled for each shape.

    objective: what is minimized. step: what is done with the gradient. smoothing: ``exponential-smoothing``,
    0 without. words_reference: ``mini-batch-words-ref``, 0 without. seed: of the random draws, which depend
    on it, the number of the update and the number of the batch in the update, and on nothing else. placement:
    the devices that share each update.
    """

    def __init__(
        self,
        objective: Objective,
        step: UpdateStep,
        *,
        seed: int,
        smoothing: float = 0.0,
        words_reference: int = 0,
        normalization: Normalization | None = None,
        placement: Placement = ONE_DEVICE,
    ) -> None:
        self.objective, self.step, self.seed = objective, step, seed
        self.smoothing, self.words_reference = smoothing, words_reference
        self.normalization = normalization or Normalization()
        self.placement = placement
        self._init = step.optimizer.direction().init
        self._device = self._new_state(objective.model.params)

    @classmethod
    def from_options(
        cls, model: Model, values: Mapping[str, Any], *, seed: int, placement: Placement = ONE_DEVICE
    ) -> Learner:
        """A learner as Marian's training options ask for it; it begins with the parameters of ``model``.

        ``UnsupportedOptionError`` or ``ArgumentError`` for options that cannot be followed.
        """
        objective = objective_of(model, values)
        return cls(
            objective,
            step_of(values, objective),
            seed=seed,
            smoothing=values["exponential_smoothing"],
            words_reference=values["mini_batch_words_ref"],
            normalization=normalization_of(values),
            placement=placement,
        )

    def update(
        self,
        batches: Sequence[TrainingBatch],
        *,
        learn_rate: float,
        number: int,
        gradient_norms: tuple[float, float] = (0.0, 0.0),
    ) -> UpdateResult:
        """Update the parameters by the gradient of the summed loss of ``batches``.

        learn_rate: of this update. number: of the update, from 1. gradient_norms: average and variance of
        the reported norms so far (of their logarithms with ``log``), for ``dynamic-gradient-scaling``; see
        ``needs_gradient_norms``. Returns without waiting for the device.
        """
        words = sum(batch.words for batch in batches)
        scalars = Scalars(
            self._rate(learn_rate, words),
            words,
            self.normalization.divisor(words),
            decay_of_update(self.smoothing, number, words, self.words_reference),
            *self.normalization.limit(number, *gradient_norms),
        )
        total: Differentiated | None = None
        for i, batch in enumerate(batches):
            inputs = self.placement.batch(batch), run_draws(self.seed, number, [i])
            args = (total, self._device.params, self._device.scale, *inputs)
            total = self._gradient(args)(*args)
        self._device, reported = self._update()(self._device, total, scalars.packed())
        sentences = sum(batch.sentences for batch in batches)
        return UpdateResult(
            reported.cost, reported.labels, reported.gradient_norm, sentences, words, len(batches)
        )

    @property
    def needs_gradient_norms(self) -> str:
        """What running statistics ``update`` needs: of the gradient's ``norm``, of its ``log``, or none."""
        return self.step.dynamic

    def params(self, *, smoothed: bool) -> Tensors:
        """A copy of the parameters; the smoothed ones, if that is asked for and there are any."""
        average = self._device.average if smoothed else None
        return _copied(self.placement.local(self._device.params if average is None else average))

    def replace_with_smoothed(self) -> None:
        """Go on from the smoothed parameters; without smoothing nothing changes."""
        params = self.placement.placed(self.params(smoothed=True))
        self._device = self._device._replace(params=params)

    def reset_optimizer(self) -> None:
        """Forget all moments, as at the start of training."""
        optimizer = self.placement.placed(self._init(self._device.params))
        self._device = self._device._replace(optimizer=optimizer)

    def state(self) -> LearnerState:
        """All that later updates depend on, as numpy arrays; waits for the updates that are under way."""
        found = self.placement.fetched(self._device)
        scale = found.scale
        return LearnerState(
            found.params,
            found.optimizer.moments,
            int(found.optimizer.steps),
            found.average,
            None if scale is None else (float(scale.factor), int(scale.clean)),
            self.normalization.average_words,
            found.errors,
        )

    def restore(self, state: LearnerState) -> None:
        """Go on from a state. Moments, averages and factors that it lacks begin anew."""
        fresh = self._new_state(state.params)
        params, errors = fresh.params, fresh.errors
        if errors is not None and state.errors is not None:
            params, errors = _copied(state.params), _copied(state.errors)
        moments = {name: _copied(state.moments.get(name, m)) for name, m in fresh.optimizer.moments.items()}
        steps = jnp.asarray(state.steps, jnp.int32)
        average, scale = fresh.average, fresh.scale
        if average is not None and state.average is not None:
            average = _copied(state.average)
        if scale is not None and state.cost_scale is not None:
            factor, clean = state.cost_scale
            scale = CostScale(jnp.float32(factor), jnp.int32(clean))
        self.normalization.average_words = state.average_words
        restored = DeviceState(params, OptimizerState(steps, moments), average, scale, errors)
        self._device = self.placement.placed(restored)

    def memory(self, batch: TrainingBatch, *, last_of_several: bool = False) -> int:
        """The bytes that an update by a batch of this shape needs on each device, ``held`` included, by XLA's
        analysis of its programs, which are compiled and kept, and not run.

        last_of_several: whether it has gradients of other batches to add.
        """
        device, scalar = self._device, jax.ShapeDtypeStruct((), np.float32)
        draws, packed = np.zeros(4, np.uint32), np.zeros(len(Scalars._fields), np.float32)
        total = self.placement.specs(Differentiated(device.params, scalar, scalar))
        before = total if last_of_several else None
        args = (before, device.params, device.scale, self.placement.batch_specs(batch), draws)
        gradient = self._gradient(args).analysed(*args)
        updating = self._update().analysed(device, total, packed)
        beside = self.held - self.placement.held(device.params)
        return max(MemoryUse.of(gradient, None).needed + beside, MemoryUse.of(updating, None).needed)

    @property
    def held(self) -> int:
        """The bytes of parameters, moments and averages on each device."""
        return self.placement.held(self._device)

    def _rate(self, learn_rate: float, words: int) -> float:
        """The learning rate, which Adam raises where there are more words than were its reference."""
        more = 0 < self.words_reference < words and "adam_mt" in self._device.optimizer.moments
        return learn_rate * (words / self.words_reference) if more else learn_rate

    def _new_state(self, params: Mapping[str, Any]) -> DeviceState:
        own = _copied({name: params[name] for name in sorted(params)})
        scaling, quantization = self.step.cost_scaling, self.step.quantization
        errors = None
        if quantization is not None:
            own = {name: quantization.rounded(value) for name, value in own.items()}
            errors = {name: jnp.zeros_like(value) for name, value in own.items()}
        state = DeviceState(
            own,
            self._init(own),
            _copied(own) if self.smoothing > 0 else None,
            None if scaling is None else scaling.start(),
            errors,
        )
        return self.placement.placed(state)

    def _gradient(self, args: tuple[Any, ...]) -> Compiled:
        total, _, _, batch, _ = args
        shapes = tuple((name, tuple(array.shape), str(array.dtype)) for name, array in batch.items())
        return compiled(BatchGradientPlan(self.objective, self.placement, total is None, shapes))

    def _update(self) -> Compiled:
        specs = tuple((name, value.shape) for name, value in self._device.params.items())
        return compiled(LearnerUpdatePlan(self.step, self.placement, self.smoothing > 0, specs))


@dataclass(frozen=True)
class BatchGradientPlan(Plan):
    """The gradient of a batch, added to those before; one for each shape of batches."""

    objective: Objective
    placement: Placement
    first: bool
    """Whether there are none before."""
    shapes: tuple[tuple[str, tuple[int, ...], str], ...]

    @property
    def key(self) -> Hashable:
        return self.first, self.objective.key, self.placement.key, self.shapes

    @property
    def donated(self) -> tuple[int, ...]:
        return (0,)

    def __str__(self) -> str:
        lengths = ", ".join(str(shape[1]) for name, shape, _ in self.shapes if name.startswith("ids"))
        return f"gradient of {self.shapes[0][1][0]} sentences of {lengths} words"

    def __call__(self, total: Any, params: Tensors, scale: Any, batch: Arrays, draws: Any) -> Differentiated:
        differentiated = self.objective.differentiated(specs_of(batch))
        found = differentiated(self.placement.whole(params), batch, draws, _factor(scale))
        return self.placement.pinned(_added(total, found))


@dataclass(frozen=True)
class LearnerUpdatePlan(Plan):
    """Everything that changes, updated by a gradient."""

    step: UpdateStep
    placement: Placement
    smoothed: bool
    specs: tuple[tuple[str, tuple[int, ...]], ...]
    """Of the parameters."""

    @property
    def key(self) -> Hashable:
        return self.smoothed, self.step.key, self.specs, self.placement.key

    @property
    def donated(self) -> tuple[int, ...]:
        return (0,)

    def __str__(self) -> str:
        return f"update of {len(self.specs)} parameters"

    def __call__(self, state: DeviceState, total: Differentiated, packed: Any) -> Any:
        return self.placement.pinned(self.step(state, self.placement.pinned(total), packed))


def _factor(scale: CostScale | None) -> Any:
    return 1.0 if scale is None else scale.factor


def _added(total: Differentiated | None, found: Differentiated) -> Differentiated:
    return found if total is None else jax.tree.map(jnp.add, total, found)


def _copied(tensors: Mapping[str, Any]) -> Tensors:
    return {name: jnp.array(value, jnp.float32, copy=True) for name, value in tensors.items()}
