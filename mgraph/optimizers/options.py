"""Marian's optimizers, made from the values of Marian's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arrays import text
from ..errors import ArgumentError
from ..names import meant
from .base import Optimizer
from .marian import Adagrad, Adam, Sgd

OPTIMIZERS: Mapping[str, Callable[..., Optimizer]] = {"sgd": Sgd, "adagrad": Adagrad, "adam": Adam}
"""By the value of ``optimizer``."""
MOST_PARAMETERS = {"sgd": 0, "adagrad": 1, "adam": 4}
"""How many of ``optimizer-params`` each optimizer takes; Marian ignores the rest."""
DEFAULTS: Mapping[str, Any] = {
    "optimizer": "adam",
    "learn-rate": 1e-4,
    "optimizer-params": (),
    "clip-norm": 1.0,
}
"""Marian's defaults."""


def optimizer_from_options(options: Mapping[str, Any]) -> Optimizer:
    """The optimizer of Marian's options ``optimizer`` (``sgd``, ``adagrad``, ``adam``), ``learn-rate``,
    ``optimizer-params`` and ``clip-norm``, with Marian's defaults; underscores may stand for hyphens.

    ``ArgumentError`` for other options, which belong to training, and for values that do not fit.
    Source: Marian, ``Optimizer(options)``.
    """
    if not isinstance(options, Mapping):
        raise ArgumentError(f'expected options, {{"optimizer": "adam", ...}}, got {options!r}')
    given = {text("the name of an option", name).replace("_", "-"): v for name, v in options.items()}
    for name in given:
        if name not in DEFAULTS:
            raise ArgumentError(
                f"{name!r} is not an option of an optimizer; these are {', '.join(DEFAULTS)}"
                f"{meant(name, DEFAULTS, repr)}"
            )
    settings = {**DEFAULTS, **given}
    kind = settings["optimizer"]
    if not isinstance(kind, str) or kind not in OPTIMIZERS:
        raise ArgumentError(
            f"expected an optimizer of {', '.join(OPTIMIZERS)}, got {kind!r}; "
            "mgraph.Optax(name, learn_rate) has those of optax"
        )
    params = settings["optimizer-params"]
    try:
        numbers = [float(value) for value in (params if isinstance(params, list | tuple) else [params])]
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"optimizer-params: expected numbers, got {params!r}") from None
    rate, bound = settings["learn-rate"], settings["clip-norm"]
    return OPTIMIZERS[kind](rate, *numbers[: MOST_PARAMETERS[kind]], clip_norm=bound)
