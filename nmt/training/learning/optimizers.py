"""The optimizer of the training options: Marian's, or any of optax's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mgraph import Adagrad, Adam, ArgumentError, Optax, Optimizer, Sgd
from mgraph.optimizers.optax_functions import check_arguments, named, optimizers
from nmt.settings.optax_options import OPTAX, assignments
from nmt.settings.option import OptionError
from nmt.settings.training import TrainOptions

OPTIMIZERS: Mapping[str, Callable[..., Optimizer]] = {"sgd": Sgd, "adagrad": Adagrad, "adam": Adam}
"""Marian's, by the value of ``optimizer``."""
MOST_PARAMETERS = {"sgd": 0, "adagrad": 1, "adam": 4}
"""How many of ``optimizer-params`` each takes; Marian ignores the rest."""


def optimizer_of(options: TrainOptions) -> Optimizer:
    """The optimizer of ``optimizer``, its parameters and ``clip-norm``; ``OptionError`` if it cannot be."""
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
        raise OptionError(f"--optimizer-params: {error}") from None


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
        raise OptionError(f"--optimizer: {error}") from None
