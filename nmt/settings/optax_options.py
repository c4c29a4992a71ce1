"""Options for optimizers and schedules of optax: their names, and values such as ``b1=0.9 nesterov=true``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from nmt.settings import yaml_text
from nmt.settings.option import FALSE, TRUE, OptionError

OPTAX = "optax."
"""How names of optax begin in options."""
BY_OPTIMIZER = ("optimizer-params",)
BY_SCHEDULE = ("learn-rate", "lr-warmup", "lr-warmup-start-rate", "lr-decay-inv-sqrt")
"""The options that an optimizer of optax, and ``--lr-schedule``, replace."""
OF_YOUR_OWN = "or write a loop of your own (docs/training.md)"
OPTIMIZER_IN_PYTHON = (
    f'optimizer="adam", or optimizer="optax.adamw", optax_params={{"b2": 0.98}}, {OF_YOUR_OWN}'
)
SCHEDULE_IN_PYTHON = (
    'lr_schedule="optax.linear_schedule", '
    f'lr_schedule_params={{"init_value": 1e-3, "end_value": 0, "transition_steps": 9000}}, {OF_YOUR_OWN}'
)
"""What to give in Python instead of objects of optax."""
_CONSTANTS = {"none": None, **dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False)}


def assignments(option: str, words: Iterable[str]) -> dict[str, Any]:
    """The values in words ``name=value``, by name; ``OptionError`` for other words.

    A value is a number, true or false, none, a word, or in YAML a list or a map of these, such as
    ``{1000: 0.1}``.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not text.strip() or not name.isidentifier() or name in found:
            twice = " again" if name in found else ""
            raise OptionError(f"--{option}: expected NAME=VALUE, each name once, got '{word}'{twice}")
        try:
            found[name] = _value(yaml_text.read(text))
        except yaml.YAMLError:
            raise OptionError(f"--{option}: expected a value in YAML after {name}=, got '{text}'") from None
    return found


def _value(found: Any) -> Any:
    """The Python value that words of YAML stand for."""
    if isinstance(found, dict):
        return {_value(key): _value(value) for key, value in found.items()}
    if isinstance(found, list):
        return tuple(map(_value, found))
    for kind in (int, float):
        try:
            return kind(found)
        except ValueError:
            pass
    return _CONSTANTS.get(found.lower(), found)
