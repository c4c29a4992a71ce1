"""Learning-rate schedules of optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgraph import ArgumentError
from mgraph.optimizers.optax_functions import check_arguments, named, schedules, shapes_of
from nmt.settings.optax_options import BY_SCHEDULE, OPTAX, assignments
from nmt.settings.option import OptionError, options_of, shown
from nmt.settings.training import TrainOptions

BLOCK = 1024
"""The number of rates computed together, so that few updates wait for the device."""


class OptaxSchedule:
    """The learning rate of ``--lr-schedule`` and ``--lr-schedule-params``.

    Raises OptionError for unknown names, parameters that do not fit, and options that the schedule replaces.
    """

    def __init__(self, options: TrainOptions) -> None:
        self.name = options.lr_schedule
        table = options_of(TrainOptions)
        replaced = [
            f"--{name} {shown(table[name].default)}"
            for name in BY_SCHEDULE
            if getattr(options, table[name].attribute) != table[name].default
        ]
        if replaced:
            raise OptionError(
                f"--lr-schedule: {self.name} gives the learning rate; expected {', '.join(replaced)}; "
                "--lr-schedule '' for none"
            )
        arguments = assignments("lr-schedule-params", options.lr_schedule_params)
        try:
            function = named("schedule", self.name.removeprefix(OPTAX), schedules())
            check_arguments(self.name, function, arguments)
            self._rates = self._vectorized(lambda: function(**arguments))
        except ArgumentError as error:
            raise OptionError(f"--lr-schedule: {error}") from None
        self._block, self._known = -1, np.zeros(0, np.float32)

    def rate(self, updates: int) -> np.float32:
        """The learning rate after this number of updates. OptionError if it is negative or not finite."""
        block, i = divmod(updates, BLOCK)
        if block != self._block:
            counts = jnp.arange(block * BLOCK, (block + 1) * BLOCK, dtype=jnp.int32)
            self._block, self._known = block, np.asarray(self._rates(counts), np.float32)
        rate = self._known[i]
        if not 0 <= rate < np.inf:
            raise OptionError(
                f"--lr-schedule: expected finite rates of at least 0, {self.name} gives {rate} at update "
                f"{updates}"
            )
        return np.float32(rate)

    def _vectorized(self, make: Callable[[], Any]) -> Any:
        """The schedule that ``make`` returns, as a program for a block of update numbers."""

        def rates(counts: Any) -> Any:
            schedule = make()
            return jax.vmap(lambda count: jnp.asarray(schedule(count), jnp.float32).reshape(()))(counts)

        shapes_of(self.name, rates, jax.ShapeDtypeStruct((BLOCK,), np.int32))
        return jax.jit(rates)
