"""``Learner``: a model's parameters and optimizer state, updated by compiled programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import Compiled, Plan, compiled
from mgraph.device import platform_of
from mgraph.draws import run_draws
from mgraph.optimizers import OptimizerState
from nmt.models import Model
from nmt.runtime.devices import release_freed_memory
from nmt.settings.training import TrainOptions
from nmt.text.batches import Batch
from nmt.text.layouts import PaddedLayout
from nmt.training.learning.batch_arrays import Arrays, specs_of, specs_of_group
from nmt.training.learning.finite import FiniteCheck
from nmt.training.learning.objective import Differentiated, Objective
from nmt.training.learning.optimizers import denominators_of, with_denominators
from nmt.training.learning.placement import ONE_DEVICE, Placement
from nmt.training.learning.scaling import CostScale, Normalization
from nmt.training.learning.settings import normalization_of, objective_of, step_of
from nmt.training.learning.step import DeviceState, Scalars, UpdateStep, decay_of_update
from nmt.training.update import LearnerState, Tensors, UpdateResult

Specified = tuple[Compiled, tuple[Any, ...]]
"""A program, and its arguments or their shapes, types and shardings."""

WORK = {"cpu": 3.5e11}
"""About how many floating-point operations training computes in the time in which one program compiles."""
WORK_OF_GPU = 1e16
"""As ``WORK``, for GPUs: on an H200 with 16 cores a transformer's program compiles in a minute, in which
training computes 1.8e16 operations."""


class Learner:
    """Marian's graph group: computes gradients of batches and updates the parameters.

    An update runs two compiled programs. The first, one per batch shape, computes the gradient of a batch and
    adds it to that of the batches before. The second, one for all shapes, clips, moves and smooths, and
    donates the buffers of parameters, moments and averages. Everything that changes with each update
    (learning rate, words, random draws) is an input. A single program would have to compile the second part,
    which takes half as long as the first, once per shape.

    objective: the loss. step: applies its gradient. smoothing: ``exponential-smoothing``, 0 for none.
    words_reference: ``mini-batch-words-ref``, 0 for none. seed: random draws depend only on it, the number of
    the update and the number of the batch in the update. placement: the devices that share each update.
    finite: the check of ``--check-nan``; None without.
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
        finite: FiniteCheck | None = None,
    ) -> None:
        self.objective, self.step, self.seed = objective.without_values(), step, seed
        self.smoothing, self.words_reference = smoothing, words_reference
        self.normalization, self.finite = normalization or Normalization(), finite
        self.placement = placement.of_model(objective.model)
        self._device = self._new_state(objective.model.params)

    @classmethod
    def from_options(
        cls, model: Model, options: TrainOptions, *, seed: int, placement: Placement = ONE_DEVICE
    ) -> Learner:
        """The learner for Marian's training options, initialized with the parameters of ``model``.

        ``UnsupportedOptionError`` or ``ArgumentError`` for invalid options.
        """
        objective = objective_of(model, options)
        step = step_of(options, objective)
        return cls(
            objective,
            step,
            seed=seed,
            smoothing=options.exponential_smoothing,
            words_reference=options.mini_batch_words_ref,
            normalization=normalization_of(options),
            placement=placement,
            finite=FiniteCheck(objective.without_values(), not step.skips) if options.check_nan else None,
        )

    def update(
        self,
        batches: Sequence[Batch],
        *,
        learn_rate: float,
        number: int,
        gradient_norms: tuple[float, float] = (0.0, 0.0),
    ) -> UpdateResult:
        """Update the parameters with the gradient of the summed loss of ``batches``.

        number: of the update, from 1. gradient_norms: average and variance of the reported norms so far, or
        of their logarithms, if ``needs_gradient_norms``.
        Returns without waiting for a GPU; with ``finite`` it waits, and raises ``DivergenceError`` for a cost
        or gradient that is not finite.
        """
        words = sum(batch.words for batch in batches)
        divisor = self.normalization.count(words)
        scalars = Scalars(
            self._rate(learn_rate, words),
            words,
            divisor,
            decay_of_update(self.smoothing, number, words, self.words_reference),
            *self.normalization.limit(number, *gradient_norms),
        )
        total: Differentiated | None = None
        by_group = self._by_group(len(batches))
        for i, batch in enumerate(batches):
            draws = self.placement.everywhere(run_draws(self.seed, number, [i]))
            inputs = self.placement.batch(self._own(batch)), draws
            args = (total, self._device.params, self._device.scale, *inputs)
            gradient = self._gradient(args, by_group)
            if gradient.prepare(*args):
                release_freed_memory()
            total = gradient(*args)
            if self.finite:
                params = self.placement.local(self._device.params)
                self.finite.check(total, params, self._own(batch), self.placement.groups, number)
        packed = self.placement.everywhere(scalars.packed())
        self._device, reported = self._update(by_group)(self._device, total, packed)
        sentences = sum(batch.sentences for batch in batches)
        return UpdateResult(
            reported.cost, reported.labels, reported.gradient_norm, sentences, words, len(batches)
        )

    def prepare(self, batches: Sequence[Batch]) -> None:
        """Compile the programs of an update with batches of these shapes, unless they are compiled already or
        another thread is compiling them. Other threads may update at the same time; they wait for a program
        that they need."""
        programs = [self._gradient_of(batch, i, len(batches)) for i, batch in enumerate(batches)]
        programs.append(self._update_after(len(batches)))
        prepared = [program.prepare(*args, wait=False) for program, args in programs]
        if any(prepared):
            release_freed_memory()

    def layout(self, parts: int = 1) -> PaddedLayout:
        """The layout of batches that are each computed in ``parts``."""
        return self.objective.layout(parts * self.placement.groups)

    @property
    def program(self) -> float:
        """About how many positions training computes in the time in which one program compiles."""
        model = self.objective.model
        numbers = sum(value.size for value in model.params.values())
        # Each position is multiplied by the parameters of its stream, forwards and twice backwards.
        return WORK.get(platform_of(None), WORK_OF_GPU) / (6 * numbers / (model.sources + 1))

    @property
    def needs_gradient_norms(self) -> str:
        """The running statistics that ``update`` needs: of the ``norm``, of its ``log``, or none (empty)."""
        return self.step.dynamic

    def params(self, *, smoothed: bool) -> Tensors:
        """A copy of the parameters; with ``smoothed`` the smoothed ones, if there are any."""
        average = self._device.average if smoothed else None
        return _copied(self.placement.local(self._device.params if average is None else average))

    def replace_with_smoothed(self) -> None:
        """Continue from the smoothed parameters; without smoothing this does nothing."""
        params = self.placement.placed(self.params(smoothed=True))
        self._device = self._device._replace(params=params)

    def reset_optimizer(self) -> None:
        """Reset all moments to their initial values."""
        self._set_denominators((0.0, 0.0))
        with jax.enable_x64(False):  # as in the programs
            optimizer = self.step.optimizer.init(self._device.params)
        self._device = self._device._replace(optimizer=self.placement.placed(optimizer))

    def state(self) -> LearnerState:
        """The state that later updates depend on, as numpy arrays; waits for pending updates."""
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
            denominators_of(self.step.optimizer),
        )

    def _set_denominators(self, denominators: tuple[float, float]) -> None:
        self.step = replace(self.step, optimizer=with_denominators(self.step.optimizer, denominators))

    def restore(self, state: LearnerState) -> None:
        """Resume from a state. Moments, averages and cost scales that it lacks are initialized."""
        self._set_denominators(state.denominators)
        fresh = self._new_state(state.params)
        params, errors = fresh.params, fresh.errors
        if errors is not None and state.errors is not None:
            params, errors = _copied(state.params), _copied(state.errors)
        moments = {name: _like(state.moments.get(name, m), m) for name, m in fresh.optimizer.moments.items()}
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

    def memory(self, batch: Batch, *, last_of_several: bool = False, keep: bool = True) -> int:
        """The bytes per device, ``held`` included, that an update with a batch of this shape needs.

        From XLA's analysis of the programs, which are compiled but not run.
        last_of_several: the update adds gradients of earlier batches. keep: whether to keep the compiled
        program of this shape, to run it later.
        """
        (gradient, inputs), (updating, state) = self._programs(batch, last_of_several)
        beside = self.held - self.placement.held(self._device.params)
        needed = max(gradient.memory(*inputs).needed + beside, updating.memory(*state).needed)
        if not keep:
            gradient.drop()
        return needed

    def analysed(self, batch: Batch, *, last_of_several: bool = False) -> tuple[Any, ...]:
        """The two programs of an update with a batch of this shape, as compiled by XLA."""
        return tuple(program.analysed(*args) for program, args in self._programs(batch, last_of_several))

    def _programs(self, batch: Batch, last_of_several: bool) -> tuple[Specified, Specified]:
        """The two programs of an update whose last batch is of this shape."""
        count = 2 if last_of_several else 1
        return self._gradient_of(batch, count - 1, count), self._update_after(count)

    def _gradient_of(self, batch: Batch, number: int, count: int) -> Specified:
        """The program for the gradient of a batch of this shape, which is number ``number`` of ``count``."""
        device = self.placement.specs(self._device)
        draws = self.placement.everywhere(np.zeros(4, np.uint32))
        before = self._total(count) if number else None
        args = (before, device.params, device.scale, self.placement.batch_specs(self._own(batch)), draws)
        return self._gradient(args, self._by_group(count)), args

    def _update_after(self, count: int) -> Specified:
        """The program that updates with the gradient of ``count`` batches."""
        packed = self.placement.everywhere(np.zeros(len(Scalars._fields), np.float32))
        args = self.placement.specs(self._device), self._total(count), packed
        return self._update(self._by_group(count)), args

    def _total(self, count: int) -> Differentiated:
        """Shapes, types and shardings of the gradient of ``count`` batches."""
        specs = self.placement.specs_by_group if self._by_group(count) else self.placement.specs
        return specs(Differentiated(self._device.params, np.float32(0), np.float32(0)))

    def _by_group(self, count: int) -> bool:
        """Whether each group of devices keeps its own gradient in an update with ``count`` batches."""
        return self.placement.sums_later and count > 1

    @property
    def held(self) -> int:
        """The bytes of parameters, moments and averages on each device."""
        return self.placement.held(self._device)

    def _own(self, batch: Batch) -> Arrays:
        """The arrays of a batch, with rows that divide evenly among the groups of devices."""
        return self.objective.arrays(self.placement.even(batch), self.placement.groups)

    def _rate(self, learn_rate: float, words: int) -> float:
        """The learning rate; Adam's is raised for batches with more words than the reference."""
        more = 0 < self.words_reference < words and "adam_mt" in self._device.optimizer.moments
        return learn_rate * (words / self.words_reference) if more else learn_rate

    def _new_state(self, params: Mapping[str, Any]) -> DeviceState:
        own = _copied({name: params[name] for name in sorted(params)})
        with jax.enable_x64(False):
            state = new_state(own, self.step, smoothed=self.smoothing > 0)
        return self.placement.placed(state)

    def _gradient(self, args: tuple[Any, ...], by_group: bool) -> Compiled:
        total, _, scale, batch, _ = args
        shapes = tuple((name, tuple(array.shape), str(array.dtype)) for name, array in sorted(batch.items()))
        first, scaled = total is None, scale is not None
        return compiled(BatchGradientPlan(self.objective, self.placement, first, scaled, by_group, shapes))

    def _update(self, by_group: bool) -> Compiled:
        specs = tuple((name, value.shape) for name, value in self._device.params.items())
        return compiled(LearnerUpdatePlan(self.step, self.placement, self.smoothing > 0, by_group, specs))


@dataclass(frozen=True)
class BatchGradientPlan(Plan, by_key=["objective", "placement"], code=["layers", "nmt"]):
    """The gradient of a batch, added to that of the batches before; one program per batch shape."""

    objective: Objective
    placement: Placement
    first: bool
    """Whether no batches came before."""
    scaled: bool
    """Whether the cost is multiplied by a cost scale."""
    by_group: bool
    """Whether each group of devices keeps its own gradient, so that nothing is exchanged."""
    shapes: tuple[tuple[str, tuple[int, ...], str], ...]

    @property
    def donated(self) -> tuple[int, ...]:
        return (0,)

    def __str__(self) -> str:
        sizes = {name: shape for name, shape, _ in self.shapes}
        streams = sorted(name.removeprefix("ids") for name in sizes if name.startswith("ids"))
        laid_out = [sizes.get(f"places{stream}", sizes[f"ids{stream}"]) for stream in streams]
        lengths = ", ".join(str(length) for _, length in laid_out)
        return f"gradient of {laid_out[0][0]} sentences of {lengths} words"

    def inputs(self) -> tuple[Any, ...]:
        params, scale = specs_of(self.objective.model.params), CostScale(_number(), _number(jnp.int32))
        batch = {name: jax.ShapeDtypeStruct(shape, np.dtype(kind)) for name, shape, kind in self.shapes}
        before = None if self.first else _gradient_specs(params, self.placement, self.by_group)
        draws = jax.ShapeDtypeStruct((4,), np.uint32)
        return before, params, scale if self.scaled else None, batch, draws

    def __call__(self, total: Any, params: Tensors, scale: Any, batch: Arrays, draws: Any) -> Differentiated:
        groups = self.placement.groups
        labels = self.objective.labels(batch) if groups > 1 else {}
        specs = specs_of_group(specs_of(batch), groups) | specs_of(labels)
        differentiated = self.objective.differentiated(specs, self.placement.parts)
        factor = 1.0 if scale is None else scale.factor
        # Gather the parameters before differentiating: otherwise XLA would divide activations like the state.
        whole = self.placement.whole(params)
        found = self.placement.by_groups(differentiated, whole, batch, draws, factor, labels)
        if not self.by_group:
            found = self.placement.whole(self.placement.summed(found))
        pinned = self.placement.pinned_by_group if self.by_group else self.placement.pinned
        return pinned(found if total is None else jax.tree.map(jnp.add, total, found))


@dataclass(frozen=True)
class LearnerUpdatePlan(Plan, by_key=["step", "placement"], code=["nmt", "optax"]):
    """The update of the device state with a gradient."""

    step: UpdateStep
    placement: Placement
    smoothed: bool
    by_group: bool
    """Whether each group of devices has its own gradient."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes of the parameters."""

    @property
    def donated(self) -> tuple[int, ...]:
        return (0,)

    def __str__(self) -> str:
        return f"update of {len(self.shapes)} parameters"

    def inputs(self) -> tuple[Any, ...]:
        params = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in self.shapes}
        state = jax.eval_shape(lambda params: new_state(params, self.step, smoothed=self.smoothed), params)
        numbers = jax.ShapeDtypeStruct((len(Scalars._fields),), np.float32)
        return state, _gradient_specs(params, self.placement, self.by_group), numbers

    def __call__(self, state: DeviceState, total: Differentiated, packed: Any) -> Any:
        whole = self.placement.summed(total) if self.by_group else total
        return self.placement.pinned(self.step(state, self.placement.pinned(whole), packed))


def new_state(params: Tensors, step: UpdateStep, *, smoothed: bool) -> DeviceState:
    """The state before the first update."""
    errors = None
    if step.quantization is not None:
        params = {name: step.quantization.rounded(value) for name, value in params.items()}
        errors = {name: jnp.zeros_like(value) for name, value in params.items()}
    return DeviceState(
        params,
        step.optimizer.init(params),
        _copied(params) if smoothed else None,
        None if step.cost_scaling is None else step.cost_scaling.start(),
        errors,
    )


def _gradient_specs(params: Tensors, placement: Placement, by_group: bool) -> Differentiated:
    """Shapes and types of the gradient of parameters; with ``by_group`` of one for each group of devices."""
    total = Differentiated(params, _number(), _number())
    return placement.specs_by_group(total) if by_group else total


def _number(kind: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), kind)


def _copied(tensors: Mapping[str, Any]) -> Tensors:
    return {name: jnp.array(value, jnp.float32, copy=True) for name, value in tensors.items()}


def _like(tensors: Mapping[str, Any], others: Mapping[str, Any]) -> Tensors:
    """Copies of the tensors, each with the element type of the tensor of the same name in ``others``."""
    return {name: jnp.array(tensors[name], other.dtype) for name, other in others.items()}
