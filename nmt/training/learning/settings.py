"""Builds the parts of a ``Learner`` from Marian's training options."""

from __future__ import annotations

import jax.numpy as jnp

from layers import UnsupportedOptionError, choose
from mgraph import ArgumentError, Type
from nmt.models import Dropouts, Model
from nmt.settings.option import number
from nmt.settings.training import NOTHING, Guidance, Numerics, TrainOptions
from nmt.training.learning.objective import LossOptions, Objective
from nmt.training.learning.optimizers import optimizer_of
from nmt.training.learning.scaling import CostScaling, Normalization
from nmt.training.learning.step import Quantization, UpdateStep
from nmt.training.vocabularies import embedding_tables

PRECISIONS = {"float32": Type.float32, "float16": Type.float16, "bfloat16": Type.bfloat16}


def loss_of(options: TrainOptions) -> LossOptions:
    """The options of the training loss."""
    guided = options.guided_alignment not in NOTHING
    if guided and options.guided_alignment_cost != "ce":
        raise UnsupportedOptionError(
            f"guided-alignment-cost: {options.guided_alignment_cost!r} is not supported, as in Marian;"
            " expected 'ce'"
        )
    words = options.data_weighting and options.data_weighting_type == "word"
    if options.unlikelihood_loss and not words:
        raise ArgumentError("--unlikelihood-loss needs --data-weighting with --data-weighting-type word")
    return LossOptions(
        options.label_smoothing,
        options.unlikelihood_loss,
        options.guided_alignment_weight if guided else None,
        options.multi_loss_type,
    )


def check_settings(options: TrainOptions) -> None:
    """Raise the errors of these options that do not depend on the model."""
    loss_of(options)
    precision_of(options.precision)
    optimizer_of(options)
    normalization_of(options)
    CostScaling.from_options(options.cost_scaling)
    Quantization.from_options(options)


def objective_of(model: Model, options: TrainOptions) -> Objective:
    """The loss of ``model`` with the dropouts, element type and gradient rules of the options."""
    loss = loss_of(options)
    if loss.alignment_weight is not None and not model.attends:
        raise UnsupportedOptionError(f"guided-alignment: a model of type {model.type} has no attention")
    trained = Model(
        model.options, model.params, Dropouts.from_options(options), marian_exact=model.marian_exact
    )
    return Objective(
        trained,
        loss,
        precision_of(options.precision),
        "marian" if options.marian_exact else "rules",
        options.gradient_checkpointing,
        frozen_of(model, options),
        # Batches that fill the memory would be smaller: a row has no room for two of equally long sentences.
        packs_recurrences=not options.mini_batch_fit,
    )


def frozen_of(model: Model, options: Guidance) -> frozenset[str]:
    """The embedding tables that are not trained. A shared table belongs to the target, as in Marian."""
    *sources, target = embedding_tables(model.options)
    fixed = {target} if options.embedding_fix_trg else set()
    if options.embedding_fix_src:
        fixed |= {*sources} - {target}
    return frozenset(fixed)


def precision_of(types: tuple[str, ...]) -> Type:
    """The compute type, the first value of ``precision``."""
    compute, *update = types or ("float32",)
    if update not in ([], ["float32"]):
        raise UnsupportedOptionError(
            f"precision: parameters are updated in 'float32', got {' '.join(map(str, update))!r}"
        )
    return choose("precision", compute, PRECISIONS)


def step_of(options: TrainOptions, objective: Objective) -> UpdateStep:
    """The update step of the options."""
    dynamic = options.dynamic_gradient_scaling
    return UpdateStep(
        optimizer_of(options),
        normalize_gradient=options.normalize_gradient,
        check_gradient=options.check_gradient_nan,
        cost_scaling=CostScaling.from_options(options.cost_scaling),
        dynamic=("log" if dynamic[1:2] == ("log",) else "norm") if dynamic else "",
        largest=float(jnp.finfo(objective.precision.dtype).max),
        frozen=objective.frozen,
        quantization=Quantization.from_options(options),
    )


def normalization_of(options: Numerics) -> Normalization:
    """The gradient normalization of the options."""
    dynamic = options.dynamic_gradient_scaling
    try:
        if len(dynamic) > 3:
            raise ValueError
        deviations = number(dynamic[0]) if dynamic else None
        fadeout = int(dynamic[2]) if len(dynamic) > 2 else 0
        if fadeout < 0:
            raise ValueError
    except ValueError:
        raise ArgumentError(
            "--dynamic-gradient-scaling: expected a number of standard deviations, 'log' or another word, and"
            f" a number of updates, got {' '.join(map(str, dynamic))}"
        ) from None
    return Normalization(
        options.normalize_gradient,
        options.normalize_gradient_by_ratio,
        deviations,
        fadeout,
        options.gradient_norm_average_window,
    )
