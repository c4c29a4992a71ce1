"""The optimizer of the training options: Marian's, or any of optax's."""

from __future__ import annotations

from copy import copy

from mgraph import Adam, ArgumentError, Optax, Optimizer
from mgraph.errors import first_line
from mgraph.optimizers.optax_functions import check_arguments, named, optimizers
from mgraph.optimizers.options import MOST_PARAMETERS, OPTIMIZERS
from nmt.settings.optax_options import OPTAX, assignments
from nmt.settings.option import OptionError
from nmt.settings.training import TrainOptions


def optimizer_of(options: TrainOptions) -> Optimizer:
    """The optimizer of ``optimizer``, its parameters and ``clip-norm``; ``OptionError`` if one is invalid."""
    name = options.optimizer
    if name.startswith(OPTAX):
        return _optax(name.removeprefix(OPTAX), options)
    if options.optax_params:
        raise OptionError(
            f"--optax-params: expected --optimizer {OPTAX}NAME, got --optimizer {name}, whose parameters are"
            " --optimizer-params; --optax-params [] for none"
        )
    given = options.optimizer_params[: MOST_PARAMETERS[name]]
    try:
        return OPTIMIZERS[name](options.learn_rate, *given, clip_norm=options.clip_norm)
    except ArgumentError as error:
        raise OptionError(f"--optimizer-params: {first_line(error)}") from None


def denominators_of(optimizer: Optimizer) -> tuple[float, float]:
    """``1 - beta^t`` of both moments' bias correction at this optimizer's step 0; zeros unless it is Adam."""
    return optimizer.denominators if isinstance(optimizer, Adam) else (0.0, 0.0)


def with_denominators(optimizer: Optimizer, denominators: tuple[float, float]) -> Optimizer:
    """The optimizer with these denominators at step 0, if it is Adam."""
    if not isinstance(optimizer, Adam) or optimizer.denominators == denominators:
        return optimizer
    other = copy(optimizer)
    other.denominators = denominators
    return other


def _optax(name: str, options: TrainOptions) -> Optimizer:
    if options.optimizer_params:
        raise OptionError(
            f"--optimizer-params: those of {OPTAX}{name} have names, expected --optax-params NAME=VALUE ...; "
            "--optimizer-params [] for none"
        )
    arguments = assignments("optax-params", options.optax_params)
    try:
        check_arguments(options.optimizer, named("optimizer", name, optimizers()), arguments)
        return Optax(name, options.learn_rate, clip_norm=options.clip_norm, **arguments)
    except ArgumentError as error:
        raise OptionError(f"--optimizer: {first_line(error)}") from None
